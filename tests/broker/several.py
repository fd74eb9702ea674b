"""Brokers of a cluster in one process: their storage and replicas are real, network and controller are the test's.

Nothing happens but what the test makes happen: `settle` runs all that is to run and delivers what nodes say, `advance`
lets time go by. Whom a broker cannot hear is in `cut`; who leads is said by `elect`.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from duramen.base.errors import DuramenError, RequestInvalid
from duramen.base.ids import StreamId
from duramen.base.ports import Buffer
from duramen.broker.changes import Done as DecisionDone
from duramen.broker.changes import ValueDone
from duramen.broker.control.requests import CreateStream, DeleteStream, ReleaseTenant, Request, ReserveTenant
from duramen.broker.control.responses import Created, Done
from duramen.broker.membership import MetadataListener
from duramen.broker.partition import Partition
from duramen.broker.replicas.absent import UNKNOWN
from duramen.broker.replicas.configs import config_of
from duramen.broker.replicas.dependencies import ReplicaDependencies
from duramen.broker.replicas.roles import Replicas, state_of
from duramen.broker.role import Role
from duramen.controller.admin.cluster import ClusterAdmin
from duramen.metadata.decisions import create_stream, delete_stream
from duramen.metadata.events import Event, FeatureLevelChanged, NodeConfigured, PartitionChanged
from duramen.metadata.features import LATEST_LEVEL
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.state import ControllerState
from duramen.metadata.tenant_names import release_tenant, reserve_tenant
from duramen.replication.effects import Effect
from duramen.replication.machine import Behind
from duramen.replication.messages import AlterPartition, AlterPartitionAnswer, ReplicaFetch, ReplicaFetchAnswer
from duramen.replication.partition import PartitionConfig
from duramen.service.broker import Broker
from duramen.sim.broker import CallbackResult, ManualBroker

__all__ = ["SETTINGS", "Several"]

SETTINGS = {"offsets.topic.num.partitions": 2, "share.coordinator.state.topic.num.partitions": 2}


class Said(NamedTuple):
    """A message between the replicas of two nodes."""

    sender: int
    receiver: int
    place: PartitionId
    message: ReplicaFetch | ReplicaFetchAnswer
    records: bytes


class Placed:
    """The Standing of one of the brokers."""

    def __init__(self, several: "Several", node_id: int, hand: ManualBroker) -> None:
        self.several = several
        self.node_id = node_id
        self.hand = hand
        self.listener: MetadataListener | None = None
        self.replicas: Replicas | None = None
        self.told: dict[PartitionId, PartitionState] = {}  # what the controller has said last

    # -- what is known ------------------------------------------------------------------------------

    @property
    def state(self) -> ControllerState:
        return self.several.state

    @property
    def first_role(self) -> Role | None:
        return UNKNOWN

    @property
    def nodes(self) -> Sequence[Node]:
        return ()

    @property
    def shown_nodes(self) -> Sequence[Node]:
        return ()

    @property
    def cluster_id(self) -> UUID:
        return UUID(int=1)

    @property
    def controller_id(self) -> int:
        return -1

    @property
    def most_replicas(self) -> int:
        return len(self.several.hands)

    def partition(self, place: PartitionId) -> PartitionState:
        known = self.several.partitions
        return self.told.get(place, known[place]) if self.node_id in self.several.unheard else known[place]

    @property
    def cluster_admin(self) -> ClusterAdmin:
        raise AssertionError("nobody operates this cluster")

    def preferred_replica(self, partition: Partition, rack_id: str, offset: int) -> int:
        del partition, rack_id, offset
        return -1

    def behind(self) -> Iterator[Sequence[Behind]]:
        return iter(())

    def heard_ms(self, node_id: int) -> int:
        del node_id
        return self.hand.clock.wall_ms()

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        if {node_id, self.node_id} & self.several.cut:
            return False
        asked = partial(self._ask, node_id, body, done)
        if (self.node_id, node_id) in self.several.slow:
            self.several.late.append(asked)
        else:
            asked()
        return True

    def _ask(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> None:
        asker = self.listener

        def answered(answer: Buffer | None) -> None:
            if self.listener is asker and (node_id, self.node_id) not in self.several.slow:
                done(answer)

        if node_id not in self.several.cut:
            self.several.placed[node_id].broker.handle_request(body, answered)

    def leader_of(self, epoch: int) -> int:
        del epoch
        return -1

    def is_gone(self, stream_id: StreamId) -> bool:
        return self.state.stream_by_id(stream_id) is None

    # -- coming and going ---------------------------------------------------------------------------

    def start(self, listener: MetadataListener, done: Callable[[DuramenError | None], None]) -> None:
        self.listener = listener
        done(None)

    def join(self, done: DecisionDone) -> None:
        self.several.registrations += 1
        hand = self.hand
        dependencies = ReplicaDependencies(
            self.node_id, self.several.registrations, hand.store, hand.clock, hand.deadlines, self
        )
        self.replicas = Replicas(dependencies, self.broker.partition, self._config_of)
        done(None)

    def _config_of(self, place: PartitionId) -> PartitionConfig:
        return config_of(self.state, place.stream_id)

    @property
    def broker(self) -> MetadataListener:
        assert self.listener is not None
        return self.listener

    def stop(self) -> None:
        if self.replicas is not None:
            self.replicas.stop()

    # -- changes ------------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        raise NotImplementedError(request)

    def ask(self, request: Request, done: ValueDone) -> None:
        self.several.change(request, done)

    # -- what replicas need -------------------------------------------------------------------------

    def send(
        self, place: PartitionId, node_id: int, message: ReplicaFetch | ReplicaFetchAnswer, records: Sequence[Buffer]
    ) -> None:
        data = b"".join(bytes(buffer) for buffer in records)
        self.several.said.append(Said(self.node_id, node_id, place, message, data))

    def propose(self, place: PartitionId, proposal: AlterPartition) -> None:
        self.several.proposed.append((self.node_id, place, proposal))

    def move_leader(self, place: PartitionId, leader_epoch: int, node_id: int | None) -> None:
        del place, leader_epoch, node_id

    def leads(self, place: PartitionId, leader_epoch: int | None) -> None:
        self.broker.on_leader_change(place, leader_epoch)

    def carried_out(self, place: PartitionId, effect: Effect) -> None:
        del place, effect

    def failed(self, place: PartitionId, error: DuramenError) -> None:
        raise AssertionError(f"{place} failed on node {self.node_id}: {error}")

    def report(self, finding: str) -> None:
        self.hand.reports.append(finding)


class Several:
    """Brokers 1, 2 and so on, all of which have a replica of everything."""

    def __init__(self, count: int = 3, settings: Mapping[str, object] | None = None) -> None:
        self.state = ControllerState()
        self.state.apply(FeatureLevelChanged(LATEST_LEVEL))
        self.partitions: dict[PartitionId, PartitionState] = {}
        self.registrations = 0
        self.said: deque[Said] = deque()
        self.proposed: deque[tuple[int, PartitionId, AlterPartition]] = deque()
        self.cut: set[int] = set()  # whom nobody hears, and who hears nobody, the controller included
        self.deaf: set[int] = set()  # whom only the controller does not reach
        self.slow: set[tuple[int, int]] = set()  # from whom to whom what brokers ask comes late, and answers do not
        self.late: list[Callable[[], None]] = []  # what is on its way there
        self.placed: dict[int, Placed] = {}
        self.hands: dict[int, ManualBroker] = {}
        for node_id in range(1, count + 1):
            chosen = {"node.id": node_id, **SETTINGS, **(settings or {})}
            self.hands[node_id] = ManualBroker(chosen, seed=node_id, membership=partial(self._place, node_id))
        self.settle()

    def _place(self, node_id: int, hand: ManualBroker) -> Placed:
        self.placed[node_id] = Placed(self, node_id, hand)
        return self.placed[node_id]

    @property
    def unheard(self) -> set[int]:
        """Who hears nothing of the controller."""
        return self.cut | self.deaf

    def broker(self, node_id: int) -> Broker:
        """The broker of a node."""
        return self.hands[node_id].broker

    # -- the controller -----------------------------------------------------------------------------

    def change(self, request: Request, done: ValueDone) -> None:
        match request:
            case CreateStream():
                stream_id = StreamId(int=len(self.state.streams) + 1)
                events = create_stream(
                    self.state, request.definition, stream_id=stream_id, now_ms=0, idempotent=request.idempotent
                )
                self._happen(events)
                for event in events:
                    self._lay_out(stream_id, event.partitions)
                done(Created(self.state.streams[request.definition.name].id, existed=not events))
            case ReserveTenant():
                self._happen(reserve_tenant(self.state, request.account, request.tenant))
                done(Done())
            case ReleaseTenant():
                self._happen(release_tenant(self.state, request.account, request.tenant, request.number))
                done(Done())
            case DeleteStream():
                self._happen(delete_stream(self.state, request.name, now_ms=0, producers_ms=0))
                done(Done())
            case _:
                done(RequestInvalid("the tests know nothing of it"))

    def _happen(self, events: Sequence[Event]) -> None:
        for event in events:
            self.state.apply(event)
            for placed in self.placed.values():
                placed.broker.on_event(event)

    def _lay_out(self, stream_id: StreamId, partitions: int) -> None:
        everybody = tuple(self.hands)
        for index in range(partitions):
            place = PartitionId(stream_id, index)
            self.partitions[place] = PartitionState(everybody, everybody, everybody[index % len(everybody)], 1, 1)
            self.publish(place)

    def publish(self, place: PartitionId) -> None:
        """All nodes that hear anything learn the state of the partition."""
        self._say(place)
        self._tell(place)

    def _say(self, place: PartitionId) -> None:
        """The metadata has who leads it."""
        state = self.partitions[place]
        event = PartitionChanged(str(place.stream_id), place.partition, state.partition_epoch, state.leader)
        for node_id, placed in self.placed.items():
            if node_id not in self.unheard:
                placed.broker.on_event(event)

    def _tell(self, place: PartitionId, only: Collection[int] = ()) -> None:
        for node_id, placed in self.placed.items():
            if placed.replicas is not None and node_id not in self.unheard and (not only or node_id in only):
                placed.told[place] = self.partitions[place]
                placed.replicas.on_live_nodes(set(self.hands) - self.cut)
                placed.replicas.on_partition_state(place, self.partitions[place])

    def place(self, name: str, index: int = 0) -> PartitionId:
        """A partition of a stream."""
        return PartitionId(self.state.streams[name].id, index)

    def elect(self, place: PartitionId, leader: int | None) -> None:
        """A node that is in sync leads from here on; those that are cut do not hear of it. None: nobody."""
        before = self.partitions[place]
        assert leader is None or leader in before.isr
        self.partitions[place] = PartitionState(
            before.replicas, before.isr, leader, before.leader_epoch + 1, before.partition_epoch + 1
        )
        self.publish(place)

    def shrink(self, place: PartitionId) -> None:
        """The leader alone is in sync from here on, until the others are heard again."""
        before = self.partitions[place]
        if before.leader is not None:
            self.partitions[place] = PartitionState(
                before.replicas, (before.leader,), before.leader, before.leader_epoch, before.partition_epoch + 1
            )
            self._tell(place)

    def session(self, node_id: int, *, lately: bool) -> None:
        """Whether a node's session with the controller goes on; where it does not, its connections are gone too."""
        replicas = self.placed[node_id].replicas
        assert replicas is not None
        replicas.on_controller_session(alive=lately)
        for other in () if lately else sorted(set(self.placed) - {node_id}):
            replicas.unreachable(other)

    def heal(self, node_id: int) -> None:
        """A node hears and is heard again, over new connections, and is told what there is."""
        if node_id in self.cut:
            self.cut.discard(node_id)
            for other in sorted({*self.placed} - self.cut - {node_id}):
                self._connect(node_id, other)
                self._connect(other, node_id)
            for place in self.partitions:
                self._tell(place)

    def hear(self, node_id: int) -> None:
        """The controller reaches a node again."""
        if node_id in self.deaf:
            self.deaf.discard(node_id)
            for place in self.partitions:
                self.publish(place)

    def arrive(self) -> None:
        """What brokers asked comes, as late as it is."""
        late, self.late = self.late, []
        for asked in late:
            asked()

    def _connect(self, node_id: int, other: int) -> None:
        replicas = self.placed[node_id].replicas
        if replicas is not None:
            replicas.reachable(other)

    def _alter(self, node_id: int, place: PartitionId, proposal: AlterPartition) -> None:
        before = self.partitions[place]
        if (proposal.leader_epoch, proposal.partition_epoch) != (before.leader_epoch, before.partition_epoch):
            return
        in_sync = tuple(sorted(one.node_id for one in proposal.in_sync))
        if not set(in_sync) <= {*before.isr, *self.hands} - (self.unheard - {node_id}):
            return
        self.partitions[place] = state = PartitionState(
            before.replicas, in_sync, before.leader, before.leader_epoch, before.partition_epoch + 1
        )
        replicas = self.placed[node_id].replicas
        if replicas is not None:
            replicas.receive(place, AlterPartitionAnswer(proposal, state_of(state)))
        self._tell(place)

    # -- what happens -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Run all there is to run, and deliver all there is to deliver."""
        while True:
            for hand in self.hands.values():
                hand.settle()
            if not self.step():
                return

    def step(self) -> bool:
        """Deliver one message or proposal; False where there is none."""
        if self.proposed:
            node_id, place, proposal = self.proposed.popleft()
            if node_id not in self.unheard:
                self._alter(node_id, place, proposal)
            return True
        if self.said:
            said = self.said.popleft()
            replicas = self.placed[said.receiver].replicas
            if replicas is not None and self.cut.isdisjoint((said.sender, said.receiver)):
                replicas.receive(said.place, said.message, said.records)
            return True
        return False

    def advance(self, duration_ms: int, step_ms: int = 100) -> None:
        """Let time go by on all nodes alike."""
        for _ in range(0, duration_ms, step_ms):
            for hand in self.hands.values():
                hand.advance(step_ms)
            self.settle()

    def fence(self, node_id: int) -> None:
        """The controller reaches a node no more, and goes by that: others lead. Everybody else does reach it."""
        self.deaf.add(node_id)
        self._step_down(node_id)
        for place in self.partitions:
            self._say(place)

    def _step_down(self, node_id: int) -> None:
        for place, before in self.partitions.items():
            others = tuple(one for one in before.isr if one != node_id)
            leader = next((one for one in others if one not in self.unheard), None)
            self.partitions[place] = PartitionState(
                before.replicas, others or before.isr, leader if before.leader == node_id else before.leader,
                before.leader_epoch + (before.leader == node_id), before.partition_epoch + 1,
            )  # fmt: skip
            self._tell(place)

    def restart(self, node_id: int, *, crash: int | None = None) -> None:
        """Stop a node, or have its power fail, and start it again; others lead meanwhile, where they may.

        `crash` draws what a loss of power leaves.
        """
        self._step_down(node_id)
        self.said = deque(said for said in self.said if node_id not in (said.sender, said.receiver))
        self.proposed = deque(one for one in self.proposed if one[0] != node_id)
        if crash is None:
            self.hands[node_id].restart()
        else:
            self.hands[node_id].crash(crash)
        for place in self.partitions:
            self._tell(place, [node_id])
        self.settle()

    def require_in_sync(self, least: int) -> None:
        """Let `min.insync.replicas` be that of what is created from now on."""
        self._happen([NodeConfigured(None, {"min.insync.replicas": str(least)})])

    # -- groups -------------------------------------------------------------------------------------

    def ensure_offsets(self) -> None:
        """See to it that groups have somewhere to be stored."""
        ready: CallbackResult[None] = CallbackResult()
        self.broker(1).internal_streams.ensure_offsets(ready)
        self.advance(1000)
        assert ready.value is None
