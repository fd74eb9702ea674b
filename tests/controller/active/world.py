"""Five nodes or more on simulated disks: a quorum of some, the controller on it, and what all of them ask for."""

from collections.abc import Callable
from functools import partial
from typing import cast

from tests.controller.active.auditor import Auditor
from tests.controller.active.node import WIRES, ControlNode
from tests.controller.quorum.node import Node
from tests.controller.quorum.world import World, voter_of
from tests.raft.witness import Broken

from duramen.base.ports import Buffer
from duramen.broker.control.requests import AlterPartitions, Beat, Request
from duramen.broker.control.responses import Answer, Outcome
from duramen.controller.membership.lifecycle import LifecyclePhase
from duramen.controller.quorum.entries import events_of
from duramen.controller.quorum.snapshot_chunks import Wire
from duramen.metadata.alter_partition import InSyncMember, InSyncProposal
from duramen.raft.voters import Voters

LEAD_MS = 30  # between two looks of a leader at its followers


class ControlWorld(World):
    """Nodes whose followers are in sync as soon as they can be."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace)
        self.auditor = Auditor()
        self.actives: dict[int, tuple[int, int, int]] = {}  # by epoch: node, its life, and when, in wall ms
        self.absent: set[tuple[int, int]] = set()  # by epoch and node: not connected when it began
        self.signs: dict[tuple[int, int], list[tuple[int, bool]]] = {}  # by epoch and node: when, and whether of life
        self._seen = 0

    def gather(self, voters: int, others: int = 0) -> None:
        """So many voters found a cluster, and others follow its metadata without a vote."""
        for node_id in range(1, voters + others + 1):
            self.nodes.append(self.node(node_id))
        founders = Voters(map(voter_of, self.nodes[:voters]))
        for node in self.nodes[:voters]:
            node.plan = node.plan._replace(founders=founders)
        for node in self.nodes:
            self.start(node)
            self.at(1_000 * LEAD_MS, partial(self._lead, node.node_id))

    def _make(self, node_id: int, seed: str) -> Node:
        node = ControlNode(node_id, seed, self.clock, self.witness)
        node.call_on, node.committed_some, node.connects = self._call, self._audit, self._connect
        return node

    def part(self, node_id: int) -> ControlNode:
        """The node."""
        return cast("ControlNode", self.nodes[node_id - 1])

    @property
    def active(self) -> ControlNode | None:
        """The node that decides now; the newest, where an older one does not know yet."""
        known = [(node.controller.active_epoch or 0, node.node_id) for node in self.parts() if node.controller]
        epoch, node_id = max(known, default=(0, 0))
        return self.part(node_id) if epoch else None

    def parts(self) -> list[ControlNode]:
        return [cast("ControlNode", node) for node in self.nodes]

    def go_on(self, for_ms: int) -> None:
        """Let so much time go by."""
        self.run_until(self.clock.now_us + 1000 * for_ms)

    def go_on_until(self, is_so: Callable[[], object], within_ms: int) -> None:
        """Let time go by until something is so. Raises AssertionError where it is not in that time."""
        until_us = self.clock.now_us + 1000 * within_ms
        while not is_so():
            assert self.clock.now_us < until_us, f"it was not so within {within_ms} ms"
            self.run_until(self.clock.now_us + 1000)

    # -- what is seen -------------------------------------------------------------------------------

    def _turn(self, node: Node) -> None:
        super()._turn(node)
        self._see(cast("ControlNode", node))

    def _see(self, node: ControlNode) -> None:
        epoch = None if node.controller is None else node.controller.active_epoch
        if epoch is None:
            return
        known = self.actives.get(epoch)
        if known is None:
            self.say(f"{node.node_id} is the active controller in epoch {epoch}")
            self.actives[epoch] = (node.node_id, node.life, self.clock.wall_ms())
            assert node.controller is not None
            for node_id in node.controller.closed_to:
                self._sign(epoch, node_id, alive=False)
            for node_id in node.controller.absent:
                self.absent.add((epoch, node_id))
        elif known[:2] != (node.node_id, node.life):
            raise Broken(f"in epoch {epoch} both {known} and {(node.node_id, node.life)} are active")

    def _audit(self) -> None:
        committed = self.witness.committed
        while self._seen < len(committed):
            self._seen += 1
            batch = committed[self._seen - 1].batch
            if batch.epoch not in self.actives and any(events_of(batch)):
                raise Broken(f"what is at {batch.first} was decided in epoch {batch.epoch}, in which nobody is active")
            self.auditor.take(batch)
        for epoch, at_ms, node_id in self.auditor.fenced:
            self._judge_fenced(epoch, at_ms, node_id)
        self.auditor.fenced.clear()

    def _judge_fenced(self, epoch: int, at_ms: int, node_id: int) -> None:
        """A node that was fenced for its silence was silent for as long as it may be."""
        timeout_ms, grace_ms, absent_ms = self.part(node_id).sessions
        until_ms = self.actives[epoch][2] + (absent_ms if (epoch, node_id) in self.absent else timeout_ms)
        for sign_ms, alive in self.signs.get((epoch, node_id), []):
            if sign_ms < at_ms:
                until_ms = sign_ms + timeout_ms if alive else min(until_ms, sign_ms + grace_ms)
        if until_ms > at_ms:
            raise Broken(f"node {node_id} is fenced in epoch {epoch}, {until_ms - at_ms} ms too soon")

    def _sign(self, epoch: int, node_id: int, *, alive: bool) -> None:
        self.signs.setdefault((epoch, node_id), []).append((self.clock.wall_ms(), alive))

    # -- network ------------------------------------------------------------------------------------

    def _due_us(self, node: Node) -> int | None:
        """The time of its next turn; that of a paused node is after its pause."""
        at_us, until_us = super()._due_us(node), cast("ControlNode", node).paused_until_us
        return until_us if at_us is not None and max(at_us, self.clock.now_us) < until_us else at_us

    def _deliver(self, sender: int, to: int, message: Wire) -> None:
        if not self._later(to, partial(self._deliver, sender, to, message)):
            super()._deliver(sender, to, message)

    def _later(self, to: int, act: Callable[[], None]) -> bool:
        """What comes to a node that is paused lies there; it is read after whatever is overdue."""
        if to > len(self.nodes):
            return False
        left_us = self.part(to).paused_until_us - self.clock.now_us
        if left_us > 0:
            self.at(left_us + 1_000, act)
        return left_us > 0

    def _late_us(self) -> int | None:
        """How long a message takes; None: for ever."""
        if self.troubled and self.random.random() < self.lossy:
            return None
        return 50 + self.random.randrange(self.slow_us)

    def _call(self, node: ControlNode, to: int, body: bytes, done: Callable[[Buffer | None], None]) -> None:
        life = node.life

        def back(answer: bytes) -> None:
            late_us = self._late_us()
            if late_us is not None:
                self.at(late_us, partial(returned, answer))

        def returned(answer: bytes) -> None:
            gone = node.life != life or (to, node.node_id) in self.cut
            if not gone and not self._later(node.node_id, partial(returned, answer)):
                self.guarded(node, lambda: done(answer))

        def arrive() -> None:
            if self._later(to, arrive):
                return
            other = self.part(to)
            if other.controller is not None and (node.node_id, to) not in self.cut:
                self._note_beat(other, WIRES.table.decode_request(body).request)
                self.guarded(other, lambda: other.caller.server.serve(body, back))

        late_us = self._late_us()
        if late_us is not None and to <= len(self.nodes):
            self.at(late_us, arrive)

    def _note_beat(self, node: ControlNode, request: Request) -> None:
        if isinstance(request, Beat) and node.controller is not None and node.controller.active_epoch is not None:
            known = node.controller.state.registrations.get(request.beat.node_id)
            if known is not None and known.epoch == request.beat.epoch:
                self._sign(node.controller.active_epoch, request.beat.node_id, alive=True)

    def close(self, node_id: int) -> None:
        """All connections to a node are closed, and both sides hear of it."""
        for other in self.parts():
            if other.node_id == node_id:
                continue
            for here, there in ((other, node_id), (self.part(node_id), other.node_id)):
                self.at(100, partial(self._closed, here, there))

    def _closed(self, node: ControlNode, other_id: int) -> None:
        controller = node.controller
        if controller is None or node.paused_until_us > self.clock.now_us:
            return
        if controller.active_epoch is not None:
            self._sign(controller.active_epoch, other_id, alive=False)
        self.guarded(node, lambda: controller.closed(other_id))
        if node.controller is controller and self.part(other_id).process is not None:
            controller.opened(other_id)

    # -- nodes --------------------------------------------------------------------------------------

    def _connect(self, node: ControlNode) -> None:
        """A node whose controller begins has connections to those that run."""
        for other in self.parts():
            if other is not node and other.process is not None and node.controller is not None:
                node.controller.opened(other.node_id)

    def start(self, node: Node) -> None:
        super().start(node)
        for other in self.parts():
            if other.controller is not None and node.process is not None:
                other.controller.opened(node.node_id)

    def end(self, node: Node, *, power: bool) -> None:
        super().end(node, power=power)
        cast("ControlNode", node).paused_until_us = 0
        if not power:
            self.close(node.node_id)

    def pause(self, node_id: int, for_ms: int) -> None:
        """A node's process does nothing for so long."""
        self.part(node_id).paused_until_us = self.clock.now_us + 1000 * for_ms

    def reaches(self, node_id: int, other_id: int) -> bool:
        """Whether a node gets answers from another one."""
        other = self.part(other_id)
        way = {(node_id, other_id), (other_id, node_id)}
        return other.process is not None and other.paused_until_us <= self.clock.now_us and not way & self.cut

    def _lead(self, node_id: int) -> None:
        """A leader looks who follows it: who is reached is in sync, and who is not is so no more."""
        self.at(1_000 * LEAD_MS, partial(self._lead, node_id))
        node = self.part(node_id)
        if node.controller is None or node.paused_until_us > self.clock.now_us:
            return
        if node.lifecycle.phase in (LifecyclePhase.LIVE, LifecyclePhase.DRAINING):
            proposals = self._proposals(node)
            if proposals:
                asker = node.asker
                self.guarded(
                    node, lambda: asker.ask(AlterPartitions(tuple(proposals)), lambda _: None, within_ms=LEAD_MS)
                )

    def _proposals(self, node: ControlNode) -> list[InSyncProposal]:
        assert node.controller is not None
        state, found = node.controller.state, []
        nodes = state.registrations
        for place, partition in state.partitions.of_node(node.node_id):
            if partition.leader != node.node_id:
                continue
            reached = [
                member
                for member in partition.replicas
                if member == node.node_id
                or (member in nodes.live and member not in nodes.draining and self.reaches(node.node_id, member))
            ]
            if set(reached) != set(partition.isr):
                members = [InSyncMember(one.id, one.epoch) for one in nodes if one.id in reached]
                (leader,) = (member for member in members if member.node_id == node.node_id)
                found.append(
                    InSyncProposal(place, leader, partition.leader_epoch, partition.partition_epoch, tuple(members))
                )
        return found

    def ask(self, node_id: int, request: Request, within_ms: int = 1_000) -> list[Outcome]:
        """Ask a node; the list has what is answered once it is."""
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            if outcomes:
                raise Broken(f"{request} was answered twice: {outcomes[0]} and {outcome}")
            if isinstance(outcome, Answer) and outcome.end_offset > self.auditor.end_offset:
                raise Broken(f"{request} was answered before {outcome.end_offset} was committed")
            outcomes.append(outcome)

        self.part(node_id).asker.ask(request, done, within_ms=within_ms)
        return outcomes
