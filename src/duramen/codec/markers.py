"""Markers: control batches of one record that end a transaction in a partition.

    key     int16 version (0), int16 type: 0 aborts, 1 commits
    value   int16 version (0), int32 coordinator epoch, and of ours behind it:
            int64 commit sequence, int64 first offset of the transaction in this partition

Clients look at the key only, and Kafka's tools at the beginning of the value.
https://kafka.apache.org/documentation/#controlbatch
"""

import struct
from typing import Final, NamedTuple

from duramen.base.ports import Buffer
from duramen.codec.batch import CONTROL, TRANSACTIONAL, BatchInput, encode, records

__all__ = ["ABORT", "COMMIT", "NO_SEQUENCE", "Marker", "decode_marker", "encode_marker"]

COMMIT: Final = 1
ABORT: Final = 0
NO_SEQUENCE: Final = -1
"""For a marker without the commit sequence of its transaction, or of a transaction without a decision."""

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hiqq")


class Marker(NamedTuple):
    """The content of a marker: `first_offset` is -1 if nothing was open, None for a marker of an older version."""

    commit: bool
    sequence: int
    first_offset: int | None


def encode_marker(
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    now_ms: int,
    sequence: int = NO_SEQUENCE,
    first_offset: int | None = None,
) -> bytearray:
    """The marker that ends the producer's transaction in one partition.

    `sequence` is the transaction's commit sequence, `first_offset` where it begins there: None where nothing is open.
    """
    begins = -1 if first_offset is None else first_offset
    record = BatchInput(now_ms, _KEY.pack(0, int(commit)), _VALUE.pack(0, coordinator_epoch, sequence, begins))
    return encode(
        [record],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
    )


def decode_marker(batch: Buffer) -> Marker | None:
    """The content of the control batch; None if it ends no transaction. Raises BatchCorrupt."""
    record = next(records(batch), None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        return None
    kind = _KEY.unpack_from(record.key)[1]
    if kind not in (ABORT, COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        return Marker(kind == COMMIT, NO_SEQUENCE, None)
    _, _, sequence, first_offset = _VALUE.unpack_from(record.value)
    return Marker(kind == COMMIT, sequence, first_offset)
