"""Problems of a pipeline, with their places in its file. Pure."""

import difflib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["BEGINNING", "PipelineProblem", "Problems", "SourcePlace", "meant"]


class SourcePlace(NamedTuple):
    """A line and a column of a file, both counted from 1."""

    line: int
    column: int


BEGINNING = SourcePlace(1, 1)


class PipelineProblem(NamedTuple):
    """One problem. With a warning the pipeline can run all the same."""

    place: SourcePlace
    message: str
    warning: bool = False

    def said(self, file: str) -> str:
        """One line: the place, and the message."""
        kind = "warning: " if self.warning else ""
        return f"{file}:{self.place.line}:{self.place.column}: {kind}{self.message}"


class Problems:
    """The problems found so far, without duplicates."""

    def __init__(self) -> None:
        self._found: dict[PipelineProblem, None] = {}

    def add(self, place: SourcePlace, message: str) -> None:
        """Add an error: the pipeline cannot run."""
        self._found[PipelineProblem(place, message)] = None

    def warn(self, place: SourcePlace, message: str) -> None:
        """Add a warning."""
        self._found[PipelineProblem(place, message, warning=True)] = None

    def __iter__(self) -> Iterator[PipelineProblem]:
        return iter(sorted(self._found))

    def errors(self) -> int:
        """The number of errors."""
        return sum(not problem.warning for problem in self._found)


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest valid one, or all of them."""
    right = list(known)
    near = difflib.get_close_matches(name.lower(), [one.lower() for one in right], n=1, cutoff=0.6)
    if near:
        return f"; did you mean {next(one for one in right if one.lower() == near[0])}?"
    return f"; there are {', '.join(right)}" if right else "; there are none"
