"""The result of decoding a batch of values."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

__all__ = ["MAGIC", "PREFIX_BYTES", "Decoded", "Decoder", "joined", "placed"]

MAGIC = 0
"""The first byte of a value from a schema registry's serialiser; the schema's id follows in 4 bytes."""

PREFIX_BYTES = 5


class Decoded(NamedTuple):
    """As many rows as values; `errors` is text, null if a value was decoded or was null."""

    columns: pa.RecordBatch
    errors: pa.Array


class Decoder(Protocol):
    """Decodes one batch after the other; `fields` are the columns so far, and new ones are added after them."""

    @property
    def fields(self) -> Sequence[pa.Field]: ...

    def decode(self, values: pa.Array) -> Decoded:
        """Decode binary values."""
        ...


def placed(columns: pa.RecordBatch, rows: Sequence[int], count: int) -> pa.RecordBatch:
    """`count` rows, null except for the row numbers `rows`, which get those of `columns`, in the same order."""
    if len(rows) == count and rows == sorted(rows):
        return columns
    where: list[int | None] = [None] * count
    for index, row in enumerate(rows):
        where[row] = index
    indices = pa.array(where, pa.int32())
    return pa.RecordBatch.from_arrays([column.take(indices) for column in columns.columns], schema=columns.schema)


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Batches of one schema joined."""
    if len(batches) == 1:
        return batches[0]
    if not schema.names:
        return pa.record_batch({"": pa.nulls(sum(batch.num_rows for batch in batches))}).select([])
    arrays = [
        pa.concat_arrays([batch.column(name) for batch in batches]) if batches else pa.nulls(0, schema.field(name).type)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
