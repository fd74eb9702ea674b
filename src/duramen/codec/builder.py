"""Builds one record batch, record by record, from records that arrived at the same time. Pure.

`codec.batch.encode_record` is the reference. This is faster for many small records: headers are passed encoded, because
most records of a source share them, and small varints come from a table.
"""

from collections.abc import Iterable
from typing import Final

from duramen.codec.batch import seal
from duramen.codec.varint import encode_varint

__all__ = ["RECORD_OVERHEAD_BYTES", "BatchBuilder", "encode_headers"]

RECORD_OVERHEAD_BYTES: Final = 22
"""The most that a record takes beside its key, value and encoded headers: four varints of five bytes, two bytes."""

_TABLE: Final = tuple(map(encode_varint, range(2048)))
_TABLE_SIZE: Final = len(_TABLE)
_NO_KEY: Final = b"\x01"


def encode_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Record headers with their count before them, as they end a record."""
    parts = [b""]
    for name, content in headers:
        parts += (encode_varint(len(name)), name, encode_varint(len(content)), content)
    parts[0] = encode_varint(len(parts) // 4)
    return b"".join(parts)


class BatchBuilder:
    """A batch that grows. `size` is the bytes of its records so far, `count` how many there are."""

    __slots__ = ("_parts", "count", "size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.count = 0
        self.size = 0

    def add(self, key: bytes | None, value: bytes, headers: bytes) -> None:
        """Add a record; `headers` is the result of `encode_headers`."""
        count, value_size = self.count, len(value)
        offset_delta = _TABLE[count] if count < _TABLE_SIZE else encode_varint(count)
        value_length = _TABLE[value_size] if value_size < _TABLE_SIZE else encode_varint(value_size)
        keyed = _NO_KEY if key is None else encode_varint(len(key)) + key
        size = 2 + len(offset_delta) + len(keyed) + len(value_length) + value_size + len(headers)
        length = _TABLE[size] if size < _TABLE_SIZE else encode_varint(size)
        self._parts += (length, b"\0\0", offset_delta, keyed, value_length, value, headers)
        self.count = count + 1
        self.size += size + len(length)

    def seal(self, timestamp_ms: int) -> bytearray:
        """The batch, every record of it with that timestamp. There is at least one record."""
        return seal(b"".join(self._parts), self.count, timestamp_ms, timestamp_ms)
