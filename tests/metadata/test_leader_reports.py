"""Reports about leaders against a model that keeps them all, and what deposing one means."""

from uuid import UUID

import hypothesis.strategies as st
from hypothesis import given
from tests.metadata.cluster.building import add_stream, partition_at, site_with

from duramen.metadata.fencing import fence, unfence
from duramen.metadata.leader_reports import Reports, depose, lose_records
from duramen.metadata.partitions import PartitionId, PartitionState

PLACE = PartitionId(UUID(int=5), 0)
WINDOW_MS = 100
HEARD = st.lists(st.tuples(st.integers(1, 7), st.integers(0, 1), st.integers(0, 60)), max_size=30)
MEMBERS = st.sets(st.integers(1, 6), min_size=1)


@given(MEMBERS, HEARD, st.none() | MEMBERS)
def test_more_than_half_of_those_that_fetch_have_to_report_within_the_window(
    members: set[int], heard: list[tuple[int, int, int]], chain: set[int] | None
) -> None:
    leader = min(members)
    partition = PartitionState(tuple(members), tuple(members), leader, leader_epoch=1)
    fetching = members - {leader}
    if chain is not None:
        fetching &= chain
    reports, now_ms = Reports(WINDOW_MS), 0
    counted: list[tuple[int, int]] = []
    for reporter, epoch, later_ms in heard:
        now_ms += later_ms
        enough = reports.report(PLACE, partition, reporter, epoch, now_ms, None if chain is None else fetching)
        if epoch == 1 and reporter in fetching:
            counted.append((reporter, now_ms))
        recent = {node_id for node_id, at_ms in counted if now_ms - at_ms < WINDOW_MS}
        assert enough == (epoch == 1 and 2 * len(recent) > len(fetching))
        if enough:
            counted.clear()
    reports.forget(now_ms + WINDOW_MS)
    assert len(reports) == 0


def test_reports_of_an_earlier_epoch_do_not_count_for_the_next() -> None:
    reports = Reports(WINDOW_MS)
    partition = PartitionState((1, 2, 3, 4), (1, 2, 3, 4), 1, leader_epoch=1)
    assert not reports.report(PLACE, partition, 2, 1, 0)
    later = PartitionState((1, 2, 3, 4), (1, 2, 3, 4), 1, leader_epoch=2)
    assert not reports.report(PLACE, later, 3, 2, 0)
    assert not reports.report(PLACE, later, 2, 1, 0)
    assert reports.report(PLACE, later, 4, 2, 0)
    assert not reports.report(PLACE, PartitionState((1, 2), (), None, leader_epoch=2), 2, 2, 0)


def test_who_is_deposed_is_in_sync_no_more_and_nobody_is_deposed_for_nobody() -> None:
    site = site_with(None, None, None)
    (place,) = add_stream(site, [[1, 2, 3]], min_insync_replicas="2")
    site.commit(depose(site.state, place))
    partition = partition_at(site, place)
    assert (partition.leader, partition.leader_epoch, partition.isr, partition.elr) == (2, 1, (2, 3), ())
    site.commit(depose(site.state, place))
    partition = partition_at(site, place)
    assert (partition.leader, partition.leader_epoch, partition.isr, partition.elr) == (3, 2, (3,), (2,))
    assert depose(site.state, place) == []
    node = site.state.registrations.get(3)
    assert node is not None
    site.commit(fence(site.state, node))
    assert partition_at(site, place).leader == 2
    assert depose(site.state, PLACE) == []


def test_a_damaged_replica_leaves_the_others_and_every_report_begins_an_epoch() -> None:
    site = site_with(None, None, None)
    (place,) = add_stream(site, [[1, 2, 3]], min_insync_replicas="2")
    site.commit(lose_records(site.state, place, 1))
    partition = partition_at(site, place)
    assert (partition.leader, partition.leader_epoch, partition.isr, partition.elr) == (2, 1, (2, 3), ())
    site.commit(
        lose_records(site.state, place, 1)
    )  # it is counted on for nothing by now; it may have cut its log again
    partition = partition_at(site, place)
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 2, (2, 3))
    site.commit(lose_records(site.state, place, 3))
    site.commit(lose_records(site.state, place, 2))
    partition = partition_at(site, place)
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 4, (2,))  # nobody else has so much


def test_nobody_leads_where_the_others_that_have_all_are_away() -> None:
    site = site_with(None, None, None)
    (place,) = add_stream(site, [[1, 2, 3]], min_insync_replicas="2")
    for node_id in (3, 2):
        node = site.state.registrations.get(node_id)
        assert node is not None
        site.commit(fence(site.state, node))
    assert partition_at(site, place).isr == (1,)
    site.commit(lose_records(site.state, place, 1))
    partition = partition_at(site, place)
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (None, (), (2,), (1,))
    node = site.state.registrations.get(2)
    assert node is not None
    site.commit(unfence(site.state, node))
    assert partition_at(site, place).leader == 2
