"""Markers: the control batches that end a transaction in a partition, of one record each.

    key     int16 version (0), int16 type: 0 aborts, 1 commits
    value   int16 version (0), int32 coordinator epoch

https://kafka.apache.org/documentation/#controlbatch
"""

import struct
from typing import Final

from duramen.codec.batch import CONTROL, TRANSACTIONAL, NewRecord, encode

__all__ = ["COMMIT", "encode_marker"]

COMMIT: Final = 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


def encode_marker(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int
) -> bytearray:
    """The marker that ends the producer's transaction in one partition."""
    record = NewRecord(now_ms, _KEY.pack(0, int(commit)), _VALUE.pack(0, coordinator_epoch))
    return encode(
        [record],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
    )
