"""Batches built again of some of their records: what stays is what it was, but for what has to change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import BatchCorrupt
from duramen.codec.batch import (
    APPEND_TIME,
    CONTROL,
    DELETE_HORIZON,
    BatchInput,
    encode,
    header,
    records,
    set_append_time,
)
from duramen.codec.batch_filter import body, marker_type, rebuild, spans

contents = st.one_of(st.none(), st.binary(max_size=200))
new_records = st.builds(
    BatchInput,
    st.integers(0, 1 << 45),
    contents,
    contents,
    st.lists(st.tuples(st.binary(max_size=5), contents), max_size=3),
)


@given(
    st.lists(new_records, min_size=1, max_size=20),
    st.integers(0, 4),
    st.sets(st.integers(0, 19)),
    st.one_of(st.just(-1), st.integers(0, 1 << 45)),
    st.booleans(),
)
def test_what_stays_is_what_it_was(
    new: list[BatchInput], codec: int, kept: set[int], horizon_ms: int, append_time: bool
) -> None:
    batch = encode(new, base_offset=100, leader_epoch=3, codec=codec, producer_id=9, producer_epoch=2, base_sequence=7)
    if append_time:
        set_append_time(batch, 1234)
    before = header(batch)
    data = body(batch, before)
    found = list(spans(data, before.records))
    assert [(span.key, span.tombstone) for span in found] == [(one.key, one.value is None) for one in new]
    staying = [span for span in found if span.offset_delta in kept]
    after_batch = rebuild(before, data, staying, horizon_ms)
    after = header(after_batch)
    assert list(records(after_batch)) == [one for one in records(batch) if one.offset - 100 in kept]
    assert after.size == len(after_batch)
    same = "base_offset", "leader_epoch", "magic", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence"
    assert all(getattr(after, name) == getattr(before, name) for name in same)
    assert after.records == len(staying)
    assert after.delete_horizon_ms == horizon_ms
    timestamps = [one.timestamp for one in records(after_batch)]
    assert after.max_timestamp == (max(timestamps) if timestamps else before.max_timestamp)
    assert bool(after.attributes & APPEND_TIME) == append_time
    again = rebuild(after, body(after_batch, after), list(spans(body(after_batch, after), after.records)))
    if codec == 0:
        assert again == after_batch


def test_a_first_timestamp_is_not_taken_from_a_delete_horizon() -> None:
    batch = encode([BatchInput(1000, b"k", None), BatchInput(2000, b"k", None)])
    before = header(batch)
    data = body(batch, before)
    after = header(rebuild(before, data, list(spans(data, 2)), 999_999))
    assert after.attributes & DELETE_HORIZON
    assert (before.first_timestamp, after.first_timestamp) == (1000, 2000)


def test_markers() -> None:
    for type_ in (0, 1):
        marker = encode([BatchInput(0, b"\0\0\0" + bytes((type_,)), b"")], attributes=CONTROL)
        assert marker_type(body(marker, header(marker))) == type_
    assert marker_type(b"") is None
    other = encode([BatchInput(0, b"", b"")], attributes=CONTROL)
    assert marker_type(body(other, header(other))) is None


def test_records_that_do_not_fit_are_damage() -> None:
    batch = encode([BatchInput(0, b"key", b"value")])
    data = body(batch, header(batch))
    for wrong in (data[:-1], data[:3], b"", b"\xff" * 20):
        with pytest.raises(BatchCorrupt):
            list(spans(wrong, 1))
