"""A log compacted by key: a record may be missing if a newer one of the same key was stored.

A tombstone may be missing too once its time is over. After a crash the files before a compaction may be the log's
again: then a deleted record may be back if its tombstone is too.
"""

from collections.abc import Callable
from typing import NamedTuple

from duramen.codec.batch import DecodedRecord, Header, records
from duramen.sim.checkers.batches import NAME
from duramen.sim.checkers.history import IDENTITY_START, End, HistoryFacts, LogHistory, SentRecords

__all__ = ["CompactedHistory"]


class _Known(NamedTuple):
    sent: SentRecords
    at: int  # which record of its batch
    record: DecodedRecord


class CompactedHistory(LogHistory):
    """No two records sent to it have the same name: each is identified by it in whatever batch it is read."""

    def __init__(self, name: str, partition: int, boot: int) -> None:
        super().__init__(name, partition, boot)
        self._by_name: dict[bytes, _Known] = {}
        self._by_key: dict[bytes, list[_Known]] = {}
        self._expired: Callable[[int], bool] = lambda _: False
        self._expiries: dict[bytes, int] = {}  # the newest tombstone of a key that was missing because it had expired
        self._deleted: dict[bytes, int] = {}  # the same, of records that were missing before this process began
        self._missed: set[bytes] = set()  # keys whose tombstone was missing since

    def tombstones_expire(self, expired: Callable[[int], bool]) -> None:
        """`expired` says of a tombstone's timestamp, in ms, whether it may be gone by now."""
        self._expired = expired

    def send(self, sent: SentRecords, boot: int) -> None:
        if not sent.sendings:
            for index, record in enumerate(records(sent.data)):
                known = _Known(sent, index, record)
                self._by_name[_name(record)] = known
                self._by_key.setdefault(record.key or b"", []).append(known)
        super().send(sent, boot)

    def started(self, boot: int, end: End, facts: HistoryFacts) -> None:
        super().started(boot, end, facts)
        self._expiries = {key: at for key, at in self._expiries.items() if at < facts.high_watermark}
        self._deleted = dict(self._expiries)
        self._missed.clear()

    def _check_gap(self, first: int, end: int, *, begins: bool) -> None:
        del begins  # whole batches may be missing anywhere
        self._check_missing(first, end, set())

    def _see_batch(self, batch: bytes, base_offset: int, next_offset: int, epoch: int) -> None:
        for record in records(batch):
            key = record.key or b""
            if record.value is not None and record.offset < self._deleted.get(key, -1) and key in self._missed:
                raise self._broken(f"the record at offset {record.offset} was deleted, and is there again")
        if batch[IDENTITY_START:] in self._by_body:
            super()._see_batch(batch, base_offset, next_offset, epoch)
            return
        there: set[int] = set()
        for record in records(batch):
            known = self._by_name.get(_name(record))
            if known is None or known.record._replace(offset=record.offset) != record:
                raise self._broken(f"the record at offset {record.offset} was never sent to it")
            self._see(known.sent, record.offset - known.at, epoch)
            there.add(record.offset)
        self._check_missing(base_offset, next_offset, there)

    def _see_marker(self, head: Header, batch: bytes) -> None:
        if next(records(batch), None) is not None:
            super()._see_marker(head, batch)
        elif head.base_offset in self._at:  # compaction has left nothing of a marker but its offset
            raise self._broken(f"a batch was at offset {head.base_offset}, where an emptied marker is now")

    def _check_missing(self, first: int, end: int, there: set[int]) -> None:
        for base_offset, sent in self._at.items():
            if base_offset >= end or sent.next_offset <= first:
                continue
            if sent.transaction is not None and sent.transaction.fate != "committed":
                continue  # it may be aborted, and gone with that
            for offset, record in enumerate(records(sent.data), base_offset):
                if first <= offset < end and offset not in there:
                    self._missing(offset, record)

    def _missing(self, offset: int, record: DecodedRecord) -> None:
        key = record.key or b""
        if self._superseded(key, offset):
            return
        if record.value is not None or not self._expired(record.timestamp):
            raise self._broken(f"the record at offset {offset} is missing, and no newer one has its key")
        self._expiries[key] = max(self._expiries.get(key, -1), offset)
        if offset == self._deleted.get(key):
            self._missed.add(key)

    def _superseded(self, key: bytes, offset: int) -> bool:
        return any(
            sent.fate == "open" if sent.base_offset is None else sent.base_offset + at > offset
            for sent, at, _ in self._by_key[key]
            if sent.transaction is None or sent.transaction.fate != "aborted"
        )


def _name(record: DecodedRecord) -> bytes:
    return next((value or b"" for name, value in record.headers if name == NAME), b"")
