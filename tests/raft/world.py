"""The world of a simulated quorum under one seed: time, nodes with clocks that drift, network and disks at their worst.

Everything that happens is an event at a time; the same seed makes the same events.
"""

import random
from functools import partial
from typing import Final, NamedTuple

from tests.event_worlds import PureWorld
from tests.raft.describing import effect_text, message_text
from tests.raft.disk import Content, Disk
from tests.raft.site import CALM, HASTY, Sent, Site
from tests.raft.witness import Witness

from duramen.raft.effects import Effect
from duramen.raft.machine import RaftMachine
from duramen.raft.roles import RaftRole
from duramen.raft.voters import ReplicaId, Voter, Voters

TROUBLE_MS: Final = 3_000
"""For so long things go wrong."""


class Totals(NamedTuple):
    """What a run did. In a `hopeless` one more disks of voters were lost than a quorum bears."""

    events: int
    delivered: int
    epochs: int
    committed: int
    crashes: int
    wipes: int
    changes: int
    installs: int
    hopeless: int


class World(PureWorld):
    """Some voters that start; with `trace` what happens is kept as text."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(random.Random(seed), Totals._fields, TROUBLE_MS, trace=trace)
        self.witness = Witness()
        size = self.random.choice((1, 2, 3, 3, 3, 4, 4, 5))
        voters = Voters(Voter(ReplicaId(node, "a")) for node in range(1, size + 1))
        self._nodes: dict[int, Node] = {}
        self._hasty = self.random.random() < 0.3
        self._most_batches = self.random.choice((1, 2, 8))
        self._cut: set[tuple[int, int]] = set()
        self._unplugged: set[tuple[int, int]] = set()
        self._lossy = self.random.choice((0.0, 0.02, 0.3))
        self._twice = self.random.choice((0.0, 0.05, 0.3))
        # As late as an election takes, or as several: what comes then is of another time, and looks as if it were not.
        self._late, self._late_ms = self.random.choice(((0.05, 150), (0.3, 60), (0.2, 400)))
        self._timeouts = self.random.choice((CALM, HASTY))
        self._slow_ms = self.random.choice((2, 10, 40) if self._timeouts is CALM else (2, 5, 12))
        self._slow_disks = self.random.choice((0.0, 0.2, 0.8))
        self._noticed = self.random.choice((0.0, 0.8, 1.0))  # how often a node hears of a connection that closed
        for node_id in range(1, size + 1):
            self._add_node(node_id, voters)
        for node in self._nodes.values():
            self._start(node)

    def _say_effect(self, me: ReplicaId, effect: Effect) -> None:
        self._say(f"{me} {effect_text(effect)}")

    # -- nodes --------------------------------------------------------------------------------------

    def _add_node(self, node_id: int, voters: Voters) -> "Node":
        seeds = tuple(sorted({*self._nodes, *(voter.node_id for voter in voters.ids)} - {node_id}))
        site = Site(ReplicaId(node_id, "a"), Disk(voters), self.witness, self.random.randrange, seeds)
        slow = self.random.random() < self._slow_disks
        self._equip(site)
        node = Node(site, self.random.choice((0.8, 1.0, 1.0, 1.3)), self._timeouts.election_ms * 3 // 4 if slow else 3)
        self._nodes[node_id] = node
        return node

    def _equip(self, site: Site) -> None:
        site.most_batches, site.timeouts = self._most_batches, self._timeouts
        if self._traced:
            site.say = partial(self._say_effect, site.me)

    def _start(self, node: "Node") -> None:
        node.life += 1
        node.paused = False
        node.site.start(node.local_ms(self._now_ms))
        self._say(f"{node.site.me} starts")
        self._go_on(node)
        for other in self._nodes.values():
            self._connection(node, other, is_open=True)

    def _crash(self, node: "Node") -> None:
        if node.syncing is not None and self.random.random() < 0.5:
            node.site.disk.synced = node.syncing
        node.site.crash()
        node.forget()
        node.life += 1
        self._counts["crashes"] += 1
        self._say(f"{node.site.me} crashes")
        for other in self._nodes.values():
            self._connection(node, other, is_open=False)

    def _go_on(self, node: "Node") -> None:
        """Carry out what may be carried out, and see to it that time, disk and network do their part."""
        machine = node.site.machine
        if machine is None:
            return
        if machine.role is RaftRole.LEADER and node.led_epoch != machine.epoch:
            node.led_epoch = machine.epoch
            self._led(node, machine)
        for sent in node.site.run():
            self._send(sent)
        life = node.life
        if node.site.writes_ballot and not node.balloting:
            node.balloting = True
            self._at(self.random.randrange(node.disk_ms), lambda: self._ballot_written(node, life))
        if node.syncing is None and node.site.disk.written is not node.site.disk.synced:
            node.syncing = node.site.begin_sync()
            self._at(self.random.randrange(node.disk_ms), lambda: self._end_sync(node, life))
        due_ms = node.due_ms(machine.deadline_ms, self._now_ms)
        if node.tick_ms is None or due_ms < node.tick_ms:
            node.tick_ms = due_ms
            self._at(due_ms - self._now_ms, lambda: self._tick(node, life, due_ms))

    def _tick(self, node: "Node", life: int, due_ms: int) -> None:
        if node.life != life or node.tick_ms != due_ms:
            return
        node.tick_ms = None
        if node.paused:
            return
        if node.site.machine is not None:
            node.site.machine.tick(node.local_ms(self._now_ms))
            self._go_on(node)

    def _ballot_written(self, node: "Node", life: int) -> None:
        if node.life == life:
            node.balloting = False
            node.site.ballot_written()
            self._go_on(node)

    def _end_sync(self, node: "Node", life: int) -> None:
        if node.life == life and node.syncing is not None:
            content, node.syncing = node.syncing, None
            node.site.end_sync(content)
            self._go_on(node)

    # -- network ------------------------------------------------------------------------------------

    def _connection(self, one: "Node", two: "Node", *, is_open: bool) -> None:
        """There is a connection between two, or none any more: each hears of it in its time, or of its end never."""
        for hearing, of in ((one, two), (two, one)):
            if hearing is not of and (is_open or self.random.random() < self._noticed):
                self._at(1 + self.random.randrange(5), partial(self._hear_of, hearing, hearing.life, of, is_open))

    def _hear_of(self, node: "Node", life: int, other: "Node", is_open: bool) -> None:
        machine = node.site.machine
        if machine is None or node.life != life or node.paused:
            return
        machine.tick(node.local_ms(self._now_ms))
        tell = machine.connected if is_open else machine.disconnected
        tell(other.site.me.node_id)
        self._say(f"{node.site.me} {'has a' if is_open else 'lost its'} connection to {other.site.me}")
        self._go_on(node)

    def _send(self, sent: Sent) -> None:
        troubled = self._now_ms < TROUBLE_MS
        if troubled and self.random.random() < self._lossy:
            return
        for _ in range(2 if troubled and self.random.random() < self._twice else 1):
            late_ms = self._late_ms if troubled and self.random.random() < self._late else 0
            self._at(1 + self.random.randrange(self._slow_ms + late_ms), lambda: self._deliver(sent))

    def _deliver(self, sent: Sent) -> None:
        node = self._nodes.get(sent.to)
        if node is None or node.site.machine is None or (sent.sender, sent.to) in self._cut | self._unplugged:
            return
        if node.paused:
            node.held.append(sent)
            return
        self._counts["delivered"] += 1
        if self._traced:
            self._say(f"{sent.sender} -> {sent.to} {message_text(sent.message)}")
        node.site.machine.tick(node.local_ms(self._now_ms))
        node.site.machine.receive(sent.message)
        self._go_on(node)

    def _any(self) -> "Node":
        return self.random.choice(list(self._nodes.values()))

    def _leaders(self) -> list["Node"]:
        return [
            node for node in self._nodes.values() if node.machine is not None and node.machine.role is RaftRole.LEADER
        ]

    def _led(self, node: "Node", machine: RaftMachine) -> None:
        """A node leads, and has said so to nobody yet."""


class Node:
    """A site, its clock, what its disk and the network hold back."""

    def __init__(self, site: Site, rate: float, disk_ms: int) -> None:
        self.site = site
        self.life = 0
        self.rate = rate
        self.disk_ms = disk_ms
        self.led_epoch = 0
        self.paused = False
        self.held: list[Sent] = []
        self.forget()

    def forget(self) -> None:
        """The process ended."""
        self.syncing: Content | None = None
        self.balloting = False
        self.tick_ms: int | None = None

    @property
    def machine(self) -> RaftMachine | None:
        """The replica, while it runs."""
        return self.site.machine

    @property
    def voters(self) -> Voters:
        """The voters that it goes by, or would go by after a start."""
        if self.machine is not None:
            return self.machine.voters
        found = self.site.disk.synced.voters
        for batch in self.site.disk.synced.batches:
            found = found if batch.voters is None else batch.voters
        return found

    def local_ms(self, now_ms: int) -> int:
        """Its clock."""
        return int(now_ms * self.rate)

    def due_ms(self, local_ms: int, now_ms: int) -> int:
        """When its clock will be there."""
        return max(now_ms, int(local_ms / self.rate) + 1)
