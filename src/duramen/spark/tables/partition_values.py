"""Values that a table is partitioned by, as text: the notation of Delta's log, for values of any year. Pure."""

import pyarrow as pa
from pyarrow import types

from duramen.spark.tables.times import day_of, day_text, time_of, time_text

__all__ = ["array_of", "texts_of"]


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


def array_of(text: str | None, kind: pa.DataType) -> pa.Array:
    """One value of that type out of what `texts_of` gave. Raises ValueError."""
    if text is not None and types.is_date32(kind):
        return pa.array([day_of(text)], pa.int32()).cast(kind)
    if text is not None and types.is_timestamp(kind):
        return pa.array([time_of(text.removesuffix("Z"))], pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)
    return pa.array([text], pa.string()).cast(kind)
