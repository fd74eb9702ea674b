"""Decoding to Arrow: the quick way says what the plain way says, for sound batches and for hostile ones."""

import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from tests.examples import examples

from duramen.base.errors import BatchCorrupt
from duramen.codec.batch import APPEND_TIME, CONTROL, CRC_START, HEADER_BYTES, BatchInput, encode, records
from duramen.codec.crc import crc32c
from duramen.codec.varint import encode_varint
from duramen.spark.batches import plain
from duramen.spark.batches.arrow import decode, decode_rows
from duramen.spark.batches.bodies import Body, portions
from duramen.spark.batches.rows import Odd, read_varints, record_starts
from duramen.spark.columns import (
    COLUMNS,
    RECORD_COLUMNS,
    PartitionColumns,
    Rows,
    arrow_schema,
    choose_columns,
    spark_schema,
)

EVERYTHING = (0, 1 << 62)
WITHOUT_HEADERS = RECORD_COLUMNS[:-1]

small = st.binary(max_size=12)
fields = st.none() | small | st.integers(50, 300).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=3).map(str.encode) | small, st.none() | small), max_size=3)
new_records = st.builds(BatchInput, st.integers(-1, 1 << 42), fields, fields, st.just(()) | headers)
batch_lists = st.lists(
    st.tuples(st.lists(new_records, min_size=1, max_size=30), st.integers(1, 40), st.integers(0, 4), st.booleans()),
    min_size=1,
    max_size=4,
)


def joined(batches: Sequence[tuple[Sequence[BatchInput], int, int, bool]]) -> bytes:
    """Batches, each of its records as often as it says, one behind the other as in a log."""
    out, offset = bytearray(), 0
    for new, times, codec, append_time in batches:
        repeated = [*new] * times
        attributes = APPEND_TIME if append_time else 0
        out += encode(repeated, base_offset=offset, codec=codec, attributes=attributes)
        offset += len(repeated)
    return bytes(out)


def resealed(batch: bytearray) -> bytes:
    batch[17:21] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
    return bytes(batch)


def outcome(bodies: list[Body], first: int, end: int, *, quick: bool, wanted: bool) -> Rows | str:
    columns = RECORD_COLUMNS if wanted else WITHOUT_HEADERS
    try:
        return (decode_rows if quick else plain.decode_rows)(bodies, first, end, columns)
    except BatchCorrupt as error:
        return str(error)


def assert_same(data: bytes, first: int, end: int, *, wanted: bool) -> None:
    for bodies in portions(memoryview(data), first, end):
        quick = outcome(bodies, first, end, quick=True, wanted=wanted)
        slow = outcome(bodies, first, end, quick=False, wanted=wanted)
        if isinstance(quick, str) or isinstance(slow, str):
            assert quick == slow
            continue
        assert (quick.headers is None) == (slow.headers is None) == (not wanted)
        for column, other in ((quick.keys, slow.keys), (quick.values, slow.values), (quick.headers, slow.headers)):
            if column is not None and other is not None:
                column.validate(full=True)
                assert column.equals(other)
        for one, another in zip(quick[2:5], slow[2:5], strict=True):
            np.testing.assert_array_equal(one, another)


@given(batch_lists, st.booleans())
@settings(deadline=None)
def test_sound_batches_are_decoded_as_they_were_written(
    batches: list[tuple[list[BatchInput], int, int, bool]], wanted: bool
) -> None:
    data = joined(batches)
    assert_same(data, *EVERYTHING, wanted=wanted)
    part = PartitionColumns("flights", 7, COLUMNS if wanted else COLUMNS[:-1])
    decoded: list[dict[str, Any]] = [
        row for batch in decode(data, *EVERYTHING, part.columns) for row in part.batch(batch).to_pylist()
    ]
    expected, position = [], 0
    for new, times, _, append_time in batches:
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        for record in records(data[position : position + size]):
            row: dict[str, Any] = {
                "key": record.key, "value": record.value, "topic": "flights", "partition": 7, "offset": record.offset,
                "timestamp": record.timestamp, "timestampType": int(append_time),
            }  # fmt: skip
            if wanted:
                found = [{"key": name.decode("utf-8", "replace"), "value": value} for name, value in record.headers]
                row["headers"] = found or None
            expected.append(row)
        position += size
        assert len(new) * times > 0
    for row in decoded:
        row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
    assert decoded == expected


@given(batch_lists, st.data())
@settings(deadline=None)
def test_ranges_cut_where_they_say(batches: list[tuple[list[BatchInput], int, int, bool]], draw: st.DataObject) -> None:
    data = joined(batches)
    count = sum(len(new) * times for new, times, _, _ in batches)
    first = draw.draw(st.integers(0, count))
    end = draw.draw(st.integers(first, count))
    assert_same(data, first, end, wanted=True)
    found = [
        offset
        for bodies in portions(memoryview(data), first, end)
        for offset in decode_rows(bodies, first, end, ["offset"]).offsets.tolist()
    ]
    assert found == list(range(first, end))


@given(batch_lists, st.data())
@settings(deadline=None, max_examples=examples(300))
def test_hostile_bytes_are_the_same_to_both(
    batches: list[tuple[list[BatchInput], int, int, bool]], draw: st.DataObject
) -> None:
    """Bytes of the records are changed, cut or added, and the batch sealed again: only its content is wrong."""
    new, times, _, append_time = batches[0]
    batch = bytearray(encode([*new] * times, base_offset=5, attributes=APPEND_TIME if append_time else 0))
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        match draw.draw(st.integers(0, 3)):
            case 0:
                batch[at] = draw.draw(st.integers(0, 255))
            case 1:
                batch[at : at + 1] = draw.draw(st.binary(max_size=12))
            case 2:
                batch[at : at + 1] = b"\xff" * draw.draw(st.integers(1, 11)) + b"\x01"
            case _:
                batch[27:35] = draw.draw(st.integers(-(1 << 63), (1 << 63) - 1)).to_bytes(8, "big", signed=True)
        assume(len(batch) > HEADER_BYTES)
    if draw.draw(st.booleans()):
        batch[57:61] = draw.draw(st.integers(0, (1 << 31) - 1)).to_bytes(4, "big")
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    assert_same(resealed(batch), *EVERYTHING, wanted=draw.draw(st.booleans()))


def test_runs_of_every_length_of_length() -> None:
    """Records of 1, 2, 3 and 4 bytes of length, in runs and one by one, with keys of changing length."""
    chance = random.Random(7)
    for sizes in ([0, 40, 9000, 3_000_000], [40] * 500 + [41] * 500, [chance.randrange(300) for _ in range(3000)]):
        new = [BatchInput(index, bytes(index % 3), chance.randbytes(size)) for index, size in enumerate(sizes)]
        assert_same(bytes(encode(new)), *EVERYTHING, wanted=False)


def test_a_record_with_more_headers_than_the_quick_way_takes() -> None:
    many = [(b"h%d" % number, b"v") for number in range(200)]
    assert_same(bytes(encode([BatchInput(0, None, b"x", many), BatchInput(0, None, b"y")])), *EVERYTHING, wanted=True)


def test_control_batches_and_those_outside_are_left_out() -> None:
    control = encode([BatchInput(0, b"\0\0\0\1", b"")], base_offset=3, attributes=CONTROL)
    data = bytes(encode([BatchInput(0, None, b"x")] * 3) + control + encode([BatchInput(0, None, b"y")], base_offset=4))
    offsets = [row["offset"] for batch in decode(data, 0, 9, ["offset"]) for row in batch.to_pylist()]
    assert offsets == [0, 1, 2, 4]
    assert list(decode(data, 5, 9, WITHOUT_HEADERS)) == []
    assert list(decode(data, 3, 4, WITHOUT_HEADERS)) == []


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (70, 0xEE, "the record batch at offset 5 does not match its CRC"),
        (16, 1, "the one at offset 5 has 1"),
    ],
)
def test_damage_is_named(at: int, value: int, message: str) -> None:
    batch = encode([BatchInput(0, b"key", b"value")], base_offset=5)
    batch[at] = value
    with pytest.raises(BatchCorrupt, match=message):
        list(decode(batch, *EVERYTHING, WITHOUT_HEADERS))


@pytest.mark.long  # test_native.py has it for both decoders
def test_a_bomb_is_refused() -> None:
    batch = encode([BatchInput(0, None, bytes(300 << 20))], codec=4)
    assert len(batch) < 1 << 20
    with pytest.raises(BatchCorrupt, match="hold more than"):
        list(decode(batch, *EVERYTHING, WITHOUT_HEADERS))


def test_times_that_arrow_cannot_hold_are_the_nearest_it_can() -> None:
    batch = encode([BatchInput(1 << 60, None, b"x")])
    (decoded,) = decode(batch, *EVERYTHING, ["timestamp"])
    (microseconds,) = np.frombuffer(memoryview(decoded.column(0).buffers()[1] or b""), np.int64)
    assert microseconds == ((1 << 63) - 1) // 1000 * 1000


@pytest.mark.usefixtures("spark")  # which reads the columns
@pytest.mark.parametrize("wanted", [False, True])
def test_the_schema_is_what_spark_expects(*, wanted: bool) -> None:
    columns = choose_columns("", headers=wanted)
    parsed = StructType.fromDDL(spark_schema(columns))
    assert isinstance(parsed, StructType)
    assert to_arrow_schema(parsed, timezone="UTC").equals(arrow_schema(columns))


@given(st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True), batch_lists)
@settings(deadline=None)
def test_columns_that_are_chosen_are_those_of_all_in_their_order(
    wanted: list[str], batches: list[tuple[list[BatchInput], int, int, bool]]
) -> None:
    data, whole = joined(batches), PartitionColumns("flights", 7, COLUMNS)
    part = PartitionColumns("flights", 7, choose_columns(" , ".join(wanted).upper(), headers=False))
    some = [part.batch(batch) for batch in decode(data, *EVERYTHING, part.columns)]
    every = [whole.batch(batch).select(wanted) for batch in decode(data, *EVERYTHING, whole.columns)]
    assert some == every


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("valeu", "there is no column 'valeu'; did you mean value?"),
        ("offset,Timestmp", "there is no column 'Timestmp'; did you mean timestamp?"),
        ("offset,,value", "there is no column ''; there are key, value, topic"),
        ("offset,value,Offset", "offset is named twice"),
    ],
)
def test_columns_that_do_not_fit_are_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        choose_columns(text, headers=False)


class TestRecordStarts:
    def test_of_nothing(self) -> None:
        assert record_starts(np.zeros(0, np.uint8), [(0, 0, 0)]).tolist() == []

    @pytest.mark.parametrize("count", [-1, 1, 1 << 30])
    def test_a_count_that_cannot_be_is_odd(self, count: int) -> None:
        with pytest.raises(Odd):
            record_starts(np.zeros(6, np.uint8), [(0, 6, count)])

    def test_bytes_left_over_are_odd(self) -> None:
        record = b"\x0c" + bytes(6)
        assert record_starts(np.frombuffer(record * 2, np.uint8), [(0, 14, 2)]).tolist() == [0, 7]
        with pytest.raises(Odd):
            record_starts(np.frombuffer(record * 2 + b"\0", np.uint8), [(0, 15, 2)])


@given(st.lists(st.integers(-(1 << 62), (1 << 62) - 1) | st.integers(-70, 70), min_size=1, max_size=50))
def test_varints_are_read_as_they_were_written(values: list[int]) -> None:
    encoded = [encode_varint(value) for value in values]
    ends = np.cumsum([len(one) for one in encoded])
    data = np.frombuffer(b"".join(encoded), np.uint8)
    found, after = read_varints(data, np.concatenate([[0], ends[:-1]]).astype(np.int64))
    assert found.tolist() == values
    assert after.tolist() == ends.tolist()
