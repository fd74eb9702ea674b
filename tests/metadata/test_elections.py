"""Elections that are asked for, and rules that change under partitions."""

from uuid import UUID

import pytest
from tests.metadata.cluster.building import add_stream, answered, partition_at, site_with

from duramen.base.errors import ElectionNotNeeded, LeaderUnavailable, PartitionsInvalid
from duramen.metadata.elections import elect_preferred, elect_unclean, move_leader, rebalance_leaders
from duramen.metadata.fencing import drain, fence
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.stream_rules import Loss, ReplicationRules, rules_of
from duramen.metadata.streams import configure_cluster, configure_replicated


def test_leaders_come_back_to_where_they_belong_some_at_a_time() -> None:
    site = site_with(None, None)
    places = add_stream(site, [[1, 2], [1, 2], [1, 2], [2, 1]])
    for where in places[:3]:
        site.commit(move_leader(site.state, where, 2))
    assert site.state.partitions.leader_count(2) == 4
    assert rebalance_leaders(site.state, 0) == []
    site.commit(rebalance_leaders(site.state, 2))
    assert site.state.partitions.leader_count(1) == 2
    site.commit(rebalance_leaders(site.state, 9))
    assert site.state.partitions.leader_count(1) == 3
    node = site.state.registrations.get(1)
    assert node is not None
    site.commit(drain(site.state, node))
    assert rebalance_leaders(site.state, 9) == []


def test_nobody_elects_a_node_whose_storage_takes_no_writes() -> None:
    site = site_with(None, None, None)
    (where,) = add_stream(site, [[1, 2, 3]])
    node = site.state.registrations.get(1)
    assert node is not None
    site.commit(drain(site.state, node, unwritable=True))
    assert partition_at(site, where).leader == 2
    assert set(partition_at(site, where).isr) == {2, 3}
    assert rebalance_leaders(site.state, 9) == []
    with pytest.raises(LeaderUnavailable, match="takes no writes"):
        elect_preferred(site.state, where)
    assert drain(site.state, site.state.registrations.get(1) or node, unwritable=True) == []


def test_a_leader_that_is_slow_leaves_the_in_sync_set_where_enough_stay() -> None:
    site = site_with(None, None, None)
    (where,) = add_stream(site, [[1, 2, 3]])
    site.commit(move_leader(site.state, where, 2, slow=1))
    assert partition_at(site, where).leader == 2
    assert set(partition_at(site, where).isr) == {2, 3}


def test_elections_that_cannot_be() -> None:
    site = site_with(None, None)
    (where,) = add_stream(site, [[1, 2]])
    with pytest.raises(PartitionsInvalid, match="partition 7"):
        elect_preferred(site.state, where._replace(partition=7))
    with pytest.raises(PartitionsInvalid, match="no partition 0"):
        elect_preferred(site.state, PartitionId(UUID(int=3), 0))
    for elect in (elect_preferred, elect_unclean):
        with pytest.raises(ElectionNotNeeded):
            elect(site.state, where)
    site.commit(answered(site, where, 1))
    with pytest.raises(LeaderUnavailable, match="node 2"):
        move_leader(site.state, where, 2)
    for node in list(site.state.registrations):
        site.commit(fence(site.state, node))
    with pytest.raises(LeaderUnavailable, match="no replica"):
        elect_unclean(site.state, where)


def test_a_stream_that_allows_it_gets_a_leader_that_may_lack_records_and_says_so() -> None:
    site = site_with(None, None)
    (where,) = add_stream(site, [[1, 2]])
    site.commit(answered(site, where, 1))
    node = site.state.registrations.get(1)
    assert node is not None
    site.commit(fence(site.state, node))
    assert partition_at(site, where).leader is None
    name = next(iter(site.state.streams))
    site.commit(configure_replicated(site.state, name, {"unclean.leader.election.enable": "true"}))
    assert rules_of(site.state, where.stream_id).may_lose
    assert partition_at(site, where).leader is None  # before it is known which live replica has most
    (event,) = elect_unclean(site.state, where, 2)
    assert event.unclean
    site.commit([event])
    assert (partition_at(site, where).leader, partition_at(site, where).isr) == (2, (2,))


def test_a_default_for_all_nodes_is_a_rule_of_every_stream_without_its_own() -> None:
    site = site_with(None, None)
    (where,) = add_stream(site, [[1, 2]])
    (own,) = add_stream(site, [[1, 2]], min_insync_replicas="1")
    site.commit(configure_cluster(site.state, {"min.insync.replicas": "2"}))
    assert [rules_of(site.state, found.stream_id).min_insync_replicas for found in (where, own)] == [2, 1]
    for found in (where, own):
        site.commit(answered(site, found, 1))
    assert [partition_at(site, found).elr for found in (where, own)] == [(2,), ()]
    site.commit(configure_cluster(site.state, {"min.insync.replicas": None}))
    assert partition_at(site, where).elr == ()
    assert configure_cluster(site.state, {}) == []


def test_rules() -> None:
    moving = PartitionState(replicas=(1, 2, 3), adding=(2, 3))
    assert [ReplicationRules(least).least_in_sync(moving) for least in (1, 2, 3)] == [1, 1, 1]
    lost = {
        how: [loss for loss in Loss if ReplicationRules(durability=how).loses(loss)] for how in ("sync", "os", "memory")
    }
    always = [Loss.DAMAGED, Loss.ALL]
    assert lost == {
        "sync": always,
        "os": [Loss.UNSYNCED, *always],
        "memory": [Loss.MEMORY, Loss.UNSYNCED, *always],
    }


def test_an_unclean_election_takes_the_most_complete_replica() -> None:
    site = site_with(None, None, None)
    (where,) = add_stream(site, [[1, 2, 3]])
    site.commit(answered(site, where, 1))
    node = site.state.registrations.get(1)
    assert node is not None
    site.commit(fence(site.state, node))
    assert partition_at(site, where).leader is None
    with pytest.raises(LeaderUnavailable, match="node 1 is not live"):
        elect_unclean(site.state, where, 1)
    (event,) = elect_unclean(site.state, where, 3)  # not the first of the replicas that are live
    assert event.unclean
    site.commit([event])
    partition = partition_at(site, where)
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (3, (3,), (), ())
