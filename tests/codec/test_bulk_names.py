"""Names of rows: what is one, what is not, and the number of the row."""

import json
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import InputInvalid
from duramen.codec.bulk_names import names_of_column, names_of_lines, place_of_names

ARROW: Any = pa  # has more than its stubs
GOOD = st.text(max_size=5).flatmap(
    lambda name: st.sampled_from(
        [(json.dumps(name), name), (json.dumps({"name": name, "more": 1}), name), (f" {json.dumps(name)}\r", name)]
    )
)
BAD = st.sampled_from([(line, None) for line in ("nope", "7", "{}", '{"name": 7}', '["a"]', "{", "null", "\ufffd")])
BLANK = st.sampled_from([("", ""), ("  ", "")])


@given(st.lists(GOOD | BAD | BLANK, max_size=20), st.integers(0, 5), st.booleans())
def test_lines_without_a_name_have_their_number(lines: list[tuple[str, str | None]], before: int, ends: bool) -> None:
    content = "\n".join(line for line, _ in lines).encode() + (b"\n" if ends else b"")
    found = names_of_lines(content, before)
    assert [*zip(found.numbers, found.found, strict=True)] == [
        (row, name) for row, (line, name) in enumerate(lines, before + 1) if name is not None and line.strip()
    ]
    assert [row for row, _ in found.problems] == [
        row for row, (_, name) in enumerate(lines, before + 1) if name is None
    ]  # fmt: skip
    assert all(f"line {row} has no name" in why for row, why in found.problems)
    assert found.rows == content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))


def test_a_line_that_is_not_utf_8_is_named_with_its_byte() -> None:
    found = names_of_lines(b'"a"\n"b\xffc"\n{"name": "d"}\n', 10)
    assert list(found.found) == ["a", "d"]
    (problem,) = found.problems
    assert problem == (12, "line 12 has no name: it is not UTF-8: byte 0xff at position 2, invalid start byte")


def test_a_column_of_names_is_found() -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.dictionary(pa.int32(), pa.string()))])
    assert place_of_names(schema) == 1
    for kind in (pa.large_string(), ARROW.string_view(), ARROW.run_end_encoded(pa.int32(), pa.string())):
        assert place_of_names(pa.schema([("name", kind)])) == 0


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ([], "no column is called `name`: the columns are none"),
        ([("Name", pa.string())], "no column is called `name`: the columns are Name"),
        ([("a", pa.string()), ("b", pa.string())], "no column is called `name`: the columns are a, b"),
        (
            [("name", pa.string()), ("name", pa.string())],
            "several columns are called `name`: the columns are name",
        ),
        ([("name", pa.int64()), ("b", pa.string())], "the column `name` has no text, but int64"),
        ([("name", pa.list_(pa.string()))], "the column `name` has no text, but list<item: string>"),
        ([("name", pa.dictionary(pa.int8(), pa.binary()))], "the column `name` has no text, but dictionary"),
        ([("name", pa.struct([("name", pa.string())]))], "the column `name` has no text, but struct"),
        ([("name", pa.null())], "the column `name` has no text, but null"),
    ],
)
def test_columns_without_names_are_refused_by_name(columns: list[tuple[str, pa.DataType]], why: str) -> None:
    with pytest.raises(InputInvalid, match=f"^{re.escape(why)}"):
        place_of_names(pa.schema(columns))


@given(st.lists(st.none() | st.text(max_size=3), max_size=8), st.integers(0, 20))
def test_rows_of_a_column_have_their_numbers(names: list[str | None], before: int) -> None:
    column = pa.array(names, pa.string())
    every = pa.array([*dict.fromkeys(names)], pa.string())
    indexes = pa.array([every.to_pylist().index(name) for name in names], pa.int32())
    for kind in (column, column.dictionary_encode(), ARROW.DictionaryArray.from_arrays(indexes, every)):
        found = names_of_column(kind, before)
        rows = list(enumerate(names, before + 1))
        assert [*zip(found.numbers, found.found, strict=True)] == [one for one in rows if one[1] is not None]
        assert found.problems == [(row, f"row {row} has no name: it is null") for row, name in rows if name is None]
        assert found.rows == len(names)
