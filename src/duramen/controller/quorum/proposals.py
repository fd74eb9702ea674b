"""Proposals that wait for their commit, completed in order. Pure."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from duramen.base.errors import DuramenError
from duramen.base.ids import Position
from duramen.raft.epochs import EpochEnd

__all__ = ["ProposalDone", "Proposals"]

ProposalDone = Callable[[Position | DuramenError], None]


class _Waiting(NamedTuple):
    end: EpochEnd
    done: ProposalDone


class Proposals:
    """The proposals of one leadership: a former leader does not know their outcome."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end: EpochEnd, done: ProposalDone) -> None:
        """Add a proposal; its last entry is the one before `end`."""
        self._waiting.append(_Waiting(end, done))

    def committed(self, high_watermark: int) -> None:
        """Entries below are committed."""
        while self._waiting and self._waiting[0].end.offset <= high_watermark:
            end, done = self._waiting.popleft()
            done(Position(end.epoch, end.offset - 1))

    def fail(self, error: DuramenError) -> None:
        """Fail all proposals: their outcome is unknown here."""
        waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done(error)
