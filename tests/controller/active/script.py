"""Transcripts: what happens to a cluster whose controller may fail over, as text that is compared with a file.

A line that begins with `> ` is done, and what follows up to the next one is what came of it, with the ms since then.
`python -m tests.controller.active.script` writes the files again.

    cluster 3 and 2           three voters found a cluster, and two more nodes follow its metadata
    wait 500                  so much time goes by
    until leader 1000         … until another node decides; `until proposed`, until something is, and not committed;
                              `until drained 3`
    create 4 s 3 of 3         node 4 is asked for a stream of three partitions with three replicas each
    report 2 s-0              2 cannot reach the leader of s-0
    await 4                   node 4 is asked to say when all live nodes have applied what is committed now
    kill 1 [for 500], power 1, stop 1, cut 1, heal, pause 1 for 500, drain 3
    quietly …                 the same, and nothing is told of it
    show

In place of a node `active` is the one that decides.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.controller.active.node import ControlNode
from tests.controller.active.world import ControlWorld
from tests.metadata.cluster.describing import event_text, partition_text

from duramen.base.errors import DuramenError
from duramen.broker.control.requests import AwaitApplied, CreateStream, Report, ReportLeaders, Request
from duramen.broker.control.responses import Answer, Outcome
from duramen.controller.membership.lifecycle import LifecyclePhase
from duramen.metadata.alter_partition import InSyncMember
from duramen.metadata.decisions import Definition
from duramen.metadata.events import Event, NodeRegistered
from duramen.metadata.partitions import PartitionId

TRANSCRIPTS = Path(__file__).parent / "transcripts"
ASK_MS = 2_000


class Script(ControlWorld):
    """A cluster that does what lines say; its nodes are started again only when a line says so."""

    def __init__(self) -> None:
        super().__init__(1)
        self._said: list[str] = []
        self._since_us = 0
        self._active_id = 0
        self.auditor.watch = self._tell_event

    def run(self, text: str) -> str:
        """The transcript with what its lines come to."""
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith("> "):
                lines.append(line)
                self._since_us = self.clock.now_us
                self._run(*line[2:].split())
                lines += [f"  {said}" for said in self._said]
                self._said.clear()
            elif not line.startswith("  "):
                lines.append(line)
        return "\n".join(lines) + "\n"

    def _run(self, name: str, *words: str) -> None:
        command: Callable[..., None] = getattr(self, f"_do_{name}")
        command(*words)

    # -- what may be done ---------------------------------------------------------------------------

    def _do_quietly(self, *words: str) -> None:
        self._run(*words)
        self._said.clear()

    def _do_cluster(self, voters: str, _: str, others: str) -> None:
        self.gather(int(voters), int(others))
        for node in self.parts():
            node.became = self._became
        self._do_wait("1000")

    def _do_wait(self, for_ms: str) -> None:
        self.go_on(int(for_ms))

    def _do_until(self, what: str, *words: str) -> None:
        before = self._active_id
        if what == "leader":
            self.go_on_until(lambda: self._active_id not in (before, 0), int(words[0]))
        elif what == "drained":
            self.go_on_until(lambda: self._node(words[0]).lifecycle.phase is LifecyclePhase.DRAINED, ASK_MS)
        else:
            self._go_on_until_proposed()

    def _go_on_until_proposed(self) -> None:
        runner = self._node("active").runner
        assert runner is not None
        end_offset = runner.machine.end.offset
        turns = 0
        while runner.machine.end.offset == end_offset:
            turns += 1
            assert turns < ASK_MS, "nothing was proposed"
            self.run_until(self.clock.now_us + 10)
        self._tell(f"proposed up to {runner.machine.end.offset}, committed up to {runner.machine.high_watermark}")

    def _do_create(self, node: str, name: str, partitions: str, _: str, factor: str) -> None:
        wish = Definition(name, int(partitions), {"min.insync.replicas": "2"})
        self._ask_for(node, CreateStream(wish, int(factor)))

    def _do_await(self, node: str) -> None:
        self._ask_for(node, AwaitApplied(self.auditor.end_offset, ASK_MS))

    def _do_report(self, node: str, where: str) -> None:
        name, _, number = where.rpartition("-")
        place = PartitionId(self.auditor.state.streams[name].id, int(number))
        partition = self.auditor.state.partitions.get(place)
        assert partition is not None
        reporter = InSyncMember(self._node(node).node_id, self._node(node).lifecycle.epoch)
        self._ask_for(node, ReportLeaders(reporter, (Report(place, partition.leader_epoch),)))

    def _ask_for(self, node: str, request: Request) -> None:
        asked = self._node(node)

        def done(outcome: Outcome) -> None:
            self._tell(f"node {asked.node_id} is answered: {_outcome_text(outcome)}")

        asked.asker.ask(request, done, within_ms=ASK_MS)

    def _do_kill(self, node: str, *words: str) -> None:
        self._down(self._node(node), words, power=False)

    def _do_power(self, node: str, *words: str) -> None:
        self._down(self._node(node), words, power=True)

    def _down(self, node: ControlNode, words: Sequence[str], *, power: bool) -> None:
        down_ms = int(words[1]) if words else 0
        node.end()
        if power:
            node.disk.crash(self.random)
        else:
            self.close(node.node_id)
        self._tell(f"node {node.node_id} is gone")
        if down_ms:
            self.at(1000 * down_ms, partial(self.start, node))

    def _do_stop(self, node: str) -> None:
        """It ends in order: another is to lead the quorum."""
        found = self._node(node)
        assert found.runner is not None
        found.runner.stop()
        self._down(found, (), power=False)

    def _do_cut(self, node: str) -> None:
        me = self._node(node).node_id
        self.cut = {pair for other in self.nodes for pair in ((me, other.node_id), (other.node_id, me))}

    def _do_heal(self) -> None:
        self.cut = set()

    def _do_pause(self, node: str, _: str, for_ms: str) -> None:
        self.pause(self._node(node).node_id, int(for_ms))

    def _do_drain(self, node: str) -> None:
        self._node(node).lifecycle.drain()

    def _do_show(self) -> None:
        state = self.auditor.state
        for node in state.registrations:
            how = "fenced" if node.fenced else "draining" if node.draining else "live"
            self._said.append(f"node {node.id} in epoch {node.epoch}, {how}")
        for place, partition in state.partitions:
            stream = state.stream_by_id(place.stream_id)
            assert stream is not None
            self._said.append(partition_text(f"{stream.name}-{place.partition}", partition))

    # -- what comes of it ---------------------------------------------------------------------------

    def _node(self, text: str) -> ControlNode:
        return self.part(self._active_id if text == "active" else int(text))

    def _see(self, node: ControlNode) -> None:
        known = len(self.actives)
        super()._see(node)
        if len(self.actives) > known:
            self._active_id = node.node_id
            self._tell(f"node {node.node_id} decides, in epoch {max(self.actives)} of the quorum")

    def _became(self, node: ControlNode, phase: LifecyclePhase) -> None:
        self._tell(f"node {node.node_id} is told: {phase.name.lower()}")

    def _tell_event(self, event: Event) -> None:
        if isinstance(event, NodeRegistered):
            self._tell(f"node {event.node_id} registered in epoch {event.epoch}, fenced")
        else:
            self._tell(event_text(event, self.auditor.state))

    def _tell(self, text: str) -> None:
        self._said.append(f"{(self.clock.now_us - self._since_us) // 1000:>4} {text}")


def _outcome_text(outcome: Outcome) -> str:
    if isinstance(outcome, DuramenError):
        return f"{outcome.id}: {outcome}"
    assert isinstance(outcome, Answer)
    return f"{type(outcome.value).__name__.lower()}, at offset {outcome.end_offset}"


def main() -> None:
    """Write all transcripts again."""
    for path in sorted(TRANSCRIPTS.glob("*.txt")):
        path.write_text(Script().run(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
