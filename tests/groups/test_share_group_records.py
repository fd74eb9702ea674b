"""The record of a share group's partitions: round trips, its bytes, and hostile bytes."""

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import BatchCorrupt
from duramen.groups.records import OtherKey, decode_key
from duramen.groups.share_group_records import GroupPlaces, decode_places, encode_places, encode_places_key

PLACES = st.frozensets(st.tuples(st.uuids(), st.integers(0, 99)), max_size=5)


@given(PLACES, PLACES)
def test_partitions_come_back(kept: frozenset[tuple[UUID, int]], unsure: frozenset[tuple[UUID, int]]) -> None:
    found, names = decode_places(encode_places(GroupPlaces(kept, unsure), str))
    assert names == {topic_id: str(topic_id) for topic_id, _ in kept | unsure}
    assert found == GroupPlaces(kept, unsure - kept)
    assert found.every == kept | unsure


def test_the_bytes_are_kafkas() -> None:
    assert encode_places_key("g") == b"\0\x0f\0\x01g"
    assert decode_key(encode_places_key("g")) == OtherKey("g", b"\0\x0f\0\x01g")
    places = GroupPlaces(frozenset({(UUID(int=5), 3)}))
    topic = bytes(15) + b"\x05" + b"\x02t" + b"\x02\0\0\0\x03" + b"\0"
    assert encode_places(places, lambda _: "t") == b"\0\0" + b"\x01" + b"\x02" + topic + b"\x01" + b"\0"


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_something_or_damaged(data: bytes) -> None:
    for value in (data, b"\0\0" + data):
        with contextlib.suppress(BatchCorrupt):
            decode_places(value)


def test_what_is_damaged_is_said() -> None:
    with pytest.raises(BatchCorrupt, match="version"):
        decode_places(b"\0\x01")
    with pytest.raises(BatchCorrupt, match="damaged"):
        decode_places(b"\0\0\xff")
