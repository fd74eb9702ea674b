"""Arrow to record batches: the twin of the native encoder, one record after another. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from duramen.base.errors import BatchInvalid
from duramen.codec.batch import HEADER_BYTES, Headers, encode_record, seal
from duramen.codec.compression import CODECS
from duramen.spark.columns import HEADERS_TYPE, TIMESTAMP_TYPE

__all__ = ["canonical", "encode"]

_TYPES: Final = {"key": pa.binary(), "value": pa.binary(), "timestamp": TIMESTAMP_TYPE, "headers": HEADERS_TYPE}
_LARGEST_MS: Final = ((1 << 63) - 1) // 1000


def canonical(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of `rows` that records have, with the types that both encoders accept.

    Raises BatchInvalid if a column cannot be converted, or there is no `value`.
    """
    names = [name for name in _TYPES if name in rows.schema.names]
    columns = []
    for name in names:
        column = rows.column(name)
        try:
            columns.append(column if column.type == _TYPES[name] else column.cast(_TYPES[name]))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BatchInvalid(f"the column {name} is of the type {column.type}, not {_TYPES[name]}: {error}") from None
    if "value" not in names:
        raise BatchInvalid("there is no column value")
    return pa.RecordBatch.from_arrays(columns, names=names)


def encode(rows: pa.RecordBatch, batch_bytes: int, codec: int, now_ms: int) -> list[tuple[bytes, int]]:
    """`rows`, which are `canonical`, as record batches with their counts of records.

    A batch has at most `batch_bytes` before compression; a larger record has a batch of its own. A row without
    timestamp gets `now_ms`. The sender sets base offset, producer and leader epoch. Raises BatchInvalid.
    """
    if not 0 <= codec < len(CODECS):
        raise BatchInvalid(f"no codec has the number {codec}")
    if abs(now_ms) > _LARGEST_MS:
        raise BatchInvalid(f"{now_ms} ms is no time that a timestamp can be")
    batches, batch = [], _Batch()
    for key, value, timestamp, headers in _rows(rows, now_ms):
        record = batch.record(timestamp, key, value, headers)
        if batch.count and HEADER_BYTES + batch.size + len(record) > batch_bytes:
            batches.append(batch.seal(codec))
            batch = _Batch()
            record = batch.record(timestamp, key, value, headers)
        batch.add(record, timestamp)
    if batch.count:
        batches.append(batch.seal(codec))
    return batches


class _Batch:
    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._base_timestamp = self._max_timestamp = 0
        self.count = self.size = 0

    def record(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
        """The encoded record, as the next one of this batch."""
        delta = timestamp - self._base_timestamp if self.count else 0
        return encode_record(delta, self.count, key, value, headers)

    def add(self, record: bytes, timestamp: int) -> None:
        """Add a result of `record`."""
        if not self.count:
            self._base_timestamp = self._max_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._records.append(record)
        self.count += 1
        self.size += len(record)

    def seal(self, codec: int) -> tuple[bytes, int]:
        """The batch and its count."""
        encoded = b"".join(self._records)
        return bytes(seal(encoded, self.count, self._base_timestamp, self._max_timestamp, codec=codec)), self.count


def _rows(rows: pa.RecordBatch, now_ms: int) -> Iterator[tuple[bytes | None, bytes | None, int, Headers]]:
    def column(name: str) -> Sequence[Any]:
        if name not in rows.schema.names:
            return [None] * rows.num_rows
        values = rows.column(name)
        return (values.cast(pa.int64()) if name == "timestamp" else values).to_pylist()

    for key, value, microseconds, headers in zip(
        column("key"), column("value"), column("timestamp"), column("headers"), strict=True
    ):
        timestamp = now_ms if microseconds is None else microseconds // 1000
        yield key, value, timestamp, _headers(headers) if headers else ()


def _headers(headers: Sequence[dict[str, Any] | None]) -> Headers:
    found = []
    for header in headers:
        if header is None or header["key"] is None:
            raise BatchInvalid("a header has no key")
        found.append((header["key"].encode(), header["value"]))
    return found
