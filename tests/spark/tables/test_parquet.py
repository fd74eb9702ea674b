"""Data files: dictionaries where values come again, and none where they do not."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duramen.spark.tables.parquet import ParquetFile
from duramen.spark.tables.port import Storage
from duramen.spark.tables.storage import TableLocation

SCHEMA = pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("topic", pa.string()), ("ok", pa.bool_())])


def rows(first: int, end: int) -> pa.RecordBatch:
    places, count = range(first, end), end - first
    columns: list[list[Any]] = [list(places), [b"%d" % place for place in places], ["flights"] * count, [True] * count]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


@pytest.mark.parametrize(("first", "with_dictionary"), [(3000, {"topic"}), (10, {"offset", "key", "topic"})])
def test_what_is_never_the_same_has_no_dictionary(tmp_path: Path, first: int, with_dictionary: set[str]) -> None:
    place = TableLocation(Storage(str(tmp_path)))
    file = ParquetFile(place, "one.parquet", SCHEMA)
    file.add(rows(0, first))
    file.add(rows(first, 5000))
    written = file.close()
    footer = pq.ParquetFile(str(tmp_path / written.path)).metadata.row_group(0)
    columns = [footer.column(index) for index in range(footer.num_columns)]
    assert {column.path_in_schema for column in columns if column.has_dictionary_page} == with_dictionary
    assert pq.read_table(str(tmp_path / written.path)).to_pylist() == rows(0, 5000).to_pylist()


def test_a_column_that_is_named_has_none(tmp_path: Path) -> None:
    place = TableLocation(Storage(str(tmp_path)))
    file = ParquetFile(place, "one.parquet", SCHEMA, plain=["topic"])
    file.add(rows(0, 3000))
    footer = pq.ParquetFile(str(tmp_path / file.close().path)).metadata.row_group(0)
    assert not any(footer.column(index).has_dictionary_page for index in range(footer.num_columns))


def test_what_does_not_become_smaller_is_not_compressed(tmp_path: Path) -> None:
    chosen = random.Random(3)
    schema = pa.schema([("value", pa.binary()), ("text", pa.binary()), ("tags", pa.list_(pa.binary()))])
    values: list[list[Any]] = [
        [chosen.randbytes(100) for _ in range(2000)],
        [b"the same with a number %d" % number for number in range(2000)],
        [[chosen.randbytes(100)] for _ in range(2000)],
    ]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)], schema=schema
    )
    file = ParquetFile(TableLocation(Storage(str(tmp_path))), "one.parquet", schema)
    file.add(rows)
    path = str(tmp_path / file.close().path)
    footer = pq.ParquetFile(path).metadata.row_group(0)
    columns = [footer.column(index) for index in range(footer.num_columns)]
    assert [column.compression for column in columns] == ["UNCOMPRESSED", "ZSTD", "UNCOMPRESSED"]
    assert pq.read_table(path).to_pylist() == rows.to_pylist()


def test_a_file_without_rows_is_a_file(tmp_path: Path) -> None:
    written = ParquetFile(TableLocation(Storage(str(tmp_path))), "one.parquet", SCHEMA).close()
    assert pq.read_table(str(tmp_path / written.path)).num_rows == 0


def test_a_file_that_is_let_go_of_is_not_there(tmp_path: Path) -> None:
    file = ParquetFile(TableLocation(Storage(str(tmp_path))), "one.parquet", SCHEMA)
    file.add(rows(0, 10))
    file.abandon()
    assert not (tmp_path / "one.parquet").exists()
