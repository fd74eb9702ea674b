"""Whole brokers with real replicas on disks in memory; between them a network and a controller that tests move by hand.

The controller is always there and always right; nodes hear of what it says in order, each at its own time. What happens
is counted in steps, so that a test can break something at any of them: `at` plans that.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ids import StreamId
from duramen.base.metrics import Metrics
from duramen.base.ports import Buffer
from duramen.base.settings import Settings
from duramen.broker.changes import ValueDone
from duramen.broker.control import requests
from duramen.broker.control.responses import Block, Created, Done
from duramen.broker.membership import MetadataListener
from duramen.broker.partition import Partition
from duramen.broker.replicas.absent import UNKNOWN
from duramen.broker.replicas.configs import config_of
from duramen.broker.replicas.dependencies import ReplicaDependencies
from duramen.broker.replicas.roles import Replicas, state_of
from duramen.broker.replicas.wire import PlacedMessage, decode, encode
from duramen.broker.role import Role
from duramen.controller.admin.cluster import ClusterAdmin
from duramen.metadata.decisions import Definition, delete_stream
from duramen.metadata.events import (
    Event,
    FeatureLevelChanged,
    NodeConfigured,
    PartitionChanged,
    StreamCreated,
    StreamDeleted,
)
from duramen.metadata.features import LATEST_LEVEL
from duramen.metadata.nodes import Node as Registered
from duramen.metadata.partitions import PartitionId, PartitionState, difference
from duramen.metadata.state import ControllerState
from duramen.replication.effects import Effect
from duramen.replication.machine import Behind
from duramen.replication.messages import (
    AlterPartition,
    AlterPartitionAnswer,
    ReplicaFetch,
    ReplicaFetchAnswer,
    ReplicaRefusal,
)
from duramen.rpc.wire import VERSION
from duramen.service.assembly import Ports
from duramen.service.broker import Broker
from duramen.sim.broker import CallbackResult
from duramen.sim.machine.clock import ManualClock, ManualWorker, SeededRandomness
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.sim.machine.views import MemoryStateStore
from duramen.storage.directory import open_directory
from duramen.storage.recovery.recovery import recover
from duramen.storage.segment.handles import Handles
from duramen.storage.store import Store, StoreLimits

LIMITS = StoreLimits(
    wal_file_bytes=1 << 20, wal_max_bytes=8 << 20, pending_bytes=4 << 20, copy_bytes=1 << 20, copy_interval_ms=1000
)
BLOCK = 100


class Standing:
    """The Standing of a scripted node."""

    first_role: Role | None = UNKNOWN
    cluster_id = UUID(int=1)
    controller_id = 1
    nodes: Sequence[Registered] = ()
    shown_nodes: Sequence[Registered] = ()

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.state = ControllerState()
        self.listener: MetadataListener | None = None

    @property
    def most_replicas(self) -> int:
        return len(self._node.world.nodes)

    def partition(self, place: PartitionId) -> PartitionState:
        return self.state.partitions.get(place) or PartitionState()

    def check(self, request: requests.Request) -> None:
        del request

    def ask(self, request: requests.Request, done: ValueDone) -> None:
        self._node.world.decide(self._node, request, done)

    @property
    def cluster_admin(self) -> ClusterAdmin:
        raise AssertionError("nobody operates this cluster")

    def behind(self) -> Iterator[Sequence[Behind]]:
        return iter(())

    def heard_ms(self, node_id: int) -> int:
        del node_id
        return 0

    def preferred_replica(self, partition: Partition, rack_id: str, offset: int) -> int:
        del partition, rack_id, offset
        return -1

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        return self._node.world.ask(self._node, node_id, body, done)

    def start(self, listener: MetadataListener, done: Callable[[DuramenError | None], None]) -> None:
        self.listener = listener
        done(None)

    def leader_of(self, epoch: int) -> int:
        del epoch
        return -1

    def is_gone(self, stream_id: StreamId) -> bool:
        return self.state.stream_by_id(stream_id) is None

    def join(self, done: Callable[[DuramenError | None], None]) -> None:
        self._node.join()
        done(None)

    def stop(self) -> None:
        """Nobody has to know."""


class Node:
    """A node, and its process while it runs; to its replicas it is what is outside of them."""

    def __init__(self, world: "World", node_id: int, settings: dict[str, object]) -> None:
        self.world = world
        self.node_id = node_id
        self.settings = Settings(BROKER, options={"node.id": node_id, **settings})
        self.files = MemoryFileSystem()
        self.rows = MemoryStateStore()
        self.randomness = SeededRandomness(node_id)
        self.life = 0
        self.up = False
        self.applied = 0
        self.broker_epoch = 0
        self.reports: list[str] = []

    # -- life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self.life += 1
        self.up = True
        self.worker, self.deadlines = ManualWorker(), Deadlines()
        directory = open_directory(self.files, self.randomness, "memory")
        handles = Handles(self.files, 64)
        recovered = recover(self.files, directory.id, handles, self.reports.append)
        self.store = Store(
            self.files, self.worker, self.world.clock, self.deadlines, Metrics(), directory, recovered, handles,
            node_id=self.node_id, limits=LIMITS,
        )  # fmt: skip
        self.replicas: Replicas | None = None
        self.membership = Standing(self)
        self.applied = len(self.world.events)
        for event in self.world.events:
            self.membership.state.apply(event)
        self.broker = Broker(
            Ports(self.worker, self.world.clock, self.randomness, lambda: self.rows), self.deadlines,
            self.store, self.settings, Metrics(), directory_id=str(directory.id), report=self.reports.append,
            membership=self.membership,
        )  # fmt: skip
        started: CallbackResult[None] = CallbackResult()
        self.broker.start(started)
        self.worker.settle()
        assert started.value is None

    def join(self) -> None:
        self.broker_epoch = self.world.registered(self)
        dependencies = ReplicaDependencies(
            self.node_id, self.broker_epoch, self.store, self.world.clock, self.deadlines, self
        )
        self.replicas = Replicas(
            dependencies, self.broker.partition, lambda place: config_of(self.membership.state, place.stream_id)
        )
        self.tell_live()
        for place, state in list(self.membership.state.partitions):
            self.replicas.on_partition_state(place, state)

    def tell_live(self) -> None:
        if self.replicas is not None:
            self.replicas.on_live_nodes(frozenset(node.node_id for node in self.world.nodes if node.up))

    def end(self, power: random.Random | None) -> None:
        """Killed; with `power` what it has not synced may be lost."""
        self.up = False
        self.life += 1
        if power is None:
            self.files.end_process()
        else:
            self.files.crash(power)
        self.rows.crash(power or random.Random(0))

    # -- what it hears ------------------------------------------------------------------------------

    def hear(self) -> None:
        """The next thing that the controller has said takes effect."""
        event = self.world.events[self.applied]
        self.applied += 1
        state = self.membership.state
        state.apply(event)
        assert self.replicas is not None
        if isinstance(event, StreamDeleted):
            self.replicas.removed(StreamId(event.id))
        self.broker.on_event(event)
        if isinstance(event, PartitionChanged):
            place = PartitionId(StreamId(event.id), event.partition)
            found = state.partitions.get(place)
            if found is not None:
                self.replicas.on_partition_state(place, found)

    # -- what its replicas want -----------------------------------------------------------------------

    def send(
        self, place: PartitionId, node_id: int, message: ReplicaFetch | ReplicaFetchAnswer, records: Sequence[Buffer]
    ) -> None:
        body = b"".join(bytes(piece) for piece in encode([PlacedMessage(place, message, records)]))

        def came(other: Node) -> None:
            for where, said, found in decode(body, self.node_id):
                if other.replicas is not None:
                    other.replicas.receive(where, said, found[0] if found else b"")

        self.world.post(self, node_id, came)

    def propose(self, place: PartitionId, proposal: AlterPartition) -> None:
        self.world.later(partial(self.world.alter, self, self.life, place, proposal))

    def move_leader(self, place: PartitionId, leader_epoch: int, node_id: int | None) -> None:
        raise AssertionError(f"{place} is not to move to {node_id} in epoch {leader_epoch}")

    def leads(self, place: PartitionId, leader_epoch: int | None) -> None:
        self.broker.on_leader_change(place, leader_epoch)

    def carried_out(self, place: PartitionId, effect: Effect) -> None:
        """Nobody here has to know."""

    def failed(self, place: PartitionId, error: DuramenError) -> None:
        raise AssertionError(f"{place} on {self.node_id}: {error}")

    def report(self, finding: str) -> None:
        self.reports.append(finding)

    # -- looking --------------------------------------------------------------------------------------

    def settle(self) -> None:
        self.world.settle()


class World:
    """Nodes 1 to `nodes`, and everything between them. Without a seed all happens in the order in which it came."""

    def __init__(self, nodes: int = 3, seed: int | None = None, **settings: object) -> None:
        given = {
            "transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 1,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }  # fmt: skip
        self.clock = ManualClock()
        self.random = random.Random(seed)
        self.shuffled = seed is not None
        self.events: list[Event] = []
        self.state = ControllerState()
        self.deaf: set[int] = set()  # who does not hear what the controller says
        self.steps = 0
        self._plans: dict[int, Callable[[], None]] = {}
        self._actions: deque[Callable[[], None]] = deque()
        self._wires: dict[tuple[int, int], deque[Callable[[], None]]] = {}
        self.spoken: set[tuple[int, bool]] = set()  # who has asked others, and whether in the table's encoding
        self._asked: list[tuple[int, int, Callable[[Buffer | None], None]]] = []
        self._epochs = self._ids = self._made = 0
        self.nodes = [Node(self, node_id, given) for node_id in range(1, nodes + 1)]
        for node in self.nodes:
            node.start()
        self.settle()
        for node in self.nodes:
            streams = node.broker.internal_streams
            for ensure in (streams.ensure_transactions, streams.ensure_offsets):
                ready: CallbackResult[None] = CallbackResult()
                ensure(ready)
                self.settle()
                assert ready.value is None

    def node(self, node_id: int) -> Node:
        return self.nodes[node_id - 1]

    # -- steps --------------------------------------------------------------------------------------

    def at(self, step: int, action: Callable[[], None]) -> None:
        """Do it when so many more steps were done."""
        self._plans[self.steps + step] = action

    def calm(self) -> None:
        """What was planned and has not happened does not happen; all nodes are there."""
        self._plans.clear()
        self.start_all()
        self.settle()

    def settle(self) -> None:
        """Do everything that does not wait for time."""
        for _ in range(200_000):
            if not self._step():
                return
        raise AssertionError("it does not come to rest")

    def _step(self) -> bool:
        plan = self._plans.pop(self.steps, None)
        if plan is not None:
            plan()
        able = list(self._able())
        if not able:
            return False
        self.steps += 1
        (self.random.choice(able) if self.shuffled else able[self.steps % len(able)])()
        return True

    def _able(self) -> Any:
        if self._actions:
            yield partial(self._run, self._actions)
        for wire in self._wires.values():
            if wire:
                yield partial(self._run, wire)
        for node in self.nodes:
            if not node.up:
                continue
            if node.worker.actions:
                yield node.worker.run_soon
            for lane, jobs in node.worker.jobs.items():
                if jobs:
                    yield partial(node.worker.step, lane)
            if node.applied < len(self.events) and node.replicas is not None and node.node_id not in self.deaf:
                yield node.hear

    def _run(self, queue: deque[Callable[[], None]]) -> None:
        queue.popleft()()

    def advance(self, duration_ms: int) -> None:
        """Let time go by, and do what falls due."""
        until_ms = self.clock.monotonic_ms() + duration_ms
        self.settle()
        while True:
            times = [due for node in self.nodes if node.up and (due := node.deadlines.next_ms()) is not None]
            if not times or min(times) > until_ms:
                break
            self.clock.advance(max(0, min(times) - self.clock.monotonic_ms()))
            for node in self.nodes:
                if node.up:
                    node.deadlines.fire(self.clock.monotonic_ms())
            self.settle()
        self.clock.advance(until_ms - self.clock.monotonic_ms())

    # -- network ------------------------------------------------------------------------------------

    def later(self, action: Callable[[], None]) -> None:
        self._actions.append(action)

    def post(self, sender: Node, node_id: int, came: Callable[[Node], None]) -> None:
        lives = sender.life, self.node(node_id).life

        def deliver() -> None:
            if (sender.life, self.node(node_id).life) == lives and self.node(node_id).up:
                came(self.node(node_id))

        self._wires.setdefault((sender.node_id, node_id), deque()).append(deliver)

    def ask(self, sender: Node, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        if not self.node(node_id).up:
            return False
        self.spoken.add((sender.node_id, body[:1] == VERSION))
        open_ = sender.node_id, node_id, done
        self._asked.append(open_)

        def answered(answer: bytes, _: Node) -> None:
            if open_ in self._asked:
                self._asked.remove(open_)
                open_[2](answer)

        def came(other: Node) -> None:
            other.broker.handle_request(
                body, lambda answer: self.post(other, sender.node_id, partial(answered, answer))
            )

        self.post(sender, node_id, came)
        return True

    # -- the controller -----------------------------------------------------------------------------

    def _happen(self, *events: Event) -> None:
        for event in events:
            self.state.apply(event)
            self.events.append(event)

    def raise_level(self) -> None:
        """The feature level is the latest from here on, to those who hear of it; before, nodes are of none."""
        self._happen(NodeConfigured(None, {"min.insync.replicas": "1"}), FeatureLevelChanged(LATEST_LEVEL))

    def registered(self, node: Node) -> int:
        self._epochs += 1
        self.later(partial(self._back, node, node.life))
        return self._epochs

    def _back(self, node: Node, life: int) -> None:
        if node.life != life:
            return
        for other in self.nodes:
            if other.up:
                other.tell_live()
        for place, state in list(self.state.partitions):
            if state.leader is None and node.node_id in state.isr:
                self._change(place, state, leader=node.node_id)

    def decide(self, node: Node, request: requests.Request, done: ValueDone) -> None:
        life = node.life

        def answer() -> None:
            value: Any = Done()
            if isinstance(request, requests.AllocateProducerIds):
                value = Block(self._ids, BLOCK)
                self._ids += BLOCK
            elif isinstance(request, requests.CreateStream):
                value = self._create(request.definition)
            elif isinstance(request, requests.DeleteStream):
                self._happen(*delete_stream(self.state, request.name, now_ms=0, producers_ms=0))
            else:
                raise TypeError(f"{request} is not decided here")
            until = len(self.events)
            self.later(partial(heard, until, value))

        def heard(until: int, value: Any) -> None:
            if node.life != life:
                return
            while node.applied < until:
                node.hear()
            done(value)

        self.later(answer)

    def _create(self, wish: Definition) -> Created:
        found = self.state.streams.get(wish.name)
        if found is not None:
            return Created(found.id, existed=True)
        self._made += 1
        id_ = UUID(int=self._made)
        self._happen(StreamCreated(wish.name, str(id_), wish.partitions, dict(wish.config), internal=wish.internal))
        ids = [node.node_id for node in self.nodes]
        for index in range(wish.partitions):
            first = (index + self._made) % len(ids)
            replicas = tuple(ids[first:] + ids[:first])
            isr = tuple(one for one in replicas if self.node(one).up)
            state = PartitionState(replicas, isr, isr[0], 1, 1)
            self._happen(difference(PartitionId(StreamId(str(id_)), index), None, state))
        return Created(id_, existed=False)

    def _change(self, place: PartitionId, state: PartitionState, **changes: Any) -> PartitionState:
        leader = changes.get("leader", state.leader)
        new = PartitionState(
            state.replicas, changes.get("isr", state.isr), leader,
            state.leader_epoch + ("leader" in changes), state.partition_epoch + 1,
        )  # fmt: skip
        self._happen(difference(place, state, new))
        return new

    def alter(self, node: Node, life: int, place: PartitionId, asked: AlterPartition) -> None:
        if node.life != life or node.replicas is None:
            return
        state = self.state.partitions.get(place)
        refusal, new = None, None
        if state is None or state.leader != node.node_id or asked.leader_epoch != state.leader_epoch:
            refusal = ReplicaRefusal.FENCED_LEADER_EPOCH
        elif asked.partition_epoch != state.partition_epoch:
            refusal = ReplicaRefusal.INVALID_UPDATE_VERSION
        elif any(
            not self.node(one.node_id).up or self.node(one.node_id).broker_epoch != one.broker_epoch
            for one in asked.in_sync
        ):
            refusal = ReplicaRefusal.INELIGIBLE_REPLICA
        else:
            new = state_of(self._change(place, state, isr=tuple(one.node_id for one in asked.in_sync)))
        node.replicas.receive(place, AlterPartitionAnswer(asked, new, refusal))

    def lead(self, name: str, index: int, node_id: int) -> None:
        """Let another in-sync replica lead a partition."""
        place = PartitionId(self.state.streams[name].id, index)
        state = self.state.partitions.get(place)
        assert state is not None
        if node_id in state.isr and node_id != state.leader:
            self._change(place, state, leader=node_id)

    def kill(self, node_id: int, power: random.Random | None = None) -> None:
        """A node ends; others lead, where any is in sync."""
        node = self.node(node_id)
        if not node.up:
            return
        node.end(power)
        for open_ in [one for one in self._asked if node_id in one[:2]]:
            self._asked.remove(open_)
            if self.node(open_[0]).up:
                self.later(partial(self._lost, open_, self.node(open_[0]).life))
        for other in self.nodes:
            if other.up:
                other.tell_live()
        self._fence(node_id)

    def cut_off(self, node_id: int) -> None:
        """A node hears no more of the controller, for which it has ended; nor that others lead."""
        self.deaf.add(node_id)
        self._fence(node_id)

    def _fence(self, node_id: int) -> None:
        for place, state in list(self.state.partitions):
            left = tuple(one for one in state.isr if one != node_id)
            if node_id not in state.isr:
                continue
            changes: dict[str, Any] = {"isr": left or state.isr}
            if state.leader == node_id:
                changes["leader"] = next((one for one in left if self.node(one).up), None)
            self._change(place, state, **changes)

    def _lost(self, open_: tuple[int, int, Callable[[Buffer | None], None]], life: int) -> None:
        if self.node(open_[0]).life == life:
            open_[2](None)

    def start(self, node_id: int) -> None:
        if not self.node(node_id).up:
            self.node(node_id).start()

    def start_all(self) -> None:
        for node in self.nodes:
            self.start(node.node_id)

    # -- looking ------------------------------------------------------------------------------------

    def leader(self, name: str, index: int) -> int | None:
        place = PartitionId(self.state.streams[name].id, index)
        state = self.state.partitions.get(place)
        return None if state is None else state.leader

    def led(self, name: str, index: int) -> tuple[Node, Partition]:
        """The leader of a partition, and the partition there."""
        node_id = self.leader(name, index)
        assert node_id is not None
        node = self.node(node_id)
        return node, node.broker.streams.get(name).partition(index)

    def create(self, name: str, partitions: int, **config: str) -> None:
        made: CallbackResult[None] = CallbackResult()
        self.nodes[0].broker.create_stream(Definition(name, partitions, config), made)
        self.settle()
        assert made.value is None
