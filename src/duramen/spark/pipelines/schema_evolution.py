"""Schema evolution of a sink's table when its rows have other columns. Pure.

The rules are those of `duramen table`: new columns are added, types are widened if the format can, and missing values
are null.
"""

from collections.abc import Callable

import pyarrow as pa

from duramen.base.errors import TableForeign
from duramen.spark.tables.schemas import merged, widened
from duramen.spark.values.fields import wider

__all__ = ["evolved", "lacking", "same_columns"]

CanWiden = Callable[[pa.DataType, pa.DataType], bool]


def evolved(where: str, table: pa.Schema, rows: pa.Schema, can_widen: CanWiden) -> pa.Schema:
    """The columns that a table needs for these rows; `can_widen` tells which types its format can widen.

    Raises TableForeign if a column of the rows does not fit the table, with the remedy.
    """
    cases = {name.lower(): name for name in table.names}
    for field in rows:
        there = cases.get(field.name.lower(), field.name)
        if there != field.name:
            raise TableForeign(
                f"the table {where} has other columns: {there}, which differs from the rows' {field.name} in case"
                f" only; {field.name} AS {there} in a step keeps the column"
            )
    for field in rows:
        if field.name in table.names and wider(table.field(field.name).type, field.type) is None:
            raise _refused(where, table, field.name, table.field(field.name).type, field.type)
    wanted, _ = merged(table, [rows])
    for path, before, after in widened(table, wanted):
        if not can_widen(before, after):
            raise _refused(where, table, path, before, after, ", to which this format's library cannot widen it")
    return wanted


def lacking(table: pa.Schema, rows: pa.Schema) -> list[str]:
    """The columns of a table that the rows lack; these rows have nulls there."""
    return [name for name in table.names if name not in rows.names]


def same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether two schemas have the same columns with the same types, in the same order."""
    return [(field.name, field.type) for field in one] == [(field.name, field.type) for field in other]


def _refused(
    where: str, table: pa.Schema, path: str, before: pa.DataType, after: pa.DataType, why: str = ""
) -> TableForeign:
    column = path.partition(".")[0]
    return TableForeign(
        f"the table {where} has other columns: {path} is {before}, and the rows' is {after}{why};"
        f" CAST({column} AS {_in_sql(table.field(column).type)}) in a step keeps the column, AS gives the new one"
        " another name, and a sink of another name and location begins a new table"
    )


def _in_sql(kind: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    said = from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()
    return said if "<" in said else said.upper()  # names of fields keep their case
