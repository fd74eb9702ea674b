"""A whole quorum under one seed: clocks that drift, a network and disks that do their worst, membership that changes.

Everything that happens is an event at a time; the same seed makes the same events. For a while nodes crash, lose
power, disks and each other, and the voters change; then all is mended, and the quorum has to commit again.
"""

import heapq
import random
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from tests.controller.quorum.describing import effect_text, message_text
from tests.controller.quorum.disk import Content, Disk
from tests.controller.quorum.site import CALM, HASTY, Sent, Site
from tests.controller.quorum.witness import Broken, Stuck, Witness

from duramen.base.errors import LogDamaged
from duramen.controller.quorum.changes import AddVoter, Change, RemoveVoter, UpdateVoter
from duramen.controller.quorum.effects import Effect
from duramen.controller.quorum.epochs import End
from duramen.controller.quorum.machine import Machine
from duramen.controller.quorum.roles import Role
from duramen.controller.quorum.voters import NO_VOTERS, ReplicaId, Voter, Voters

TROUBLE_MS: Final = 3_000
MENDED_MS: Final = 2_500
MOST_NODES: Final = 6

__all__ = ["MENDED_MS", "TROUBLE_MS", "Simulation", "Totals"]


class Totals(NamedTuple):
    """What a run did."""

    events: int
    delivered: int
    epochs: int
    committed: int
    crashes: int
    wipes: int
    changes: int
    installs: int


class Simulation:
    """`size` voters at first. `trace` keeps what happened as text."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.random = random.Random(seed)
        self.witness = Witness()
        self.trace: list[str] = []
        self._traced = trace
        self._now_ms = 0
        self._numbers = count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._counts = dict.fromkeys(Totals._fields, 0)
        size = self.random.choice((1, 2, 3, 3, 3, 4, 4, 5))
        voters = Voters(Voter(ReplicaId(node, "a")) for node in range(1, size + 1))
        self._nodes: dict[int, _Node] = {}
        self._hasty = self.random.random() < 0.3
        self._most_batches = self.random.choice((1, 2, 8))
        self._cut: set[tuple[int, int]] = set()
        self._lossy = self.random.choice((0.0, 0.02, 0.3))
        self._twice = self.random.choice((0.0, 0.05, 0.3))
        self._timeouts = self.random.choice((CALM, HASTY))
        self._slow_ms = self.random.choice((2, 10, 40) if self._timeouts is CALM else (2, 5, 12))
        self._slow_disks = self.random.choice((0.0, 0.2, 0.8))
        for node_id in range(1, size + 1):
            self._add_node(node_id, voters)
        for node in self._nodes.values():
            self._start(node)
        self._again(25, self._propose)
        for every_ms, act in self._acts():
            # Seeds differ in what goes wrong how often, and in what never does: some bugs need one thing all the time.
            often = self.random.choice((0.4, 1, 1, 3, None, None))
            if often is not None:
                self._again(int(every_ms * often), act)

    def run(self) -> Totals:
        """Trouble, then none, then all has to be well. Raises Broken, Stuck."""
        try:
            self._run_until(TROUBLE_MS)
            self._mend()
            self._run_until(TROUBLE_MS + MENDED_MS)
        except LogDamaged as error:
            raise Broken(str(error)) from error
        self._all_is_well()
        self._counts["epochs"] = len(self.witness.leaders)
        self._counts["committed"] = len(self.witness.committed)
        self._counts["installs"] = sum(node.site.installs for node in self._nodes.values())
        return Totals(**self._counts)

    # -- time ---------------------------------------------------------------------------------------

    def _at(self, delay_ms: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now_ms + delay_ms, next(self._numbers), act))

    def _run_until(self, end_ms: int) -> None:
        while self._events and self._events[0][0] <= end_ms:
            self._now_ms, _, act = heapq.heappop(self._events)
            self._counts["events"] += 1
            act()
        self._now_ms = end_ms

    def _again(self, every_ms: int, act: Callable[[], None]) -> None:
        """Do it about so often, as long as there is trouble."""

        def again() -> None:
            if self._now_ms < TROUBLE_MS:
                act()
                self._at(self.random.randrange(2 * every_ms) + 1, again)

        self._at(self.random.randrange(2 * every_ms) + 1, again)

    def _say(self, text: str) -> None:
        if self._traced:
            self.trace.append(f"{self._now_ms} {text}")

    def _say_effect(self, me: ReplicaId, effect: Effect) -> None:
        self._say(f"{me} {effect_text(effect)}")

    # -- nodes --------------------------------------------------------------------------------------

    def _add_node(self, node_id: int, voters: Voters) -> "_Node":
        seeds = tuple(sorted({*self._nodes, *(voter.node_id for voter in voters.ids)} - {node_id}))
        site = Site(ReplicaId(node_id, "a"), Disk(voters), self.witness, self.random.randrange, seeds)
        slow = self.random.random() < self._slow_disks
        self._equip(site)
        node = _Node(site, self.random.choice((0.8, 1.0, 1.0, 1.3)), self._timeouts.election_ms * 3 // 4 if slow else 3)
        self._nodes[node_id] = node
        return node

    def _equip(self, site: Site) -> None:
        site.most_batches, site.timeouts = self._most_batches, self._timeouts
        if self._traced:
            site.say = partial(self._say_effect, site.me)

    def _start(self, node: "_Node") -> None:
        node.life += 1
        node.paused = False
        node.site.start(node.local_ms(self._now_ms))
        self._say(f"{node.site.me} starts")
        self._go_on(node)

    def _crash(self, node: "_Node") -> None:
        if node.syncing is not None and self.random.random() < 0.5:
            node.site.disk.synced = node.syncing
        node.site.crash()
        node.forget()
        node.life += 1
        self._counts["crashes"] += 1
        self._say(f"{node.site.me} crashes")

    def _go_on(self, node: "_Node") -> None:
        """Carry out what may be carried out, and see to it that time, disk and network do their part."""
        machine = node.site.machine
        if machine is None:
            return
        if self._hasty and machine.role is Role.LEADER and node.led_epoch != machine.epoch:
            node.led_epoch = machine.epoch
            self._change_at(node, machine)
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

    def _tick(self, node: "_Node", life: int, due_ms: int) -> None:
        if node.life != life or node.tick_ms != due_ms:
            return
        node.tick_ms = None
        if node.paused:
            return
        if node.site.machine is not None:
            node.site.machine.tick(node.local_ms(self._now_ms))
            self._go_on(node)

    def _ballot_written(self, node: "_Node", life: int) -> None:
        if node.life == life:
            node.balloting = False
            node.site.ballot_written()
            self._go_on(node)

    def _end_sync(self, node: "_Node", life: int) -> None:
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
            late_ms = 150 if troubled and self.random.random() < 0.05 else 0
            self._at(1 + self.random.randrange(self._slow_ms + late_ms), lambda: self._deliver(sent))

    def _deliver(self, sent: Sent) -> None:
        node = self._nodes.get(sent.to)
        if node is None or node.site.machine is None or (sent.sender, sent.to) in self._cut:
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

    # -- what happens to it -------------------------------------------------------------------------

    def _acts(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            (400, self._crash_one),
            (1_500, self._crash_all),
            (300, self._desert),
            (600, self._partition),
            (900, self._wipe),
            (150, self._change),
            (250, self._compact),
            (400, self._resign),
            (400, self._pause),
            (200, self._resume),
            (1_200, self._join),
        ]

    def _any(self) -> "_Node":
        return self.random.choice(list(self._nodes.values()))

    def _leaders(self) -> list["_Node"]:
        return [node for node in self._nodes.values() if node.machine is not None and node.machine.role is Role.LEADER]

    def _propose(self) -> None:
        for node in self._leaders():
            assert node.machine is not None
            node.machine.propose(next(self._numbers), self.random.choice((1, 1, 3)))
            self._go_on(node)

    def _crash_one(self) -> None:
        node = self._any()
        if node.machine is not None:
            self._crash(node)
            self._start_later(node)

    def _start_later(self, node: "_Node") -> None:
        def start() -> None:
            if node.machine is None:
                self._start(node)

        self._at(self.random.choice((1, 50, 300)), start)

    def _crash_all(self) -> None:
        for node in self._nodes.values():
            if node.machine is not None:
                self._crash(node)
        for node in self._nodes.values():
            self._start_later(node)

    def _desert(self) -> None:
        """A leader is alone, and goes on as one for a while."""
        for node in self._leaders():
            me = node.site.me.node_id
            self._cut = {pair for other in self._nodes for pair in ((me, other), (other, me)) if other != me}
            self._say(f"cut {me} off")
            self._heal_later()

    def _partition(self) -> None:
        """Halves, one alone, a ring, or one way only."""
        ids = list(self._nodes)
        self.random.shuffle(ids)
        if len(ids) < 2:
            return
        half = set(ids[: self.random.randrange(1, len(ids))])
        match self.random.randrange(3):
            case 0:
                self._cut = {(a, b) for a in ids for b in ids if (a in half) != (b in half)}
            case 1:
                self._cut = {(a, b) for a in ids for b in ids if a in half and b not in half}
            case _:
                last = len(ids) - 1
                self._cut = {
                    (a, b) for i, a in enumerate(ids) for j, b in enumerate(ids) if abs(i - j) not in (0, 1, last)
                }
        self._say(f"cut {sorted(self._cut)}")
        self._heal_later()

    def _heal_later(self) -> None:
        cut = self._cut

        def heal() -> None:
            if self._cut is cut:
                self._cut = set()

        self._at(self.random.choice((50, 150, 400)), heal)

    def _pause(self) -> None:
        self._any().paused = True

    def _resume(self) -> None:
        for node in self._nodes.values():
            if node.paused:
                node.paused = False
                held, node.held = node.held, []
                for sent in held:
                    self._at(0, partial(self._deliver, sent))
                if node.tick_ms is None:
                    self._go_on(node)

    def _resign(self) -> None:
        for node in self._leaders():
            assert node.machine is not None
            node.machine.resign()
            self._go_on(node)

    def _compact(self) -> None:
        node = self._any()
        if node.machine is not None and not node.site.writes_ballot:
            disk = node.site.disk
            end_offset = min(node.machine.high_watermark, disk.synced.end.offset)
            ends = [batch.first + batch.entries for batch in disk.written.batches]
            ends = [end for end in ends if end <= end_offset]
            if ends:
                end = self.random.choice(ends)
                node.machine.compacted(end)
                if node.machine.start.offset == end:
                    disk.compact(end)
                self._go_on(node)

    def _change(self) -> None:
        """Somebody asks for a change of the voters."""
        for node in self._leaders():
            assert node.machine is not None
            self._change_at(node, node.machine)
            self._go_on(node)

    def _change_at(self, node: "_Node", machine: Machine) -> None:
        if isinstance(machine.change(self._any_change(machine)), End):
            self._counts["changes"] += 1
            self._say(f"{node.site.me} voters {machine.voters}")

    def _any_change(self, machine: Machine) -> Change:
        voters = machine.voters
        learners = [node.site.me for node in self._nodes.values() if node.site.me not in voters]
        dead = [voter for voter in voters.ids if voter not in self._alive()]
        if learners and self.random.random() < 0.6:
            return AddVoter(Voter(self.random.choice(learners)))
        if dead:
            return RemoveVoter(dead[0])
        if len(voters) > 2 and self.random.random() < 0.5:
            return RemoveVoter(self.random.choice(voters.ids))
        return UpdateVoter(Voter(self.random.choice(voters.ids), f"{next(self._numbers)}"))

    def _join(self) -> None:
        """A node that there was not."""
        if len(self._nodes) < MOST_NODES:
            node = self._add_node(max(self._nodes) + 1, NO_VOTERS)
            node.site.joins = self.random.random() < 0.5
            self._start(node)

    def _alive(self) -> set[ReplicaId]:
        return {node.site.me for node in self._nodes.values()}

    def _wipe(self) -> None:
        """A disk is lost, unless too many are already for some set of voters that anybody goes by."""
        node = self._any()
        alive = self._alive() - {node.site.me}
        sets = [one.voters for one in self._nodes.values()]
        if any(voters.ids and not voters.majority(alive) for voters in sets):
            return
        if node.machine is not None:
            self._crash(node)
        self._counts["wipes"] += 1
        old = node.site
        node.site = Site(
            ReplicaId(old.me.node_id, f"{old.me.directory_id}a"),
            Disk(),
            self.witness,
            self.random.randrange,
            tuple(node_id for node_id in self._nodes if node_id != old.me.node_id),
        )
        node.site.joins = True
        self._equip(node.site)
        self._say(f"{old.me} is lost")
        self._start_later(node)

    # -- the end ------------------------------------------------------------------------------------

    def _mend(self) -> None:
        self._cut = set()
        self._slow_ms = 2
        self._resume()
        for node in self._nodes.values():
            node.disk_ms = 3
            if node.machine is None:
                self._start(node)
        self._at(MENDED_MS * 3 // 4, self._propose)

    def _all_is_well(self) -> None:
        leaders = self._leaders()
        newest = max((node.machine.epoch for node in leaders if node.machine is not None), default=0)
        leading = [node for node in leaders if node.machine is not None and node.machine.epoch == newest]
        if len(leading) != 1 or leading[0].machine is None:
            raise Stuck("nobody leads after all was mended")
        machine = leading[0].machine
        for node in self._nodes.values():
            if node.machine is None or node.machine.high_watermark != machine.end.offset:
                raise Stuck(f"{node.site.me} has not all that {machine.me} has, long after all was mended")


class _Node:
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
    def machine(self) -> Machine | None:
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
