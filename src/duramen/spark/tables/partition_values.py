"""Partition values of a table as text: the notation of Delta's log, for any year. Pure."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from duramen.spark.tables.times import day_of, day_text, time_of, time_text

__all__ = ["array_of", "texts_of", "usable"]

_DELTA_DAYS: Final = (day_of("-262143-01-01"), day_of("+262142-12-31"))
_ICEBERG_DAYS: Final = (day_of("0001-01-01"), day_of("9999-12-31"))
"""The days that `deltalake` reads from a table's log, and that `pyiceberg` writes into a table's metadata."""


def texts_of(values: pa.Array) -> list[str | None]:
    """Each value as text."""
    kind = values.type
    if types.is_date32(kind):
        return [None if days is None else day_text(days) for days in values.cast(pa.int32()).to_pylist()]
    if types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        moments = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()
        return [None if us is None else time_text(us) + zone for us in moments]
    found: list[str | None] = values.cast(pa.string()).to_pylist()
    return found


def usable(values: pa.Array, *, in_delta: bool) -> pa.Array:
    """The values that a table can be partitioned by, null in place of unsupported days."""
    if not types.is_date32(values.type):
        return values
    days = values.cast(pa.int32())
    first, last = _DELTA_DAYS if in_delta else _ICEBERG_DAYS
    fits = pc.and_(pc.greater_equal(days, first), pc.less_equal(days, last))
    return pc.if_else(fits, values, pa.scalar(None, values.type))


def array_of(text: str | None, kind: pa.DataType) -> pa.Array:
    """One value of that type from a text of `texts_of`. Raises ValueError."""
    if text is not None and types.is_date32(kind):
        return pa.array([day_of(text)], pa.int32()).cast(kind)
    if text is not None and types.is_timestamp(kind):
        return pa.array([time_of(text.removesuffix("Z"))], pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)
    return pa.array([text], pa.string()).cast(kind)
