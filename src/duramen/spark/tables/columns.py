"""The columns of tables: those of records, which every table has, and those of dead letters. Pure."""

from typing import Final

import pyarrow as pa

from duramen.spark.columns import HEADERS_TYPE, TIMESTAMP_TYPE

__all__ = [
    "COMMIT",
    "COMMIT_FIELDS",
    "DATE",
    "DEAD_LETTER_SCHEMA",
    "ERROR",
    "KEY",
    "OFFSET",
    "PARTITION",
    "PRODUCER",
    "RAW_FIELDS",
    "RAW_NAMES",
    "ROW_FIELDS",
    "SEQUENCE",
    "TIMESTAMP",
    "VALUE",
]

KEY: Final = "_key"
VALUE: Final = "_value"
PARTITION: Final = "_stream_partition"
"""Not `_partition`: Iceberg has a metadata column of that name, and Spark refuses tables with another."""
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
TIMESTAMP_KIND: Final = "_timestamp_type"
HEADERS: Final = "_headers"
COMMIT: Final = "_commit_offset"
"""The offset of the commit marker of a record's transaction, at which it counts; null outside transactions."""
SEQUENCE: Final = "_commit_sequence"
"""The same in all partitions of a transaction, -1 if the marker has none; null outside transactions."""
PRODUCER: Final = "_producer_id"
"""The producer id of its transaction; null outside transactions."""
ERROR: Final = "_error"
"""The reason why a record's value could not be decoded; only in tables that decode."""
DATE: Final = "_date"
"""The day of the timestamp in UTC; only in tables that are partitioned by it."""

RAW_FIELDS: Final = (
    pa.field(KEY, pa.binary()),
    pa.field(VALUE, pa.binary()),
    pa.field(PARTITION, pa.int32()),
    pa.field(OFFSET, pa.int64()),
    pa.field(TIMESTAMP, TIMESTAMP_TYPE),
    pa.field(TIMESTAMP_KIND, pa.int32()),
    pa.field(HEADERS, HEADERS_TYPE),
)
"""The record columns of every table, in this order, independent of decoding."""

RAW_NAMES: Final = tuple(field.name for field in RAW_FIELDS)

COMMIT_FIELDS: Final = tuple(pa.field(name, pa.int64()) for name in (COMMIT, SEQUENCE, PRODUCER))
"""The transaction columns of every table; tables of earlier versions get them with their next rows."""

ROW_FIELDS: Final = (*RAW_FIELDS, *COMMIT_FIELDS)
"""Both, in this order."""

DEAD_LETTER_SCHEMA: Final = pa.schema(
    [
        pa.field("_reason", pa.string()),
        pa.field("_topic", pa.string()),
        *RAW_FIELDS,
    ]
)
"""A dead letter is the unchanged record, with the reason and the stream."""
