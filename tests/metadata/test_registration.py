"""Who may take part as which node; heartbeats of registrations that are over; how a cluster begins and grows."""

import pytest
from tests.metadata.cluster.building import add_stream, partition_at, site_with
from tests.metadata.cluster.site import Site

from duramen.base.errors import (
    ClusterDiffers,
    DirectoryRolledBack,
    NodeDuplicate,
    NodeEpochStale,
    NodeNotFound,
    RequestInvalid,
    UnsupportedFeature,
)
from duramen.metadata.bootstrap import adopt, form, set_feature_level
from duramen.metadata.decisions import Definition, create_stream
from duramen.metadata.events import (
    ClusterFormed,
    Endpoint,
    FeatureLevelChanged,
    NodeRegistered,
    decode_event,
    encode_event,
)
from duramen.metadata.heartbeats import Heartbeat, heartbeat
from duramen.metadata.partitions import PartitionId
from duramen.metadata.registration import Registration, register, unregister
from duramen.metadata.state import ControllerState


def test_a_node_of_another_cluster_is_refused() -> None:
    site = Site()
    site.commit(form(site.state, "ours", 0))
    for cluster_id in ("theirs", ""):
        with pytest.raises(ClusterDiffers, match="ours"):
            site.register(Registration(1, "a", "x", cluster_id))
    assert site.register(Registration(1, "a", "x", "ours"))


def test_a_directory_is_one_node_s() -> None:
    site = site_with(None)
    with pytest.raises(NodeDuplicate, match="node 1"):
        site.register(Registration(2, "1a", "x"))


def test_the_same_registration_again_needs_nothing_and_a_changed_one_a_new_epoch() -> None:
    site = site_with("r")
    wish = Registration(1, "1a", "x", rack="r")
    before = site.state.registrations.get(1)
    assert before is not None
    assert not site.register(wish)
    site.register(wish._replace(endpoints=(Endpoint("kafka", "h", 9092),)))
    after = site.state.registrations.get(1)
    assert after is not None
    assert after.epoch > before.epoch
    assert after.fenced
    assert after.endpoints == (Endpoint("kafka", "h", 9092),)


def test_a_directory_that_does_not_know_its_last_registration_is_an_older_copy() -> None:
    site = Site()
    site.register(Registration(1, "a", "x", tried=()))
    for tried in ((), ("w",), None):
        with pytest.raises(DirectoryRolledBack, match="process x"):
            site.register(Registration(1, "a", "y", tried=tried))
    assert site.register(Registration(1, "a", "y", tried=("w", "x")))
    assert not site.register(Registration(1, "a", "y", tried=("w", "x")))  # the answer was lost
    with pytest.raises(DirectoryRolledBack, match="process y"):
        site.register(Registration(1, "a", "x", tried=("w",)))  # it was on its way when its process ended


def test_a_directory_that_kept_nothing_is_taken_until_it_does() -> None:
    site = Site()
    site.register(Registration(1, "a", "x"))
    site.register(Registration(1, "a", "y"))
    site.register(Registration(1, "a", "z", tried=()))
    copy = [decode_event(encode_event(event)) for node in site.state.registrations for event in node.events]
    assert [event for event in copy if isinstance(event, NodeRegistered) and event.remembers]
    with pytest.raises(DirectoryRolledBack):
        site.register(Registration(1, "a", "w"))


def test_a_node_with_a_damaged_disk_is_in_sync_and_leads_only_where_nobody_else_does() -> None:
    site = site_with(None, None)
    shared, only = add_stream(site, [[1, 2], [1]])
    site.register(Registration(1, "1a", "y", damaged=True))
    site.beat(1)
    assert (partition_at(site, shared).isr, partition_at(site, shared).leader) == ((2,), 2)
    assert 1 not in partition_at(site, shared).elr
    assert (partition_at(site, only).isr, partition_at(site, only).leader) == ((1,), 1)


def test_epochs_rise_whatever_offset_is_handed_in() -> None:
    site = site_with(None, None)
    epoch = site.state.registrations.highest_epoch
    events = register(site.state, Registration(3, "3a", "x"), end_offset=0, is_live=False)
    assert isinstance(events[-1], NodeRegistered)
    assert events[-1].epoch == epoch + 1
    site.commit(events)
    assert site.state.copy().registrations.highest_epoch == epoch + 1


def test_heartbeats_of_who_is_not_registered_so() -> None:
    site = site_with(None)
    for beat, error in ((Heartbeat(1, 99, 0), NodeEpochStale), (Heartbeat(2, 1, 0), NodeNotFound)):
        with pytest.raises(error):
            heartbeat(site.state, site.membership, beat, end_offset=9, now_ms=0)


def test_a_fenced_node_may_stop_at_once_and_one_that_wants_it_stays_fenced() -> None:
    site = site_with(None)
    assert site.beat(1, wants_fence=True).fenced
    assert site.beat(1, wants_fence=True).fenced
    assert site.beat(1, stops=True).may_stop
    assert not site.beat(1).fenced


def test_unregistering() -> None:
    site = site_with(None, None)
    (place,) = add_stream(site, [[2]])
    with pytest.raises(NodeNotFound):
        unregister(site.state, 9)
    with pytest.raises(RequestInvalid, match="live"):
        unregister(site.state, 2)
    site.beat(2, wants_fence=True)
    with pytest.raises(RequestInvalid, match=r"replicas \(1\)"):
        unregister(site.state, 2)
    site.beat(1, wants_fence=True)
    site.commit(unregister(site.state, 1))
    assert dict(site.state.nodes) == {2: "2a"}
    assert partition_at(site, place).replicas == (2,)


def test_a_cluster_is_formed_once() -> None:
    state = ControllerState()
    events = form(state, "ours", 2)
    assert events == [ClusterFormed("ours"), FeatureLevelChanged(2)]
    for event in events:
        state.apply(event)
    assert (state.cluster_id, state.feature_level, form(state, "ours", 2)) == ("ours", 2, [])
    with pytest.raises(ClusterDiffers, match="ours"):
        form(state, "another", 2)
    state.apply(ClusterFormed("another"))
    assert state.copy().cluster_id == "ours"
    assert state.copy().feature_level == 2


def test_the_feature_level_is_one_that_all_nodes_know_and_never_goes_down() -> None:
    site = Site()
    site.register(Registration(1, "a", "x", least_feature_level=0, latest_feature_level=2))
    with pytest.raises(UnsupportedFeature, match="0 to 2"):
        set_feature_level(site.state, 3)
    site.commit(set_feature_level(site.state, 2))
    assert set_feature_level(site.state, 2) == []
    with pytest.raises(RequestInvalid, match="never"):
        set_feature_level(site.state, 1)
    with pytest.raises(UnsupportedFeature, match="0 to 1"):
        site.register(Registration(2, "b", "x", least_feature_level=0, latest_feature_level=1))


def test_a_node_that_was_alone_brings_its_streams() -> None:
    site = Site()
    alone = [
        b'{"event":"node-registered","node_id":1,"directory_id":"d"}',
        b'{"event":"stream-created","name":"a","id":"00000000-0000-0000-0000-000000000005","partitions":2}',
    ]
    site.commit([decode_event(value) for value in alone])
    (node,) = site.state.registrations
    assert (node.fenced, node.epoch, len(site.state.partitions)) == (False, 0, 0)
    site.commit(adopt(site.state, 1, 7))
    assert adopt(site.state, 1, 8) == []
    stream = site.state.streams["a"]
    partition = partition_at(site, PartitionId(stream.id, 1))
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((1,), (1,), 1, 7)
    site.register(Registration(1, "d", "x"))
    assert partition_at(site, PartitionId(stream.id, 1)).elr == (1,)
    site.beat(1)
    partition = partition_at(site, PartitionId(stream.id, 1))
    assert (partition.leader, partition.leader_epoch) == (1, 9)


def test_changes_of_partitions_that_are_gone_change_nothing() -> None:
    site = site_with(None)
    (place,) = add_stream(site, [[1]])
    late = decode_event(site.log[-1])
    name = next(iter(site.state.streams))
    again = ControllerState()
    again.apply(late)
    assert len(again.partitions) == 0
    for event in create_stream(again, Definition(name, 1), stream_id=place.stream_id, now_ms=0):
        again.apply(event)
    again.apply(late)
    assert again.partitions == site.state.partitions
    again.apply(late)
    assert again.partitions == site.state.partitions
