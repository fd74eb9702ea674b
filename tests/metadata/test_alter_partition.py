"""What a leader may propose, and how each wrong proposal is refused."""

from collections.abc import Callable
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.metadata.cluster.building import add_stream, answered, partition_at, proposal_at, site_with

from duramen.metadata.alter_partition import (
    Altered,
    AlterPartitionRefusal,
    InSyncMember,
    InSyncProposal,
    alter_partition,
)
from duramen.metadata.fencing import drain, fence
from duramen.metadata.partitions import PartitionId


def test_a_member_leaves_and_comes_back() -> None:
    site = site_with(None, None, None)
    (place,) = add_stream(site, [[1, 2, 3]])
    for isr in ((1, 2), (1, 2, 3)):
        answer = alter_partition(site.state, proposal_at(site, place, *isr))
        assert isinstance(answer, Altered)
        assert not answer.new_leader
        site.commit(answer.events)
        assert partition_at(site, place).isr == isr
    before = partition_at(site, place)
    answer = alter_partition(site.state, proposal_at(site, place, 3, 1, 2))
    assert isinstance(answer, Altered)
    site.commit(answer.events)
    # The set is the same, and the leader knows that what it proposed before is not taken any more.
    assert partition_at(site, place) == replace(before, partition_epoch=before.partition_epoch + 1)


def members(*node_ids: int) -> tuple[InSyncMember, ...]:
    """Nodes in the epochs that they have when they register one after another, and are unfenced each."""
    return tuple(InSyncMember(node_id, 2 * node_id - 1) for node_id in node_ids)


@pytest.mark.parametrize(
    ("spoil", "refusal"),
    [
        (
            lambda right: right._replace(place=right.place._replace(partition=9)),
            AlterPartitionRefusal.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (lambda right: right._replace(place=PartitionId(UUID(int=7), 0)), AlterPartitionRefusal.UNKNOWN_TOPIC_ID),
        (lambda right: right._replace(leader=InSyncMember(1, 99)), AlterPartitionRefusal.STALE_BROKER_EPOCH),
        (lambda right: right._replace(leader=InSyncMember(9, 1)), AlterPartitionRefusal.STALE_BROKER_EPOCH),
        (lambda right: right._replace(leader_epoch=1), AlterPartitionRefusal.NOT_CONTROLLER),
        (lambda right: right._replace(partition_epoch=1), AlterPartitionRefusal.NOT_CONTROLLER),
        (lambda right: right._replace(leader_epoch=-1), AlterPartitionRefusal.FENCED_LEADER_EPOCH),
        (lambda right: right._replace(partition_epoch=-1), AlterPartitionRefusal.INVALID_UPDATE_VERSION),
        (lambda right: right._replace(leader=members(2)[0]), AlterPartitionRefusal.INVALID_REQUEST),
        (lambda right: right._replace(isr=()), AlterPartitionRefusal.INVALID_REQUEST),
        (lambda right: right._replace(isr=members(2, 3)), AlterPartitionRefusal.INVALID_REQUEST),
        (lambda right: right._replace(isr=members(1, 2, 2)), AlterPartitionRefusal.INVALID_REQUEST),
        (lambda right: right._replace(isr=members(1, 4)), AlterPartitionRefusal.INVALID_REQUEST),
    ],
)
def test_refusals(spoil: Callable[[InSyncProposal], InSyncProposal], refusal: AlterPartitionRefusal) -> None:
    site = site_with(None, None, None, None)
    (place,) = add_stream(site, [[1, 2, 3]])
    assert alter_partition(site.state, spoil(proposal_at(site, place, 1, 2))) is refusal


def test_who_is_fenced_or_about_to_stop_or_registered_anew_is_not_eligible() -> None:
    site = site_with(None, None, None, None)
    (place,) = add_stream(site, [[1, 2, 3, 4]])
    nodes = {node.id: node for node in site.state.registrations}
    site.commit(fence(site.state, nodes[2]))
    site.commit(drain(site.state, nodes[3]))
    proposal = proposal_at(site, place, 1, 4)
    for member in (
        InSyncMember(2, nodes[2].epoch),
        InSyncMember(3, nodes[3].epoch),
        InSyncMember(4, nodes[4].epoch - 1),
    ):
        wrong = proposal._replace(isr=(proposal.leader, member))
        assert alter_partition(site.state, wrong) is AlterPartitionRefusal.INELIGIBLE_REPLICA


def test_a_leader_about_to_stop_gives_way_to_who_comes_in_sync() -> None:
    site = site_with(None, None)
    (place,) = add_stream(site, [[1, 2]])
    site.commit(answered(site, place, 1))
    node = site.state.registrations.get(1)
    assert node is not None
    site.commit(drain(site.state, node))
    assert partition_at(site, place).leader == 1
    answer = alter_partition(site.state, proposal_at(site, place, 1, 2))
    assert isinstance(answer, Altered)
    assert answer.new_leader
    site.commit(answer.events)
    assert (partition_at(site, place).leader, partition_at(site, place).isr) == (2, (2,))
