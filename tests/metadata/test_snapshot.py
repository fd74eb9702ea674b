"""Snapshots of the controller's state: what is read is what was written, and equal histories make equal bytes."""

from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec import UNSET

from duramen.base.errors import BatchCorrupt
from duramen.metadata.events import (
    ClusterFormed,
    Event,
    FeatureLevelChanged,
    GroupConfigured,
    NatsGapRecorded,
    NodeConfigured,
    NodeDraining,
    NodeFenced,
    NodeRegistered,
    NodeUnfenced,
    NodeUnregistered,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    QuotasChanged,
    StreamConfigured,
    StreamCreated,
    StreamDeleted,
    TenantNameReserved,
)
from duramen.metadata.snapshot import decode_snapshot, encode_snapshot
from duramen.metadata.state import ControllerState

IDS = st.integers(1, 3).map(lambda number: str(UUID(int=number)))
CONFIG = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]))
MEMBERS = st.just(UNSET) | st.permutations((1, 2, 3)).map(lambda order: tuple(order[:2]))
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(NodeRegistered, st.integers(1, 3), IDS),
    st.builds(NodeRegistered, st.integers(1, 3), IDS, st.just("x"), st.integers(0, 2), fenced=st.booleans()),
    st.sampled_from([NodeFenced, NodeUnfenced, NodeDraining, NodeUnregistered]).flatmap(
        lambda kind: st.builds(kind, st.integers(1, 3), st.integers(0, 2))
    ),
    st.builds(ClusterFormed, st.sampled_from(["", "ours"])),
    st.builds(FeatureLevelChanged, st.integers(0, 3)),
    st.builds(
        PartitionChanged, IDS, st.integers(0, 3), st.integers(0, 9), st.just(UNSET) | st.none() | st.just(1),
        st.just(UNSET) | st.integers(0, 5), MEMBERS, MEMBERS, MEMBERS, MEMBERS, MEMBERS, MEMBERS,
    ),
    IDS.flatmap(
        lambda id_: st.builds(
            StreamCreated, st.just(f"s{id_[-1]}"), st.just(id_), st.integers(1, 9), CONFIG,
            st.sampled_from([(), ("x.>",)]), st.booleans(), st.integers(0, 50),
        )
    ),
    st.builds(PartitionsAdded, IDS, st.integers(1, 20)),
    st.builds(StreamConfigured, IDS, CONFIG),
    st.builds(StreamDeleted, IDS, st.integers(0, 50), st.integers(0, 90)),
    st.builds(ProducerIdsAllocated, st.integers(1, 5000), st.integers(1, 1000)),
    st.builds(GroupConfigured, st.sampled_from("gh"), CONFIG),
    st.builds(NodeConfigured, st.one_of(st.none(), st.integers(1, 2)), CONFIG),
    st.builds(QuotasChanged, st.just((("user", None),)), st.dictionaries(st.just("rate"), st.just(1.5))),
    st.builds(
        TenantNameReserved, st.just("a"), st.sampled_from("tu"), st.integers(1, 50), st.booleans()
    ),
    st.builds(
        NatsGapRecorded, st.just(1), st.integers(0, 100), st.integers(0, 200), st.just("why"),
        st.one_of(st.just(""), IDS),
    ),
)  # fmt: skip


@given(st.lists(EVENTS, max_size=40), st.lists(EVENTS, max_size=10))
def test_a_state_goes_on_from_its_snapshot(before: list[Event], after: list[Event]) -> None:
    state = ControllerState()
    for event in before:
        state.apply(event)
    image = encode_snapshot(state)
    again = decode_snapshot(image)
    assert encode_snapshot(again) == image
    assert encode_snapshot(state.copy()) == image
    for event in after:
        state.apply(event)
        again.apply(event)
    assert encode_snapshot(again) == encode_snapshot(state)
    for stream in state.streams.values():
        assert again.streams[stream.name] == stream
        assert again.gaps(stream.id) == state.gaps(stream.id)
    assert (again.size, again.next_producer_id) == (state.size, state.next_producer_id)
    assert (again.registrations, again.partitions) == (state.registrations, state.partitions)
    assert (again.cluster_id, again.feature_level) == (state.cluster_id, state.feature_level)
    assert (dict(again.nodes), dict(again.groups)) == (dict(state.nodes), dict(state.groups))
    assert (dict(again.node_configs), dict(again.quotas)) == (dict(state.node_configs), dict(state.quotas))
    assert (dict(again.tenant_names), again.next_reservation) == (dict(state.tenant_names), state.next_reservation)


@pytest.mark.parametrize("data", [b"", b"[", b"{}", b'[{"event":"what"}]', b'[{"event":"stream-deleted","id":"x"}]'])
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(BatchCorrupt, match="snapshot"):
        decode_snapshot(data)
