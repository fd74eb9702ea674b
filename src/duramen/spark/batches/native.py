"""The native package, with the same signatures as its twins (`arrow`, `encoding`, `keyscan`).

It runs without the GIL. It reads a read-only buffer in place, which must not change meanwhile. It copies a writable
buffer first.
"""

from collections.abc import Collection, Iterator

import pyarrow as pa

from duramen.base.errors import BatchCorrupt, BatchInvalid
from duramen.base.native import is_installed
from duramen.base.ports import Buffer
from duramen.spark.columns import check_columns

__all__ = ["decode", "encode", "is_installed", "scan_keys"]


def decode(buffer: Buffer, first: int, end: int, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    """See `arrow.decode`."""
    check_columns(columns)
    import duramen_native

    names, position = list(columns), 0
    while position < len(buffer):
        try:
            position, rows = duramen_native.decode(buffer, position, first, end, names)
        except ValueError as error:
            raise BatchCorrupt(str(error)) from None
        if len(rows):
            yield pa.record_batch(rows)


def encode(rows: pa.RecordBatch, batch_bytes: int, codec: int, now_ms: int) -> list[tuple[memoryview, int]]:
    """See `encoding.encode`; the batches are adjacent in memory that is freed with the last of them."""
    import duramen_native

    try:
        exported, batches = duramen_native.encode(rows, batch_bytes, codec, now_ms)
    except ValueError as error:
        raise BatchInvalid(str(error)) from None
    content = pa.array(exported).buffers()[1]
    if content is None:  # no rows, no bytes
        return []
    whole, starts = memoryview(content).cast("B"), [0, *(end for end, _ in batches)]
    return [(whole[start:end], count) for start, (end, count) in zip(starts, batches, strict=False)]


def scan_keys(buffer: Buffer, first: int, end: int) -> Iterator[pa.RecordBatch]:
    """See `keyscan.scan_keys`."""
    import duramen_native

    position = 0
    while position < len(buffer):
        try:
            position, rows = duramen_native.scan_keys(buffer, position, first, end)
        except ValueError as error:
            raise BatchCorrupt(str(error)) from None
        if len(rows):
            yield pa.record_batch(rows)
