"""Nodes with a partition on simulated disks, a controller and a network, under one seed and one clock."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from tests.broker.replicas.node import PLACE, Node
from tests.event_worlds import DiskWorld
from tests.replication.broken import Broken
from tests.replication.controller import Controller, Heartbeat, PartitionUpdate, Register
from tests.replication.describing import effect_text
from tests.replication.disk import Content
from tests.replication.witness import Witness

from duramen.base.errors import DuramenError, LogDamaged, NotEnoughReplicas
from duramen.codec.batch import BatchInput, encode
from duramen.replication.effects import Effect, Release, SendReplicaMessage, ServeReplicaFetch
from duramen.replication.messages import (
    AlterPartition,
    AlterPartitionAnswer,
    ReplicaBatch,
    ReplicaFetch,
    ReplicaFetchAnswer,
)
from duramen.replication.partition import PartitionConfig, ReplicatedPartition, Topology
from duramen.replication.timeouts import ReplicaTimeouts
from duramen.sim.machine.disk import Crashed, MemoryFileSystem

TIMEOUTS: Final = ReplicaTimeouts(wait_ms=40, idle_wait_ms=80, silence_ms=20, retry_ms=20, backoff_ms=5)
CONTROLLER: Final = 0

Post = (
    ReplicaFetch | ReplicaFetchAnswer | AlterPartition | AlterPartitionAnswer | Register | Heartbeat | PartitionUpdate
)


class Totals(NamedTuple):
    """What a run did."""

    events: int = 0
    delivered: int = 0
    ends: int = 0
    power_losses: int = 0
    torn: int = 0
    failures: int = 0
    wipes: int = 0
    epochs: int = 0
    committed: int = 0
    acknowledged: int = 0
    refused: int = 0
    cuts: int = 0
    restarts: int = 0
    checked: int = 0


class Produced(NamedTuple):
    """A batch that a producer has sent, perhaps more than once."""

    number: int
    value: bytes
    batch: bytes


class World(DiskWorld[Node]):
    """Three nodes that start; with `trace` what happens is kept as text."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(random.Random(f"{seed}/replicas"), Totals._fields, trace=trace)
        self.witness = Witness(self._holders)
        self.troubled = True
        self.lossy, self.twice = self.random.choice((0.0, 0.02, 0.2)), self.random.choice((0.0, 0.1))
        self.slow_us = self.random.choice((500, 3_000, 15_000))
        self.cut: set[tuple[int, int]] = set()
        self._produced: list[Produced] = []
        self.config = PartitionConfig(
            self.random.choice((1, 2, 2)),
            1,
            self.random.choice((Topology.FANOUT, Topology.FANOUT, Topology.CHAIN)),
            self.random.choice((60, 150)),
        )
        replicas = (1, 2, 3)
        state = ReplicatedPartition(None, 0, 0, replicas, frozenset(replicas))
        self.controller = Controller(state, self.config, self.random.randrange)
        self.nodes = [self._node(node_id, seed) for node_id in replicas]
        for node in self.nodes:
            self.start(node)
        self.at(0, self._tick_controller)

    def _node(self, node_id: int, seed: int) -> Node:
        node = Node(node_id, f"{seed}", self.clock, self.witness)
        node.config, node.timeouts = self.config, TIMEOUTS
        node.fetch_bytes = self.random.choice((1, 600, 1 << 20))
        node.segment_bytes = self.random.choice((300, 4000))
        node.send_on = self._send_records
        node.propose_on = lambda sender, proposal: self.post(sender.node_id, CONTROLLER, proposal)
        node.failed_with = self._failed
        if self.traced:
            node.happened = self._say_effect
        return node

    def _holders(self) -> Iterator[tuple[int, Content]]:
        """Who may lead next, and what is on their disks; of one whose disk is lost the controller will hear."""
        for node_id in sorted(self.controller.may_lead):
            node = self.nodes[node_id - 1]
            if node.directory == self.controller.directory_of(node_id):
                yield node_id, node.on_disk

    # -- time ---------------------------------------------------------------------------------------

    def _turn(self, node: Node) -> None:
        self.guarded(node, lambda: node.process is not None and node.process.turn())

    def guarded(self, node: Node, act: Callable[[], object]) -> None:
        """Do something of a node's process, which may end in the middle of it."""
        try:
            act()
            node.look()
        except Crashed as crashed:
            self.say(f"{node.node_id} crashes in {crashed}")
            self.counts["torn"] += 1
            self.end(node, power=self.random.random() < 0.7)

    def _say_effect(self, node: Node, effect: Effect) -> None:
        if isinstance(effect, Release):
            effect = effect._replace(waiter="a producer")
        if not isinstance(effect, SendReplicaMessage | ServeReplicaFetch):
            self.say(f"{node.node_id} {effect_text(effect)}")

    def _tick_controller(self) -> None:
        self.controller.tick(self.clock.monotonic_ms())
        self.at(20_000, self._tick_controller)

    # -- nodes --------------------------------------------------------------------------------------

    def start(self, node: Node) -> None:
        if node.process is not None:
            return
        self.say(f"{node.node_id} starts")

        def start() -> None:
            try:
                node.start()
            except (OSError, DuramenError) as error:
                self.say(f"{node.node_id} does not start: {error}")
                self.end(node, power=self.random.random() < 0.5)

        self.guarded(node, start)
        self._beat(node, node.life)

    def _beat(self, node: Node, life: int) -> None:
        if node.life != life:
            return
        if node.ready:
            if node.replicas is None:
                self.post(node.node_id, CONTROLLER, Register(node.node_id, life, node.directory))
            else:
                self.post(node.node_id, CONTROLLER, Heartbeat(node.node_id, node.broker_epoch))
        self.at(5_000 + self.random.randrange(30_000), partial(self._beat, node, life))

    def end(self, node: Node, *, power: bool) -> None:
        self.counts["ends"] += 1
        self.say(f"{node.node_id} ends by {'a loss of power' if power else 'a kill'}")
        node.end()
        if power:
            self.counts["power_losses"] += 1
            node.disk.crash(self.random)
        self.at(self.random.choice((1_000, 50_000, 250_000)), partial(self.start, node))

    def wipe(self, node: Node) -> None:
        """The disk is lost."""
        if node.process is not None:
            self.end(node, power=True)
        self.counts["wipes"] += 1
        self.say(f"{node.node_id} loses its disk")
        self.controller.lost(node.node_id)
        node.disk = MemoryFileSystem()
        node.directory += 1
        node.synced = Content()

    def _failed(self, node: Node, error: DuramenError) -> None:
        if isinstance(error, LogDamaged):
            raise Broken(str(error)) from error
        self.say(f"{node.node_id} failed: {error}")
        self.counts["failures"] += 1
        life = node.life

        def end() -> None:
            if node.life == life:
                self.end(node, power=self.random.random() < 0.5)

        self.at(self.random.choice((1, 20_000)), end)

    def leaders(self) -> list[Node]:
        return [node for node in self.nodes if node.replica is not None and node.replica.leads]

    # -- network ------------------------------------------------------------------------------------

    def _send_records(self, node: Node, to: int, message: ReplicaFetch | ReplicaFetchAnswer, records: bytes) -> None:
        self.post(node.node_id, to, message, records)

    def post(self, sender: int, to: int, message: Post, records: bytes = b"") -> None:
        if self.troubled and self.random.random() < self.lossy:
            return
        for _ in range(2 if self.troubled and self.random.random() < self.twice else 1):
            late_us = 100_000 if self.troubled and self.random.random() < 0.03 else 0
            delay_us = 50 + self.random.randrange(self.slow_us + late_us)
            self.at(delay_us, partial(self._deliver, sender, to, message, records))

    def _deliver(self, sender: int, to: int, message: Post, records: bytes) -> None:
        if (sender, to) in self.cut:
            return
        self.counts["delivered"] += 1
        if to == CONTROLLER:
            self._control(sender, message)
            return
        node = self.nodes[to - 1]
        if node.process is not None and node.ready:
            self.guarded(node, partial(self._hand, node, message, records))

    def _hand(self, node: Node, message: Post, records: bytes) -> None:
        if isinstance(message, PartitionUpdate):
            if message.incarnation == node.life:
                if node.replicas is None:
                    node.registered(message)
                node.told(message)
        elif node.replicas is not None and isinstance(
            message, ReplicaFetch | ReplicaFetchAnswer | AlterPartitionAnswer
        ):
            node.replicas.receive(PLACE, message, records)

    def _control(self, sender: int, message: Post) -> None:
        now_ms = self.clock.monotonic_ms()
        answer: Post | None = None
        match message:
            case Register():
                answer = self.controller.register(message, now_ms)
            case Heartbeat():
                answer = self.controller.heartbeat(message, now_ms)
            case AlterPartition():
                answer = self.controller.alter(message)
        self.say(f"controller {self.controller.state}")
        if answer is not None:
            self.post(CONTROLLER, sender, answer)

    # -- producers ----------------------------------------------------------------------------------

    def produce(self) -> None:
        """Somebody sends a batch, or one that was sent before, to who leads."""
        for node in self.leaders():
            again = bool(self._produced) and self.random.random() < 0.15
            sent = self.random.choice(self._produced[-10:]) if again else self._new()
            replica = node.replica
            assert replica is not None
            acks_all = self.random.random() < 0.8
            done = partial(self._stored, node, node.life, sent, acks_all, [])
            self.guarded(
                node, partial(replica.partition.append, bytearray(sent.batch), done, None, all_replicas=acks_all)
            )

    def _new(self) -> Produced:
        number = next(self._numbers)
        value = b"%d" % number + b"x" * self.random.choice((1, 10, 200))
        records = [BatchInput(self.clock.wall_ms(), None, value)] * self.random.choice((1, 1, 3))
        batch = encode(records, producer_id=number, producer_epoch=0, base_sequence=0)
        self._produced.append(Produced(number, value, bytes(batch)))
        return self._produced[-1]

    def _stored(
        self, node: Node, life: int, sent: Produced, acks_all: bool, answers: list[int], base_offset: int,
        error: DuramenError | None,
    ) -> None:  # fmt: skip
        if answers or node.life != life:
            raise Broken(f"{sent.number} was answered twice, or by who is gone")
        answers.append(base_offset)
        if error is not None:
            self.counts["refused"] += 1
            if isinstance(error, NotEnoughReplicas) and not acks_all:
                raise Broken("without acks=all nobody asks how many are in sync")
        elif acks_all:
            self._acknowledged(node, sent, base_offset)

    def _acknowledged(self, node: Node, sent: Produced, base_offset: int) -> None:
        found = next((one.batch for one in self.witness.committed if one.batch.first_offset == base_offset), None)
        if found is None:
            raise Broken(f"{node.node_id} acknowledged {sent.number} at {base_offset}, where nothing is committed")
        if not self._is_that(found, sent):
            raise Broken(f"{node.node_id} acknowledged {sent.number} at {base_offset}, where {found} is")
        self.witness.released(found)

    def _is_that(self, batch: ReplicaBatch, sent: Produced) -> bool:
        return isinstance(batch.payload, bytes) and batch.payload[17:] == sent.batch[17:]
