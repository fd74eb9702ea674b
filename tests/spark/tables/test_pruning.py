"""What we say of files loses no row: filters of deltalake, pyarrow and pyiceberg find what is there."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import expressions
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from tests.examples import examples
from tests.spark.tables.predicates import (
    EVERY,
    KINDS,
    NUMBER,
    Comparison,
    Rows,
    array_of,
    comparisons,
    files,
    make,
    one_by_one,
)

from duramen.spark.tables.iceberg.catalog import IcebergEntry
from duramen.spark.tables.port import Storage
from duramen.spark.tables.storage import TableLocation

Checked = Callable[[Path, Sequence[Comparison]], None]


def numbers(table: Any) -> list[int]:
    return sorted(pa.table(table).column(NUMBER).to_pylist())


def literal(one: Comparison) -> str:
    """The value in DataFusion's SQL, of the column's own type."""
    kind = KINDS[one.column][1]
    if isinstance(one.value, bytes):
        return f"X'{one.value.hex()}'"
    if isinstance(one.value, str):
        return "'" + one.value.replace("'", "''") + "'"
    if pa.types.is_date32(kind):
        return f"arrow_cast(arrow_cast({one.value}, 'Int32'), 'Date32')"
    if pa.types.is_timestamp(kind):
        zone = "None" if kind.tz is None else 'Some("UTC")'
        return f"arrow_cast(arrow_cast('{one.value}', 'Int64'), 'Timestamp(Microsecond, {zone})')"
    if pa.types.is_decimal(kind):
        return f"arrow_cast('{one.value:f}', 'Decimal128({kind.precision}, {kind.scale})')"
    names = {
        "tiny": "Int8",
        "small": "Int16",
        "whole": "Int32",
        "long": "Int64",
        "real": "Float32",
        "double": "Float64",
    }
    return f"arrow_cast('{one.value}', '{names[one.column]}')" if one.column in names else str(one.value).lower()


def check_datafusion(location: Path, asked: Sequence[Comparison]) -> None:
    engine = QueryBuilder().register("t", DeltaTable(str(location)))
    for one in asked:
        condition = f"{one.column} {one.operator}" + ("" if one.operator.startswith("IS") else f" {literal(one)}")
        told = pa.table(engine.execute(f"select {NUMBER}, {condition} as is_so from t"))  # noqa: S608
        wanted = numbers(told.filter(pc.field("is_so")))
        found = numbers(engine.execute(f"select {NUMBER} from t where {condition}"))  # noqa: S608
        assert found == wanted, one


ARROW = {"=": "__eq__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__", "<>": "__ne__"}


def check_pyarrow(location: Path, asked: Sequence[Comparison]) -> None:
    there = DeltaTable(str(location)).to_pyarrow_dataset()
    whole = pds.dataset(there.to_table())
    for one in asked:
        column = pc.field(one.column)
        if one.operator.startswith("IS"):
            condition = column.is_null() if one.operator == "IS NULL" else column.is_valid()
        else:
            condition = getattr(column, ARROW[one.operator])(array_of([one.value], KINDS[one.column][1])[0])
        assert numbers(there.to_table(filter=condition)) == numbers(whole.to_table(filter=condition)), one


ICEBERG: dict[str, Any] = {
    "=": expressions.EqualTo, "<": expressions.LessThan, "<=": expressions.LessThanOrEqual,
    ">": expressions.GreaterThan, ">=": expressions.GreaterThanOrEqual, "<>": expressions.NotEqualTo,
    "IS NULL": expressions.IsNull, "IS NOT NULL": expressions.NotNull,
}  # fmt: skip


def check_pyiceberg(location: Path, asked: Sequence[Comparison]) -> None:
    storage = Storage(str(location))
    table = IcebergEntry(storage, TableLocation(storage)).load()
    whole = table.scan().to_arrow()
    for one in asked:
        if one.value != one.value:
            continue  # pyiceberg refuses to compare with NaN
        made = ICEBERG[one.operator]
        condition = made(one.column) if one.operator.startswith("IS") else made(one.column, one.value)
        bound = bind(table.schema(), condition, case_sensitive=True)
        wanted = numbers(whole.filter(expression_to_pyarrow(bound)))
        assert numbers(table.scan(row_filter=condition).to_arrow()) == wanted, one


CHECKS: dict[str, Sequence[Checked]] = {"delta": (check_datafusion, check_pyarrow), "iceberg": (check_pyiceberg,)}


def lost_none(found: Sequence[Rows], asked: Sequence[Comparison], table_format: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        location = make(Path(directory), table_format, found)
        for check in CHECKS[table_format]:
            check(location, asked)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@settings(max_examples=examples(8))
@given(found=files, asked=st.lists(comparisons, min_size=10, max_size=10))
def test_no_filter_loses_a_row(found: Sequence[Rows], asked: Sequence[Comparison], table_format: str) -> None:
    lost_none(found, asked, table_format)


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@settings(max_examples=examples(300))
@given(found=files, asked=st.lists(comparisons, min_size=20, max_size=20))
def test_no_filter_of_many_loses_a_row(found: Sequence[Rows], asked: Sequence[Comparison], table_format: str) -> None:
    lost_none(found, asked, table_format)


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_no_comparison_with_any_value_loses_a_file(table_format: str) -> None:
    lost_none(list(one_by_one()), EVERY, table_format)
