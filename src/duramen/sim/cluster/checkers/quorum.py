"""The history of a cluster's quorum over all replicas: leaders, votes, commits, decisions.

One leader per epoch; one vote of a replica per epoch; one committed history for all; and no forbidden decision of a
controller. Pure.
"""

from typing import Final
from uuid import UUID
from zlib import crc32

from msgspec import UNSET

from duramen.base.catalogue.queues import KIND, QUEUES
from duramen.base.ids import StreamId
from duramen.controller.quorum.entries import data_of, events_of
from duramen.controller.quorum.snapshot_chunks import Wire
from duramen.metadata.events import (
    Event,
    NodeFenced,
    NodeRegistered,
    PartitionChanged,
    ProducerIdsAllocated,
    StreamDeleted,
)
from duramen.metadata.partitions import PartitionId, PartitionState, without
from duramen.metadata.state import ControllerState, StreamState
from duramen.raft.messages import EntryBatch, Vote, VoteAnswer
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voters
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["Council", "is_coordinated"]

_NOTHING: Final = (0, 0)


class Council:
    """The one history of the metadata, and the one state that it makes."""

    def __init__(self) -> None:
        self.state = ControllerState()
        self.end_offset = 0
        self.elections = 0
        self.deleting: set[str] = set()  # names of streams that a client requested to delete
        self.blank: set[int] = set()  # nodes whose disk was lost
        self.lost: set[PartitionId] = set()  # partitions that only a disk had which was lost: they wait for ever
        self.unclean: set[PartitionId] = set()  # partitions for which an operator has accepted a loss
        self._cluster_id: UUID | None = None
        self._founders = NO_VOTERS
        self._leaders: dict[int, ReplicaId] = {}
        self._votes: dict[tuple[ReplicaId, int], ReplicaId] = {}
        self._batches: dict[int, tuple[int, int, int]] = {}  # by first offset: epoch, next offset, digest up to there
        self._digests: dict[int, int] = {0: 0}  # by end offset
        self._applied: dict[int, int] = {}  # how far each process is

    def belongs(self, cluster_id: UUID, founders: Voters) -> None:
        """A node is of a cluster, of which there is one, formed once."""
        if self._cluster_id not in (None, cluster_id):
            raise BrokenPromise(f"there are two clusters, {self._cluster_id} and {cluster_id}")
        self._cluster_id = cluster_id
        if founders:
            if self._founders not in (NO_VOTERS, founders):
                raise BrokenPromise(f"the cluster was formed by {self._founders} and by {founders}")
            self._founders = founders

    # -- the quorum ---------------------------------------------------------------------------------

    def led(self, leader: ReplicaId, epoch: int) -> None:
        """A replica leads."""
        known = self._leaders.setdefault(epoch, leader)
        if known != leader:
            raise BrokenPromise(f"{known} led the quorum in epoch {epoch}, and {leader} does")

    @property
    def epochs(self) -> int:
        """The number of epochs with a leader."""
        return len(self._leaders)

    def said(self, replica: ReplicaId, message: Wire) -> bool:
        """A replica says something; whether that is a vote for another."""
        if isinstance(message, Vote) and not message.pre:
            self._voted(replica, message.epoch, replica)
        elif isinstance(message, VoteAnswer) and message.granted and not message.pre:
            self._voted(replica, message.epoch, message.candidate)
            return True
        return False

    def _voted(self, voter: ReplicaId, epoch: int, candidate: ReplicaId) -> None:
        known = self._votes.setdefault((voter, epoch), candidate)
        if known != candidate:
            raise BrokenPromise(f"{voter} voted in epoch {epoch} for {known} and for {candidate}")

    def starts(self, node_id: int) -> None:
        """A process begins, which has applied nothing."""
        self._applied[node_id] = 0

    def applied(self, node_id: int, batch: EntryBatch) -> bool:
        """A node takes a batch for committed; whether that is news."""
        if batch.first != self._applied[node_id]:
            raise BrokenPromise(f"node {node_id} applies {batch.first} behind {self._applied[node_id]}")
        next_offset = batch.first + batch.entries
        digest = crc32(data_of(batch), self._digests[batch.first])
        found = batch.epoch, next_offset, digest
        self._applied[node_id] = next_offset
        news = batch.first == self.end_offset
        if self._batches.setdefault(batch.first, found) != found:
            raise BrokenPromise(f"node {node_id} applies another batch at {batch.first} than was committed")
        if news:
            self._digests[next_offset] = digest
            self.end_offset = next_offset
        elif batch.first > self.end_offset:
            raise BrokenPromise(f"node {node_id} applies {batch.first}, and {self.end_offset} was not committed")
        return news

    def restored(self, node_id: int, digest: int) -> None:
        """A node begins with a snapshot of a state with that digest."""
        end_offset = next((end for end, known in self._digests.items() if known == digest), None)
        if end_offset is None:
            raise BrokenPromise(f"node {node_id} begins with a snapshot of what never was committed")
        self._applied[node_id] = end_offset

    # -- decisions ----------------------------------------------------------------------------------

    def take(self, batch: EntryBatch) -> list[Event]:
        """The events of the next committed batch take effect; raises BrokenPromise where one cannot be right."""
        events = list(events_of(batch))
        for offset, event in enumerate(events, batch.first):
            self._judge(event, offset)
            self.state.apply(event)
        if any(isinstance(event, NodeFenced | PartitionChanged) for event in events):
            live = self.state.registrations.live
            for place, partition in self.state.partitions:
                if partition.leader is not None and partition.leader not in live:
                    raise BrokenPromise(f"{place} is led by {partition.leader}, which is fenced: {partition}")
        return events

    def _judge(self, event: Event, offset: int) -> None:
        match event:
            case PartitionChanged():
                self._judge_change(event)
            case NodeRegistered() if event.epoch != offset + 1:
                raise BrokenPromise(f"the registration at {offset} has the epoch {event.epoch}")
            case StreamDeleted():
                known = self.state.stream_by_id(StreamId(event.id))
                if known is None or known.name not in self.deleting:
                    raise BrokenPromise(f"{event} deletes what is not there, or nobody wants deleted")
            case ProducerIdsAllocated() if event.first != self.state.next_producer_id:
                raise BrokenPromise(f"producer ids begin at {self.state.next_producer_id}, not as in {event}")
            case _:
                pass

    def _judge_change(self, event: PartitionChanged) -> None:
        """Each change is decided on the one before it, leader epochs only rise, and each leader is eligible."""
        before = self.state.partitions.get(PartitionId(StreamId(event.id), event.partition))
        if before is None:
            return
        if event.partition_epoch != before.partition_epoch + 1:
            raise BrokenPromise(f"{event} was not decided on {before}")
        if event.leader_epoch is not UNSET and event.leader_epoch != before.leader_epoch + 1:
            raise BrokenPromise(f"the leader epoch goes from {before.leader_epoch} to {event.leader_epoch}")
        joined = event.replicas is not UNSET and without(event.replicas, before.replicas)
        if joined and event.leader_epoch is UNSET:
            raise BrokenPromise(f"{event} gives {before} another replica in the same leader epoch")
        self.elections += event.leader_epoch is not UNSET
        self._judge_leader(event, before)
        self._judge_holders(event, before)

    def _judge_holders(self, event: PartitionChanged, before: PartitionState) -> None:
        """Some node may lead next, unless all disks with everything are lost."""
        isr = before.isr if event.isr is UNSET else event.isr
        elr = before.elr if event.elr is UNSET else event.elr
        if not isr and not elr:
            if not {*before.isr, *before.elr} <= self.blank:
                raise BrokenPromise(f"nobody may lead any more who could in {before}: {event}")
            self.lost.add(PartitionId(StreamId(event.id), event.partition))

    def _judge_leader(self, event: PartitionChanged, before: PartitionState) -> None:
        able = {*before.isr, *before.elr}
        if event.unclean and PartitionId(StreamId(event.id), event.partition) in self.unclean:
            able.update(before.replicas)
        if before.leader is not None and event.isr is not UNSET:
            able.update(event.isr)  # reported by the leader, which is leaving
        if event.leader is not UNSET and event.leader is not None and event.leader not in able:
            raise BrokenPromise(f"node {event.leader} leads and was neither in sync nor eligible in {before}")


def is_coordinated(stream: StreamState | None) -> bool:
    """Whether coordinators write a stream: one of the brokers' own, or a queue space."""
    return stream is not None and (stream.internal or stream.config.get(KIND) == QUEUES)
