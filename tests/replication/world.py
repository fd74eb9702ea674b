"""The world of a simulated partition under one seed: time, clocks that drift, network and disks at their worst.

Everything that happens is an event at a time; the same seed makes the same events.
"""

import random
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from tests.event_worlds import PureWorld
from tests.replication.controller import Controller, Heartbeat, PartitionUpdate, Register
from tests.replication.describing import effect_text, message_text
from tests.replication.disk import Content, Disk
from tests.replication.site import CONTROLLER, Post, Sent, Site
from tests.replication.witness import Witness

from duramen.replication.effects import Effect, TransferLeadership
from duramen.replication.messages import AlterPartition, AlterPartitionAnswer, ReplicaFetch, ReplicaFetchAnswer
from duramen.replication.partition import PartitionConfig, ReplicatedPartition, Topology
from duramen.replication.timeouts import ReplicaTimeouts

TROUBLE_MS: Final = 2_000
"""For so long things go wrong."""

TIMEOUTS: Final = ReplicaTimeouts(wait_ms=40, idle_wait_ms=80, silence_ms=20, retry_ms=20, backoff_ms=5, window_ms=50)


class Totals(NamedTuple):
    """What a run did."""

    events: int
    delivered: int
    epochs: int
    committed: int
    acknowledged: int
    refused: int
    crashes: int
    wipes: int
    cuts: int
    restarts: int
    alterations: int
    waits: int
    asked: int
    moves: int


class Node:
    """A site, its clock, what its disk and the network hold back."""

    def __init__(self, site: Site, rate: float, disk_ms: int) -> None:
        self.site = site
        self.rate = rate
        self.disk_ms = disk_ms
        self.directory = 0
        self.life = 0
        self.is_up = False
        self.paused = False
        self.held: list[Sent] = []
        self.forget()

    def forget(self) -> None:
        """The process ended."""
        self.syncing: Content | None = None
        self.tick_ms: int | None = None

    def local_ms(self, now_ms: int) -> int:
        """Its clock."""
        return int(now_ms * self.rate)

    def due_ms(self, local_ms: int, now_ms: int) -> int:
        """When its clock will be there."""
        return max(now_ms, int(local_ms / self.rate) + 1)


class World(PureWorld):
    """Some replicas that start; with `trace` what happens is kept as text."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(random.Random(seed), Totals._fields, TROUBLE_MS, trace=trace)
        self.witness = Witness(self._holders)
        size = self.random.choice((3, 3, 3, 4, 5))
        observers = self.random.choice((0, 0, 1))
        config = PartitionConfig(
            self.random.choice((1, 1, 2, 2, 3)),
            self.random.choice((1, 1, 2)),
            self.random.choice(tuple(Topology)),
            self.random.choice((60, 150)),
            self.random.choice((None, None, 10)),
        )
        replicas = tuple(range(1, size + 1 - observers))
        state = ReplicatedPartition(
            None, 0, 0, replicas, frozenset(replicas), tuple(range(size + 1 - observers, size + 1))
        )
        self._config = config
        self._controller = Controller(state, config, self.random.randrange)
        self._cut: set[tuple[int, int]] = set()
        self._lossy = self.random.choice((0.0, 0.02, 0.2))
        self._twice = self.random.choice((0.0, 0.05, 0.3))
        self._late = self.random.choice((0.0, 0.05, 0.2))
        self._slow_ms = self.random.choice((2, 5, 15))
        self._slow_disks = self.random.choice((0.0, 0.3, 0.8))
        self._nodes: dict[int, Node] = {}
        for node_id in state.nodes:
            self._add_node(node_id)
        for node in self._nodes.values():
            self._start(node)
        self._at(0, self._tick_controller)

    def _say_effect(self, node_id: int, effect: Effect) -> None:
        self._say(f"{node_id} {effect_text(effect)}")

    def _tick_controller(self) -> None:
        before = self._controller.state
        self._controller.tick(self._now_ms)
        self._say_state(before)
        if self._controller.state.leader_id is None:
            self._counts["waits"] += 1
        self._at(20, self._tick_controller)

    def _say_state(self, before: ReplicatedPartition) -> None:
        if self._controller.state != before:
            self._say(f"controller {self._controller.state}")

    # -- nodes --------------------------------------------------------------------------------------

    def _add_node(self, node_id: int) -> None:
        site = Site(node_id, self._config, TIMEOUTS, self.witness)
        site.most_batches = self.random.choice((1, 2, 8))
        if self._traced:
            site.say = partial(self._say_effect, node_id)
        slow = self.random.random() < self._slow_disks
        self._nodes[node_id] = Node(site, self.random.choice((0.8, 1.0, 1.0, 1.3)), 100 if slow else 3)

    def _holders(self) -> Iterator[tuple[int, Content]]:
        """Who may lead next, and what is on their disks; of one whose disk is lost the controller will hear."""
        for node_id in sorted(self._controller.may_lead):
            if self._nodes[node_id].directory == self._controller.directory_of(node_id):
                yield node_id, self._nodes[node_id].site.disk.synced

    def _start(self, node: Node) -> None:
        node.life += 1
        node.is_up = True
        node.paused = False
        self._say(f"{node.site.node_id} starts")
        self._beat(node, node.life)

    def _beat(self, node: Node, life: int) -> None:
        """Register until that is known, then say from time to time that it is alive."""
        if node.life != life:
            return
        site = node.site
        registered = site.machine is not None
        message: Post = Register(site.node_id, life, node.directory)
        if registered:
            message = Heartbeat(site.node_id, site.broker_epoch)
        if not node.paused:
            self._send(Sent(site.node_id, CONTROLLER, message))
        self._at(5 + self.random.randrange(30), lambda: self._beat(node, life))

    def _crash(self, node: Node, *, power: bool) -> None:
        disk = node.site.disk
        if power:
            if node.syncing is not None and self.random.random() < 0.5:
                disk.synced = node.syncing
            disk.lose_power(self.random.choice((0, 0, 1, 3)))
        node.site.crash()
        node.forget()
        node.life += 1
        node.is_up = False
        self._counts["crashes"] += 1
        self._say(f"{node.site.node_id} {'loses power' if power else 'is killed'}")

    def _go_on(self, node: Node) -> None:
        """Carry out what is to be done, and see to it that time and disk do their part."""
        machine = node.site.machine
        if machine is None:
            return
        for sent in node.site.run():
            self._send(sent)
        disk = node.site.disk
        if node.syncing is None and disk.written is not disk.synced:
            life = node.life
            node.syncing = node.site.begin_sync()
            self._at(self.random.randrange(node.disk_ms), lambda: self._end_sync(node, life))
        if machine.deadline_ms is not None:
            due_ms = node.due_ms(machine.deadline_ms, self._now_ms)
            if node.tick_ms is None or due_ms < node.tick_ms:
                node.tick_ms = due_ms
                life = node.life
                self._at(due_ms - self._now_ms, lambda: self._tick(node, life, due_ms))

    def _tick(self, node: Node, life: int, due_ms: int) -> None:
        if node.life != life or node.tick_ms != due_ms:
            return
        node.tick_ms = None
        if node.site.machine is not None and not node.paused:
            node.site.machine.tick(node.local_ms(self._now_ms))
            self._go_on(node)

    def _end_sync(self, node: Node, life: int) -> None:
        if node.life == life and node.syncing is not None:
            content, node.syncing = node.syncing, None
            node.site.end_sync(content)
            self._go_on(node)

    # -- network ------------------------------------------------------------------------------------

    def _send(self, sent: Sent) -> None:
        troubled = self._now_ms < TROUBLE_MS
        if troubled and self.random.random() < self._lossy:
            return
        for _ in range(2 if troubled and self.random.random() < self._twice else 1):
            late_ms = 150 if troubled and self.random.random() < self._late else 0
            self._at(1 + self.random.randrange(self._slow_ms + late_ms), lambda: self._deliver(sent))

    def _deliver(self, sent: Sent) -> None:
        if (sent.sender, sent.to) in self._cut:
            return
        self._counts["delivered"] += 1
        if self._traced:
            self._say(f"{sent.sender} => {sent.to} {message_text(sent.message)}")
        if sent.to == CONTROLLER:
            self._control(sent.message, sent.sender)
            return
        node = self._nodes[sent.to]
        if node.paused:
            node.held.append(sent)
        elif node.is_up:
            self._hand(node, sent.message)
            self._go_on(node)

    def _hand(self, node: Node, message: Post) -> None:
        site = node.site
        if isinstance(message, PartitionUpdate):
            if message.incarnation == node.life:
                if site.machine is None:
                    site.registered(message, node.local_ms(self._now_ms))
                site.told(message)
        elif site.machine is not None and isinstance(message, ReplicaFetch | ReplicaFetchAnswer | AlterPartitionAnswer):
            site.machine.tick(node.local_ms(self._now_ms))
            site.machine.receive(message)

    def _control(self, message: Post, sender: int) -> None:
        controller, before = self._controller, self._controller.state
        answer: Post | None = None
        match message:
            case Register():
                answer = controller.register(message, self._now_ms)
            case Heartbeat():
                answer = controller.heartbeat(message, self._now_ms)
            case AlterPartition():
                answer = controller.alter(message)
            case TransferLeadership(leader_epoch):
                self._counts["moves"] += controller.state.leader_epoch == leader_epoch
                controller.move_from(leader_epoch)
            case _:
                raise AssertionError(message)
        self._say_state(before)
        if answer is not None:
            self._send(Sent(CONTROLLER, sender, answer))

    # -- who ----------------------------------------------------------------------------------------

    def _any(self) -> Node:
        return self.random.choice(list(self._nodes.values()))

    def _leaders(self) -> list[Node]:
        return [node for node in self._nodes.values() if node.site.machine is not None and node.site.machine.leads]

    def _wipe_disk(self, node: Node) -> None:
        node.site.disk = Disk()
        node.directory += 1
        self._counts["wipes"] += 1
        self._say(f"{node.site.node_id} loses its disk")
