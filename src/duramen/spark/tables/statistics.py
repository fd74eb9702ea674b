"""What a data file's footer says of its columns, as Delta's log wants it. Pure.

Only types whose order is the same everywhere, no long text, and nothing that the notation has no words for: a column
that cannot be said exactly is left out.
"""

import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from duramen.spark.tables.columns import COMMIT, OFFSET
from duramen.spark.tables.footers import Bound, columns_of
from duramen.spark.tables.times import DAY_US, day_of, day_text, time_text

__all__ = ["delta_statistics"]

_MOST_LETTERS: Final = 32
_MOST_COLUMNS: Final = 32
_ALWAYS: Final = (OFFSET, COMMIT)
_MS_US: Final = 1000
_FIRST_DAY: Final = day_of("0001-01-01")
_LAST_DAY: Final = day_of("9999-12-31")
"""Beyond them readers disagree how a year is written."""


def delta_statistics(footer: pq.FileMetaData) -> str:
    """Rows, least and largest values and nulls of the first columns, and of those that offsets are looked for in.

    The notation is "Per-file Statistics" of the Delta protocol; times are in ms, rounded outwards.
    """
    least: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index, column in enumerate(columns_of(footer)):
        name = column.path[0]
        is_inside = len(column.path) > 1 or column.is_repeated or "." in name
        if is_inside or (index >= _MOST_COLUMNS and name not in _ALWAYS) or column.nulls is None:
            continue
        nulls[name] = column.nulls
        if column.least is None or column.largest is None:
            continue
        low, high = _said(column.least, column.type, up=False), _said(column.largest, column.type, up=True)
        if low is not None and high is not None:
            least[name], largest[name] = low, high
    return json.dumps({"numRecords": footer.num_rows, "minValues": least, "maxValues": largest, "nullCount": nulls})


def _said(value: Bound, kind: pa.DataType, *, up: bool) -> object:
    """A least or largest value in JSON; None where it cannot be said."""
    if isinstance(value, bytes):
        return _text(value) if types.is_string(kind) else None
    if types.is_timestamp(kind):
        return _time(value, kind, up=up)
    if types.is_date32(kind):
        return day_text(value) if _FIRST_DAY <= value <= _LAST_DAY else None
    return None if types.is_decimal(kind) else value


def _text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= _MOST_LETTERS else None


def _time(value: int, kind: pa.TimestampType, *, up: bool) -> str | None:
    if kind.unit != "us":
        return None
    rounded = (-(-value // _MS_US) if up else value // _MS_US) * _MS_US
    if not _FIRST_DAY <= rounded // DAY_US <= _LAST_DAY:
        return None
    return time_text(rounded)[:-3] + ("" if kind.tz is None else "Z")
