"""Record batches against the builders of two clients in both directions, and against bytes nobody sealed."""

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.untyped import untyped

from duramen.base.errors import BatchCorrupt, BatchInvalid
from duramen.codec import batch
from duramen.codec.batch import (
    APPEND_TIME,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    BatchInput,
    DecodedRecord,
    check,
    encode,
    encode_records,
    plain_encode_records,
    records,
)
from duramen.codec.compression import CODECS
from duramen.codec.crc import crc32c

kafka_python = untyped("kafka.record.default_records")
aiokafka = untyped("aiokafka.record.default_records")

TIMESTAMPS = st.integers(0, 1 << 45)
HEADERS = st.lists(st.tuples(st.text(max_size=8).map(str.encode), st.none() | st.binary(max_size=8)), max_size=3)
NEW_RECORDS = st.lists(
    st.builds(BatchInput, TIMESTAMPS, st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=60), HEADERS),
    min_size=1,
    max_size=20,
)
ALL_CODECS = st.integers(0, len(CODECS) - 1)
PRODUCERS = st.tuples(st.integers(-1, 1 << 40), st.integers(0, 1 << 14), st.integers(0, (1 << 31) - 1))


def as_read(new: list[BatchInput], base_offset: int = 0) -> list[DecodedRecord]:
    """What reading a batch of `new` has to give."""
    return [
        DecodedRecord(base_offset + at, record.timestamp, record.key, record.value, tuple(record.headers))
        for at, record in enumerate(new)
    ]


@given(NEW_RECORDS, ALL_CODECS, st.integers(0, 1 << 60), PRODUCERS)
def test_round_trip(new: list[BatchInput], codec: int, base_offset: int, producer: tuple[int, int, int]) -> None:
    encoded = encode(
        new,
        base_offset=base_offset,
        leader_epoch=7,
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )
    head = check(encoded)
    assert (head.base_offset, head.leader_epoch, head.records) == (base_offset, 7, len(new))
    assert (head.producer_id, head.producer_epoch, head.base_sequence) == producer
    assert (head.size, head.next_offset) == (len(encoded), base_offset + len(new))
    assert head.base_timestamp == new[0].timestamp
    assert head.max_timestamp == max(record.timestamp for record in new)
    assert list(records(encoded)) == as_read(new, base_offset)


def _as_read_by(library: Any, encoded: bytes | bytearray) -> list[DecodedRecord]:
    return [
        DecodedRecord(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((name.encode(), value) for name, value in record.headers),
        )
        for record in library.DefaultRecordBatch(bytearray(encoded))
    ]


def _built_by(library: Any, new: list[BatchInput], codec: int, producer: tuple[int, int, int]) -> bytes:
    builder = library.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 20,
    )
    for offset, record in enumerate(new):
        headers = [(name.decode(), value) for name, value in record.headers]
        builder.append(offset, timestamp=record.timestamp, key=record.key, value=record.value, headers=headers)
    return bytes(builder.build())


ODD_VALUES = st.none() | st.binary(max_size=200) | st.binary(max_size=3).map(bytearray)
ANY_TIMES = st.integers(0, 1 << 45) | st.integers(-(1 << 63), (1 << 63) - 1)
ANY_HEADERS = HEADERS | HEADERS.map(tuple)


@given(st.lists(st.builds(BatchInput, ANY_TIMES, ODD_VALUES, ODD_VALUES, ANY_HEADERS), max_size=20))
def test_the_native_package_encodes_the_same_records(new: list[BatchInput]) -> None:
    assert encode_records(new) == plain_encode_records(new)


# kafka-python compresses with the standard library only.
@given(NEW_RECORDS, st.integers(0, 1), PRODUCERS)
def test_both_ways_with_kafka_python(new: list[BatchInput], codec: int, producer: tuple[int, int, int]) -> None:
    theirs = _built_by(kafka_python, new, codec, producer)
    assert list(records(theirs)) == as_read(new)
    assert check(theirs).producer_id == producer[0]
    mine = encode(new, codec=codec, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
    assert _as_read_by(kafka_python, mine) == as_read(new)
    if codec == 0:
        # Libraries differ in what they write into the leader epoch, which the broker stamps anyway.
        assert mine[16:] == theirs[16:]


@given(NEW_RECORDS, ALL_CODECS, PRODUCERS)
def test_both_ways_with_aiokafka(new: list[BatchInput], codec: int, producer: tuple[int, int, int]) -> None:
    assert list(records(_built_by(aiokafka, new, codec, producer))) == as_read(new)
    assert _as_read_by(aiokafka, encode(new, codec=codec)) == as_read(new)


@given(NEW_RECORDS, ALL_CODECS, st.integers(0, 1 << 60), st.integers(0, 1 << 30), TIMESTAMPS)
def test_stamping_leaves_the_crc_alone_and_append_time_makes_it_anew(
    new: list[BatchInput], codec: int, base_offset: int, epoch: int, now_ms: int
) -> None:
    encoded = encode(new, codec=codec)
    sealed = bytes(encoded[CRC_START:])
    batch.stamp(encoded, base_offset, epoch)
    assert bytes(encoded[CRC_START:]) == sealed
    assert check(encoded)[:3] == (base_offset, len(encoded) - 12, epoch)
    batch.set_append_time(memoryview(encoded), now_ms)
    head = batch.header(encoded)
    assert head.attributes == codec | APPEND_TIME
    assert head.crc == crc32c(encoded[CRC_START:])
    assert [(record.offset, record.timestamp) for record in records(encoded)] == [
        (base_offset + at, now_ms) for at in range(len(new))
    ]
    assert {record.timestamp for record in aiokafka.DefaultRecordBatch(bytearray(encoded))} == {now_ms}


@given(st.lists(NEW_RECORDS, max_size=4), st.integers(0, 200))
def test_batches_one_after_another(groups: list[list[BatchInput]], cut: int) -> None:
    encoded = [bytes(encode(new)) for new in groups]
    joined = b"".join(encoded)
    data = joined[: max(0, len(joined) - cut)]
    found = list(batch.batches(data))
    whole = [size for size in range(len(encoded) + 1) if sum(map(len, encoded[:size])) <= len(data)][-1]
    assert [position for position, _ in found] == [sum(map(len, encoded[:at])) for at in range(whole)]


# -- what a producer may not send ---------------------------------------------------------------------

ONE = [BatchInput(1_700_000_000_000, b"key", b"value", [(b"name", b"content")])]
LAYOUT = {
    "length": (8, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last offset delta": (23, ">i"),
    "max timestamp": (35, ">q"),
    "producer id": (43, ">q"),
    "producer epoch": (51, ">h"),
    "base sequence": (53, ">i"),
    "count": (57, ">i"),
}


def resealed(data: bytearray) -> bytearray:
    """The batch with the CRC that its bytes have now."""
    data[17:21] = crc32c(data[CRC_START:]).to_bytes(4, "big")
    return data


def with_field(name: str, value: int, new: list[BatchInput] | None = None) -> bytearray:
    """A batch in which one field says something else, with the right CRC for that."""
    data = encode(ONE if new is None else new)
    position, layout = LAYOUT[name]
    struct.pack_into(layout, data, position, value)
    return resealed(data)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", BatchCorrupt, "at least 61 bytes"),
        (bytes(encode(ONE))[:-1], BatchCorrupt, "says it has"),
        (bytes(encode(ONE)) + b"\0", BatchInvalid, "one record batch"),
        (bytes(encode(ONE)) * 2, BatchInvalid, "one record batch"),
        (bytes(encode(ONE))[:-1] + b"\xff", BatchCorrupt, "CRC"),
        (with_field("length", -1), BatchCorrupt, "says it has"),
        (with_field("length", 1 << 30), BatchCorrupt, "says it has"),
        (with_field("magic", 1), BatchInvalid, "magic"),
        (with_field("count", 0), BatchInvalid, "0 records"),
        (with_field("count", -1), BatchInvalid, "-1 records"),
        (with_field("count", 2), BatchInvalid, "2 records"),
        (with_field("last offset delta", 5), BatchInvalid, "last offset delta of 5"),
        (with_field("attributes", 5), BatchInvalid, "no compression codec"),
        (with_field("attributes", CONTROL), BatchInvalid, "control"),
        (with_field("attributes", APPEND_TIME), BatchInvalid, "append"),
        (with_field("producer id", 5), BatchInvalid, "sequence"),
    ],
)
def test_refused(data: bytes | bytearray, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check(data)


def test_more_records_than_bytes_for_them() -> None:
    data = with_field("count", 1_000_000)
    struct.pack_into(">i", data, 23, 999_999)
    with pytest.raises(BatchInvalid, match="do not fit"):
        check(resealed(data))


@pytest.mark.parametrize(
    "record",
    [
        b"",  # nothing at all
        b"\x0e\0\0\0\x01\x01\0\0",  # one byte too many
        b"\x0e\0\0\0\x01\x01",  # cut off
        b"\x0c\0\0\x02\x01\x01\0",  # an offset beyond the batch's last
        b"\x0c\0\0\x01\x01\x01\0",  # an offset before the batch's first
        b"\x0c\0\0\0\x7e\x01\0",  # a key longer than the record
        b"\x0c\0\0\0\x01\x01\x7e",  # more headers than bytes
        b"\x0c\0\0\0\x01\x01\x01",  # a negative count of headers
        b"\x10\0\0\0\x01\x01\x02\x01\x01",  # a header without a key
        b"\x1e\0" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\0\x01\x01\0",  # a timestamp of more than 64 bits
    ],
)
def test_records_that_contradict_themselves(record: bytes) -> None:
    sealed = batch.seal(record, 1, 1 << 62, 1 << 62)
    with pytest.raises(BatchCorrupt):
        list(records(sealed))


@given(
    new=NEW_RECORDS,
    codec=ALL_CODECS,
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4),
    cut=st.just(1.0) | st.floats(0, 1),
    reseal=st.booleans(),
)
def test_mutated_batches_are_read_or_refused(
    new: list[BatchInput], codec: int, changes: list[tuple[float, int]], cut: float, reseal: bool
) -> None:
    data = encode(new, codec=codec)
    for place, flip in changes:
        data[int(place * len(data))] ^= flip
    data = data[: int(cut * len(data))]
    if reseal and len(data) >= HEADER_BYTES:
        struct.pack_into(">i", data, 8, len(data) - 12)
        data = resealed(data)
    _read_or_refuse(bytes(data))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    _read_or_refuse(data)


def _read_or_refuse(data: bytes) -> None:
    try:
        head = check(data)
        read = list(records(data, limit_bytes=1 << 20))
    except (BatchCorrupt, BatchInvalid):
        pass
    else:
        assert len(read) == head.records
        assert all(head.base_offset <= record.offset < head.next_offset for record in read)
        assert all(-(1 << 63) <= record.timestamp < 1 << 63 for record in read)
    with contextlib.suppress(BatchCorrupt):
        list(batch.batches(data))
    with contextlib.suppress(BatchCorrupt):
        list(records(data, verify=False, limit_bytes=1 << 20))
