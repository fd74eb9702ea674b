"""Planting a bug in the real storage or broker: the simulator has to find each of those in tests/sim/bugs.

A bug is a few wrong lines in the place of a function or a method. What it takes the place of has to be there still
with the same parameters: where it has changed, planting fails, and whoever changed it says what the bug is now.
A run that fails because the wrong lines use names that are gone has not found the bug: see `broken_by`.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

__all__ = ["Behind", "Bug", "Original", "Place", "as_port", "broken_by", "planted"]

_GONE: Final = re.compile(r"'(?!NoneType')[\w.]+'( object)? has no attribute|name '\w+' is not defined")

Original = Callable[..., Any]
"""The right function."""


class Place(NamedTuple):
    """Where a bug is planted: the attribute `name` of a class or a module, and what makes the wrong one of it."""

    owner: Any
    name: str
    wrong: Callable[[Original], Original]


class Bug(NamedTuple):
    """`words` are those of issue 5, and ours for transactions; `planted` says what is done, where they do not."""

    name: str
    words: str
    places: tuple[Place, ...]
    planted: str = ""


def _replace(place: Place) -> Callable[[], None]:
    """Plant one wrong function; returns what puts the right one back. Raises ValueError where it is another now."""
    found = inspect.getattr_static(place.owner, place.name, None)
    right = found.fget if isinstance(found, property) else found
    where = f"{place.owner.__name__}.{place.name}"
    if not inspect.isfunction(right):
        raise ValueError(f"{where} is no function any more: plant the bug where its work is done now")
    wrong = place.wrong(right)
    known, planned = (list(inspect.signature(function).parameters) for function in (right, wrong))
    if known != planned:
        raise ValueError(f"{where} has the parameters {known}, and the bug was made for {planned}")
    # The simulator knows by its name what a job is about.
    wrong.__module__, wrong.__qualname__ = right.__module__, right.__qualname__
    setattr(place.owner, place.name, property(wrong) if isinstance(found, property) else wrong)
    return lambda: setattr(place.owner, place.name, found)


@contextmanager
def planted(bug: Bug | None) -> Iterator[None]:
    """Run with a bug planted; with none, as it is."""
    with ExitStack() as undo:
        for place in bug.places if bug is not None else ():
            undo.callback(_replace(place))
        yield


def broken_by(bug: str, broken: str) -> str:
    """The promise that a run with a bug breaks, if any. Raises ValueError where the bug's own lines fail."""
    if _GONE.search(broken):
        raise ValueError(f"the lines of {bug} use what is gone: {broken}")
    return broken


class Behind:
    """A port that does everything as the one behind it; made for one call that is to be left out."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


def as_port(behind: Any) -> Any:
    """It, where a port of another type is declared."""
    return behind
