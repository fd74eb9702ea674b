"""The numbers of queue spaces: each its own, kept by snapshots, and none where nodes of an older version take part."""

from uuid import UUID

from duramen.metadata.decisions import Definition, create_stream, delete_stream
from duramen.metadata.events import ClusterFormed, FeatureLevelChanged
from duramen.metadata.features import MetadataFeature
from duramen.metadata.snapshot import decode_snapshot, encode_snapshot
from duramen.metadata.state import ControllerState


def make(state: ControllerState, name: str, kind: str = "queues") -> int:
    """The number of a new stream."""
    events = create_stream(state, Definition(name, 1, {"kind": kind}), stream_id=UUID(int=ord(name[0])), now_ms=0)
    for event in events:
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
