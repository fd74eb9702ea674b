"""Batches of keys and values read at once, beside `records`, which reads any."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import BatchCorrupt
from duramen.codec.batch import APPEND_TIME, BatchInput, encode, header, records
from duramen.codec.plain import keyed_records, newest_keyed, plain_newest_keyed

fields = st.none() | st.binary(max_size=200)
inputs = st.builds(
    BatchInput,
    st.integers(0, 1 << 41) | st.integers(-(1 << 62), 1 << 62),
    fields,
    fields,
    st.just(()) | st.just(((b"h", b"v"),)),
)


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(inputs, min_size=1, max_size=8),
    st.integers(0, 1 << 40),
    st.sampled_from((0, 1)),
    st.none() | st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)),
    st.booleans(),
)
def test_what_is_read_at_once_is_what_records_are(
    new: list[BatchInput], base_offset: int, codec: int, flip: tuple[int, int] | None, verify: bool
) -> None:
    data = encode(new, base_offset=base_offset, codec=codec)
    if flip is not None:
        data[flip[0] % len(data)] ^= flip[1]
    found = keyed_records(data, verify=verify)
    if found is None:
        plain = all(one.key is not None and not one.headers and abs(one.timestamp) < 1 << 61 for one in new)
        assert codec or flip is not None or not plain
        return
    read = list(records(data, verify=verify))
    assert found == [(one.offset, one.timestamp, one.key, one.value) for one in read]
    assert not any(one.headers for one in read)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(inputs, min_size=1, max_size=8),
    st.sampled_from((0, 0, 1, 3)),
    st.sampled_from((0, 0, APPEND_TIME)),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3),
    st.sampled_from((0, 50, 1 << 20)),
)
def test_both_ways_to_look_at_keys_say_the_same(
    new: list[BatchInput], codec: int, attributes: int, flips: list[tuple[int, int]], limit_bytes: int
) -> None:
    data = encode(new, codec=codec, attributes=attributes)
    for at, byte in flips:
        data[at % len(data)] ^= byte
    found = newest_keyed(data, limit_bytes)
    assert found == plain_newest_keyed(data, limit_bytes)
    if not flips and limit_bytes > len(data):
        newest = max(one.timestamp for one in records(data))
        assert found == (newest if all(one.key is not None for one in new) else None)


def test_a_batch_that_says_more_records_than_it_has_is_not_read() -> None:
    data = encode([BatchInput(1, b"k", b"v")])
    data[57:61] = (2).to_bytes(4, "big")
    assert header(data).records == 2
    assert keyed_records(data, verify=False) is None
    try:
        list(records(data, verify=False))
    except BatchCorrupt:
        return
    raise AssertionError("it can be read")
