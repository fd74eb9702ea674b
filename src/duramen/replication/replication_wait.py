"""Waits until this replica has a record safely, or until its history was cut. Pure."""

from enum import Enum
from typing import Final, NamedTuple

from duramen.base.ids import Position
from duramen.replication.history import ReplicaHistory

__all__ = ["ANY_EPOCH", "Reaching", "ReplicationWaitOutcome", "judge"]

ANY_EPOCH: Final = -1
"""In the place of an epoch: whoever ordered the record, it counts. So it is for what was acknowledged as acks=all."""


class ReplicationWaitOutcome(Enum):
    """What became of a wait for a record."""

    REACHED = "it is on this disk, and no later leader will lack it"
    CUT = "another leader's records are where it was, or before"
    DELETED = "the log begins behind it, and nobody knows any more whose record was there"
    TIMED_OUT = "neither is known yet"


def judge(history: ReplicaHistory, shown_offset: int, record: Position) -> ReplicationWaitOutcome | None:
    """What became of the record that `record` names, its epoch and its offset; None: that is not known yet.

    Only what may be shown decides: anything above may still be cut, and the record come back with another leader.
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
    # Epochs never fall: behind a later one there is no record of this one.
    return ReplicationWaitOutcome.CUT if history.epoch_at(shown_offset - 1) > record.leader_epoch else None


class _Wait(NamedTuple):
    record: Position
    waiter: object
    deadline_ms: int


class Reaching:
    """The waits at one replica."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: list[_Wait] = []

    def add(self, record: Position, waiter: object, deadline_ms: int) -> None:
        """`waiter` waits for a record until then."""
        self._waits.append(_Wait(record, waiter, deadline_ms))

    @property
    def anybody(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waits)

    @property
    def deadline_ms(self) -> int | None:
        """When the first has waited for long enough."""
        if not self._waits:
            return None
        return min(wait.deadline_ms for wait in self._waits)

    def settle(
        self, history: ReplicaHistory, shown_offset: int, now_ms: int
    ) -> list[tuple[object, ReplicationWaitOutcome]]:
        """Let go of those that know what became of it, or have waited for long enough."""
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
