"""Column statistics of a data file's footer in the notation of Delta's log. Pure.

Only for types with the same order everywhere, and values that the notation can express.
"""

import json
import re
from collections.abc import Collection
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from duramen.spark.tables.columns import COMMIT, OFFSET
from duramen.spark.tables.footers import Bound, Column, columns_of, cut_text, is_ordered
from duramen.spark.tables.times import DAY_US, day_of, day_text, time_text

__all__ = ["delta_statistics", "statistics_columns"]

_MOST_LETTERS: Final = 32
_MOST_COLUMNS: Final = 32
_ALWAYS: Final = (OFFSET, COMMIT)
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MS_US: Final = 1000
_FIRST_DAY: Final = day_of("0001-01-01")
_LAST_DAY: Final = day_of("9999-12-31")
"""Beyond these, readers disagree about the notation of years."""


def statistics_columns(schema: pa.Schema, partition_by: Collection[str] = ()) -> str:
    """The columns with bounds in each file of a new table, for its property `delta.dataSkippingStatsColumns`.

    `deltalake` treats a missing bound as one that nothing meets.
    """
    found = [field for field in schema if field.name not in partition_by]
    return ",".join(field.name for index, field in enumerate(found) if _has_bounds(index, field.name, field.type))


def _has_bounds(index: int, name: str, kind: pa.DataType) -> bool:
    is_sayable = is_ordered(kind) and not types.is_binary(kind) and _PLAIN.fullmatch(name) is not None
    return is_sayable and (index < _MOST_COLUMNS or name in _ALWAYS)


def delta_statistics(footer: pq.FileMetaData) -> str:
    """Rows, bounds and nulls of the first columns, and of the offset columns.

    If one of them cannot be expressed, a file has only those of offsets. The notation is "Per-file Statistics" of the
    Delta protocol; times are in ms, rounded outwards.
    """
    bounds: dict[str, tuple[Any, Any]] = {}
    nulls: dict[str, int] = {}
    is_whole = True
    for index, column in enumerate(columns_of(footer)):
        name = column.path[0]
        is_inside = len(column.path) > 1 or column.is_repeated or "." in name
        if is_inside or (index >= _MOST_COLUMNS and name not in _ALWAYS) or column.nulls is None:
            continue
        nulls[name] = column.nulls
        if _has_bounds(index, name, column.type) and column.nulls < column.values:
            found = _said(column)
            is_whole = is_whole and found is not None
            if found is not None:
                bounds[name] = found
    told = bounds if is_whole or OFFSET in bounds else {}
    least = {"minValues": {name: low for name, (low, _) in told.items()}} if told else {}
    largest = {"maxValues": {name: high for name, (_, high) in told.items()}} if told else {}
    return _as_json({"numRecords": footer.num_rows, **least, **largest, "nullCount": nulls})


def _as_json(value: Any) -> str:
    """JSON with decimals as numbers, and no escapes: `deltalake` misreads escapes of characters beyond U+1FFFF."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {_as_json(one)}" for name, one in value.items())
            + "}"
        )
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _said(column: Column) -> tuple[Any, Any] | None:
    """The bounds in JSON; None if one of them cannot be expressed."""
    if column.least is None or column.largest is None:
        return None
    low, high = _value(column.least, column.type, up=False), _value(column.largest, column.type, up=True)
    return None if low is None or high is None else (low, high)


def _value(value: Bound, kind: pa.DataType, *, up: bool) -> object:
    if isinstance(value, bytes):
        text = cut_text(value, _MOST_LETTERS, up=up)
        return None if text is None else text.decode()
    if types.is_timestamp(kind):
        return _time(value, kind, up=up)
    if types.is_date32(kind):
        return day_text(value) if _FIRST_DAY <= value <= _LAST_DAY else None
    if types.is_decimal(kind):
        sign, digits = ("-", -value) if value < 0 else ("", value)
        return Decimal(f"{sign}{digits}E-{kind.scale}")
    return value


def _time(value: int, kind: pa.DataType, *, up: bool) -> str | None:
    if kind.unit != "us":
        return None
    rounded = (-(-value // _MS_US) if up else value // _MS_US) * _MS_US
    if not _FIRST_DAY <= rounded // DAY_US <= _LAST_DAY:
        return None
    return time_text(rounded)[:-3] + ("" if kind.tz is None else "Z")
