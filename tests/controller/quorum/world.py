"""Nodes on simulated disks and a network between them, under one seed: all that happens is an event of one clock."""

import random
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from tests.controller.quorum.node import Node
from tests.event_worlds import DiskWorld
from tests.raft.describing import effect_text
from tests.raft.witness import Broken, Witness

from duramen.base.errors import DuramenError, LogDamaged, NotController, OutcomeUnknown
from duramen.base.ids import Position
from duramen.controller.quorum.dependencies import QuorumLimits
from duramen.controller.quorum.entries import events_of
from duramen.controller.quorum.recovery import QuorumIdentity
from duramen.controller.quorum.runner import Runner
from duramen.controller.quorum.snapshot_chunks import Wire
from duramen.metadata.events import Event, GroupConfigured
from duramen.raft.effects import Append, Effect, Send, Serve, ServeSnapshot
from duramen.raft.roles import RaftRole
from duramen.raft.timeouts import RaftTimeouts
from duramen.raft.voters import Voter, Voters
from duramen.sim.machine.disk import Crashed

CALM: Final = RaftTimeouts(election_ms=100, fetch_ms=200, retry_ms=30, wait_ms=50, desertion_ms=300, soon_ms=8)
HASTY: Final = RaftTimeouts(election_ms=20, fetch_ms=40, retry_ms=8, wait_ms=10, desertion_ms=60, soon_ms=4)
"""So short that with slow messages and disks elections cross each other all the time."""


SEEDS: Final = (1, 2, 3, 4, 5, 6)


class Totals(NamedTuple):
    """What a run did. `answered`, `refused` and `unknown` are what came of proposals."""

    events: int = 0
    delivered: int = 0
    ends: int = 0
    power_losses: int = 0
    torn: int = 0
    failures: int = 0
    epochs: int = 0
    committed: int = 0
    installs: int = 0
    changes: int = 0
    wipes: int = 0
    hopeless: int = 0
    answered: int = 0
    refused: int = 0
    unknown: int = 0
    full_disks: int = 0


class World(DiskWorld[Node]):
    """Nodes, each a process on its disk, and what is on its way between them; `found` makes the first of them."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(random.Random(f"{seed}/world"), Totals._fields, trace=trace)
        self.witness = Witness()
        self.nodes: list[Node] = []
        self.timeouts = CALM
        self.limits = QuorumLimits()
        self.slow_us = 1_000
        self.lossy = self.twice = 0.0
        self.cut: set[tuple[int, int]] = set()
        self.refused: list[str] = []  # what was proposed and must never be committed
        self.alone: list[Event] = []  # what a node knew before it was a quorum
        self._seed = seed
        self._names = count()

    def found(self, size: int, *, grown: bool = False) -> None:
        """The cluster begins: of so many voters, or with one node that was alone and is to grow by the others."""
        for node_id in range(1, size + 1):
            self.nodes.append(self.node(node_id))
        if grown:
            self.alone = self.nodes[0].be_alone(self.random.randrange(1, 4))
            for node in self.nodes[1:]:
                node.plan = node.plan._replace(joins=voter_of(node))
        else:
            founders = Voters(map(voter_of, self.nodes))
            for node in self.nodes:
                node.plan = node.plan._replace(founders=founders)
        for node in self.nodes:
            self.start(node)

    def node(self, node_id: int) -> Node:
        node = self._make(node_id, f"{self._seed}/{next(self._numbers)}")
        node.plan = QuorumIdentity(node.me, seeds=SEEDS, timeouts=self.timeouts, limits=self.limits)
        node.send_on, node.failed_with = self._send, self._failed
        node.segment_bytes = self.random.choice((300, 4000))
        if self.traced:
            node.happened = self._say_effect
        return node

    def _make(self, node_id: int, seed: str) -> Node:
        return Node(node_id, seed, self.clock, self.witness)

    # -- time ---------------------------------------------------------------------------------------

    def _turn(self, node: Node) -> None:
        self.guarded(node, lambda: node.process is not None and node.process.turn())

    def guarded(self, node: Node, act: Callable[[], object]) -> None:
        """Do something of a node's process, which may end in the middle of it."""
        try:
            act()
        except Crashed as crashed:
            self.say(f"{node.node_id} crashes in {crashed}")
            self.counts["torn"] += 1
            self.end(node, power=self.random.random() < 0.7)

    def _say_effect(self, node: Node, effect: Effect) -> None:
        if not isinstance(effect, Send | Serve | ServeSnapshot | Append):
            self.say(f"{node.node_id} {effect_text(effect)}")
        elif isinstance(effect, Append):
            self.say(f"{node.node_id} appends {effect.batch.epoch}:{effect.batch.first}")

    # -- nodes --------------------------------------------------------------------------------------

    def start(self, node: Node) -> None:
        if node.process is not None or self.nodes[node.node_id - 1] is not node:
            return
        self.say(f"{node.node_id} starts")

        def opened(result: Runner | DuramenError) -> None:
            if isinstance(result, LogDamaged):
                raise Broken(str(result)) from result
            if isinstance(result, DuramenError):
                self._failed(node, result)
            else:
                self.connection(node, is_open=True)

        def start() -> None:
            try:
                node.start(opened)
            except (OSError, DuramenError) as error:
                self.say(f"{node.node_id} does not start: {error}")
                self.end(node, power=self.random.random() < 0.5)

        self.guarded(node, start)

    def end(self, node: Node, *, power: bool) -> None:
        self.counts["ends"] += 1
        self.say(f"{node.node_id} ends by {'a loss of power' if power else 'a kill'}")
        node.end()
        self.connection(node, is_open=False)
        if power:
            self.counts["power_losses"] += 1
            node.disk.crash(self.random)
        self.at(self.random.choice((1_000, 50_000, 200_000)), partial(self.start, node))

    def _failed(self, node: Node, error: DuramenError) -> None:
        if isinstance(error, LogDamaged):
            raise Broken(str(error)) from error
        if "the disk is full" in str(error):
            raise Broken(f"a full disk ends the replica {node.me} for good: {error}") from error
        self.say(f"{node.node_id} failed: {error}")
        self.counts["failures"] += 1
        life = node.life

        def end() -> None:
            if node.life == life:
                self.end(node, power=self.random.random() < 0.5)

        self.at(self.random.choice((1, 20_000)), end)

    def leaders(self) -> list[Node]:
        return [node for node in self.nodes if node.runner is not None and node.runner.machine.role is RaftRole.LEADER]

    # -- network ------------------------------------------------------------------------------------

    def connection(self, node: Node, *, is_open: bool) -> None:
        """A node can be reached, or cannot any more: the others hear of it, each in its time."""
        for other in self.nodes:
            if other is not node:
                self.at(50 + self.random.randrange(5_000), partial(self._hear_of, other, other.life, node, is_open))
                if is_open:
                    self.at(50 + self.random.randrange(5_000), partial(self._hear_of, node, node.life, other, is_open))

    def _hear_of(self, node: Node, life: int, other: Node, is_open: bool) -> None:
        runner = node.runner
        if runner is not None and node.life == life:
            tell = runner.connected if is_open else runner.disconnected
            self.guarded(node, lambda: tell(other.node_id))

    def _send(self, node: Node, to: int, message: Wire) -> None:
        troubled = self.troubled
        if troubled and self.random.random() < self.lossy:
            return
        for _ in range(2 if troubled and self.random.random() < self.twice else 1):
            late_us = 100_000 if troubled and self.random.random() < 0.03 else 0
            self.at(
                50 + self.random.randrange(self.slow_us + late_us), partial(self._deliver, node.node_id, to, message)
            )

    def _deliver(self, sender: int, to: int, message: Wire) -> None:
        node = self.nodes[to - 1] if to <= len(self.nodes) else None
        if node is None:
            return
        if node.runner is not None and (sender, to) not in self.cut:
            self.counts["delivered"] += 1
            runner = node.runner
            self.guarded(node, lambda: runner.receive(message))

    # -- proposals ----------------------------------------------------------------------------------

    def propose_at(self, node: Node, runner: Runner) -> None:
        names = [f"g{next(self._names)}" for _ in range(self.random.choice((1, 1, 3)))]
        size = self.random.choice((1, 10, 200))
        answers: list[Position | DuramenError] = []

        def done(answer: Position | DuramenError) -> None:
            if answers:
                raise Broken(f"{names} were answered twice: {answers[0]} and {answer}")
            answers.append(answer)
            self._answered(names, answer)

        events = [GroupConfigured(name, {"x": "y" * size}) for name in names]
        self.guarded(node, lambda: runner.propose(events, done))

    def _answered(self, names: list[str], answer: Position | DuramenError) -> None:
        if isinstance(answer, Position):
            self.counts["answered"] += 1
            held = self._names_at(answer)
            if held != names:
                raise Broken(f"{names} were answered with {answer}, where {held} was committed")
        elif isinstance(answer, OutcomeUnknown):
            self.counts["unknown"] += 1
        else:
            self.counts["refused"] += 1
            if isinstance(answer, NotController):
                self.refused += names

    def _names_at(self, position: Position) -> list[str]:
        for entry in reversed(self.witness.committed):
            batch = entry.batch
            if batch.first + batch.entries - 1 == position.offset and batch.epoch == position.leader_epoch:
                return [event.group for event in events_of(batch) if isinstance(event, GroupConfigured)]
        return []


def voter_of(node: Node) -> Voter:
    return Voter(node.me, f"host{node.node_id}:{9000 + node.node_id}")
