"""Column statistics in a Parquet footer, as stored: integers and bytes. Pure.

Python's dates, times, decimals and strings cannot represent every stored value: times beyond the year 9999, and text
that is not UTF-8.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

__all__ = ["Bound", "Column", "columns_of", "cut_text", "is_ordered"]

Bound = int | bytes
"""A lower or upper bound: for times and days the number since 1970, for decimals that of their smallest unit."""

_SURROGATES: Final = range(0xD800, 0xE000)
_LAST_LETTER: Final = 0x10FFFF
_ORDERED: Final = (
    types.is_boolean, types.is_integer, types.is_date32, types.is_timestamp, types.is_decimal, types.is_string,
    types.is_binary,
)  # fmt: skip
"""Types with the same order everywhere: readers disagree about floats because of not-a-number."""


class Column(NamedTuple):
    """A column of values, nested or not; `values` counts its nulls too.

    `nulls`, `least` and `largest` are None if the file lacks them.
    """

    path: tuple[str, ...]
    type: pa.DataType
    is_repeated: bool
    size_bytes: int
    values: int
    nulls: int | None
    least: Bound | None
    largest: Bound | None


def columns_of(footer: pq.FileMetaData) -> Iterator[Column]:
    """The columns in the order of the file."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    for index, (path, kind) in enumerate(_leaves((), footer.schema.to_arrow_schema())):
        chunks = [group.column(index) for group in groups]
        found = [chunk.statistics for chunk in chunks]
        counts = [one.null_count for one in found if one is not None and one.has_null_count]
        low, high = _bounds(found, kind)
        yield Column(
            path,
            kind,
            footer.schema.column(index).max_repetition_level > 0,
            sum(chunk.total_compressed_size for chunk in chunks),
            sum(chunk.num_values for chunk in chunks),
            sum(counts) if len(counts) == len(chunks) else None,
            low,
            high,
        )


def _leaves(above: tuple[str, ...], fields: Iterable[pa.Field]) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for field in fields:
        path, kind = (*above, field.name), field.type
        if types.is_struct(kind):
            yield from _leaves(path, kind)
        elif types.is_map(kind):
            yield from _leaves(path, [kind.key_field, kind.item_field])
        elif types.is_list(kind):
            yield from _leaves(path, [kind.value_field])
        else:
            yield path, kind


def is_ordered(kind: pa.DataType) -> bool:
    """Whether values of a type have bounds."""
    return any(is_kind(kind) for is_kind in _ORDERED)


def cut_text(value: bytes, letters: int, *, up: bool) -> bytes | None:
    """A bound of text with at most that many letters, rounded outwards; None if there is none, or it is not UTF-8."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if len(text) <= letters or not up:
        return text[:letters].encode()
    for end in range(letters, 0, -1):
        following = ord(text[end - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST_LETTER:
            return (text[: end - 1] + chr(following)).encode()
    return None


def _bounds(found: Sequence[pq.Statistics | None], kind: pa.DataType) -> tuple[Bound | None, Bound | None]:
    if any(one is None for one in found) or not is_ordered(kind):
        return None, None
    told = [one for one in found if one is not None and one.num_values]
    if not told or not all(one.has_min_max for one in told):
        return None, None
    return min(_bound(one.min_raw, kind) for one in told), max(_bound(one.max_raw, kind) for one in told)


def _bound(raw: Bound, kind: pa.DataType) -> Bound:
    # Their order differs from that of their bytes.
    return int.from_bytes(raw, "big", signed=True) if types.is_decimal(kind) and isinstance(raw, bytes) else raw
