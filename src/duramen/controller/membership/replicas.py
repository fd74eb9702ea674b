"""Connects the replicas of a node to those of other nodes: messages and proposals are sent once per turn."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ids import StreamId
from duramen.base.ports import Buffer, Clock, Worker
from duramen.broker.control import requests
from duramen.broker.control.responses import Answer, IsrAnswers, Outcome
from duramen.broker.partition import Partition
from duramen.broker.replicas.bulk import BULK, BulkBytes
from duramen.broker.replicas.dependencies import ReplicaDependencies
from duramen.broker.replicas.roles import Replicas, state_of
from duramen.broker.replicas.throttle.throttle import UNLIMITED, CatchUpThrottle
from duramen.broker.replicas.wire import PlacedMessage, decode, encode
from duramen.controller.membership.client import Asker
from duramen.controller.membership.network import PeerNetwork
from duramen.controller.membership.repairs import Repairs
from duramen.metadata import alter_partition
from duramen.metadata.alter_partition import InSyncMember, InSyncProposal
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.replication.effects import Effect
from duramen.replication.machine import Behind
from duramen.replication.messages import (
    AlterPartition,
    AlterPartitionAnswer,
    ReplicaFetch,
    ReplicaFetchAnswer,
    ReplicaRefusal,
)
from duramen.replication.partition import PartitionConfig
from duramen.replication.timeouts import TIMEOUTS, ReplicaTimeouts
from duramen.rpc.caller import Caller
from duramen.storage.segment.segment import Segment
from duramen.storage.store import Store

__all__ = ["Replicating"]

_PROPOSALS_AT_ONCE: Final = 1000
_SAID_AT_ONCE: Final = 256
"""Messages of one body: its receiver does nothing else before it has processed all of them."""
_WITHIN_MS: Final = 3_000

_REFUSALS: Final = {
    alter_partition.AlterPartitionRefusal.FENCED_LEADER_EPOCH: ReplicaRefusal.FENCED_LEADER_EPOCH,
    alter_partition.AlterPartitionRefusal.INVALID_UPDATE_VERSION: ReplicaRefusal.INVALID_UPDATE_VERSION,
    alter_partition.AlterPartitionRefusal.INELIGIBLE_REPLICA: ReplicaRefusal.INELIGIBLE_REPLICA,
}


class Replicating:
    """The replicas of this node, from its registration to the end of it.

    `partition_of` finds a partition of the metadata, `config_of` its stream's replication config.
    """

    def __init__(
        self,
        node_id: int,
        store: Store,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        network: PeerNetwork,
        asker: Asker,
        caller: Caller,
        *,
        partition_of: Callable[[PartitionId], Partition],
        config_of: Callable[[PartitionId], PartitionConfig],
        observers_of: Callable[[PartitionId, PartitionState], tuple[int, ...]],
        when_applied: Callable[[int, Callable[[], None]], None],
        led: Callable[[PartitionId, int | None], None],
        failed: Callable[[PartitionId, DuramenError], None],
        report: Callable[[str], None],
        carried_out: Callable[[PartitionId, Effect], None],
        publish_again: Callable[[PartitionId], None],
        timeouts: ReplicaTimeouts = TIMEOUTS,
        throttled_rate: int = UNLIMITED,
        bulk: BulkBytes = BULK,
    ) -> None:
        """`when_applied` calls back once the metadata log below an offset is applied here.

        `observers_of` returns the nodes that follow a partition without being its replicas.

        `led` gets the partitions that this node leads, with the epoch; `failed` each stopped replica, with the reason;
        `report` messages for the operator.

        `carried_out` gets each effect of a replica, once executed; `publish_again` makes the owner call `told`.

        `throttled_rate` is in bytes per second, for replicas that are not in sync; `bulk` is the lag from which a
        replica is caught up in bulk.
        """
        self._node_id = node_id
        self._store = store
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._network = network
        self._asker = asker
        self._caller = caller
        self._partition_of = partition_of
        self._config_of = config_of
        self._observers_of = observers_of
        self._when_applied = when_applied
        self._led = led
        self._failed = failed
        self._report = report
        self._carried_out = carried_out
        self._publish_again = publish_again
        self._timeouts = timeouts
        self._throttled_rate = throttled_rate
        self._bulk = bulk
        self._pace: CatchUpThrottle | None = None
        self._epoch = -1
        self._replicas: Replicas | None = None
        self._said: dict[int, list[PlacedMessage]] = {}
        self._proposed: list[tuple[PartitionId, AlterPartition]] = []
        self._flushes = False
        store.quarantine.watch(lambda segment: store.soon(partial(self._damaged, segment)))
        self.bytes_in = 0
        """Bytes of record batches received from leaders, or from the previous replica of a chain."""
        self.bytes_out = 0
        """Bytes of record batches that were sent to other replicas."""

    @property
    def takes_part(self) -> bool:
        """Whether this node is registered and has applied the metadata before that."""
        return self._replicas is not None

    @property
    def replicas(self) -> Replicas | None:
        """The replicas of this node; None before it takes part."""
        return self._replicas

    # -- events of the controller's log -------------------------------------------------------------

    def begin(self, broker_epoch: int) -> None:
        """Take part, under that registration: partitions published from here on come after it."""
        self.end()
        self._epoch = broker_epoch
        self._pace = CatchUpThrottle(self._throttled_rate, self._clock, self._deadlines)
        repairs = Repairs(
            InSyncMember(self._node_id, broker_epoch), self._store, self._clock, self._deadlines, self._caller,
            self._asker,
            when_applied=self._when_applied, publish_again=self._publish_again,
            is_over=lambda: self._replicas is None or self._epoch != broker_epoch,
        )  # fmt: skip
        dependencies = ReplicaDependencies(
            self._node_id, broker_epoch, self._store, self._clock, self._deadlines, self,
            timeouts=self._timeouts, pace=self._pace, bulk=self._bulk, peers=repairs,
        )  # fmt: skip
        self._replicas = Replicas(dependencies, self._partition_of, self._config_of)

    def end(self) -> None:
        """Stop all replicas."""
        if self._replicas is not None:
            self._replicas.stop()
            self._replicas = None
        if self._pace is not None:
            self._pace.end()
        self._said.clear()
        self._proposed.clear()

    def on_partition_state(self, place: PartitionId, state: PartitionState) -> None:
        """The present state of a partition."""
        if self._replicas is not None:
            self._replicas.on_partition_state(place, state, self._observers_of(place, state))

    def on_live_nodes(self, live: frozenset[int]) -> None:
        """The live nodes."""
        if self._replicas is not None:
            self._replicas.on_live_nodes(live)

    def on_controller_session(self, *, alive: bool) -> None:
        """Whether this node's session with the controller continues, as far as it can know."""
        if self._replicas is not None:
            self._replicas.on_controller_session(alive=alive)

    def configured(self) -> None:
        """Configs of streams have changed."""
        if self._replicas is not None:
            self._replicas.configured()

    def removed(self, stream_id: StreamId) -> None:
        """A stream is deleted."""
        if self._replicas is not None:
            self._replicas.removed(stream_id)

    def only(self, stream_ids: Collection[StreamId]) -> None:
        """Keep only these streams."""
        if self._replicas is not None:
            self._replicas.only(stream_ids)

    def _damaged(self, segment: Segment) -> None:
        """Damage was found in a segment, by a reader or by the scrubber."""
        log = next((log for log in self._store.each_log() if segment in log.segments), None)
        if log is not None and self._replicas is not None:
            self._replicas.damaged(PartitionId(*log.key))

    def covered(self, place: PartitionId, node: Node) -> int:
        """The offset below which a registered node has all of a partition that is led here; -1 if unknown."""
        replica = None if self._replicas is None else self._replicas.get(place)
        return -1 if replica is None else replica.machine.covered(node.id, node.epoch)

    def deposed(self) -> list[PartitionId]:
        """Partitions that this node believes to lead, and that others may have led for long."""
        return [] if self._replicas is None else self._replicas.deposed()

    def behind(self) -> Iterator[list[Behind]]:
        """For each partition here, the followers that lag behind this leader."""
        for _, replica in () if self._replicas is None else self._replicas:
            yield replica.behind()

    # -- messages of other nodes --------------------------------------------------------------------

    def heard(self, node_id: int, body: Buffer) -> None:
        """Messages of another node's replicas. Raises RequestInvalid if they are unreadable."""
        for place, message, records in decode(body, node_id):
            batches = records[0] if records else b""
            self.bytes_in += len(batches)
            if self._replicas is not None:
                self._replicas.receive(place, message, batches)

    def reachable(self, node_id: int) -> None:
        """Messages to a node use a new connection: earlier ones may be lost."""
        if self._replicas is not None:
            self._replicas.reachable(node_id)

    def unreachable(self, node_id: int, followed: Sequence[tuple[PartitionId, PartitionState]]) -> None:
        """There is no connection to a node, which leads those partitions: report it to the controller."""
        if self._replicas is None:
            return
        self._replicas.unreachable(node_id)
        reports = [
            requests.Report(place, state.leader_epoch)
            for place, state in followed
            if state.leader == node_id and self._node_id in state.isr
        ]
        reporter = InSyncMember(self._node_id, self._epoch)
        for first in range(0, len(reports), _PROPOSALS_AT_ONCE):
            some = tuple(reports[first : first + _PROPOSALS_AT_ONCE])
            self._asker.ask(requests.ReportLeaders(reporter, some), lambda _: None, within_ms=_WITHIN_MS)

    # -- dependencies of the replicas ---------------------------------------------------------------

    def send(
        self, place: PartitionId, node_id: int, message: ReplicaFetch | ReplicaFetchAnswer, records: Sequence[Buffer]
    ) -> None:
        self.bytes_out += sum(map(len, records))
        self._said.setdefault(node_id, []).append(PlacedMessage(place, message, records))
        self._flush_soon()

    def propose(self, place: PartitionId, proposal: AlterPartition) -> None:
        self._proposed.append((place, proposal))
        self._flush_soon()

    def move_leader(self, place: PartitionId, leader_epoch: int, node_id: int | None) -> None:
        replica = None if self._replicas is None else self._replicas.get(place)
        if replica is None or replica.machine.state.leader_epoch != leader_epoch:
            return
        others = replica.machine.state.in_sync - {self._node_id}
        if others:
            successor = node_id if node_id in others else min(others)
            request = requests.MoveLeader(place, successor, slow=self._node_id)
            self._asker.ask(request, partial(self._moved, place, leader_epoch), within_ms=_WITHIN_MS)

    def _moved(self, place: PartitionId, leader_epoch: int, outcome: Outcome) -> None:
        replica = None if self._replicas is None else self._replicas.get(place)
        if replica is not None and isinstance(outcome, Answer):
            replica.moved(leader_epoch)

    def leads(self, place: PartitionId, leader_epoch: int | None) -> None:
        self._led(place, leader_epoch)

    def carried_out(self, place: PartitionId, effect: Effect) -> None:
        self._carried_out(place, effect)

    def failed(self, place: PartitionId, error: DuramenError) -> None:
        self._failed(place, error)

    def report(self, finding: str) -> None:
        self._report(finding)

    # -- once for all of a turn ---------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._flushes:
            self._flushes = True
            self._worker.soon(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        said, self._said = self._said, {}
        for node_id, messages in said.items():
            for first in range(0, len(messages), _SAID_AT_ONCE):
                some_said = messages[first : first + _SAID_AT_ONCE]
                if not self._network.say(node_id, encode(some_said)):
                    self._lost(some_said)
        proposed, self._proposed = self._proposed, []
        for first in range(0, len(proposed), _PROPOSALS_AT_ONCE):
            some = proposed[first : first + _PROPOSALS_AT_ONCE]
            request = requests.AlterPartitions(tuple(_proposal(place, alteration) for place, alteration in some))
            self._asker.ask(request, partial(self._altered, some), within_ms=_WITHIN_MS)

    def _lost(self, said: Sequence[PlacedMessage]) -> None:
        if self._replicas is not None:
            for place, message, _ in said:
                self._replicas.lost(place, message)

    def _altered(self, proposed: Sequence[tuple[PartitionId, AlterPartition]], outcome: Outcome) -> None:
        """The controller has responded; without a response, the proposing replicas retry.

        The metadata of the decision must be applied here first: with an older min.insync.replicas a leader would commit
        records that replicas eligible under the newer one lack.
        """
        if isinstance(outcome, Answer) and isinstance(outcome.value, IsrAnswers):
            self._when_applied(outcome.end_offset, partial(self._tell, proposed, outcome.value))

    def _tell(self, proposed: Sequence[tuple[PartitionId, AlterPartition]], answers: IsrAnswers) -> None:
        for (place, asked), isr in zip(proposed, answers.answers, strict=True):
            state = None if isr.partition is None else state_of(isr.partition, self._observers_of(place, isr.partition))
            refusal = None if isr.refusal is None else _REFUSALS.get(isr.refusal, ReplicaRefusal.NOT_LEADER)
            if self._replicas is not None:
                self._replicas.receive(place, AlterPartitionAnswer(asked, state, refusal))


def _proposal(place: PartitionId, alteration: AlterPartition) -> InSyncProposal:
    leader = InSyncMember(alteration.node_id, alteration.broker_epoch)
    in_sync = tuple(InSyncMember(*one) for one in alteration.in_sync)
    return InSyncProposal(place, leader, alteration.leader_epoch, alteration.partition_epoch, in_sync)
