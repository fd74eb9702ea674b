"""The leader-epoch cache of a log, and the rule for where two histories diverge. Pure.

This is Kafka's leader-epoch cache (KIP-101, KIP-279) with the leader's id beside the epoch. The pair (epoch of the last
record, offset after it) identifies a whole history. The divergence is found from epochs alone: the leader returns the
end of the newest epoch that both logs share (`diverging`), the follower truncates to it (`truncation`), and both repeat
that until nothing diverges. The metadata log and partition logs follow this rule (over Fetch: KIP-595).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from duramen.base.ids import Position

__all__ = ["NO_END", "LeaderEpochCache", "Takeover", "diverging", "truncation"]

NO_END: Final = Position(-1, -1)
"""The end of the epochs of which there is none."""


class Takeover(NamedTuple):
    """From `first_offset` on, batches were ordered by `leader_id` (-1: not known) in `epoch`."""

    epoch: int
    leader_id: int
    first_offset: int


class LeaderEpochCache:
    """Takeovers in order; epochs strictly grow and first offsets never fall."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[int, int, int]] = ()) -> None:
        self._entries = [Takeover(*entry) for entry in entries] if entries else []

    def __iter__(self) -> Iterator[Takeover]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, or -1 before the first."""
        return self._entries[-1].epoch if self._entries else -1

    @property
    def earliest_epoch(self) -> int:
        """The oldest epoch that is known, or -1 where none is."""
        return self._entries[0].epoch if self._entries else -1

    def add(self, takeover: Takeover) -> None:
        """Enter a newer leadership; ValueError where its epoch is not newer."""
        if takeover.epoch <= self.latest_epoch:
            raise ValueError(f"epoch {takeover.epoch} is not newer than {self.latest_epoch}")
        self._entries.append(takeover)

    def epoch_at(self, offset: int) -> int:
        """The epoch of `offset`, or -1 if no leadership starts at or before it. Jobs may call it too."""
        entries = self._entries
        if entries and entries[-1].first_offset <= offset:
            return entries[-1].epoch
        at = bisect_right(entries, offset, key=lambda entry: entry.first_offset)
        return entries[at - 1].epoch if at else -1

    def end_of(self, epoch: int, end_offset: int) -> Position:
        """(Newest epoch not after `epoch`, offset at which it ends) in a log that ends at `end_offset`; or `NO_END`.

        OffsetForLeaderEpoch's answer: a follower or consumer that has read beyond it holds another history.
        """
        at = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if not at:
            return NO_END
        end = self._entries[at].first_offset if at < len(self._entries) else end_offset
        return Position(self._entries[at - 1].epoch, end)

    def cut(self, end_offset: int) -> None:
        """Forget leaderships that begin at or after `end_offset`."""
        # Another list: a job may look at this one.
        self._entries = [entry for entry in self._entries if entry.first_offset < end_offset]

    def start_at(self, offset: int) -> None:
        """Forget the epochs of records below `offset`."""
        entries = self._entries
        at = max(0, bisect_right(entries, offset, key=lambda entry: entry.first_offset) - 1)
        first = [entry._replace(first_offset=max(entry.first_offset, offset)) for entry in entries[at : at + 1]]
        self._entries = first + entries[at + 1 :]

    def name_leaders(self, leader_of: Callable[[int], int]) -> bool:
        """Give entries whose leader's id is lost (-1) the one that `leader_of` knows for their epoch; says if any."""
        before = self._entries
        self._entries = [
            entry if entry.leader_id >= 0 else entry._replace(leader_id=leader_of(entry.epoch)) for entry in before
        ]
        return self._entries != before

    def rows(self) -> list[tuple[int, int, int]]:
        """The cache as plain tuples."""
        return [(entry.epoch, entry.leader_id, entry.first_offset) for entry in self._entries]


def diverging(own: tuple[int, int], end: tuple[int, int]) -> bool:
    """Whether a log and the history that `end` names part before `end`.

    `own` is where the newest epoch of the log that is not after that of `end` ends: there they may part.
    """
    return own[0] < end[0] or own[1] < end[1]


def truncation(own: tuple[int, int], theirs: tuple[int, int]) -> int:
    """The offset to cut a log to that parts from another at `theirs`: up to there the two may be the same.

    `own` is where the newest epoch of the log that is not after that of `theirs` ends. It is the end of the epoch that
    both have, the earlier one; where the log has nothing of it, that of the epoch before.
    """
    return min(own[1], theirs[1]) if own[0] == theirs[0] else own[1]
