"""The key scan: the last offset of each key, for a keyed snapshot. Pure.

The twin of the native one.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from duramen.base.ports import Buffer
from duramen.spark.batches.arrow import decode_rows
from duramen.spark.batches.bodies import portions

__all__ = ["KEYS_SCHEMA", "scan_keys"]

KEYS_SCHEMA: Final = pa.schema(
    [pa.field("key", pa.binary()), pa.field("offset", pa.int64()), pa.field("tombstone", pa.bool_())]
)


def scan_keys(buffer: Buffer, first: int, end: int) -> Iterator[pa.RecordBatch]:
    """For each key in `buffer`, which has whole record batches, its last record with an offset in `[first, end)`.

    Rows of key, offset and whether the value is null, by offset. They come in portions; for a repeated key the later
    portion applies. Records without a key are skipped. Raises BatchCorrupt, like `arrow.decode`.
    """
    for bodies in portions(memoryview(buffer), first, end):
        rows = decode_rows(bodies, first, end, ("key", "value"))
        if rows.keys is None or rows.values is None:
            continue
        last = {
            key: (offset, key, tombstone)
            for key, offset, tombstone in zip(
                rows.keys.to_pylist(), rows.offsets.tolist(), rows.values.is_null().to_pylist(), strict=True
            )
            if key is not None
        }
        if last:
            offsets, keys, tombstones = zip(*sorted(last.values()), strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(keys, pa.binary()), pa.array(offsets, pa.int64()), pa.array(tombstones, pa.bool_())],
                schema=KEYS_SCHEMA,
            )
