"""Batches of plain records, which have a value and nothing else, read without an object for each record.

That is what `codec.batch.encode` makes of values that all have one timestamp: of events, of which a start reads tens of
thousands.
"""

from typing import Final

from duramen.codec.batch import CODEC_MASK, HEADER_BYTES, header
from duramen.codec.varint import read_varint

__all__ = ["plain_values"]

_MAGIC: Final = 2
_NO_KEY: Final = 1  # the length -1


def plain_values(batch: bytes) -> list[bytes] | None:
    """The values of a whole batch whose CRC is right; None where it is not plain or not sound: ask `records` then.

    Raises BatchCorrupt where it is too short for a header.
    """
    found = header(batch)
    if found.magic != _MAGIC or found.size != len(batch) or found.attributes & CODEC_MASK:
        return None
    values: list[bytes] = []
    end = HEADER_BYTES
    try:
        for index in range(found.records):
            length, begin = read_varint(batch, end)
            offset_delta, key = read_varint(batch, begin + 2)
            size, value = read_varint(batch, key + 1)
            end = value + size
            if batch[begin] or batch[begin + 1] or offset_delta != index or batch[key] != _NO_KEY:
                return None
            if size < 0 or batch[end] or end + 1 != begin + length:  # the last byte says that there are no headers
                return None
            values.append(batch[value:end])
            end += 1
    except (ValueError, IndexError):
        return None
    return values if end == len(batch) and found.records == found.last_offset_delta + 1 else None
