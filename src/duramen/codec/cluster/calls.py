"""Requests of one connection that wait for their responses, by number. Pure."""

from collections.abc import Callable
from typing import Final

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.cluster.channels import Subject

__all__ = ["Answered", "PendingCalls"]

Answered = Callable[[Buffer | None], None]
"""Called once, with the answer's body, or with None where the connection ended before: it may have been done then."""

_MOST: Final = 10_000
_NUMBERS: Final = (1 << 32) - 1


class PendingCalls:
    """Requests without a response. A number is used again only after all others."""

    __slots__ = ("_largest", "_last", "_waiting")

    def __init__(self, largest: int = _NUMBERS) -> None:
        """Numbers run from 1 to `largest`, and again from 1."""
        self._largest = largest
        self._last = 0
        self._waiting: dict[int, tuple[Subject, Answered]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, subject: Subject, done: Answered) -> int | None:
        """The number of a new request; None where too many wait."""
        if len(self._waiting) >= _MOST:
            return None
        while True:
            self._last = self._last % self._largest + 1
            if self._last not in self._waiting:
                break
        self._waiting[self._last] = (subject, done)
        return self._last

    def end(self, subject: Subject, number: int, body: Buffer) -> None:
        """A response arrived. Raises RequestInvalid if there is no such request."""
        asked = self._waiting.pop(number, None)
        if asked is None or asked[0] is not subject:
            raise RequestInvalid(f"an answer with the number {number} about {subject.name}, which was not requested")
        asked[1](body)

    def drop(self) -> None:
        """The connection is gone: nothing is answered any more."""
        waiting, self._waiting = self._waiting, {}
        for _, done in waiting.values():
            done(None)
