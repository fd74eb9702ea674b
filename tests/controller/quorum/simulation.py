"""A whole quorum under one seed: processes and machines end, disks fail and are lost, the voters change.

The witness judges all the while; after a time all is mended, and all has to be well.
"""

import errno
import random
from functools import partial
from typing import Final

from tests.controller.quorum.node import Node
from tests.controller.quorum.world import CALM, HASTY, Totals, World, voter_of
from tests.raft.witness import Broken, Stuck

from duramen.base.errors import DuramenError
from duramen.base.ids import Position
from duramen.controller.quorum.dependencies import QuorumLimits
from duramen.controller.quorum.entries import events_of
from duramen.controller.quorum.runner import Runner
from duramen.metadata.events import GroupConfigured
from duramen.raft.epochs import EpochEnd
from duramen.raft.voter_changes import Change, VoterAddition, VoterRemoval, VoterUpdate
from duramen.raft.voters import ReplicaId, Voter, Voters

MOST_NODES: Final = 6
TROUBLE_US: Final = 2_500_000
MENDED_US: Final = 3_000_000

_FULL_SHARE: Final = 0.4
_FULL_MS: Final = 400
_FULL_US: Final = (20_000, 300_000, 800_000)


class Simulation(World):
    """What goes wrong, how often, is drawn by the seed; `run` lets it."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace)
        draw = self.random.choice
        self.troubled = True
        self.lossy, self.twice = draw((0.0, 0.02, 0.2)), draw((0.0, 0.1))
        self.slow_us = draw((500, 3_000, 15_000))
        self.timeouts = draw((CALM, CALM, HASTY))
        self.limits = QuorumLimits(
            fetch_bytes=draw((1, 600, 1 << 20)),
            chunk_bytes=draw((60, 4000)),
            kept_bytes=random.Random(f"{seed}/kept").choice((0, 500, 1 << 20)),
            snapshot_bytes=draw((400, 2_000, 1 << 30)),
        )
        self.found(draw((1, 3, 3, 3, 5)), grown=draw((True, False, False, False)))
        self.again(15, self._propose)
        for every_ms, act in (
            (300, self._kill),
            (300, self._lose_power),
            (300, self._crash_in_a_call),
            (400, self._fail_calls),
            (900, self._lose_all_power),
            (500, self._partition),
            (400, self._resign),
            (200, self._change),
            (700, self._wipe),
            (900, self._join),
        ):
            often = self.random.choice((0.5, 1, 2, None))
            if often is not None:
                self.again(int(every_ms * often), act)
        self._fullness = random.Random(f"{seed}/full disks")
        if self._fullness.random() < _FULL_SHARE:
            self.again(int(_FULL_MS * self._fullness.choice((0.5, 1))), self._fill, self._fullness)

    def run(self) -> Totals:
        """Trouble, then none, then all has to be well. Raises Broken, Stuck."""
        self.run_until(TROUBLE_US)
        self._mend()
        self.run_until(TROUBLE_US + MENDED_US)
        if self._is_hopeless():
            self.counts["hopeless"] = 1
        else:
            self._all_is_well()
        self.counts["epochs"] = len(self.witness.leaders)
        self.counts["committed"] = len(self.witness.committed)
        self.counts["installs"] = sum(node.installs for node in self.nodes)
        return Totals(**self.counts)

    def _any(self) -> Node:
        return self.random.choice(self.nodes)

    # -- what happens -------------------------------------------------------------------------------

    def _propose(self) -> None:
        """Somebody proposes, mostly where it makes sense."""
        nodes = self.leaders() if self.random.random() < 0.95 else [self._any()]
        for node in nodes:
            if node.runner is not None:
                self.propose_at(node, node.runner)

    def _kill(self) -> None:
        node = self._any()
        if node.process is not None:
            self.end(node, power=False)

    def _lose_power(self) -> None:
        node = self._any()
        if node.process is not None:
            self.end(node, power=True)

    def _lose_all_power(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                self.end(node, power=True)

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
                self.say(f"{node.node_id} {call} {path} fails")
                raise OSError(errno.EIO, "the disk")
            return size

        def good_again() -> None:
            if node.disk.interfere is interfere:
                node.disk.interfere = None

        node.disk.interfere = interfere
        self.at(self.random.choice((3_000, 50_000)), good_again)

    def _fill(self) -> None:
        """A disk has no room for a while: nothing ends for that, and all goes on afterwards."""
        node = self._fullness.choice(self.nodes)
        disk = node.disk
        if node.process is None or not disk.free_bytes:
            return
        taken_bytes, disk.free_bytes = disk.free_bytes, 0
        self.say(f"{node.node_id} has a full disk")
        self.counts["full_disks"] += 1

        def has_room() -> None:
            disk.free_bytes += taken_bytes

        self.at(self._fullness.choice(_FULL_US), has_room)

    def _partition(self) -> None:
        ids = [node.node_id for node in self.nodes]
        self.random.shuffle(ids)
        half = set(ids[: self.random.randrange(len(ids)) + 1])
        one_way = self.random.random() < 0.3
        cut = {(a, b) for a in ids for b in ids if a in half and b not in half}
        if not one_way:
            cut |= {(b, a) for a, b in cut}
        if self.random.random() < 0.4:
            for leader in self.leaders():
                me = leader.node_id
                cut = {pair for other in ids for pair in ((me, other), (other, me)) if other != me}
        self.cut = cut
        self.say(f"cut {sorted(cut)}")

        def heal() -> None:
            if self.cut is cut:
                self.cut = set()

        self.at(self.random.choice((50_000, 200_000, 500_000)), heal)

    def _resign(self) -> None:
        for node in self.leaders():
            if node.runner is not None:
                self.guarded(node, node.runner.resign)

    def _change(self) -> None:
        """Somebody asks for a change of the voters."""
        for node in self.leaders():
            if node.runner is not None:
                runner, change = node.runner, self._any_change(node.runner.machine.voters)
                self.guarded(node, partial(self._change_at, runner, change))

    def _change_at(self, runner: Runner, change: Change) -> None:
        if isinstance(runner.change(change), EpochEnd):
            self.counts["changes"] += 1
            self.say(f"voters {runner.machine.voters}")

    def _any_change(self, voters: Voters) -> Change:
        learners = [node for node in self.nodes if node.me not in voters]
        dead = [voter for voter in voters.ids if voter not in self._alive()]
        if learners and self.random.random() < 0.6:
            return VoterAddition(voter_of(self.random.choice(learners)))
        if dead:
            return VoterRemoval(dead[0])
        if len(voters) > 2 and self.random.random() < 0.5:
            return VoterRemoval(self.random.choice(voters.ids))
        return VoterUpdate(Voter(self.random.choice(voters.ids), f"elsewhere:{next(self._numbers) % 1000}"))

    def _alive(self) -> set[ReplicaId]:
        return {node.me for node in self.nodes}

    def _wipe(self) -> None:
        """A disk is lost, unless too many are already for some set of voters that anybody goes by."""
        node = self._any()
        alive = self._alive() - {node.me}
        known = [one.runner.machine.voters for one in self.nodes if one.runner is not None]
        if len(known) < len(self.nodes) or any(not voters.majority(alive) for voters in known):
            return
        self.end(node, power=False)
        self.counts["wipes"] += 1
        self.say(f"{node.node_id} loses its disk")
        fresh = self.node(node.node_id)
        fresh.plan = fresh.plan._replace(joins=voter_of(fresh))
        self.nodes[node.node_id - 1] = fresh
        self.at(self.random.choice((1_000, 50_000, 200_000)), partial(self.start, fresh))

    def _join(self) -> None:
        """A node that there was not."""
        if len(self.nodes) < MOST_NODES:
            node = self.node(len(self.nodes) + 1)
            if self.random.random() < 0.5:
                node.plan = node.plan._replace(joins=voter_of(node))
            self.nodes.append(node)
            self.start(node)

    # -- the end ------------------------------------------------------------------------------------

    def _mend(self) -> None:
        self.say("mended")
        self.troubled = False
        self.cut = set()
        self.slow_us = 1_000
        for node in self.nodes:
            node.disk.crash_at = node.disk.interfere = None
            if (node.runner is None or node.runner.error is not None) and node.process is not None:
                self.end(node, power=False)
        self.at(MENDED_US * 3 // 4, self._propose_last)

    def _propose_last(self) -> None:
        self._last: list[Position | DuramenError] = []
        for node in self.leaders():
            if node.runner is not None:
                node.runner.propose([GroupConfigured("last", {"x": "y"})], self._last.append)

    def _is_hopeless(self) -> bool:
        """Whether nobody can lead any more: a learner lost its disk while it was being added to too few."""
        machines = [node.runner.machine for node in self.nodes if node.runner is not None]
        furthest = max(machines, key=lambda machine: machine.end)
        return not furthest.voters.majority(self._alive())

    def _all_is_well(self) -> None:
        leaders = self.leaders()
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
        for name in self.refused:
            if name in held:
                raise Broken(f"{name} was refused, and is committed")
        for event in self.alone:
            if isinstance(event, GroupConfigured) and event.group not in leader.view.state.groups:
                raise Broken(f"{event.group} is gone, which the node knew when it was alone")
