"""A whole cluster under one seed: its controller fails over while nodes and users ask for things.

The witness of the quorum and the auditor of what is committed judge all the while; after a time all is mended, and all
has to be well soon.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.controller.active.node import ControlNode
from tests.controller.active.world import ControlWorld
from tests.raft.witness import Broken, Stuck

from duramen.base.errors import DuramenError, NotController, OutcomeUnknown, RequestTimedOut
from duramen.broker.control import requests
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import Answer, Block, Created, Outcome
from duramen.controller.membership.lifecycle import LifecyclePhase
from duramen.controller.quorum.dependencies import QuorumLimits
from duramen.metadata.alter_partition import InSyncMember
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionId
from duramen.metadata.rebalance import ReplicaMove

VOTERS: Final = 3
OTHERS: Final = 2
TROUBLE_US: Final = 2_500_000
WELL_WITHIN_MS: Final = 2_500
"""An election, a session of a node that is gone, a registration, and a few lost messages."""


class Counts(NamedTuple):
    """What a run did. `granted`, `refused` and `unknown` are what came of users' requests."""

    ends: int = 0
    power_losses: int = 0
    epochs: int = 0
    fenced: int = 0
    drained: int = 0
    paused: int = 0
    elections: int = 0
    granted: int = 0
    refused: int = 0
    unknown: int = 0
    awaited: int = 0


class Simulation(ControlWorld):
    """What goes wrong, how often, is drawn by the seed; `run` lets it."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace)
        draw = self.random.choice
        self.troubled = True
        self.lossy = draw((0.0, 0.0, 0.03, 0.1))
        self.slow_us = draw((500, 3_000, 10_000))
        self.limits = QuorumLimits(snapshot_bytes=draw((2_000, 20_000, 1 << 30)))
        self.done = dict.fromkeys(Counts._fields, 0)
        self.names = 0
        self.blocks: set[int] = set()
        self.groups: set[str] = set()
        self.gather(VOTERS, OTHERS)
        for node in self.parts():
            node.became = self._became
        self.again(25, self._wish)
        for every_ms, act in (
            (200, self._kill),
            (400, self._lose_power),
            (600, self._part),
            (500, self._resign),
            (500, self._pause),
            (400, self._drain),
            (300, self._flap),
            (100, self._report),
            (2_000, self._lose_all_power),
        ):
            often = self.random.choice((0.5, 1, 2, None))
            if often is not None:
                self.again(int(every_ms * often), act)

    def run(self) -> Counts:
        """Trouble, then none, then all has to be well. Raises Broken, Stuck."""
        self.run_until(TROUBLE_US)
        self._mend()
        try:
            self.go_on_until(self._is_well, WELL_WITHIN_MS)
        except AssertionError as error:
            raise Stuck(f"{error}: {self._ills()}") from error
        self._all_is_kept()
        self.done["ends"], self.done["power_losses"] = self.counts["ends"], self.counts["power_losses"]
        self.done["epochs"] = len(self.actives)
        self.done["fenced"], self.done["elections"] = self.auditor.silences, self.auditor.elections
        return Counts(**self.done)

    def _any(self) -> ControlNode:
        return self.random.choice(self.parts())

    # -- what is wished -----------------------------------------------------------------------------

    def _wish(self) -> None:
        """A user asks some node for something."""
        node = self._any()
        if node.controller is None or node.paused_until_us > self.clock.now_us:
            return
        wishes = (self._create, self._create, self._change, self._place, self._move, self._plain)
        request, done = self.random.choice(wishes)()
        outcomes: list[Outcome] = []

        def answered(outcome: Outcome) -> None:
            if outcomes:
                raise Broken(f"{request} was answered twice: {outcomes[0]} and {outcome}")
            outcomes.append(outcome)
            self._count(outcome)
            if isinstance(outcome, Answer) and outcome.end_offset > self.auditor.end_offset:
                raise Broken(f"{request} was answered before {outcome.end_offset} was committed")
            done(outcome)

        asker, within_ms = node.asker, self.random.choice((50, 300, 1_000))
        self.guarded(node, lambda: asker.ask(request, answered, within_ms=within_ms))

    def _count(self, outcome: Outcome) -> None:
        if isinstance(outcome, OutcomeUnknown):
            self.done["unknown"] += 1
        else:
            self.done["granted" if isinstance(outcome, Answer) else "refused"] += 1

    def _create(self) -> tuple[Request, Callable[[Outcome], None]]:
        self.names += 1
        name = f"s{self.names}"
        config = {"min.insync.replicas": str(self.random.choice((1, 2)))}
        partitions, factor = self.random.choice((1, 3)), self.random.choice((1, 3, 3, 6))

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Answer) and isinstance(outcome.value, Created):
                if outcome.value.existed or name not in self.auditor.created:
                    raise Broken(f"stream {name} was answered, and is not created")
            elif not isinstance(outcome, OutcomeUnknown):
                if name in self.auditor.created:
                    raise Broken(f"stream {name} was refused, and is created: {outcome}")
                self.auditor.refused.add(name)

        return requests.CreateStream(Definition(name, partitions, config), factor), done

    def _some(self) -> str:
        return self.random.choice([*self.auditor.state.streams, "none"])

    def _change(self) -> tuple[Request, Callable[[Outcome], None]]:
        name = self._some()
        if self.random.random() < 0.3:
            self.auditor.deleting.add(name)

            def gone(outcome: Outcome) -> None:
                if isinstance(outcome, Answer) and name in self.auditor.state.streams:
                    raise Broken(f"stream {name} was answered to be deleted, and is there")

            return requests.DeleteStream(name), gone
        known = self.auditor.state.streams.get(name)
        if self.random.random() < 0.5:
            return requests.GrowStream(name, 1 if known is None else known.partitions + 1), _nothing
        least = self.random.choice(("1", "2", None))
        return requests.ConfigureStream(name, {"min.insync.replicas": least}), _nothing

    def _place(self) -> tuple[Request, Callable[[Outcome], None]]:
        places = [place for place, _ in self.auditor.state.partitions]
        if not places:
            return self._plain()
        place = self.random.choice(places)
        nodes = self.random.sample(range(1, VOTERS + OTHERS + 1), 3)
        wishes: list[Request] = [
            requests.Reassign(place, tuple(nodes)),
            requests.CancelReassignment(place),
            requests.ElectLeader(place),
            requests.MoveLeader(place, nodes[0]),
        ]
        return self.random.choice(wishes), _nothing

    def _move(self) -> tuple[Request, Callable[[Outcome], None]]:
        moves = tuple(
            ReplicaMove(place, partition.target, partition.target[::-1], ())
            for place, partition in self.auditor.state.partitions
        )
        wishes: list[Request] = [
            requests.PlanMoves(),
            requests.BeginMoves(moves[:3], 2),
            requests.CancelMoves(moves[:3]),
            requests.RebalanceLeaders(3),
        ]
        return self.random.choice(wishes), _nothing

    def _plain(self) -> tuple[Request, Callable[[Outcome], None]]:
        draw = self.random.random()
        if draw < 0.3:
            return requests.AllocateProducerIds(), self._take_block
        if draw < 0.6:
            return self._await()
        self.names += 1
        group = f"g{self.names}"

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Answer):
                self.groups.add(group)
            elif not isinstance(outcome, NotController | OutcomeUnknown):
                raise Broken(f"the config of group {group} was refused: {outcome}")

        return requests.ConfigureGroup(group, {"a": "b"}), done

    def _take_block(self, outcome: Outcome) -> None:
        if isinstance(outcome, Answer) and isinstance(outcome.value, Block):
            if outcome.value.first in self.blocks:
                raise Broken(f"the ids from {outcome.value.first} on were handed out twice")
            self.blocks.add(outcome.value.first)

    def _await(self) -> tuple[Request, Callable[[Outcome], None]]:
        offset = self.auditor.end_offset

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Answer):
                self.done["awaited"] += 1
                self._all_have(offset)
            elif not isinstance(outcome, NotController | OutcomeUnknown | RequestTimedOut):
                raise Broken(f"waiting was refused: {outcome}")

        return requests.AwaitApplied(offset, 200), done

    def _all_have(self, offset: int) -> None:
        """Every node that is live, in the process that is registered, has applied so much."""
        for known in self.auditor.state.registrations:
            node = self.part(known.id)
            if known.fenced or node.controller is None or node.lifecycle.epoch != known.epoch:
                continue
            if node.controller.applied_offset < offset:
                raise Broken(f"node {known.id} is live and has not applied {offset}")

    # -- what goes wrong ----------------------------------------------------------------------------

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

    def _part(self) -> None:
        """Some hear nothing of others, or of anybody, for a while."""
        one = self.random.sample(range(1, VOTERS + OTHERS + 1), self.random.choice((1, 1, 2)))
        rest = [node_id for node_id in range(1, VOTERS + OTHERS + 1) if node_id not in one]
        ways = {(a, b) for a in one for b in rest}
        self.cut = self.random.choice((ways, {(b, a) for a, b in ways}, ways | {(b, a) for a, b in ways}))
        self.say(f"cut {sorted(self.cut)}")
        self.at(self.random.choice((30_000, 200_000, 700_000)), self._heal)

    def _heal(self) -> None:
        self.cut = set()

    def _resign(self) -> None:
        for node in self.leaders():
            if node.runner is not None:
                self.guarded(node, node.runner.resign)

    def _pause(self) -> None:
        self.done["paused"] += 1
        self.pause(self._any().node_id, self.random.choice((50, 300, 700)))

    def _flap(self) -> None:
        self.close(self._any().node_id)

    def _drain(self) -> None:
        node = self._any()
        if node.controller is not None:
            self.guarded(node, node.lifecycle.drain)

    def _became(self, node: ControlNode, phase: LifecyclePhase) -> None:
        self.say(f"{node.node_id} is {phase.name}")
        if phase is LifecyclePhase.DRAINED:
            self.done["drained"] += 1
            led = self.auditor.leads(node.node_id)
            if led:
                raise Broken(f"node {node.node_id} may stop, and leads {led}")
            life = node.life
            self.at(1, lambda: self.end(node, power=False) if node.life == life else None)

    def _report(self) -> None:
        """A follower that does not reach its leaders says so."""
        node = self._any()
        if node.controller is None or node.lifecycle.phase is not LifecyclePhase.LIVE:
            return
        reports = tuple(
            requests.Report(PartitionId(*place), partition.leader_epoch)
            for place, partition in node.controller.state.partitions.of_node(node.node_id)
            if partition.leader not in (None, node.node_id) and not self.reaches(node.node_id, partition.leader or 0)
        )
        if reports:
            asker, reporter = node.asker, InSyncMember(node.node_id, node.lifecycle.epoch)
            self.guarded(
                node,
                lambda: asker.ask(requests.ReportLeaders(reporter, reports), lambda _: None, within_ms=100),
            )

    # -- the end ------------------------------------------------------------------------------------

    def _mend(self) -> None:
        self.say("mended")
        self.troubled = False
        self.cut = set()
        self.slow_us = 1_000
        for node in self.parts():
            node.paused_until_us = 0
            node.disk.crash_at = node.disk.interfere = None
            if (node.runner is None or node.runner.error is not None) and node.process is not None:
                self.end(node, power=False)

    def _is_well(self) -> bool:
        return not self._ills()

    def _ills(self) -> list[str]:
        """What is not as it is to be while nothing goes wrong: every partition has a leader, and all know it."""
        ills = [
            f"node {node.node_id} is {node.lifecycle.phase.name if node.controller else 'down'}"
            for node in self.parts()
            if node.controller is None or node.lifecycle.phase is not LifecyclePhase.LIVE
        ]
        ills += [
            f"{place} has no leader: {partition}"
            for place, partition in self.auditor.state.partitions
            if partition.leader is None
        ]
        ends = {node.controller.applied_offset for node in self.parts() if node.controller is not None}
        return ills if len(ends) == 1 else [*ills, f"nodes have applied up to {sorted(ends)}"]

    def _all_is_kept(self) -> None:
        images = {node.view.image() for node in self.parts()}
        if len(images) != 1:
            raise Broken("nodes that have applied the same are not in the same state")
        state = self.parts()[0].view.state
        if not self.groups <= set(state.groups):
            raise Broken(f"{self.groups - set(state.groups)} were answered, and are gone")
        lost = self.auditor.created - set(state.streams) - self.auditor.deleting
        if lost:
            raise Broken(f"streams {lost} are gone, which nobody wanted deleted")


def _nothing(outcome: Answer | DuramenError) -> None:
    """Any answer will do."""
