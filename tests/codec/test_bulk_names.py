"""Names of rows: what is one, what is not, and the number of the row."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import InputInvalid
from duramen.codec.bulk_names import names_of_column, names_of_lines, place_of_names

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
    assert found.names == [name for line, name in lines if name is not None and line.strip()]
    assert [row for row, _ in found.problems] == [
        row for row, (_, name) in enumerate(lines, before + 1) if name is None
    ]  # fmt: skip
    assert all(f"line {row} has no name" in why for row, why in found.problems)
    assert found.rows == content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))


def test_a_column_of_names_is_found() -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.dictionary(pa.int32(), pa.string()))])
    assert place_of_names(schema) == 1
    assert place_of_names(pa.schema([("topic", pa.large_string())])) == 0
    for wrong in ([("a", pa.string()), ("b", pa.string())], [("name", pa.int64()), ("b", pa.string())], []):
        with pytest.raises(InputInvalid):
            place_of_names(pa.schema(wrong))
    found = names_of_column(pa.array(["a", None, "b", None]), 10)
    assert (found.names, [row for row, _ in found.problems], found.rows) == (["a", "b"], [12, 14], 4)
