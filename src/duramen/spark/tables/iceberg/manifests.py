"""Data files as an Iceberg table's manifests describe them, with the bounds of their columns.

The library's own description converts values to Python's dates and text, which cannot represent all of them, and treats
a partition value as null if the footer lacks it. Source: the Iceberg table specification, "Manifests" and "Binary
single-value serialization".
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)

from duramen.spark.tables.footers import Bound, Column, columns_of, cut_text
from duramen.spark.tables.times import day_of, day_text

__all__ = ["described", "partition_text"]

_MOST_LETTERS: Final = 16
"""Longer bounds of text and bytes are truncated, as in Iceberg."""


def described(metadata: TableMetadata, io: FileIO, uri: str, values: Mapping[str, str | None]) -> DataFile:
    """A Parquet file; `values` are its partition values, as text. Raises storage errors."""
    source = io.new_input(uri)
    with source.open() as opened:
        footer = pq.read_metadata(opened)
    schema = metadata.schema()
    fields = _fields(schema.as_struct().fields, footer.schema.to_arrow_schema())
    sizes: dict[int, int] = {}
    counts: dict[int, int] = {}
    nulls: dict[int, int] = {}
    low: dict[int, bytes | None] = {}
    high: dict[int, bytes | None] = {}
    for (number, kind), column in zip(fields, columns_of(footer), strict=True):
        sizes[number] = column.size_bytes
        if column.is_repeated:
            continue
        counts[number] = column.values
        if column.nulls is not None:
            nulls[number] = column.nulls
        low[number], high[number] = _bounds(column, kind)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=_partition(metadata, schema, values),
        record_count=footer.num_rows,
        file_size_in_bytes=len(source),
        column_sizes=sizes,
        value_counts=counts,
        null_value_counts=nulls,
        nan_value_counts={},
        lower_bounds={number: bound for number, bound in low.items() if bound is not None},
        upper_bounds={number: bound for number, bound in high.items() if bound is not None},
        key_metadata=None,
        split_offsets=_splits(footer),
        equality_ids=None,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
    )


def partition_text(value: object, kind: IcebergType) -> str | None:
    """A partition value as text; a manifest has days as the number since 1970."""
    if isinstance(kind, DateType) and isinstance(value, int):
        return day_text(value)
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _partition(metadata: TableMetadata, schema: Schema, values: Mapping[str, str | None]) -> Record:
    fields = metadata.spec().fields
    return Record(*(_value(values[field.name], schema.find_type(field.source_id)) for field in fields))


def _value(text: str | None, kind: IcebergType) -> object:
    if text is None or isinstance(kind, StringType):
        return text
    if isinstance(kind, BooleanType):
        return text == "true"
    if isinstance(kind, IntegerType | LongType):
        return int(text)
    if isinstance(kind, DateType):
        return day_of(text)
    raise ValueError(f"files cannot be partitioned by a column of type {kind}")


def _fields(table: Iterable[NestedField], file: Iterable[pa.Field]) -> Iterator[tuple[int, PrimitiveType]]:
    """The table's number and type for each column of a file, in the file's order."""
    by_name = {field.name: field for field in table}
    for field in file:
        if field.name not in by_name:
            raise ValueError(f"the table has no column {field.name}")
        there = by_name[field.name]
        yield from _inside(there.field_id, there.field_type, field.type)


def _inside(number: int, kind: IcebergType, found: pa.DataType) -> Iterator[tuple[int, PrimitiveType]]:
    if isinstance(kind, StructType):
        yield from _fields(kind.fields, found)
    elif isinstance(kind, ListType):
        yield from _inside(kind.element_id, kind.element_type, found.value_type)
    elif isinstance(kind, MapType):
        yield from _inside(kind.key_id, kind.key_type, found.key_type)
        yield from _inside(kind.value_id, kind.value_type, found.item_type)
    elif isinstance(kind, PrimitiveType):
        yield number, kind


def _bounds(column: Column, kind: PrimitiveType) -> tuple[bytes | None, bytes | None]:
    if column.least is None or column.largest is None:
        return None, None
    low, high = _bound(column.least, kind, up=False), _bound(column.largest, kind, up=True)
    return low, high


def _bound(value: Bound, kind: PrimitiveType, *, up: bool) -> bytes | None:
    """A bound of a column in bytes; None if there is no short one."""
    if isinstance(value, bytes):
        if isinstance(kind, StringType):
            return cut_text(value, _MOST_LETTERS, up=up)
        return _cut(value, up=up) if isinstance(kind, BinaryType) else None
    if isinstance(kind, DecimalType):
        bits = (value if value >= 0 else ~value).bit_length()
        return value.to_bytes(bits // 8 + 1, "big", signed=True)
    return to_bytes(kind, value)


def _cut(value: bytes, *, up: bool) -> bytes | None:
    if len(value) <= _MOST_LETTERS or not up:
        return value[:_MOST_LETTERS]
    kept = value[:_MOST_LETTERS].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _splits(footer: pq.FileMetaData) -> list[int]:
    """The starts of row groups."""
    found: list[int] = []
    for index in range(footer.num_row_groups):
        first = footer.row_group(index).column(0)
        pages = [first.data_page_offset, first.dictionary_page_offset if first.has_dictionary_page else None]
        found.append(min(page for page in pages if page is not None))
    return sorted(found)
