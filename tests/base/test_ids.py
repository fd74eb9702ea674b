"""Ids and their layout."""

import base64
import uuid

from hypothesis import given
from hypothesis import strategies as st

from duramen.base.ids import SHARD_BITS, Position, new_directory_id, new_stream_id, shard_of, shown_cluster_id


@given(st.binary(min_size=16, max_size=16), st.integers(0, (1 << SHARD_BITS) - 1))
def test_an_id_names_its_shard_and_is_a_uuid(chance: bytes, shard: int) -> None:
    stream_id = new_stream_id(chance, shard)
    assert shard_of(stream_id) == shard
    assert (stream_id.version, stream_id.variant) == (8, uuid.RFC_4122)
    assert uuid.UUID(str(stream_id)) == stream_id


@given(st.binary(min_size=16, max_size=16))
def test_a_directory_id_is_a_random_uuid(chance: bytes) -> None:
    assert new_directory_id(chance).version == 4


def test_positions_compare_as_histories_do() -> None:
    assert Position(1, 100) < Position(2, 50) < Position(2, 51)


@given(st.uuids())
def test_a_cluster_id_is_shown_as_kafka_s_are(cluster_id: uuid.UUID) -> None:
    shown = shown_cluster_id(cluster_id)
    assert len(shown) == 22
    assert uuid.UUID(bytes=base64.urlsafe_b64decode(f"{shown}==")) == cluster_id
