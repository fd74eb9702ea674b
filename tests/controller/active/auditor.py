"""What is committed of a cluster's metadata, judged event by event: Broken where a decision cannot have been right."""

from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec import UNSET
from tests.raft.witness import Broken

from duramen.codec.batch import header
from duramen.controller.quorum.entries import data_of, events_of
from duramen.metadata.events import (
    Event,
    NodeFenced,
    NodeRegistered,
    PartitionChanged,
    ProducerIdsAllocated,
    StreamCreated,
    StreamDeleted,
)
from duramen.metadata.partitions import PartitionId
from duramen.metadata.state import ControllerState
from duramen.raft.messages import EntryBatch


class Auditor:
    """The one state that there is, of what is committed; `watch` is told of each event after it."""

    def __init__(self, watch: Callable[[Event], None] = lambda _: None) -> None:
        self.state = ControllerState()
        self.watch = watch
        self.end_offset = 0
        self.created: set[str] = set()  # streams by name: each is asked for once
        self.refused: set[str] = set()
        self.deleting: set[str] = set()
        self.silences = 0
        self.elections = 0
        self.fenced: list[tuple[int, int, int]] = []  # by silence: (epoch of the quorum, ms since 1970, node)

    def take(self, batch: EntryBatch) -> None:
        """The next committed batch."""
        events = list(events_of(batch))
        at_ms = header(data_of(batch)).base_timestamp if events else 0
        registered = {event.node_id for event in events if isinstance(event, NodeRegistered)}
        for offset, event in enumerate(events, batch.first):
            self._judge(event, offset)
            if isinstance(event, NodeFenced) and event.node_id not in registered:
                node = self.state.registrations.get(event.node_id)
                if node is None or not node.draining:
                    self.silences += 1
                    self.fenced.append((batch.epoch, at_ms, event.node_id))
            self.state.apply(event)
            self.watch(event)
        self._judge_leaders(events)
        self.end_offset = batch.first + batch.entries

    def _judge(self, event: Event, offset: int) -> None:
        match event:
            case PartitionChanged():
                self._judge_change(event)
            case NodeRegistered():
                if event.epoch != offset + 1:
                    raise Broken(f"the registration at {offset} has the epoch {event.epoch}")
            case StreamCreated():
                if event.name in self.created or event.name in self.refused:
                    raise Broken(f"stream {event.name} is created, and was refused or created before")
                self.created.add(event.name)
            case StreamDeleted():
                known = self.state.stream_by_id(UUID(event.id))
                if known is None or known.name not in self.deleting:
                    raise Broken(f"{event} deletes what is not there or nobody wants deleted")
            case ProducerIdsAllocated():
                if event.first != self.state.next_producer_id:
                    raise Broken(f"producer ids begin at {self.state.next_producer_id}, not as in {event}")
            case _:
                pass

    def _judge_change(self, event: PartitionChanged) -> None:
        """Each change is decided on the one before it, and leader epochs only rise."""
        before = self.state.partitions.get(PartitionId(UUID(event.id), event.partition))
        if before is None:
            return
        if event.partition_epoch != before.partition_epoch + 1:
            raise Broken(f"{event} was not decided on {before}")
        if event.leader_epoch is not UNSET and event.leader_epoch != before.leader_epoch + 1:
            raise Broken(f"the leader epoch goes from {before.leader_epoch} to {event.leader_epoch}")
        self.elections += event.leader_epoch is not UNSET
        able = {*before.isr, *before.elr}
        if before.leader is not None and event.isr is not UNSET:
            able.update(event.isr)  # the leader has said so, and leaves with it
        if event.leader is not UNSET and event.leader is not None and event.leader not in able:
            raise Broken(f"node {event.leader} leads and was neither in sync nor eligible in {before}")

    def _judge_leaders(self, events: Sequence[Event]) -> None:
        """Behind a proposal nobody leads who is fenced."""
        if not any(isinstance(event, NodeFenced | PartitionChanged) for event in events):
            return
        for place, partition in self.state.partitions:
            if partition.leader is not None and partition.leader not in self.state.registrations.live:
                raise Broken(f"{place} is led by {partition.leader}, which is fenced: {partition}")

    def leads(self, node_id: int) -> list[PartitionId]:
        """What a node leads."""
        return [place for place, partition in self.state.partitions if partition.leader == node_id]
