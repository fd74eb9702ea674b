"""The numbers and secrets of queue spaces: kept by snapshots, and none where nodes of an older version take part."""

from uuid import UUID

from duramen.metadata.decisions import Definition, configure_stream, create_stream, delete_stream
from duramen.metadata.events import ClusterFormed, FeatureLevelChanged
from duramen.metadata.features import MetadataFeature
from duramen.metadata.snapshot import decode_snapshot, encode_snapshot
from duramen.metadata.state import ControllerState

SECRET = bytes(range(16))


def make(state: ControllerState, name: str, kind: str = "queues") -> int:
    """The number of a new stream."""
    wish, stream_id = Definition(name, 1, {"kind": kind}), UUID(int=ord(name[0]))
    for event in create_stream(state, wish, stream_id=stream_id, now_ms=0, secret=SECRET):
        state.apply(event)
    return state.streams[name].number


def test_each_space_has_a_number_of_its_own() -> None:
    state = ControllerState()
    assert [make(state, name) for name in ("a", "b", "c")] == [1, 2, 3]
    assert make(state, "log", "log") == 0
    for event in delete_stream(state, "b", now_ms=0, producers_ms=0):
        state.apply(event)
    assert make(state, "d") == 4
    again = decode_snapshot(encode_snapshot(state))
    assert {name: stream.number for name, stream in again.streams.items()} == {"a": 1, "c": 3, "d": 4, "log": 0}
    assert again.copy().streams["d"].number == 4


def test_a_cluster_with_older_nodes_gives_none() -> None:
    state = ControllerState()
    state.apply(ClusterFormed("c"))
    state.apply(FeatureLevelChanged(MetadataFeature.QUEUES))
    assert make(state, "a") == 0
    state.apply(FeatureLevelChanged(MetadataFeature.SPACE_NUMBERS))
    assert make(state, "b") == 1


def test_a_space_has_a_secret_and_a_snapshot_keeps_it() -> None:
    state = ControllerState()
    make(state, "a")
    make(state, "log", "log")
    again = decode_snapshot(encode_snapshot(state)).copy()
    for event in configure_stream(again, "a", {"queue.topic.prefix": "a."}):
        again.apply(event)
    assert again.streams["a"].secret == again.streams["a"].hash_key == SECRET
    assert again.streams["log"].secret == b""


def test_a_space_of_a_cluster_with_older_nodes_has_its_id_for_a_key() -> None:
    state = ControllerState()
    state.apply(ClusterFormed("c"))
    state.apply(FeatureLevelChanged(MetadataFeature.TOPIC_DURABILITY))
    make(state, "a")
    state.apply(FeatureLevelChanged(MetadataFeature.SPACE_SECRETS))
    make(state, "b")
    again = decode_snapshot(encode_snapshot(state))
    assert again.streams["a"].hash_key == again.streams["a"].id.bytes
    assert again.streams["b"].hash_key == SECRET
