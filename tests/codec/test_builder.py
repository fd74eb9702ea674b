"""Batches built fast are the batches that the reference builds, and headers found fast are those that are there."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import BatchCorrupt
from duramen.codec.batch import HEADER_BYTES, BatchInput, encode, encode_record, records, seal
from duramen.codec.builder import RECORD_OVERHEAD_BYTES, BatchBuilder, encode_headers
from duramen.codec.headers import find_header_values

_NAMES = st.sampled_from([b"A", b"B", b"C", b"Nats-Msg-Id"])
_HEADERS = st.lists(st.tuples(_NAMES, st.binary(max_size=300)), max_size=4)
_RECORDS = st.lists(st.tuples(st.none() | st.binary(max_size=300), st.binary(max_size=3000), _HEADERS), min_size=1)


@given(_RECORDS, st.integers(0, 1 << 41))
def test_is_the_reference(
    wanted: list[tuple[bytes | None, bytes, list[tuple[bytes, bytes]]]], timestamp_ms: int
) -> None:
    builder = BatchBuilder()
    for key, value, headers in wanted:
        before = builder.size
        builder.add(key, value, encode_headers(headers))
        most = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value) + len(encode_headers(headers))
        assert builder.size - before <= most
    built = builder.seal(timestamp_ms)
    reference = b"".join(encode_record(0, index, *record) for index, record in enumerate(wanted))
    assert built == seal(reference, len(wanted), timestamp_ms, timestamp_ms)
    assert (builder.count, builder.size) == (len(wanted), len(built) - HEADER_BYTES)


def test_many_records() -> None:
    builder = BatchBuilder()
    for number in range(5000):
        builder.add(None, b"%d" % number, encode_headers([]))
    assert [record.value for record in records(builder.seal(7))] == [b"%d" % number for number in range(5000)]


_FOREIGN = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=20),
        st.lists(st.tuples(_NAMES, st.none() | st.binary(max_size=9) | _NAMES), max_size=4),
        st.integers(0, 1 << 41),
    ),
    min_size=1,
)


@given(_FOREIGN, st.sampled_from([0, 1, 4]), st.sampled_from([(b"A",), (b"A", b"B")]))
def test_finds_what_is_there(
    wanted: list[tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int]],
    codec: int,
    names: tuple[bytes, ...],
) -> None:
    new = [BatchInput(timestamp, key, value, headers) for key, value, headers, timestamp in wanted]
    batch = bytes(encode(new, base_offset=100, codec=codec))
    expected = []
    for record in records(batch):
        first: dict[bytes, bytes] = {}
        for name, content in record.headers:
            if content is not None:
                first.setdefault(name, content)
        if all(name in first for name in names):
            expected.append((record.offset, record.timestamp, tuple(first[name] for name in names)))
    assert list(find_header_values(batch, names)) == expected


@given(st.data())
def test_damage_is_one_kind_of_error(data: st.DataObject) -> None:
    new = [BatchInput(5, b"k", b"v", [(b"A", b"1")]) for _ in range(3)]
    batch = bytearray(encode(new))
    for _ in range(data.draw(st.integers(1, 5))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BatchCorrupt):
        list(find_header_values(bytes(batch), (b"A",)))


def test_a_record_that_is_cut_off_is_damage() -> None:
    batch = bytes(encode([BatchInput(5, b"k", b"v", [(b"A", b"1")])]))
    damaged = batch[:HEADER_BYTES] + b"\x7e" + batch[HEADER_BYTES + 1 :]
    with pytest.raises(BatchCorrupt):
        list(find_header_values(damaged, (b"A",)))
