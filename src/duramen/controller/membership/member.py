"""A node's membership in a cluster: sends requests to the active controller, follows the metadata, runs replicas."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import UNSET

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, LogDamaged, StreamNotFound
from duramen.base.ids import StreamId, stream_id_of
from duramen.base.ports import Buffer, Clock, Randomness, Worker
from duramen.broker.changes import Done, ValueDone, settled
from duramen.broker.control.methods import METHODS, method_of
from duramen.broker.control.requests import Adopt, CreateStream, DeleteStream, Request
from duramen.broker.control.responses import Answer, Outcome, When
from duramen.broker.membership import MetadataListener
from duramen.broker.partition import Partition
from duramen.broker.replicas.absent import UNKNOWN
from duramen.broker.replicas.bulk import BULK, BulkBytes
from duramen.broker.replicas.configs import PATIENCE, ReplicaPatience, config_of
from duramen.broker.replicas.observers import READ_REPLICAS, observers_of
from duramen.broker.replicas.throttle.throttle import UNLIMITED
from duramen.broker.role import Role
from duramen.codec.cluster.channels import Subject
from duramen.controller.active.admin_requests import create_stream, delete_stream, grant
from duramen.controller.active.controller import Controller
from duramen.controller.active.pending_changes import PendingChanges
from duramen.controller.admin.cluster import ClusterAdmin
from duramen.controller.dependencies import PRODUCERS_MS, TIMING, ControllerDependencies, ControllerTiming
from duramen.controller.membership.client import Asker
from duramen.controller.membership.event_log import ClusterEventLog
from duramen.controller.membership.incarnations import IncarnationFile
from duramen.controller.membership.lifecycle import Lifecycle, LifecyclePhase
from duramen.controller.membership.network import PeerNetwork, ToControllers
from duramen.controller.membership.partition_counters import PartitionCounters
from duramen.controller.membership.publisher import MetadataPublisher
from duramen.controller.membership.removed_brokers import RemovedBrokers
from duramen.controller.membership.repairs import FETCH_RANGE, serve_range
from duramen.controller.membership.replica_selector import nearest
from duramen.controller.membership.replicas import Replicating
from duramen.controller.membership.writability import Writability
from duramen.controller.quorum.applier import ControllerView
from duramen.controller.quorum.runner import Runner
from duramen.metadata.events import (
    Event,
    FeatureLevelChanged,
    NodeConfigured,
    NodeEvent,
    PartitionChanged,
    PartitionsAdded,
    StreamConfigured,
    StreamCreated,
    StreamDeleted,
)
from duramen.metadata.leader_reports import WINDOW_MS
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.registration import Registration
from duramen.metadata.sessions import SESSIONS, Sessions
from duramen.metadata.state import ControllerState
from duramen.raft.effects import Effect
from duramen.replication.effects import Effect as ReplicaEffect
from duramen.replication.machine import Behind
from duramen.replication.partition import PartitionConfig
from duramen.rpc.caller import Caller
from duramen.rpc.server import RpcServer
from duramen.rpc.wire import Wires
from duramen.storage.store import Store

__all__ = ["ClusterMember", "MemberDependencies"]

_CHANGE_MS: Final = 30_000
_NOBODY: Final = -1
_NO_STREAM: Final = StreamId(int=0)


def _nobody(_: PartitionId, __: ReplicaEffect) -> None:
    """Ignore the effect."""


class MemberDependencies(NamedTuple):
    """The dependencies of a member. `registration` is its registration; `chance` draws a number below its argument.

    `carried_out` gets each effect of a replica. `patience` are the timeouts of replicas; `sessions`, `report_window_ms`
    and `rebalance_ms` apply if this node is the controller, `timing` to its own heartbeats. `tell` gets lines about
    changes of nodes, leaders and in-sync sets. `throttled_rate` is in bytes per second, for replicas that are not in
    sync; `bulk` is the lag from which a replica is caught up in bulk. `producers_ms` is how long idempotent producers
    are remembered. `wires_by` has the encodings of requests between nodes, by the state of the metadata.
    """

    registration: Registration
    runner: Runner
    view: ControllerView
    store: Store
    worker: Worker
    clock: Clock
    deadlines: Deadlines
    randomness: Randomness
    chance: Callable[[int], int]
    network: PeerNetwork
    wires_by: Callable[[Callable[[], ControllerState]], Wires]
    report: Callable[[str], None]
    failed: Callable[[DuramenError], None]
    carried_out: Callable[[PartitionId, ReplicaEffect], None] = _nobody
    patience: ReplicaPatience = PATIENCE
    sessions: Sessions = SESSIONS
    report_window_ms: int = WINDOW_MS
    timing: ControllerTiming = TIMING
    tell: Callable[[str], None] | None = None
    throttled_rate: int = UNLIMITED
    bulk: BulkBytes = BULK
    incarnations: IncarnationFile | None = None
    producers_ms: int = PRODUCERS_MS
    rebalance_ms: int | None = None


class ClusterMember:
    """A node of a cluster, once its replica of the quorum is open."""

    def __init__(self, dependencies: MemberDependencies) -> None:
        self._dependencies = parts = dependencies
        self.node_id = parts.registration.node_id
        self._view = parts.view
        self._network = parts.network
        control = ControllerDependencies(
            self.node_id, parts.registration.cluster_id, parts.clock, parts.deadlines, parts.randomness, parts.chance,
            self, feature_level=parts.registration.latest_feature_level, sessions=parts.sessions,
            report_window_ms=parts.report_window_ms, timing=parts.timing, producers_ms=parts.producers_ms,
            rebalance_ms=parts.rebalance_ms,
        )  # fmt: skip
        self.controller = Controller(parts.runner, parts.view, parts.worker, control)
        wires = parts.wires_by(lambda: self.state)
        self._not_ready = RpcServer(wires)
        self._caller = Caller(
            self.node_id, ToControllers(parts.network), wires, RpcServer(wires), parts.clock, parts.deadlines
        )  # fmt: skip
        for method in METHODS:
            self._caller.server.handle(method, self.controller.ask)
        self._caller.server.handle(FETCH_RANGE, partial(serve_range, parts.store, self._partition_of))
        self.asker = Asker(self.controller, control)
        self.cluster_admin = ClusterAdmin(self.asker, lambda: self.state, parts.runner.describe)
        self.lifecycle = Lifecycle(
            parts.registration._replace(damaged=parts.store.damaged),
            self.controller,
            self.asker,
            control,
            changed=self._phase_changed,
            failed=self._left_out,
            heard=lambda alive: self.replicating.on_controller_session(alive=alive),
        )
        self.replicating = Replicating(
            self.node_id, parts.store, parts.worker, parts.clock, parts.deadlines, parts.network, self.asker,
            self._caller, partition_of=self._partition_of, config_of=self._config_of, observers_of=self._observers_of,
            when_applied=self.controller.when_applied,
            led=self._led, failed=self._replica_failed, report=parts.report, carried_out=parts.carried_out,
            publish_again=self._publish, throttled_rate=parts.throttled_rate, bulk=parts.bulk,
        )  # fmt: skip
        self._writability = Writability(
            parts.store, parts.clock, parts.deadlines, lambda: parts.runner.problem, self._writability_changed
        )
        parts.store.condition.watch(parts.runner.storage_changed)
        self._publishing = MetadataPublisher(parts.worker.soon, self._publish)
        self.counters = PartitionCounters(self.node_id)
        self._chronicle = (
            None if parts.tell is None else ClusterEventLog(parts.clock, parts.deadlines, parts.tell, parts.report)
        )
        self._listener: MetadataListener | None = None
        self._joining: Done | None = None
        self._begun_epoch = -1
        self._begins = True  # whether the next registration is still to start
        self._draining: Callable[[], None] | None = None
        self._heard_ms: dict[int, int] = {}
        self._removed_brokers = RemovedBrokers()

    # -- state --------------------------------------------------------------------------------------

    @property
    def state(self) -> ControllerState:
        return self._view.state

    @property
    def first_role(self) -> Role | None:
        return UNKNOWN

    @property
    def nodes(self) -> Sequence[Node]:
        return [node for node in self.state.registrations if not node.fenced]

    @property
    def shown_nodes(self) -> Sequence[Node]:
        return self._removed_brokers.shown(self.state.registrations, self._dependencies.clock.monotonic_ms())

    @property
    def cluster_id(self) -> UUID:
        return UUID(self._dependencies.registration.cluster_id)

    @property
    def controller_id(self) -> int:
        leader_id = self.controller.leader_id
        return _NOBODY if leader_id is None else leader_id

    @property
    def most_replicas(self) -> int:
        # At least the number of voters: absent ones will register.
        return max(len(self.state.registrations), len(self._dependencies.runner.machine.voters))

    @property
    def stands_for_another(self) -> bool:
        """Whether this process is registered as its node, and a directory that the node no longer has is a voter."""
        known = self.state.registrations.get(self.node_id)
        if known is None or known.incarnation_id != self._dependencies.registration.incarnation_id:
            return False
        voter = self._dependencies.runner.voters.of_node(self.node_id)
        return voter is not None and voter.directory_id != self._dependencies.registration.directory_id

    def partition(self, place: PartitionId) -> PartitionState:
        return self.state.partitions.get(place) or PartitionState()

    def preferred_replica(self, partition: Partition, rack_id: str, offset: int) -> int:
        place = partition.place
        state = self.state.partitions.get(place)
        if state is None or state.leader != self.node_id or self._dependencies.registration.rack == rack_id:
            return _NOBODY
        held_by = (*state.replicas, *self._observers_of(place, state))
        holders = [node for node in self.nodes if node.id in held_by]
        found = nearest(rack_id, offset, holders, partial(self.replicating.covered, place))
        return _NOBODY if found is None else found

    def _partition_of(self, place: PartitionId) -> Partition:
        if self._listener is None:
            raise StreamNotFound("this node has not applied the metadata yet")
        return self._listener.partition(place)

    def _config_of(self, place: PartitionId) -> PartitionConfig:
        return config_of(self.state, place.stream_id, self._dependencies.patience)

    def _observers_of(self, place: PartitionId, partition: PartitionState) -> tuple[int, ...]:
        return observers_of(self.state, place, partition)

    # -- requests of users --------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        draft = PendingChanges(self.state.copy(), self.controller.applied_offset)
        if isinstance(request, CreateStream):
            create_stream(request, draft, _NO_STREAM, 0, b"")
        elif isinstance(request, DeleteStream):
            delete_stream(request, draft, 0, 0)
        else:
            grant(request, draft)

    def ask(self, request: Request, done: ValueDone) -> None:
        self.asker.ask(request, partial(self._answered, done), within_ms=_CHANGE_MS)

    def _answered(self, done: ValueDone, outcome: Outcome) -> None:
        if isinstance(outcome, Answer):
            self.controller.when_applied(outcome.end_offset, lambda: done(outcome.value))
        else:
            done(outcome)

    def heard_ms(self, node_id: int) -> int:
        return self._heard_ms.get(node_id, 0)

    def behind(self) -> Iterator[Sequence[Behind]]:
        return self.replicating.behind()

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        return self._network.ask(node_id, body, done, subject=Subject.BROKER)

    # -- coming and going ---------------------------------------------------------------------------

    def start(self, listener: MetadataListener, done: Callable[[DuramenError | None], None]) -> None:
        self._listener = listener
        done(None)

    def leader_of(self, epoch: int) -> int:
        del epoch  # each takeover names its leader
        return _NOBODY

    def is_gone(self, stream_id: StreamId) -> bool:
        # A registered node has applied every stream of its logs, unless the stream was deleted.
        return self._begun_epoch >= 0 and self.state.stream_by_id(stream_id) is None

    def join(self, done: Done) -> None:
        self._joining = done
        self.lifecycle.begin()
        self._writability.look()

    def drain(self, done: Callable[[], None]) -> None:
        """Move leadership away; calls `done` once this node may stop without interruption."""
        if self.lifecycle.phase not in (LifecyclePhase.JOINING, LifecyclePhase.DRAINED):
            self._draining = done
            self.lifecycle.drain()
        else:
            done()

    @property
    def problem(self) -> DuramenError | None:
        """The reason why this node accepts no writes, so that others lead."""
        return self._writability.problem

    def _replica_failed(self, place: PartitionId, error: DuramenError) -> None:
        if isinstance(error, LogDamaged):
            name = f"partition {place.partition} of {self.cluster_admin.name(place)}"
            self._dependencies.report(f"{name} is out of service on this node: {error}")
        else:
            self._writability.replica_failed(error)

    def _writability_changed(self, problem: DuramenError | None) -> None:
        if problem is None:
            self._dependencies.report("this node accepts writes again: it registers again, and its replicas catch up")
        else:
            self._dependencies.report(
                f"this node accepts no writes, and its leaderships move to other nodes: {problem}"
            )
        self.lifecycle.storage_changed(unwritable=problem is not None)

    @property
    def leads(self) -> int:
        """The number of partitions that this node leads, as far as it knows."""
        return self.state.partitions.leader_count(self.node_id)

    @property
    def unanswered_ms(self) -> int:
        """The time since the controller's last response."""
        return self.lifecycle.unanswered_ms

    def stop(self) -> None:
        self._writability.stop()
        self.lifecycle.stop()
        self.asker.stop()
        self.replicating.end()
        self.controller.stop()
        if self._chronicle is not None:
            self._chronicle.stop()

    def _phase_changed(self, phase: LifecyclePhase) -> None:
        if phase is not LifecyclePhase.FENCED:
            self._publishing.release()
        if phase is LifecyclePhase.JOINING:
            self.replicating.end()
            self._begins = True
        elif self._begins:
            self._begins = False
            self._begun_epoch = self.lifecycle.epoch
            self._dependencies.store.damaged = False  # the controller knows by now: damaged replicas are excluded
            self._keep_incarnation()
            self.controller.when_applied(self._begun_epoch, partial(self._registered, self._begun_epoch))
        if phase is LifecyclePhase.LIVE and self._joining is not None:
            joining, self._joining = self._joining, None
            self._adopt(joining)
        if phase is LifecyclePhase.DRAINED and self._draining is not None:
            draining, self._draining = self._draining, None
            draining()

    def _keep_incarnation(self) -> None:
        """Record the registered incarnation in the directory, retried after failures."""

        def kept(result: object) -> None:
            if isinstance(result, OSError | DuramenError):
                self._dependencies.report(f"the incarnation of this node cannot be kept: {result}")

        if self._dependencies.incarnations is not None:
            incarnation_id = self._dependencies.registration.incarnation_id
            self._dependencies.worker.submit(
                "disk", partial(self._dependencies.incarnations.registered, incarnation_id), kept
            )

    def _adopt(self, done: Done) -> None:
        """Bring the streams of the standalone node into the cluster; then call `done`."""
        state = self.state
        brings = any(len(state.partitions.of_stream(one.id)) < one.partitions for one in state.streams.values())
        if brings and [voter.id.node_id for voter in self._dependencies.runner.machine.voters] == [self.node_id]:
            self.ask(Adopt(self.node_id, self._dependencies.store.node_epoch), settled(done))
        else:
            done(None)

    def _registered(self, epoch: int) -> None:
        """The metadata is applied up to the registration: start the replicas."""
        if epoch == self._begun_epoch:
            self.replicating.begin(epoch)
            if self.lifecycle.phase is LifecyclePhase.FENCED:
                self._publishing.hold()  # it must first report that it can be live: clients wait for that
            self._publish_all()

    def _publish_all(self) -> None:
        self.counters.restart(self.state.partitions)
        self.replicating.on_live_nodes(self.state.registrations.active)
        for place, _ in list(self.state.partitions):
            self._publishing.begin(place)

    def _publish(self, place: PartitionId) -> None:
        """Publish a partition, unless its stream still lacks some."""
        state = self.state.partitions.get(place)
        if state is not None and self._listener is not None and self._listener.has(place):
            self.replicating.on_partition_state(place, state)

    def _publish_stream(self, stream_id: StreamId) -> None:
        for partition in list(self.state.partitions.of_stream(stream_id)):
            self._publishing.begin(PartitionId(stream_id, partition))

    def _publish_read(self) -> None:
        """Other nodes are registered: they may have to follow read replicas."""
        for stream in list(self.state.streams.values()):
            if READ_REPLICAS in stream.config:
                self._publish_stream(stream.id)

    def _left_out(self, error: DuramenError) -> None:
        joining, self._joining = self._joining, None
        if joining is not None:
            joining(error)
        else:
            self._dependencies.failed(error)

    # -- events of the metadata log -----------------------------------------------------------------

    def on_event(self, event: Event, epoch: int) -> None:
        """An event is applied to the view; the quorum ordered it in that epoch."""
        del epoch
        if isinstance(event, PartitionChanged):  # the most frequent event
            if self._listener is not None:
                self._listener.on_event(event)
            # Before the node takes part, nothing is published: it then starts with the whole state.
            if self.replicating.takes_part:
                self._changed(event)
            return
        if isinstance(event, StreamDeleted):
            self.replicating.removed(stream_id_of(event.id))
            self.counters.removed(stream_id_of(event.id))
        if self._listener is not None:
            self._listener.on_event(event)
        if isinstance(event, StreamCreated | PartitionsAdded):
            self._publish_when_created(PartitionId(stream_id_of(event.id), event.partitions - 1))
        elif isinstance(event, FeatureLevelChanged | NodeConfigured | StreamConfigured):
            self.replicating.configured()
            if isinstance(event, StreamConfigured):
                self._publish_stream(stream_id_of(event.id))
        elif isinstance(event, NodeEvent):
            self._removed_brokers.update(self.state.registrations, self._dependencies.clock.monotonic_ms())
            self.replicating.on_live_nodes(self.state.registrations.active)
            self._publish_read()
            if self._chronicle is not None and self.replicating.takes_part:
                self._chronicle.node(event)

    def _changed(self, event: PartitionChanged) -> None:
        place = PartitionId(stream_id_of(event.id), event.partition)
        state = self.state.partitions.get(place)
        if state is not None:
            self._count(place, state, unclean=event.unclean)
            self._publishing.begin(place, led=event.leader_epoch is not UNSET)

    def _publish_when_created(self, last: PartitionId) -> None:
        if self._listener is not None and not self._listener.has(last):
            self._listener.when_made(last.stream_id, partial(self._publish_stream, last.stream_id))

    def _count(self, place: PartitionId, state: PartitionState, *, unclean: bool) -> None:
        before = self.counters.update(place, state, unclean=unclean)
        if before is not None and self._chronicle is not None:
            name = f"{self.cluster_admin.name(place)}-{place.partition}"
            self._chronicle.partition(name, before, state, unclean=unclean)

    def restored(self) -> None:
        """The whole state of the view was replaced."""
        self._removed_brokers.update(self.state.registrations, self._dependencies.clock.monotonic_ms())
        if self._listener is not None:
            # Streams may be deleted, and configs changed, without an event.
            self.replicating.only({stream.id for stream in self.state.streams.values()})
            self._listener.restored()
            self.replicating.configured()
            if self.replicating.takes_part:  # else it starts with all of them, once it takes part
                self._publish_all()

    def carried_out(self, effect: Effect) -> None:
        """The quorum's replica has executed an effect."""
        self.controller.on_effect(effect)
        if self._dependencies.store.metadata_damaged and not self._dependencies.runner.machine.damaged:
            self._dependencies.store.metadata_damaged = False

    def quorum_failed(self) -> None:
        """The quorum's replica has stopped, or only follows."""
        self._writability.look()

    def _led(self, place: PartitionId, leader_epoch: int | None) -> None:
        if self._listener is not None:
            self._listener.on_leader_change(place, leader_epoch)

    # -- messages of other nodes --------------------------------------------------------------------

    def opened(self, node_id: int) -> None:
        """There is a connection to a node."""
        self.controller.opened(node_id)

    def closed(self, node_id: int) -> None:
        """The last connection to a node is closed."""
        self.controller.closed(node_id)
        self.replicating.unreachable(node_id, list(self.state.partitions.of_node(self.node_id)))

    def reachable(self, node_id: int) -> None:
        """Messages of replicas to a node use a new connection."""
        self.replicating.reachable(node_id)

    def handle_controller_request(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """A request of another node to this one's controller."""
        self._caller.server.serve(body, answer)

    def handle_broker_request(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """A request of another node's broker; see `MetadataListener.handle_request`."""
        if self._listener is not None:
            self._listener.handle_request(body, answer)
        else:
            self._not_ready.serve(body, answer)

    def heard(self, node_id: int, body: Buffer) -> None:
        """Messages of another node's replicas. Raises RequestInvalid if they are unreadable."""
        self._heard_ms[node_id] = self._dependencies.clock.wall_ms()
        self.replicating.heard(node_id, body)

    # -- dependencies of the controller's part ------------------------------------------------------

    def call(self, node_id: int, request: Request, done: When, within_ms: int) -> None:
        self._caller.call(node_id, method_of(request), request, done, within_ms)

    def report(self, finding: str) -> None:
        self._dependencies.report(finding)
