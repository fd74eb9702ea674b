"""A shard's state in memory: only the log stores it."""

from collections.abc import Sequence
from typing import Any

from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.active import ActiveShard
from duramen.coordinators.runtime.applying import Done
from duramen.coordinators.runtime.batches import CommittedBatch, unapplied
from duramen.storage.log.log import Log

__all__ = ["MemoryState", "NoRows"]


class NoRows(StateRows):
    """The rows of a state in memory: none."""

    def get(self, key: bytes) -> bytes | None:
        raise LookupError(key)

    def get_many(self, keys: Sequence[bytes]) -> Any:
        raise LookupError(keys)

    def scan(self, first: bytes, end: bytes) -> Any:
        raise LookupError(first, end)


class MemoryState:
    """The state of a shard in memory: it starts with the leadership, at the start of the log."""

    available = True

    def __init__(self, active: ActiveShard, log: Log) -> None:
        self._active = active
        self._position = log.start_offset

    def position(self, log: Log) -> int:
        return max(self._position, log.start_offset)

    def apply(self, log: Log, found: list[bytes], next_offset: int, done: Done) -> None:
        error: DuramenError | None = None
        try:
            self._apply(unapplied(found, self.position(log)), next_offset)
        except DuramenError as refused:
            error = refused
        done(error)

    def apply_at_once(self, _: Log, batches: Sequence[CommittedBatch], next_offset: int) -> None:
        self._apply([record for batch in batches for record in batch.records], next_offset)

    def _apply(self, found: Sequence[DecodedRecord], next_offset: int) -> None:
        for record in found:
            self._active.apply(record)
            self._position = record.offset + 1
        self._position = next_offset
