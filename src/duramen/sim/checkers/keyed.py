"""The log of a keyed stream: the required content of its snapshots and of the changes between them.

For each key, a snapshot at S has the record with the highest offset among those that count below S; a record of a
transaction counts at the commit marker. A tombstone whose time is over may be missing.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from duramen.codec.batch import DecodedRecord
from duramen.sim.checkers.compacted import CompactedHistory
from duramen.sim.checkers.counted import UNSURE, CountedOffsets
from duramen.sim.checkers.history import End, HistoryFacts, SentRecords

__all__ = ["KeyedHistory", "ShownRecord"]


class ShownRecord(NamedTuple):
    """A key as a reader saw it."""

    offset: int
    tombstone: bool


class KeyedHistory(CompactedHistory):
    """`keyed` says whether its stream is; None: that is being changed."""

    def __init__(self, name: str, partition: int, boot: int) -> None:
        super().__init__(name, partition, boot)
        self.keyed: bool | None = False
        self.counted = CountedOffsets()
        self.lives = 0  # how often the stream was made keyed or not
        self.snapshot_retention_ms = 0
        self._kept_ms = 1 << 40  # the shortest time for which tombstones were ever kept

    def started(self, boot: int, end: End, facts: HistoryFacts) -> None:
        super().started(boot, end, facts)
        self.counted.cut(facts.high_watermark)

    def stored_in_transactions(self) -> Iterator[SentRecords]:
        """The batches of transactions that are in it."""
        return (sent for sent in self._at.values() if sent.transaction is not None)

    def make_keyed(self, keyed: bool, snapshot_retention_ms: int) -> None:
        """The stream is created with this config."""
        self.keyed, self.snapshot_retention_ms = keyed, snapshot_retention_ms

    def keep_tombstones(self, kept_ms: int, now_ms: Callable[[], int]) -> None:
        """`delete.retention.ms` is this, or is to be."""
        self._kept_ms = min(self._kept_ms, kept_ms)
        self.tombstones_expire(lambda sent_ms: sent_ms + self._kept_ms <= now_ms())

    def changes_keyed(self) -> None:
        """The stream is made keyed, or is not any more; no snapshot of before is sure to be there."""
        self.keyed = None
        self.lives += 1

    @property
    def acknowledged_offset(self) -> int:
        """The offset behind everything that was acknowledged."""
        return max((sent.next_offset for sent in self._at.values() if sent.fate == "acknowledged"), default=0)

    def check_age(self, opened_ms: int, lives: int, now_ms: int) -> None:
        """A snapshot that was the newest at `opened_ms`, or later, is refused as too old. Raises BrokenPromise."""
        if lives == self.lives and not self.damaged and now_ms - opened_ms < self.snapshot_retention_ms:
            raise self._broken(
                f"a snapshot is too old after {now_ms - opened_ms} ms, and can be read for {self.snapshot_retention_ms}"
            )

    def check_snapshot(self, at: int, shown: Mapping[bytes, ShownRecord], *, changes: bool) -> None:
        """A reader's records of the snapshot at `at`, or of the changes up to it. Raises BrokenPromise."""
        if self.damaged or self.spoiled:
            return
        for key, one in shown.items():
            newest = self._newest(key, at)
            if self._unsure(key):
                continue
            if newest is None or newest[0] != one.offset:
                known = "none" if newest is None else newest[0]
                raise self._broken(
                    f"the snapshot at {at} shows offset {one.offset}, and the newest of its key is {known}"
                )
        for key in () if changes else self._by_key:
            newest = self._newest(key, at)
            if newest is None or key in shown or self._unsure(key) or self._may_be_deleted(key, newest[1]):
                continue
            raise self._broken(f"the snapshot at {at} lacks offset {newest[0]}, the newest of its key")

    def check_state(self, at: int, state: Mapping[bytes, int]) -> None:
        """Snapshots, and changes applied to them, have led to this: offsets of keys that are there, as of `at`."""
        if self.damaged or self.spoiled:
            return
        for key in self._by_key:
            if self._unsure(key):
                continue
            newest, found = self._newest(key, at), state.get(key)
            there = newest is not None and newest[1].value is not None
            if found is None and (newest is None or not there or self._may_be_deleted(key, newest[1])):
                continue
            if newest is None or not there or newest[0] != found:
                known = "nothing" if newest is None else f"offset {newest[0]}" if there else f"deleted at {newest[0]}"
                raise self._broken(f"as of {at} a reader has offset {found} of a key, which is {known}")

    def _newest(self, key: bytes, at: int) -> tuple[int, DecodedRecord] | None:
        """Offset and record of the newest of a key that is known to count below `at`."""
        found: tuple[int, DecodedRecord] | None = None
        for known in self._by_key.get(key, ()):
            if known.sent.base_offset is None:
                continue
            offset, counts = known.sent.base_offset + known.at, self.counted.of(known.sent)
            if (offset if counts is None else counts) < at and (found is None or found[0] < offset):
                found = offset, known.record
        return found

    def _unsure(self, key: bytes) -> bool:
        """Whether the offset at which a record of the key counts is unknown."""
        return any(self.counted.of(known.sent) == UNSURE for known in self._by_key.get(key, ()))

    def _may_be_deleted(self, key: bytes, newest: DecodedRecord) -> bool:
        """Whether a tombstone, the newest itself or an unseen one, may be gone and have removed it."""
        if newest.value is None and self._expired(newest.timestamp):
            return True
        return any(
            known.record.value is None and known.sent.fate == "open" and self._expired(known.record.timestamp)
            for known in self._by_key[key]
            if known.sent.base_offset is None
        )
