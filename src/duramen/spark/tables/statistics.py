"""What a data file's footer says of its columns, as Delta's log wants it. Pure.

Only types whose order is the same everywhere: no floats (not-a-number), and no long text.
"""

import json
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow.parquet as pq

from duramen.spark.tables.columns import COMMIT, OFFSET

__all__ = ["delta_statistics"]

_MOST_LETTERS: Final = 32
_MOST_COLUMNS: Final = 32
_ALWAYS: Final = (OFFSET, COMMIT)


def delta_statistics(footer: pq.FileMetaData) -> str:
    """Rows, least and largest values and nulls of the first columns, and of those that offsets are looked for in.

    The notation is "Per-file Statistics" of the Delta protocol; times are in ms, rounded outwards.
    """
    least: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, columns in _columns(footer):
        found = [column.statistics for column in columns]
        if any(s is None or not s.has_null_count for s in found):
            continue
        nulls[name] = sum(s.null_count for s in found if s is not None)
        values = [s for s in found if s is not None and s.num_values]
        if values and all(s.has_min_max for s in values):
            low, high = _text(min(s.min for s in values), up=False), _text(max(s.max for s in values), up=True)
            if low is not None and high is not None:
                least[name], largest[name] = low, high
    return json.dumps({"numRecords": footer.num_rows, "minValues": least, "maxValues": largest, "nullCount": nulls})


def _columns(footer: pq.FileMetaData) -> Iterator[tuple[str, list[pq.ColumnChunkMetaData]]]:
    if not footer.num_row_groups:
        return
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    for index in range(footer.num_columns):
        name = footer.schema.column(index).path
        if (
            (index < _MOST_COLUMNS or name in _ALWAYS)
            and footer.schema.column(index).max_repetition_level == 0
            and "." not in name
        ):
            yield name, [group.column(index) for group in groups]


def _text(value: object, *, up: bool) -> object:
    """A least or largest value in JSON; None where it is of no use."""
    if isinstance(value, datetime):
        rounded = value + timedelta(microseconds=999) if up else value
        zone = "" if value.tzinfo is None else "Z"
        return rounded.strftime("%Y-%m-%dT%H:%M:%S.") + f"{rounded.microsecond // 1000:03d}{zone}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool | int):
        return value
    return value if isinstance(value, str) and len(value) <= _MOST_LETTERS else None
