"""A whole quorum on simulated disks under one seed: a network that loses, and processes and machines that end.

Everything is an event at a time of one clock. The witness judges; after a while all is mended, and all has to be well.
"""

import errno
import heapq
import random
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from tests.broker.quorum.node import Node
from tests.controller.quorum.describing import effect_text
from tests.controller.quorum.witness import Broken, Stuck, Witness

from duramen.base.errors import DuramenError, LogDamaged, NotController, OutcomeUnknown
from duramen.base.ids import Position
from duramen.broker.quorum.chunks import Wire
from duramen.broker.quorum.entries import events_of
from duramen.broker.quorum.kit import Limits
from duramen.broker.quorum.opening import Plan
from duramen.broker.quorum.runner import Runner
from duramen.controller.events import GroupConfigured
from duramen.controller.quorum.effects import Append, Effect, Send, Serve, ServeSnapshot
from duramen.controller.quorum.roles import Role
from duramen.controller.quorum.timeouts import Timeouts
from duramen.controller.quorum.voters import Voter, Voters
from duramen.sim.disk import Crashed
from duramen.sim.scheduler import VirtualClock

CALM: Final = Timeouts(election_ms=100, fetch_ms=200, retry_ms=30, wait_ms=50, desertion_ms=300)
HASTY: Final = Timeouts(election_ms=20, fetch_ms=40, retry_ms=8, wait_ms=10, desertion_ms=60)
"""So short that with slow messages and disks elections cross each other all the time."""

TROUBLE_US: Final = 2_500_000
MENDED_US: Final = 3_000_000


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
    answered: int = 0
    refused: int = 0
    unknown: int = 0


class World:
    """Voters that form a quorum; what goes wrong, how often, is drawn by the seed; `run` lets it."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.random = random.Random(f"{seed}/world")
        self.clock = VirtualClock()
        self.witness = Witness()
        self.trace: list[str] = []
        self._traced = trace
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._names = count()
        self._counts = dict.fromkeys(Totals._fields, 0)
        self._refused: list[str] = []
        self._cut: set[tuple[int, int]] = set()
        self._lossy = self.random.choice((0.0, 0.02, 0.2))
        self._twice = self.random.choice((0.0, 0.1))
        self._slow_us = self.random.choice((500, 3_000, 15_000))
        self._timeouts = self.random.choice((CALM, CALM, HASTY))
        size = self.random.choice((1, 3, 3, 3, 5))
        self.nodes = [Node(node_id, str(seed), self.clock, self.witness) for node_id in range(1, size + 1)]
        self._founders = Voters(Voter(node.me, f"host{node.node_id}:{9000 + node.node_id}") for node in self.nodes)
        self._limits = Limits(
            fetch_bytes=self.random.choice((1, 600, 1 << 20)),
            chunk_bytes=self.random.choice((60, 4000)),
            snapshot_bytes=self.random.choice((400, 2_000, 1 << 30)),
        )
        for node in self.nodes:
            node.send_on, node.failed_with = self._send, self._failed
            node.segment_bytes = self.random.choice((300, 4000))
            if trace:
                node.happened = self._say_effect
            self._start(node)
        self._again(15, self._propose)
        for every_ms, act in (
            (300, self._kill),
            (300, self._lose_power),
            (300, self._crash_in_a_call),
            (400, self._fail_calls),
            (900, self._lose_all_power),
            (500, self._partition),
            (400, self._resign),
        ):
            often = self.random.choice((0.5, 1, 2, None))
            if often is not None:
                self._again(int(every_ms * often), act)

    def run(self) -> Totals:
        """Trouble, then none, then all has to be well. Raises Broken, Stuck."""
        self._run_until(TROUBLE_US)
        self._mend()
        self._run_until(TROUBLE_US + MENDED_US)
        self._all_is_well()
        self._counts["epochs"] = len(self.witness.leaders)
        self._counts["committed"] = len(self.witness.committed)
        self._counts["installs"] = sum(node.installs for node in self.nodes)
        return Totals(**self._counts)

    # -- time ---------------------------------------------------------------------------------------

    def _at(self, delay_us: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.clock.now_us + delay_us, next(self._numbers), act))

    def _again(self, every_ms: int, act: Callable[[], None]) -> None:
        """Do it about so often, as long as there is trouble."""

        def again() -> None:
            if self.clock.now_us < TROUBLE_US:
                act()
                self._at(self.random.randrange(2_000 * every_ms) + 1, again)

        self._at(self.random.randrange(2_000 * every_ms) + 1, again)

    def _run_until(self, end_us: int) -> None:
        while True:
            at_us, node = self._next()
            if at_us is None or at_us > end_us:
                self.clock.now_us = max(self.clock.now_us, end_us)
                return
            self._counts["events"] += 1
            if node is None:
                at_us, _, act = heapq.heappop(self._events)
                self.clock.now_us = max(self.clock.now_us, at_us)
                act()
            else:
                self._turn(node)

    def _next(self) -> tuple[int | None, Node | None]:
        found: tuple[int | None, Node | None] = (self._events[0][0], None) if self._events else (None, None)
        for node in self.nodes:
            at_us = node.process.next_us if node.process is not None else None
            if at_us is not None and (found[0] is None or at_us < found[0]):
                found = (at_us, node)
        return found

    def _turn(self, node: Node) -> None:
        self._guarded(node, lambda: node.process is not None and node.process.turn())

    def _guarded(self, node: Node, act: Callable[[], object]) -> None:
        """Do something of a node's process, which may end in the middle of it."""
        try:
            act()
        except Crashed as crashed:
            self._say(f"{node.node_id} crashes in {crashed}")
            self._counts["torn"] += 1
            self._end(node, power=self.random.random() < 0.7)

    def _say(self, text: str) -> None:
        if self._traced:
            self.trace.append(f"{self.clock.now_us} {text}")

    def _say_effect(self, node: Node, effect: Effect) -> None:
        if not isinstance(effect, Send | Serve | ServeSnapshot | Append):
            self._say(f"{node.node_id} {effect_text(effect)}")
        elif isinstance(effect, Append):
            self._say(f"{node.node_id} appends {effect.batch.epoch}:{effect.batch.first}")

    # -- nodes --------------------------------------------------------------------------------------

    def _start(self, node: Node) -> None:
        if node.process is not None:
            return
        self._say(f"{node.node_id} starts")
        plan = Plan(node.me, founders=self._founders, timeouts=self._timeouts, limits=self._limits)

        def opened(result: Runner | DuramenError) -> None:
            if isinstance(result, LogDamaged):
                raise Broken(str(result)) from result
            if isinstance(result, DuramenError):
                self._failed(node, result)

        def start() -> None:
            try:
                node.start(plan, opened)
            except (OSError, DuramenError) as error:
                self._say(f"{node.node_id} does not start: {error}")
                self._end(node, power=self.random.random() < 0.5)

        self._guarded(node, start)

    def _end(self, node: Node, *, power: bool) -> None:
        self._counts["ends"] += 1
        self._say(f"{node.node_id} ends by {'a loss of power' if power else 'a kill'}")
        node.end()
        if power:
            self._counts["power_losses"] += 1
            node.disk.crash(self.random)
        self._at(self.random.choice((1_000, 50_000, 200_000)), partial(self._start, node))

    def _failed(self, node: Node, error: DuramenError) -> None:
        if isinstance(error, LogDamaged):
            raise Broken(str(error)) from error
        self._say(f"{node.node_id} failed: {error}")
        self._counts["failures"] += 1
        life = node.life

        def end() -> None:
            if node.life == life:
                self._end(node, power=self.random.random() < 0.5)

        self._at(self.random.choice((1, 20_000)), end)

    def _any(self) -> Node:
        return self.random.choice(self.nodes)

    def _leaders(self) -> list[Node]:
        return [node for node in self.nodes if node.runner is not None and node.runner.machine.role is Role.LEADER]

    # -- network ------------------------------------------------------------------------------------

    def _send(self, node: Node, to: int, message: Wire) -> None:
        troubled = self.clock.now_us < TROUBLE_US
        if troubled and self.random.random() < self._lossy:
            return
        for _ in range(2 if troubled and self.random.random() < self._twice else 1):
            late_us = 100_000 if troubled and self.random.random() < 0.03 else 0
            self._at(
                50 + self.random.randrange(self._slow_us + late_us), partial(self._deliver, node.node_id, to, message)
            )

    def _deliver(self, sender: int, to: int, message: Wire) -> None:
        node = self.nodes[to - 1]
        if node.runner is not None and (sender, to) not in self._cut:
            self._counts["delivered"] += 1
            runner = node.runner
            self._guarded(node, lambda: runner.receive(message))

    # -- what happens -------------------------------------------------------------------------------

    def _propose(self) -> None:
        """Somebody proposes, mostly where it makes sense."""
        nodes = self._leaders() if self.random.random() < 0.95 else [self._any()]
        for node in nodes:
            if node.runner is not None:
                self._propose_at(node, node.runner)

    def _propose_at(self, node: Node, runner: Runner) -> None:
        names = [f"g{next(self._names)}" for _ in range(self.random.choice((1, 1, 3)))]
        size = self.random.choice((1, 10, 200))
        answers: list[Position | DuramenError] = []

        def done(answer: Position | DuramenError) -> None:
            if answers:
                raise Broken(f"{names} were answered twice: {answers[0]} and {answer}")
            answers.append(answer)
            self._answered(names, answer)

        events = [GroupConfigured(name, {"x": "y" * size}) for name in names]
        self._guarded(node, lambda: runner.propose(events, done))

    def _answered(self, names: list[str], answer: Position | DuramenError) -> None:
        if isinstance(answer, Position):
            self._counts["answered"] += 1
            held = self._names_at(answer)
            if held != names:
                raise Broken(f"{names} were answered with {answer}, where {held} was committed")
        elif isinstance(answer, OutcomeUnknown):
            self._counts["unknown"] += 1
        else:
            self._counts["refused"] += 1
            if isinstance(answer, NotController):
                self._refused += names

    def _names_at(self, position: Position) -> list[str]:
        for entry in reversed(self.witness.committed):
            batch = entry.batch
            if batch.first + batch.entries - 1 == position.offset and batch.epoch == position.leader_epoch:
                return [event.group for event in events_of(batch) if isinstance(event, GroupConfigured)]
        return []

    def _kill(self) -> None:
        node = self._any()
        if node.process is not None:
            self._end(node, power=False)

    def _lose_power(self) -> None:
        node = self._any()
        if node.process is not None:
            self._end(node, power=True)

    def _lose_all_power(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                self._end(node, power=True)

    def _crash_in_a_call(self) -> None:
        node = self._any()
        node.disk.crash_at = node.disk.calls + self.random.randrange(1, 30)

    def _fail_calls(self) -> None:
        """For a while calls of one kind fail now and then."""
        node = self._any()
        if node.process is None:
            return
        failing = self.random.choice((("sync",), ("sync_directory", "rename"), ("write", "create"), ("sync", "write")))
        rate = self.random.choice((0.02, 0.3, 1.0))
        node.disk.failed_sync = self.random.choice(("keep", "drop", "forget"))

        def interfere(call: str, path: str, size: int) -> int:
            if call in failing and self.random.random() < rate:
                self._say(f"{node.node_id} {call} {path} fails")
                raise OSError(errno.EIO, "the disk")
            return size

        def good_again() -> None:
            if node.disk.interfere is interfere:
                node.disk.interfere = None

        node.disk.interfere = interfere
        self._at(self.random.choice((3_000, 50_000)), good_again)

    def _partition(self) -> None:
        ids = [node.node_id for node in self.nodes]
        self.random.shuffle(ids)
        half = set(ids[: self.random.randrange(len(ids)) + 1])
        one_way = self.random.random() < 0.3
        cut = {(a, b) for a in ids for b in ids if a in half and b not in half}
        if not one_way:
            cut |= {(b, a) for a, b in cut}
        if self.random.random() < 0.4:
            for leader in self._leaders():
                me = leader.node_id
                cut = {pair for other in ids for pair in ((me, other), (other, me)) if other != me}
        self._cut = cut
        self._say(f"cut {sorted(cut)}")

        def heal() -> None:
            if self._cut is cut:
                self._cut = set()

        self._at(self.random.choice((50_000, 200_000, 500_000)), heal)

    def _resign(self) -> None:
        for node in self._leaders():
            if node.runner is not None:
                self._guarded(node, node.runner.resign)

    # -- the end ------------------------------------------------------------------------------------

    def _mend(self) -> None:
        self._say("mended")
        self._cut = set()
        self._slow_us = 1_000
        for node in self.nodes:
            node.disk.crash_at = node.disk.interfere = None
            if (node.runner is None or node.runner.error is not None) and node.process is not None:
                self._end(node, power=False)
        self._at(MENDED_US * 3 // 4, self._propose_last)

    def _propose_last(self) -> None:
        self._last: list[Position | DuramenError] = []
        for node in self._leaders():
            if node.runner is not None:
                node.runner.propose([GroupConfigured("last", {"x": "y"})], self._last.append)

    def _all_is_well(self) -> None:
        leaders = self._leaders()
        if not leaders:
            raise Stuck("nobody leads after all was mended")
        leader = max(leaders, key=lambda node: node.epoch)
        if not any(isinstance(answer, Position) for answer in self._last):
            raise Stuck(f"the last proposal was answered {self._last}")
        assert leader.runner is not None
        end = leader.runner.machine.end
        image = leader.view.image()
        for node in self.nodes:
            if node.runner is None or node.runner.applied != end:
                raise Stuck(f"{node.node_id} has not all that {leader.node_id} has, long after all was mended")
            if node.view.image() != image:
                raise Broken(f"the state of {node.node_id} is not that of {leader.node_id}")
        held = {
            event.group
            for entry in self.witness.committed
            for event in events_of(entry.batch)
            if isinstance(event, GroupConfigured)
        }
        for name in self._refused:
            if name in held:
                raise Broken(f"{name} was refused, and is committed")
