"""The native package and its Python twins: the same of sound bytes, and of hostile ones the same or both refuse.

Without the native package what needs it is skipped; the twins are tested either way.
"""

import random
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from functools import cache
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import BatchCorrupt, BatchInvalid
from duramen.base.ports import Buffer
from duramen.codec.batch import (
    APPEND_TIME,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    BatchInput,
    batches,
    encode,
    records,
)
from duramen.codec.compression import compress
from duramen.codec.crc import crc32c
from duramen.spark.batches import arrow, decoding, encoding, keyscan, native
from duramen.spark.columns import HEADERS_TYPE, RECORD_COLUMNS

installed = pytest.mark.skipif(not native.is_installed(), reason="the native package is not installed")
both = pytest.mark.parametrize("way", [pytest.param(native, marks=installed), pytest.param(arrow)])

EVERYTHING = (0, 1 << 62)

small = st.binary(max_size=12)
fields = st.none() | small | st.integers(30, 300).map(bytes)
names = st.text(max_size=3).map(str.encode) | small
headers = st.lists(st.tuples(names, st.none() | small), max_size=3)
new_records = st.builds(BatchInput, st.integers(-1, 1 << 42), fields, fields, st.just(()) | headers)
batch_lists = st.lists(
    st.tuples(st.lists(new_records, min_size=1, max_size=20), st.integers(1, 40), st.integers(0, 4), st.booleans()),
    min_size=1,
    max_size=4,
)
columns_asked = st.lists(st.sampled_from(RECORD_COLUMNS), min_size=1, unique=True)

Batches = list[tuple[list[BatchInput], int, int, bool]]


@cache
def bomb(codec: int) -> bytes:
    """A small batch that decompresses to 300 MiB."""
    return bytes(encode([BatchInput(0, None, bytes(300 << 20))], codec=codec))


def joined(lists: Batches) -> bytes:
    """Batches, each of its records as often as it says, one behind the other as in a log."""
    out, offset = bytearray(), 0
    for new, times, codec, append_time in lists:
        repeated = [*new] * times
        out += encode(repeated, base_offset=offset, codec=codec, attributes=APPEND_TIME if append_time else 0)
        offset += len(repeated)
    return bytes(out)


def resealed(batch: bytearray) -> bytes:
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
    return bytes(batch)


def outcome(function: Callable[[], Iterator[pa.RecordBatch]]) -> list[pa.RecordBatch] | None:
    """All that it says; None where it refuses."""
    found = []
    try:
        for batch in function():
            batch.validate(full=True)
            found.append(batch)
    except BatchCorrupt:
        return None
    return found


def assert_same_decoding(data: bytes, first: int, end: int, columns: Collection[str]) -> None:
    one = outcome(lambda: native.decode(data, first, end, columns))
    other = outcome(lambda: arrow.decode(data, first, end, columns))
    assert one == other
    assert outcome(lambda: native.scan_keys(data, first, end)) == outcome(lambda: keyscan.scan_keys(data, first, end))


class TestDecoding:
    @installed
    @given(batch_lists, columns_asked, st.data())
    @settings(deadline=None)
    def test_sound_batches_are_the_same_to_both(self, lists: Batches, columns: list[str], draw: st.DataObject) -> None:
        data = joined(lists)
        count = sum(len(new) * times for new, times, _, _ in lists)
        first = draw.draw(st.integers(0, count))
        end = draw.draw(st.integers(first, count + 1))
        assert_same_decoding(data, first, end, columns)
        assert_same_decoding(data[: draw.draw(st.integers(0, len(data)))], *EVERYTHING, columns)

    @installed
    @given(batch_lists, st.data())
    @settings(deadline=None, max_examples=examples(300))
    def test_records_that_are_wrong(self, lists: Batches, draw: st.DataObject) -> None:
        """Bytes of the records are changed, cut or added, compressed, and the batch sealed again."""
        new, times, codec, append_time = lists[0]
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
            batch[57:61] = draw.draw(st.integers(0, (1 << 31) - 1) | st.integers(0, 100)).to_bytes(4, "big")
        if codec:
            batch[HEADER_BYTES:] = compress(codec, bytes(batch[HEADER_BYTES:]))
            batch[22] |= codec
        assert_same_decoding(resealed(batch), *EVERYTHING, draw.draw(columns_asked))

    @installed
    @given(batch_lists, st.data())
    @settings(deadline=None, max_examples=examples(300))
    def test_bytes_that_are_wrong(self, lists: Batches, draw: st.DataObject) -> None:
        """Any byte of a buffer is changed, headers and compressed records too; mostly the CRC is made to fit again."""
        new, times, codec, append_time = lists[0]
        attributes = APPEND_TIME if append_time else 0
        batch = bytearray(encode([*new] * times, base_offset=5, codec=codec, attributes=attributes))
        for _ in range(draw.draw(st.integers(1, 3))):
            at = draw.draw(st.integers(0, len(batch) - 1) | st.integers(0, HEADER_BYTES - 1))
            batch[at] = draw.draw(st.integers(0, 255))
        if draw.draw(st.integers(0, 3)):
            batch[17:21] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
        data = bytes(batch) + joined(lists[1:])
        assert_same_decoding(data, draw.draw(st.integers(0, 8)), 1 << 62, draw.draw(columns_asked))

    @installed
    def test_portions_are_the_same(self) -> None:
        chance = random.Random(3)
        lists = [([BatchInput(0, b"%d" % n, chance.randbytes(500))], 600, 0, False) for n in range(400)]
        data = joined(lists)
        sizes = [batch.num_rows for batch in native.decode(data, *EVERYTHING, RECORD_COLUMNS)]
        assert len(sizes) > 2
        assert sizes == [batch.num_rows for batch in arrow.decode(data, *EVERYTHING, RECORD_COLUMNS)]

    @both
    def test_what_comes_is_what_was_written(self, way: Any) -> None:
        header = [(b"kind", b"flight"), (b"\xff\xc3", None)]
        data = encode([BatchInput(5, b"k", None), BatchInput(7, None, b"v", header)], base_offset=40)
        (found,) = way.decode(data, *EVERYTHING, RECORD_COLUMNS)
        assert found.column("timestamp").cast(pa.int64()).to_pylist() == [5000, 7000]
        assert found.drop_columns(["timestamp"]).to_pylist() == [
            {"key": b"k", "value": None, "offset": 40, "timestampType": 0, "headers": None},
            {"key": None, "value": b"v", "offset": 41, "timestampType": 0, "headers": [
                {"key": "kind", "value": b"flight"}, {"key": "\ufffd\ufffd", "value": None},
            ]},
        ]  # fmt: skip

    @both
    @pytest.mark.parametrize("data", [b"", b"x", bytes(60)])
    def test_less_than_a_header_is_nothing(self, way: Any, data: bytes) -> None:
        assert list(way.decode(data, *EVERYTHING, ["offset"])) == []

    @both
    def test_what_is_behind_the_range_is_not_looked_at(self, way: Any) -> None:
        data = joined([([BatchInput(0, None, b"x")], 3, 0, False)] * 2)
        broken = data[:-1] + b"!"
        assert [batch.num_rows for batch in way.decode(broken, 0, 3, ["offset"])] == [3]
        with pytest.raises(BatchCorrupt, match="the record batch at offset 3 does not match its CRC"):
            list(way.decode(broken, 0, 4, ["offset"]))

    @both
    def test_control_batches_are_left_out(self, way: Any) -> None:
        control = encode([BatchInput(0, b"\0\0\0\1", b"")], base_offset=3, attributes=CONTROL)
        data = bytes(
            encode([BatchInput(0, None, b"x")] * 3) + control + encode([BatchInput(0, None, b"y")], base_offset=4)
        )
        offsets = [row["offset"] for batch in way.decode(data, 0, 9, ["offset"]) for row in batch.to_pylist()]
        assert offsets == [0, 1, 2, 4]

    @pytest.mark.variants(2)
    @both
    @pytest.mark.parametrize("codec", [4, 3, 2, 1])
    def test_bombs_are_refused(self, way: Any, codec: int) -> None:
        with pytest.raises(BatchCorrupt, match="hold more than"):
            list(way.decode(bomb(codec), *EVERYTHING, ["value"]))

    @both
    @pytest.mark.parametrize("columns", [[], ["topic"], ["key", "keys"]])
    def test_columns_that_there_are_not(self, way: Any, columns: list[str]) -> None:
        with pytest.raises(ValueError, match="columns of records are key, value, offset, timestamp"):
            list(way.decode(b"", *EVERYTHING, columns))

    @installed
    def test_a_buffer_that_can_be_written_is_copied_and_one_in_pieces_too(self) -> None:
        data = joined([([BatchInput(0, b"k", b"x")], 3, 0, False)])
        expected = outcome(lambda: arrow.decode(data, *EVERYTHING, RECORD_COLUMNS))
        spread = bytearray(2 * len(data))
        spread[::2] = data
        for buffer in (bytearray(data), memoryview(bytearray(data)), memoryview(spread)[::2]):
            assert list(native.decode(buffer, *EVERYTHING, RECORD_COLUMNS)) == expected

    @installed
    def test_arrays_outlive_what_they_came_from(self) -> None:
        data = bytearray(joined([([BatchInput(0, b"key", b"value")], 100, 3, False)]))
        (found,) = native.decode(memoryview(data).toreadonly(), *EVERYTHING, ["key", "value"])
        data[:] = bytes(len(data))
        assert found.to_pylist() == [{"key": b"key", "value": b"value"}] * 100


@installed
@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("beyond", [-8193, -8192, -1, 0, 1, 8192, 8193])
@pytest.mark.parametrize("limit_ms", [(1 << 63) // 1000, -((1 << 63) // 1000)])
def test_timestamps_at_the_ends_of_what_microseconds_can_be(limit_ms: int, beyond: int, append_time: bool) -> None:
    base_ms = (limit_ms + beyond).to_bytes(8, "big", signed=True)
    records = [BatchInput(delta, None, None) for delta in (0, 1, -1, 8191, -8192, 8192, -8193)]
    batch = encode(records, attributes=APPEND_TIME if append_time else 0)
    batch[27:35] = batch[35:43] = base_ms
    assert_same_decoding(resealed(batch), *EVERYTHING, RECORD_COLUMNS)


def lz4_frames() -> Iterator[tuple[str, bytes]]:
    """Frames of every kind that Kafka's clients may write, all of which hold `TEXT`."""
    cramjam = pytest.importorskip("cramjam")
    for linked in (False, True):
        for checksum in (False, True):
            compressor = cramjam.lz4.Compressor(level=4, content_checksum=checksum, block_linked=linked)
            compressor.compress(TEXT)
            yield f"linked={linked} checksum={checksum}", bytes(compressor.finish())


TEXT = bytes(random.Random(5).choices(b"abcdef", k=400_000))


@installed
@pytest.mark.parametrize(("frame", "codec"), [
    *((frame, 3) for _, frame in lz4_frames()),
    *((compress(codec, TEXT[:200_000]) + compress(codec, TEXT[200_000:]), codec) for codec in (1, 3, 4)),
    (compress(3, TEXT) + b"\x5a\x2a\x4d\x18\x03\0\0\0abc", 3),
    (compress(4, TEXT) + b"\x5a\x2a\x4d\x18\x03\0\0\0abc", 4),
    *((compress(codec, TEXT)[:-cut], codec) for codec in (1, 2, 3, 4) for cut in (1, 4, 5, 8, 1000)),
    *((compress(codec, TEXT) + more, codec) for codec in (1, 2, 3, 4) for more in (b"\0", b"x", bytes(20))),
    *((b"", codec) for codec in range(8)),
])  # fmt: skip
def test_compressed_records_in_every_form(frame: bytes, codec: int) -> None:
    record = encode([BatchInput(0, None, TEXT[: 400_000 - 11])])[HEADER_BYTES:]
    for content in (frame, compress(codec, bytes(record)) if 0 < codec < 5 else b""):
        batch = encode([BatchInput(0, None, b"x")])
        batch[HEADER_BYTES:] = content
        batch[22] |= codec
        assert_same_decoding(resealed(batch), *EVERYTHING, RECORD_COLUMNS)


rows_lists = st.lists(
    st.tuples(
        st.none() | small | st.integers(100, 200).map(bytes),
        st.none() | small | st.integers(100, 9000).map(bytes),
        st.none() | st.integers(-(1 << 62), 1 << 62) | st.integers(0, 10**6),
        st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | small), max_size=3),
    ),
    max_size=30,
)  # fmt: skip


def rows_of(lists: list[tuple[Any, Any, Any, Any]], columns: Collection[str]) -> pa.RecordBatch:
    keys, values, times, headers = zip(*lists, strict=True) if lists else ((),) * 4
    pairs = [None if row is None else [{"key": name, "value": value} for name, value in row] for row in headers]
    everything = {
        "value": pa.array(values, pa.binary()),
        "key": pa.array(keys, pa.binary()),
        "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
        "headers": pa.array(pairs, HEADERS_TYPE),
        "topic": pa.array(["t"] * len(keys), pa.string()),
    }
    chosen = [name for name in everything if name == "value" or name in columns]
    return pa.RecordBatch.from_arrays([everything[name] for name in chosen], names=chosen)


class TestEncoding:
    @installed
    @given(rows_lists, columns_asked, st.integers(1, 20_000), st.integers(0, 4), st.data())
    @settings(deadline=None)
    def test_both_write_the_same(
        self, lists: list[Any], columns: list[str], size: int, codec: int, draw: st.DataObject
    ) -> None:
        rows = encoding.canonical(rows_of(lists, columns))
        rows = rows.slice(draw.draw(st.integers(0, len(lists))))
        one, other = (way.encode(rows, size, codec, 77) for way in (native, encoding))
        assert [count for _, count in one] == [count for _, count in other]
        if codec:
            one, other = ([records_of(batch) for batch, _ in batches] for batches in (one, other))
        assert one == other

    @pytest.mark.parametrize("way", [pytest.param(native, marks=installed), encoding])
    @given(lists=rows_lists, size=st.integers(1, 20_000))
    @settings(deadline=None)
    def test_what_was_written_is_read(self, way: Any, lists: list[Any], size: int) -> None:
        batches_ = way.encode(encoding.canonical(rows_of(lists, RECORD_COLUMNS)), size, 0, 77)
        assert all(len(batch) <= size or count == 1 for batch, count in batches_)
        found = [record for batch, _ in batches_ for record in records_of(batch)]
        assert found == [
            (77 if time is None else time // 1000, key, value,
             tuple((name.encode(), content) for name, content in headers or ()))
            for key, value, time, headers in lists
        ]  # fmt: skip

    @pytest.mark.parametrize("way", [pytest.param(native, marks=installed), encoding])
    def test_what_cannot_be_written_is_said(self, way: Any) -> None:
        rows = rows_of([(b"k", b"v", 1, [(None, b"x")])], RECORD_COLUMNS)
        with pytest.raises(BatchInvalid, match="a header has no key"):
            way.encode(encoding.canonical(rows), 1000, 0, 0)
        rows = encoding.canonical(rows_of([(b"k", b"v", 1, None)], ["key"]))
        with pytest.raises(BatchInvalid, match="no codec has the number 5"):
            way.encode(rows, 1000, 5, 0)
        with pytest.raises(BatchInvalid, match="is no time that a timestamp can be"):
            way.encode(rows, 1000, 0, 1 << 62)

    @installed
    def test_columns_that_are_something_else(self) -> None:
        numbers = pa.RecordBatch.from_arrays([pa.array([1])], names=["value"])
        with pytest.raises(BatchInvalid, match="the column value is of the type Int64"):
            native.encode(numbers, 1000, 0, 0)
        with pytest.raises(BatchInvalid, match="there is no column value"):
            native.encode(numbers.rename_columns(["key"]), 1000, 0, 0)

    def test_columns_are_made_what_records_have(self) -> None:
        text = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["t"])], names=["value", "topic"])
        assert encoding.canonical(text).to_pylist() == [{"value": b"a"}]
        with pytest.raises(BatchInvalid, match="the column value is of the type int64, not binary"):
            encoding.canonical(pa.RecordBatch.from_arrays([pa.array([1])], names=["value"]))
        with pytest.raises(BatchInvalid, match="there is no column value"):
            encoding.canonical(text.select(["topic"]))


def records_of(batch: Buffer) -> list[tuple[Any, ...]]:
    ((position, head),) = batches(batch)
    assert (position, head.size, head.base_offset) == (0, len(batch), 0)
    assert crc32c(batch[CRC_START:]) == head.crc
    found = list(records(batch))
    assert [record.offset for record in found] == list(range(head.records))
    assert max(record.timestamp for record in found) == head.max_timestamp
    return [record[1:] for record in found]


class TestKeyScan:
    @pytest.mark.parametrize("way", [pytest.param(native, marks=installed), keyscan])
    @given(lists=batch_lists, first=st.integers(0, 100), length=st.integers(0, 1000))
    @settings(deadline=None)
    def test_the_last_record_of_each_key(self, way: Any, lists: Batches, first: int, length: int) -> None:
        data = joined(lists)
        expected: dict[bytes, tuple[int, bool]] = {}
        position = 0
        for _, head in batches(data):
            for record in records(data[position : position + head.size]):
                if record.key is not None and first <= record.offset < first + length:
                    expected[record.key] = (record.offset, record.value is None)
            position += head.size
        found = [row for batch in way.scan_keys(data, first, first + length) for row in batch.to_pylist()]
        assert [row["offset"] for row in found] == sorted(row["offset"] for row in found)
        assert {row["key"]: (row["offset"], row["tombstone"]) for row in found} == expected


THREADS = """
import threading
from duramen.codec.batch import BatchInput, encode
from duramen.spark.batches import native
data = bytes(encode([BatchInput(0, None, b"v")] * 8))
rows = []
def decode():
    rows.extend(batch.num_rows for batch in native.decode(data, 0, 8, ["value", "headers"]))
for _ in range(50):
    thread = threading.Thread(target=decode)
    thread.start()
    thread.join()
assert rows == [8] * 50, rows
"""


@installed
def test_threads_that_come_and_go_decode() -> None:
    """In a process of its own: an allocator that keeps something of a thread that is gone takes the process with it."""
    subprocess.run([sys.executable, "-c", THREADS], check=True)


class TestTheChoice:
    @pytest.mark.parametrize("there", [False, pytest.param(True, marks=installed)])
    def test_it_works_either_way_and_says_so_once(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, there: bool
    ) -> None:
        monkeypatch.setattr(native, "is_installed", lambda: there)
        decoding.warn_if_slow.cache_clear()
        for _ in range(2):
            decoding.warn_if_slow()
        said = [record.message for record in caplog.records if record.name == "duramen.spark"]
        assert said == (
            [] if there else ["duramen-native is not installed: records are decoded in Python, which is slower"]
        )
        rows = pa.RecordBatch.from_arrays([pa.array(["k"]), pa.array(["v"])], names=["key", "value"])
        ((batch, count),) = decoding.encode(rows, 1000, 4, 3)
        assert count == 1
        (found,) = decoding.decode(batch, 0, 1, ["key", "offset", "value"])
        assert found.to_pylist() == [{"key": b"k", "value": b"v", "offset": 0}]
        (keys,) = decoding.scan_keys(batch, 0, 1)
        assert keys.to_pylist() == [{"key": b"k", "offset": 0, "tombstone": False}]

    def test_a_package_of_another_version_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        package = ModuleType("duramen_native")
        package.__dict__["INTERFACE"] = 0
        monkeypatch.setitem(sys.modules, "duramen_native", package)
        native.is_installed.cache_clear()
        assert not native.is_installed()
        native.is_installed.cache_clear()
