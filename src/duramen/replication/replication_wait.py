"""Waits until a record is safe on this replica, or its history is truncated. Pure."""

from enum import Enum
from typing import Final, NamedTuple

from duramen.base.ids import Position
from duramen.replication.history import ReplicaHistory

__all__ = ["ANY_EPOCH", "ReplicationWaitOutcome", "ReplicationWaits", "judge"]

ANY_EPOCH: Final = -1
"""In place of an epoch: a record of any leader counts. Records acknowledged under acks=all use it."""


class ReplicationWaitOutcome(Enum):
    """The outcome of a wait for a record."""

    REACHED = "it is on this disk, and no later leader will lack it"
    CUT = "another leader's records are where it was, or before"
    DELETED = "the log begins after it, and its record is no longer known"
    TIMED_OUT = "neither is known yet"


def judge(history: ReplicaHistory, shown_offset: int, record: Position) -> ReplicationWaitOutcome | None:
    """The outcome for the record with the epoch and offset `record`; None if it is not known yet.

    Only records that may be shown decide. Records above may still be truncated, and may return with another leader.
    """
    if record.offset < shown_offset:
        epoch = history.epoch_at(record.offset)
        if epoch < 0:
            return ReplicationWaitOutcome.DELETED
        if record.leader_epoch not in (ANY_EPOCH, epoch):
            return ReplicationWaitOutcome.CUT
        return ReplicationWaitOutcome.REACHED if record.offset < history.synced_offset else None
    if record.leader_epoch == ANY_EPOCH:
        return None
    # Epochs never decrease: no record of this epoch follows a later one.
    return ReplicationWaitOutcome.CUT if history.epoch_at(shown_offset - 1) > record.leader_epoch else None


class _Wait(NamedTuple):
    record: Position
    waiter: object
    deadline_ms: int


class ReplicationWaits:
    """The waits at one replica."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: list[_Wait] = []

    def add(self, record: Position, waiter: object, deadline_ms: int) -> None:
        """Let `waiter` wait for a record until the deadline."""
        self._waits.append(_Wait(record, waiter, deadline_ms))

    @property
    def anybody(self) -> bool:
        """Whether there are waits."""
        return bool(self._waits)

    @property
    def deadline_ms(self) -> int | None:
        """The next deadline."""
        if not self._waits:
            return None
        return min(wait.deadline_ms for wait in self._waits)

    def settle(
        self, history: ReplicaHistory, shown_offset: int, now_ms: int
    ) -> list[tuple[object, ReplicationWaitOutcome]]:
        """Remove and return the waiters with an outcome or a passed deadline."""
        settled: list[tuple[object, ReplicationWaitOutcome]] = []
        left: list[_Wait] = []
        for wait in self._waits:
            outcome = judge(history, shown_offset, wait.record)
            if outcome is None and wait.deadline_ms <= now_ms:
                outcome = ReplicationWaitOutcome.TIMED_OUT
            if outcome is None:
                left.append(wait)
            else:
                settled.append((wait.waiter, outcome))
        self._waits = left
        return settled
