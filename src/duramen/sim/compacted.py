"""A log that is compacted by key: a record may be missing where a newer one of the same key was stored."""

from duramen.codec.batch import records
from duramen.sim.history import IDENTITY_START, History, Sent

__all__ = ["CompactedHistory"]


class CompactedHistory(History):
    """No two records that are sent to it have the same value: each is known by it in whatever batch it is read."""

    def __init__(self, name: str, partition: int, boot: int) -> None:
        super().__init__(name, partition, boot)
        self._by_value: dict[bytes, tuple[Sent, int, bytes]] = {}
        self._by_key: dict[bytes, list[tuple[Sent, int]]] = {}

    def send(self, sent: Sent, boot: int) -> None:
        if not sent.sendings:
            for index, record in enumerate(records(sent.data)):
                key, value = record.key or b"", record.value or b""
                self._by_value[value] = sent, index, key
                self._by_key.setdefault(key, []).append((sent, index))
        super().send(sent, boot)

    def _check_gap(self, first: int, end: int, *, begins: bool) -> None:
        del begins  # whole batches may be missing anywhere
        self._check_missing(first, end, set())

    def _see_batch(self, batch: bytes, base_offset: int, next_offset: int, epoch: int) -> None:
        if batch[IDENTITY_START:] in self._by_body:
            super()._see_batch(batch, base_offset, next_offset, epoch)
            return
        there: set[int] = set()
        for record in records(batch):
            sent, index, key = self._by_value.get(record.value or b"", (None, 0, b""))
            if sent is None or key != record.key:
                raise self._broken(f"the record at offset {record.offset} was never sent to it")
            self._see(sent, record.offset - index, epoch)
            there.add(record.offset)
        self._check_missing(base_offset, next_offset, there)

    def _check_missing(self, first: int, end: int, there: set[int]) -> None:
        for base_offset, sent in self._at.items():
            if base_offset >= end or sent.next_offset <= first:
                continue
            for offset, record in enumerate(records(sent.data), base_offset):
                if first <= offset < end and offset not in there and not self._superseded(record.key or b"", offset):
                    raise self._broken(f"the record at offset {offset} is missing, and no newer one has its key")

    def _superseded(self, key: bytes, offset: int) -> bool:
        return any(
            sent.fate == "open" if sent.base_offset is None else sent.base_offset + index > offset
            for sent, index in self._by_key[key]
        )
