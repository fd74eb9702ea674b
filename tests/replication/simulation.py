"""A partition under one seed: nodes crash, lose power, disks and each other; then all is mended and has to go on."""

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.replication.broken import Broken, Stuck
from tests.replication.world import TROUBLE_MS, Node, Totals, World

from duramen.base.errors import LogDamaged

MENDED_MS: Final = 1_500

__all__ = ["Simulation"]


class Simulation(World):
    """What goes wrong, how often, is drawn by the seed; `run` lets it."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace)
        self._down: Node | None = None
        self._again(self.random.choice((4, 15, 40)), self._produce)
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
        sites = [node.site for node in self._nodes.values()]
        self._counts["epochs"] = len(self.witness.leaders)
        self._counts["committed"] = len(self.witness.committed)
        self._counts["asked"] = self.witness.asked
        self._counts["acknowledged"] = self.witness.acknowledged
        self._counts["refused"] = sum(sum(site.refused.values()) for site in sites)
        self._counts["cuts"] = sum(site.cuts for site in sites)
        self._counts["restarts"] = sum(site.restarts for site in sites)
        self._counts["alterations"] = self._controller.alterations
        return Totals(**self._counts)

    # -- what happens to it -------------------------------------------------------------------------

    def _acts(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            (300, partial(self._crash_one, power=True)),
            (300, partial(self._crash_one, power=False)),
            (250, self._crash_leader),
            (800, self._crash_all),
            (300, self._desert),
            (500, self._partition),
            (700, self._wipe),
            (250, self._trim),
            (300, self._move),
            (300, self._pause),
            (150, self._resume),
            (20, self._ask),
        ]

    def _produce(self) -> None:
        for node in self._leaders():
            if not node.paused:
                records = self.random.choice((1, 1, 3))
                node.site.produce(next(self._numbers), records, acknowledged=self.random.random() < 0.8)
                self._go_on(node)

    def _crash_one(self, *, power: bool) -> None:
        self._crash_and_start(self._any(), power=power)

    def _crash_leader(self) -> None:
        for node in self._leaders():
            self._crash_and_start(node, power=True)

    def _crash_and_start(self, node: Node, *, power: bool) -> None:
        if node.is_up:
            self._crash(node, power=power)
            self._start_later(node)

    def _start_later(self, node: Node) -> None:
        def start() -> None:
            if not node.is_up and node is not self._down:
                self._start(node)

        self._at(self.random.choice((1, 30, 250)), start)

    def _crash_all(self) -> None:
        for node in self._nodes.values():
            self._crash_and_start(node, power=True)

    def _desert(self) -> None:
        """A leader is alone, or only the controller hears nothing of it, and it goes on as one for a while."""
        for node in self._leaders():
            me = node.site.node_id
            others = [0] if self.random.random() < 0.5 else [0, *self._nodes]
            self._cut = {pair for other in others for pair in ((me, other), (other, me)) if other != me}
            self._say(f"cut {me} off from {others}")
            self._heal_later()

    def _partition(self) -> None:
        """Halves, or one way only; the controller is somewhere."""
        ids = [0, *self._nodes]
        self.random.shuffle(ids)
        half = set(ids[: self.random.randrange(1, len(ids))])
        both = self.random.random() < 0.5
        self._cut = {(a, b) for a in ids for b in ids if (a in half and b not in half) or (both and b in half)}
        self._cut -= {(a, b) for a, b in self._cut if (a in half) == (b in half)}
        self._say(f"cut {sorted(self._cut)}")
        self._heal_later()

    def _heal_later(self) -> None:
        cut = self._cut

        def heal() -> None:
            if self._cut is cut:
                self._cut = set()

        self._at(self.random.choice((40, 150, 400)), heal)

    def _pause(self) -> None:
        self._any().paused = True

    def _resume(self) -> None:
        for node in self._nodes.values():
            if node.paused:
                node.paused = False
                held, node.held = node.held, []
                for sent in held:
                    self._at(0, partial(self._deliver, sent))
                self._go_on(node)

    def _move(self) -> None:
        before = self._controller.state
        self._controller.move()
        self._say_state(before)

    def _ask(self) -> None:
        """Somebody asks a node for a record, whoever ordered it and whatever became of it."""
        node = self._any()
        machine = node.site.machine
        if machine is not None and self.witness.ordered:
            record = self.random.choice(list(self.witness.ordered))
            deadline_ms = node.local_ms(self._now_ms) + self.random.choice((1, 100, 500))
            machine.wait_replicated(record, self.witness.ordered[record], deadline_ms)
            self._go_on(node)

    def _trim(self) -> None:
        """Retention on a leader."""
        for node in self._leaders():
            machine = node.site.machine
            assert machine is not None
            ends = [batch.first_offset + batch.records for batch in node.site.disk.written.batches]
            ends = [end for end in ends if end <= machine.high_watermark]
            if ends:
                node.site.trim(self.random.choice(ends))
                self._go_on(node)

    def _wipe(self) -> None:
        """A disk is lost, unless it is the last of those that may lead."""
        node = self._any()
        if self._controller.may_lead - {node.site.node_id} and not self._is_blank_among_holders(node):
            if node.is_up:
                self._crash(node, power=True)
            self._controller.lost(node.site.node_id)
            self._wipe_disk(node)
            self._start_later(node)

    def _is_blank_among_holders(self, node: Node) -> bool:
        """Whether the controller still counts on another disk that is lost."""
        others = self._controller.may_lead - {node.site.node_id}
        return {node_id for node_id, _ in self._holders()} & others != others

    # -- the end ------------------------------------------------------------------------------------

    def _mend(self) -> None:
        """All is well from here on, but for a node that stays down where the others can do without it."""
        self._cut = set()
        node = self._any()
        if self.random.random() < 0.5 and self._is_dispensable(node):
            if node.is_up:
                self._crash(node, power=True)
            self._down = node
        self._slow_ms = 2
        self._resume()
        for node in self._nodes.values():
            node.disk_ms = 3
            if not node.is_up and node is not self._down:
                self._start(node)
        self._at(MENDED_MS * 2 // 3, self._produce)

    def _is_dispensable(self, node: Node) -> bool:
        state, node_id = self._controller.state, node.site.node_id
        if self._is_blank_among_holders(node) or not self._controller.may_lead - {node_id}:
            return False
        return len(set(state.replicas) - {node_id}) >= state.needed(self._config)

    def _all_is_well(self) -> None:
        state = self._controller.state
        if self._down is not None and self._controller.may_lead == {self._down.site.node_id}:
            # It was the only one in sync when it went down: the partition waits for it.
            return
        if state.leader_id is None:
            raise Stuck("nobody leads after all was mended")
        leader = self._nodes[state.leader_id].site.machine
        if leader is None or leader.latest_offset != leader.history.end_offset:
            raise Stuck(f"{state.leader_id} has not committed all, long after all was mended")
        up = [node for node in self._nodes.values() if node is not self._down]
        if state.in_sync != {node.site.node_id for node in up} & {*state.replicas}:
            raise Stuck(f"only {sorted(state.in_sync)} are in sync, long after all was mended")
        for node in up:
            for epoch, leader_id, _ in node.site.disk.written.takeovers:
                if self.witness.leaders[epoch][0] != leader_id:
                    raise Broken(f"{node.site.node_id} says that {leader_id} led epoch {epoch}")
            machine = node.site.machine
            if machine is None or machine.high_watermark != leader.history.end_offset:
                raise Stuck(f"{node.site.node_id} has not all that {state.leader_id} has, long after all was mended")
