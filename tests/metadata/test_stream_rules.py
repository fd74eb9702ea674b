"""How many replicas have to be in sync: set, by default, and from which feature level on."""

import pytest
from tests.metadata.cluster.building import add_stream, partition_at, site_with

from duramen.base.insync import least_in_sync
from duramen.metadata.events import FeatureLevelChanged
from duramen.metadata.features import MetadataFeature
from duramen.metadata.fencing import fence
from duramen.metadata.stream_rules import rules_from, rules_of
from duramen.metadata.streams import configure_cluster, configure_replicated
from duramen.replication.partition import PartitionConfig, ReplicatedPartition

NAME = "min.insync.replicas"


@pytest.mark.parametrize(
    ("configured", "replicas", "least"), [(None, 1, 1), (None, 2, 1), (None, 3, 2), (None, 5, 2), (3, 2, 2), (1, 3, 1)]
)
def test_the_default_follows_the_number_of_replicas(configured: int | None, replicas: int, least: int) -> None:
    assert least_in_sync(configured, replicas) == least


def test_replicas_that_a_reassignment_adds_do_not_count() -> None:
    moving = ReplicatedPartition(1, 1, 1, (1, 2, 3), frozenset({1}), adding=2)
    assert moving.needed(PartitionConfig(min_insync_replicas=None)) == 1
    assert moving._replace(adding=0).needed(PartitionConfig(min_insync_replicas=None)) == 2


def test_what_is_set_stays_and_the_default_waits_for_its_feature_level() -> None:
    assert rules_from({}, {}, MetadataFeature.TWO_IN_SYNC - 1).min_insync_replicas == 1
    assert rules_from({}, {}, MetadataFeature.TWO_IN_SYNC).min_insync_replicas is None
    assert rules_from({NAME: "1"}, {}, MetadataFeature.TWO_IN_SYNC).min_insync_replicas == 1
    assert rules_from({}, {NAME: "1"}, MetadataFeature.TWO_IN_SYNC).min_insync_replicas == 1
    assert rules_from({NAME: "3"}, {NAME: "1"}, MetadataFeature.TWO_IN_SYNC).min_insync_replicas == 3


def test_the_last_but_one_that_is_gone_stays_eligible_by_default() -> None:
    site = site_with(None, None, None)
    site.commit([FeatureLevelChanged(MetadataFeature.TWO_IN_SYNC)])
    (where,) = add_stream(site, [[1, 2, 3]])
    for node_id in (1, 2, 3):
        node = site.state.registrations.get(node_id)
        assert node is not None
        site.commit(fence(site.state, node))
    found = partition_at(site, where)
    assert (found.leader, sorted({*found.isr, *found.elr})) == (None, [2, 3])


def test_changes_of_the_config_count_at_the_level() -> None:
    site = site_with(None, None, None)
    site.commit([FeatureLevelChanged(MetadataFeature.TWO_IN_SYNC)])
    (where,) = add_stream(site, [[1, 2, 3]])
    (name,) = site.state.streams
    assert rules_of(site.state, where.stream_id).least_in_sync(partition_at(site, where)) == 2
    site.commit(configure_cluster(site.state, {NAME: "1"}))
    assert rules_of(site.state, where.stream_id).least_in_sync(partition_at(site, where)) == 1
    site.commit(configure_replicated(site.state, name, {NAME: "3"}))
    assert rules_of(site.state, where.stream_id).least_in_sync(partition_at(site, where)) == 3
