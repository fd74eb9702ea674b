"""Rows of bodies: the same however a body is cut into pieces, and errors for what is no Arrow stream."""

import io
import json
import random
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.codec.bulk_names import ROWS_AT_ONCE, NameRows
from duramen.doors.http.serving.rows import ARROW, LARGEST_MESSAGE_BYTES, NAME_ROWS, NDJSON, RowDecoder

NAMES = st.lists(st.none() | st.text("ab\n\u00e9", max_size=4), max_size=30)


def arrow(table: pa.Table, rows: int = 7, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def decoded(content: bytes, decoder: Callable[[], RowDecoder[str]], piece: int) -> tuple[list[str], list[int]]:
    """The names and the numbers of rows without one, of a body that comes in pieces."""
    rows, received = decoder(), bytearray()
    found = list[NameRows]()
    for at in range(0, len(content), piece):
        received += content[at : at + piece]
        found += rows.take(received, last=False)
    found += rows.take(received, last=True)
    assert not received
    return [name for one in found for name in one.found], [row for one in found for row, _ in one.problems]


@given(NAMES, st.integers(1, 200), st.booleans())
def test_pieces_change_nothing(names: list[str | None], piece: int, dictionary: bool) -> None:
    there = [name for name in names if name is not None]
    lacking = [row for row, name in enumerate(names, 1) if name is None]
    lines = b"".join(json.dumps(name).encode() + b"\n" for name in names)
    assert decoded(lines, NAME_ROWS[NDJSON], piece) == (there, lacking)
    column = pa.array(names, pa.string())
    table = pa.table({"id": range(len(names)), "name": column.dictionary_encode() if dictionary else column})
    assert decoded(arrow(table), NAME_ROWS[ARROW], piece) == (there, lacking)


def test_a_long_line_is_a_problem_of_its_own() -> None:
    content = b'"a"\n"' + b"x" * 200_000 + b'"\n"c"\nnope\n'
    assert decoded(content, NAME_ROWS[NDJSON], 30_000) == (["a", "c"], [2, 4])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"GET / HTTP/1.1", "is no Arrow stream"),
        (b"\xff\xff\xff\xff\xff\xff\xff\x7f", "the size of a message cannot be"),
        (b"\xff\xff\xff\xff\x08\0\0\0" + b"\xff" * 8, "a message cannot be read"),
        (arrow(pa.table({"name": ["a"]}))[:-30], "ends within a message"),
        (arrow(pa.table({"name": ["a"]}), compression="zstd"), "is compressed"),
        (arrow(pa.table({"name": [1]})), "the column `name` has no text, but int64"),
        (arrow(pa.table({"a": ["x"], "b": ["y"]})), "no column is called `name`: the columns are a, b"),
        (arrow(pa.table({"name": ["x" * LARGEST_MESSAGE_BYTES]})), "write smaller record batches"),
        (2 * arrow(pa.table({"name": ["a"]}))[:-8], "does not begin with its only schema"),
    ],
)
def test_what_is_no_stream_of_names_is_named(content: bytes, why: str) -> None:
    with pytest.raises(RequestInvalid, match=why):
        decoded(content, NAME_ROWS[ARROW], 1 << 20)


def test_damaged_streams_are_refused_or_read() -> None:
    chance, whole = random.Random(1), arrow(pa.table({"name": ["a", "b", None, "d"]}), 2)
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            decoded(bytes(damaged), NAME_ROWS[ARROW], 1 << 20)
        except RequestInvalid:
            continue


@pytest.mark.parametrize("line", [b"7\n", b'"a"\n', b"\n"], ids=["bad", "good", "blank"])
def test_many_short_lines_are_decoded_in_pieces(line: bytes) -> None:
    count = 5 * ROWS_AT_ONCE + 7
    found = list(NAME_ROWS[NDJSON]().take(bytearray(line * count), last=True))
    assert max(one.rows for one in found) <= ROWS_AT_ONCE + 1
    numbers = [number for one in found for number in (*one.numbers, *(row for row, _ in one.problems))]
    assert numbers == ([] if line == b"\n" else [*range(1, count + 1)])
    assert sum(one.rows for one in found) == count
