"""Batches of keys and values read at once, beside `records`, which reads any."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import BatchCorrupt
from duramen.codec.batch import BatchInput, encode, header, records
from duramen.codec.plain import keyed_records

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
