"""Rows of a bulk creation, each with a name: lines of JSON, and columns of Arrow. Pure.

A row without a name is a problem of its own: the other rows count. Columns are those of pyarrow, which is not imported
here.
"""

from typing import Any, Final, NamedTuple

import msgspec

from duramen.base.errors import InputInvalid

__all__ = ["ROWS_AT_ONCE", "NameRows", "RowProblem", "names_of_column", "names_of_lines", "place_of_names"]

ROWS_AT_ONCE: Final = 20_000
"""Rows of a column that are decoded together."""

_TEXT: Final = ("string", "large_string", "string_view")
_STRINGS: Final = msgspec.json.Decoder(str)
_ROW: Final = msgspec.json.Decoder(str | dict[str, object])
_LINE_END: Final = b"\n"


class RowProblem(NamedTuple):
    """A row without a name: its number, from 1 on, and the reason."""

    row: int
    why: str


class NameRows(NamedTuple):
    """The names of rows in order, the rows without one, and the number of all rows."""

    names: list[str]
    problems: list[RowProblem]
    rows: int


def names_of_lines(content: bytes, before: int) -> NameRows:
    """The names of lines of JSON: strings, or objects with the name as `name`. `before` is the number of lines before.

    Blank lines are skipped.
    """
    count = content.count(_LINE_END) + (not content.endswith(_LINE_END) and bool(content))
    try:
        return NameRows(_STRINGS.decode_lines(content), [], count)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    names, problems = list[str](), list[RowProblem]()
    for number, line in enumerate(content.split(_LINE_END), before + 1):
        stripped = line.strip()
        if not stripped:
            continue
        try:
            found = _ROW.decode(stripped)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            problems.append(RowProblem(number, f"line {number} has no name: {error}"))
            continue
        name = found.get("name") if isinstance(found, dict) else found
        if isinstance(name, str):
            names.append(name)
        else:
            problems.append(
                RowProblem(number, f"line {number} has no name: an object needs the field `name`, a string")
            )
    return NameRows(names, problems, count)


def place_of_names(schema: Any) -> int:
    """The number of the column with the names: `name`, or the only one. Raises InputInvalid."""
    names = list(schema.names)
    place = names.index("name") if "name" in names else 0
    if "name" not in names and len(names) != 1:
        raise InputInvalid(f"no column is called `name`: there are {', '.join(names)[:200] or 'none'}")
    kind = schema.types[place]
    if str(getattr(kind, "value_type", kind)) not in _TEXT:
        raise InputInvalid(f"the column {names[place][:80]} has no text, but {str(kind)[:80]}")
    return place


def names_of_column(column: Any, before: int) -> NameRows:
    """The names in a column; `before` is the number of rows before."""
    names: list[Any] = column.to_pylist()
    if not column.null_count:
        return NameRows(names, [], len(names))
    rows = [row for row, name in enumerate(names, before + 1) if name is None]
    problems = [RowProblem(row, f"row {row} has no name: it is null") for row in rows]
    return NameRows([name for name in names if name is not None], problems, len(names))
