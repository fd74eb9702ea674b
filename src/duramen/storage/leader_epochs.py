"""The takeover table of a log: (epoch, leader id, first offset) of every leadership. Pure.

Kafka's leader epoch cache (KIP-101, KIP-279) with the leader's id beside it: it tells who ordered what, and
finds where two histories part.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

__all__ = ["Takeover", "TakeoverTable"]


class Takeover(NamedTuple):
    """From `first_offset` on, batches were ordered by `leader_id` in `epoch`."""

    epoch: int
    leader_id: int
    first_offset: int


class TakeoverTable:
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

    def add(self, takeover: Takeover) -> None:
        """Enter a newer leadership; ValueError where its epoch is not newer."""
        if takeover.epoch <= self.latest_epoch:
            raise ValueError(f"epoch {takeover.epoch} is not newer than {self.latest_epoch}")
        self._entries.append(takeover)

    def epoch_at(self, offset: int) -> int:
        """The epoch that ordered `offset`, or -1 where no takeover lies at or before it. Jobs may ask too."""
        entries = self._entries
        if entries and entries[-1].first_offset <= offset:
            return entries[-1].epoch
        at = bisect_right(entries, offset, key=lambda entry: entry.first_offset)
        return entries[at - 1].epoch if at else -1

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """(Newest epoch not after `epoch`, offset at which it ends); (-1, -1) where there is none.

        OffsetForLeaderEpoch's answer: a follower or consumer that has read beyond it holds another history.
        """
        at = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if not at:
            return -1, -1
        end = self._entries[at].first_offset if at < len(self._entries) else end_offset
        return self._entries[at - 1].epoch, end

    def cut(self, end_offset: int) -> None:
        """Forget leaderships that begin at or after `end_offset`."""
        # Another list: a job may look at this one.
        self._entries = [entry for entry in self._entries if entry.first_offset < end_offset]

    def name_leaders(self, leader_of: Callable[[int], int]) -> bool:
        """Give entries whose leader's id is lost (-1) the one that `leader_of` knows for their epoch; says if any."""
        before = self._entries
        self._entries = [
            entry if entry.leader_id >= 0 else entry._replace(leader_id=leader_of(entry.epoch)) for entry in before
        ]
        return self._entries != before

    def rows(self) -> list[tuple[int, int, int]]:
        """The table as plain tuples."""
        return [(entry.epoch, entry.leader_id, entry.first_offset) for entry in self._entries]
