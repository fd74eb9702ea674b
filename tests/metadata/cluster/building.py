"""Clusters to try things on: nodes that are live, and streams with replicas."""

from collections.abc import Sequence
from uuid import UUID

from tests.metadata.cluster.site import Site

from duramen.metadata.alter_partition import Altered, InSyncMember, InSyncProposal, alter_partition
from duramen.metadata.decisions import Definition, create_stream
from duramen.metadata.events import PartitionChanged
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.placement import new_partitions
from duramen.metadata.registration import Registration


def site_with(*racks: str | None) -> Site:
    """Live nodes 1, 2, … on these racks."""
    site = Site()
    for node_id, rack in enumerate(racks, 1):
        site.register(Registration(node_id, f"{node_id}a", "x", rack=rack))
        site.beat(node_id)
    return site


def add_stream(site: Site, assignment: Sequence[Sequence[int]], **config: str) -> list[PartitionId]:
    """A stream with these replicas; its configs have underscores for dots."""
    stream_id = UUID(int=100 + len(site.state.streams))
    named = {name.replace("_", "."): value for name, value in config.items()}
    definition = Definition(f"s{len(site.state.streams)}", len(assignment), named)
    site.commit(create_stream(site.state, definition, stream_id=stream_id, now_ms=0))
    site.commit(list(new_partitions(stream_id, assignment, site.state.registrations)))
    return [PartitionId(stream_id, partition) for partition in range(len(assignment))]


def partition_at(site: Site, place: PartitionId) -> PartitionState:
    """The partition there."""
    partition = site.state.partitions.get(place)
    assert partition is not None
    return partition


def proposal_at(site: Site, place: PartitionId, *isr: int) -> InSyncProposal:
    """What the leader would rightly propose."""
    partition = partition_at(site, place)
    assert partition.leader is not None
    members = {node.id: InSyncMember(node.id, node.epoch) for node in site.state.registrations}
    return InSyncProposal(
        place,
        members[partition.leader],
        partition.leader_epoch,
        partition.partition_epoch,
        tuple(members[node_id] for node_id in isr),
    )


def answered(site: Site, place: PartitionId, *isr: int) -> list[PartitionChanged]:
    """The events of a proposal that is taken."""
    answer = alter_partition(site.state, proposal_at(site, place, *isr))
    assert isinstance(answer, Altered)
    return answer.events
