"""Rows of bulk requests: lines of JSON, and names in columns of Arrow. Pure.

A row that does not fit is a problem of its own: the other rows count. Columns are those of pyarrow, which is not
imported here.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from duramen.base.errors import InputInvalid
from duramen.codec.jsonbytes import why_unreadable

__all__ = [
    "NO_NAME", "ROWS_AT_ONCE", "NameRows", "RowProblem", "Rows", "cut_lines", "names_of_column", "names_of_lines",
    "place_of_names", "rows_of_lines",
]  # fmt: skip

T = TypeVar("T")

ROWS_AT_ONCE: Final = 20_000
"""Rows that are decoded together."""

NO_NAME: Final = "has no name"
"""The fault of a row without a name."""

_NAME: Final = "name"
_TEXT: Final = ("string", "large_string", "string_view")
_ENCODED: Final = re.compile(r"(?:dictionary|run_end_encoded)<")
_STRINGS: Final = msgspec.json.Decoder(str)
_ROW: Final = msgspec.json.Decoder(str | dict[str, object])
_LINE_END: Final = b"\n"


class RowProblem(NamedTuple):
    """A row that does not fit: its number, from 1 on, and the reason."""

    row: int
    why: str


class Rows(NamedTuple, Generic[T]):
    """The rows that fit, in order, and their numbers; the others; and the number of all rows."""

    found: Sequence[T]
    numbers: Sequence[int]
    problems: list[RowProblem]
    rows: int


NameRows: TypeAlias = Rows[str]
"""Rows that are names."""


def cut_lines(content: bytes) -> Iterator[bytes]:
    """Pieces of whole lines, about `ROWS_AT_ONCE` at most in each."""
    step, at = len(content) // (content.count(_LINE_END) // ROWS_AT_ONCE + 1), 0
    while at < len(content):
        end = content.find(_LINE_END, at + step) + 1 or len(content)
        yield content[at:end]
        at = end


def rows_of_lines(content: bytes, before: int, decode: Callable[[bytes], T], fault: str) -> Rows[T]:
    """The rows of lines of JSON; `before` is the number of lines before. Blank lines are skipped.

    `decode` raises InputInvalid, or an error of msgspec, for a line that does not fit; `fault` says what it is then.
    """
    found, numbers, problems = list[T](), list[int](), list[RowProblem]()
    for number, line in enumerate(content.split(_LINE_END), before + 1):
        stripped = line.strip()
        if not stripped:
            continue
        try:
            found.append(decode(stripped))
            numbers.append(number)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InputInvalid) as error:
            problems.append(RowProblem(number, f"line {number} {fault}: {why_unreadable(stripped, error)}"))
    return Rows(found, numbers, problems, _count(content))


def _count(content: bytes) -> int:
    return content.count(_LINE_END) + (not content.endswith(_LINE_END) and bool(content))


def names_of_lines(content: bytes, before: int) -> NameRows:
    """The names of lines of JSON: strings, or objects with the name as `name`. `before` is the number of lines before.

    Blank lines are skipped.
    """
    try:
        names, count = _STRINGS.decode_lines(content), _count(content)
        if len(names) == count:
            return Rows(names, range(before + 1, before + 1 + count), [], count)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    return rows_of_lines(content, before, _name_of, NO_NAME)


def _name_of(line: bytes) -> str:
    row = _ROW.decode(line)
    name = row.get(_NAME) if isinstance(row, dict) else row
    if not isinstance(name, str):
        raise InputInvalid("an object needs the field `name`, a string")
    return name


def place_of_names(schema: Any) -> int:
    """The number of the column `name`. Raises InputInvalid unless there is one, with text."""
    names = list(schema.names)
    if names.count(_NAME) != 1:
        listed = ", ".join(names)[:200] or "none"
        which = "several columns are" if _NAME in names else "no column is"
        raise InputInvalid(f"{which} called `{_NAME}`: the columns are {listed}")
    place = names.index(_NAME)
    kind = schema.types[place]
    if str(kind.value_type if _ENCODED.match(str(kind)) else kind) not in _TEXT:
        raise InputInvalid(f"the column `{_NAME}` has no text, but {str(kind)[:80]}")
    return place


def names_of_column(column: Any, before: int) -> NameRows:
    """The names in a column; `before` is the number of rows before."""
    names: list[Any] = column.to_pylist()
    numbers = range(before + 1, before + 1 + len(names))
    if None not in names:  # an entry of a dictionary may be null, which the null count of the column does not tell
        return Rows(names, numbers, [], len(names))
    problems = [
        RowProblem(row, f"row {row} {NO_NAME}: it is null") for row, name in zip(numbers, names, strict=True)
        if name is None
    ]  # fmt: skip
    there = [row for row, name in zip(numbers, names, strict=True) if name is not None]
    return Rows([name for name in names if name is not None], there, problems, len(names))
