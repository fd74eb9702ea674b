"""Many runs in as many processes: their results in order, and their progress on a terminal."""

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TextIO, TypeVar

__all__ = ["first_broken", "outcomes"]

T = TypeVar("T")


class Outcome(Protocol):
    """The result of a run."""

    @property
    def broken(self) -> Any:
        """The broken promise, if there is one."""


R = TypeVar("R", bound=Outcome)

_SHOW_S: Final = 0.2
_THRESHOLDS: Final = (100_000, 50, 50)


@contextmanager
def outcomes(run: Callable[[int], T], seeds: Iterable[int], processes: int, share: int) -> Iterator[Iterator[T]]:
    """The results of `run` for each seed, in their order; a process gets `share` of them at once."""
    if processes == 1:
        yield map(run, seeds)
        return
    with multiprocessing.get_context("forkserver").Pool(processes, _collect_less) as pool:
        yield pool.imap(run, seeds, share)


def _collect_less() -> None:
    """A run holds a lot and leaves few cycles: to look for them as often as Python does takes a fifth of its time."""
    gc.set_threshold(*_THRESHOLDS)


def _shown(found: Iterable[T], out: TextIO, words: Callable[[], str]) -> Iterator[T]:
    """Each of them; on a terminal, `words` show the progress after each, as long as results are taken."""
    shown_s = 0.0
    try:
        for one in found:
            yield one
            now_s = time.monotonic()
            if out.isatty() and now_s - shown_s > _SHOW_S:
                shown_s = now_s
                print(f"\r{words()}", end="", file=out, flush=True)
    finally:
        if out.isatty():
            print("\r", end="", file=out)


def first_broken(
    found: Iterable[R], add: Callable[[R], None], out: TextIO, words: Callable[[], str]
) -> R | None:  # fmt: skip
    """Add up results until one broke a promise, and return that one; on a terminal, `words` show the progress."""
    for outcome in _shown(found, out, words):
        add(outcome)
        if outcome.broken:
            return outcome
    return None
