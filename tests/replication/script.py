"""Transcripts: what is done to a partition, and what its replicas do, as text that is compared with a file.

A line that begins with `> ` is done, and what follows up to the next one is what came of it.
`python -m tests.replication.script` writes the files again.

    nodes 1 2 3 [observers 4] [chain] [least 2] [synced 2] [lag 1000] [eject 200]
                              nodes that start with empty disks; the first leads
    produce 1 [3]             a batch of one record, or of three, whose producer waits for all replicas
    write 1 [3]               the same, and nobody waits
    deliver [1->2 [1]]        messages arrive, and what they bring about, until there are none; or only those of a way,
                              or the first of them
    lose [1->2]               messages are lost; the controller is node 0
    keep 1->0, late           messages are late: they arrive with `late`
    hold 1, release 1         nothing gets to the disk of node 1; everything does
    fit 1 1                   an answer of node 1 has room for one batch
    cut 1, heal               nothing gets to node 1 or from it, but for the controller; everything does
    deaf 1, hears 1           node 1 hears nothing of what the controller says; it hears all
    tick 600                  600 ms go by everywhere
    pass 600                  the same, and messages arrive
    fence 1, unfence 1, lead 1   the controller fences, lets in again, makes a leader
    lose-power 1, kill 1, start 1, trim 1 5
    has 2 1 0 1000            somebody waits 1000 ms until node 2 has the record of epoch 1 at offset 0
    slowly 3 400 5            five times a record is produced, and the disk of node 3 takes 400 ms for it
    quietly …                 the same, and nothing is told of it
    show                      the logs: where they begin, epochs with their first offsets, end, synced, high watermark
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.replication.controller import Controller, Heartbeat, PartitionUpdate, Register
from tests.replication.describing import effect_text, end_text, message_text, state_text
from tests.replication.disk import Content
from tests.replication.site import CONTROLLER, Sent, Site
from tests.replication.witness import Witness

from duramen.base.ids import Position
from duramen.replication.messages import AlterPartition, AlterPartitionAnswer, ReplicaFetch, ReplicaFetchAnswer
from duramen.replication.partition import PartitionConfig, ReplicatedPartition, Topology
from duramen.replication.timeouts import ReplicaTimeouts

TRANSCRIPTS = Path(__file__).parent / "transcripts"
MOST_MESSAGES = 300
STEP_MS = 100


Result = TypeVar("Result")


class Script:
    """A partition that does what lines say."""

    def __init__(self) -> None:
        self._sites: dict[int, Site] = {}
        self._starts: dict[int, int] = {}
        self._now_ms = 0
        self._held: set[int] = set()
        self._cut: set[int] = set()
        self._deaf: set[int] = set()
        self._flying: list[Sent] = []
        self._kept: list[Sent] = []
        self._said: list[str] = []
        self._witness = Witness(self._holders)

    def run(self, text: str) -> str:
        """The transcript with what its lines come to."""
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith("> "):
                lines.append(line)
                name, *words = line[2:].split()
                command: Callable[..., None] = getattr(self, f"_do_{name.replace('-', '_')}")
                command(*words)
                lines += [f"  {said}" for said in self._said]
                self._said.clear()
            elif not line.startswith("  "):
                lines.append(line)
        return "\n".join(lines) + "\n"

    def _holders(self) -> list[tuple[int, Content]]:
        return [(node_id, self._sites[node_id].disk.synced) for node_id in sorted(self._controller.may_lead)]

    # -- what may be done ---------------------------------------------------------------------------

    def _do_nodes(self, *words: str) -> None:
        found: dict[str, list[str]] = {"nodes": []}
        name = "nodes"
        for word in words:
            if word.isalpha():
                name = word
                found[name] = []
            else:
                found[name].append(word)
        replicas = tuple(map(int, found["nodes"]))
        observers = tuple(map(int, found.get("observers", ())))
        topologies = [topology for topology in Topology if topology.value in found]
        config = PartitionConfig(
            int(found.get("least", ["1"])[0]),
            int(found.get("synced", ["1"])[0]),
            topologies[0] if topologies else Topology.FANOUT,
            int(found.get("lag", ["30000"])[0]),
            int(found["eject"][0]) if "eject" in found else None,
        )
        state = ReplicatedPartition(None, 0, 0, replicas, frozenset(replicas), observers)
        self._controller = Controller(state, config, lambda _: 0)
        for node_id in state.nodes:
            site = Site(node_id, config, ReplicaTimeouts(idle_wait_ms=500, silence_ms=300), self._witness)
            self._sites[node_id] = site
            self._starts[node_id] = 0
            self._do_start(str(node_id))

    def _do_start(self, node: str) -> None:
        node_id = int(node)
        self._starts[node_id] += 1
        told = self._change(
            lambda: self._controller.register(Register(node_id, self._starts[node_id], 0), self._now_ms)
        )
        self._sites[node_id].registered(told, self._now_ms)
        self._do_unfence(node)

    def _do_kill(self, node: str) -> None:
        self._sites[int(node)].crash()

    def _do_lose_power(self, node: str) -> None:
        self._sites[int(node)].disk.lose_power(0)
        self._do_kill(node)

    def _do_quietly(self, name: str, *words: str) -> None:
        getattr(self, f"_do_{name.replace('-', '_')}")(*words)
        self._said.clear()

    def _do_write(self, node: str, records: str = "1") -> None:
        self._do_produce(node, records, acknowledged=False)

    def _do_produce(self, node: str, records: str = "1", *, acknowledged: bool = True) -> None:
        refusal = self._sites[int(node)].produce(f"{self._now_ms}", int(records), acknowledged=acknowledged)
        if refusal is not None:
            self._said.append(f"{node} refuses: {refusal.name}")
        self._go_on(int(node))

    def _do_trim(self, node: str, offset: str) -> None:
        self._sites[int(node)].trim(int(offset))
        self._go_on(int(node))

    def _do_fit(self, node: str, batches: str) -> None:
        self._sites[int(node)].most_batches = int(batches)

    def _do_tick(self, for_ms: str) -> None:
        self._now_ms += int(for_ms)
        for node_id, site in self._sites.items():
            if site.machine is not None:
                site.machine.tick(self._now_ms)
                self._go_on(node_id)

    def _do_pass(self, for_ms: str) -> None:
        for _ in range(int(for_ms) // STEP_MS):
            self._do_tick(str(STEP_MS))
            self._do_deliver()

    def _do_deliver(self, way: str = "", most: str = "") -> None:
        for _ in range(int(most or MOST_MESSAGES)):
            at = next((at for at, sent in enumerate(self._flying) if self._is_on(sent, way)), None)
            if at is None:
                return
            self._hand(self._flying.pop(at))
        if not most:
            raise AssertionError("it goes on for ever")

    def _do_lose(self, way: str = "") -> None:
        self._flying = [sent for sent in self._flying if not self._is_on(sent, way)]

    def _do_keep(self, way: str) -> None:
        self._kept += [sent for sent in self._flying if self._is_on(sent, way)]
        self._do_lose(way)

    def _do_late(self) -> None:
        kept, self._kept = self._kept, []
        for sent in kept:
            self._hand(sent)

    def _do_hold(self, node: str) -> None:
        self._held.add(int(node))

    def _do_release(self, node: str) -> None:
        self._held.discard(int(node))
        self._go_on(int(node))

    def _do_cut(self, node: str) -> None:
        self._cut.add(int(node))

    def _do_heal(self) -> None:
        self._cut.clear()

    def _do_deaf(self, node: str) -> None:
        self._deaf.add(int(node))

    def _do_hears(self, node: str) -> None:
        self._deaf.discard(int(node))
        self._tell()

    def _do_fence(self, node: str) -> None:
        self._change(lambda: self._controller.fence(int(node)))

    def _do_unfence(self, node: str) -> None:
        beat = Heartbeat(int(node), self._sites[int(node)].broker_epoch)
        self._change(lambda: self._controller.heartbeat(beat, self._now_ms))

    def _do_lead(self, node: str) -> None:
        self._change(lambda: self._controller.lead(int(node)))

    def _do_has(self, node: str, epoch: str, offset: str, for_ms: str) -> None:
        machine = self._sites[int(node)].machine
        assert machine is not None
        record = Position(int(epoch), int(offset))
        machine.wait_replicated(record, f"who waits for {epoch}:{offset}", self._now_ms + int(for_ms))
        self._go_on(int(node))

    def _do_slowly(self, node: str, disk_ms: str, times: str) -> None:
        leader = str(self._controller.state.leader_id)
        for _ in range(int(times)):
            self._do_hold(node)
            self._do_produce(leader)
            self._do_deliver()
            self._do_pass(disk_ms)
            self._do_release(node)
            self._do_deliver()

    def _do_show(self) -> None:
        for node_id, site in self._sites.items():
            log, machine = site.disk.written, site.machine
            firsts = " ".join(f"{epoch}:{first}" for epoch, _, first in log.takeovers)
            begins = f" from {log.start}" if log.start else ""
            state = "is down" if machine is None else f"high watermark {machine.high_watermark}"
            if machine is not None and machine.leads:
                latest = machine.latest_offset
                state += f", tells clients {'that it does not know the end' if latest is None else f'the end {latest}'}"
            synced = f"synced {end_text(site.disk.synced.end)}"
            self._said.append(
                f"{node_id} log{begins}, epochs {firsts or 'none'}, ends {end_text(log.end)}, {synced}, {state}"
            )

    # -- what comes of it ---------------------------------------------------------------------------

    def _change(self, act: Callable[[], Result]) -> Result:
        """The controller does something: that is said, and all that hear it hear it at once."""
        before = self._controller.state, self._controller.live
        result = act()
        if self._controller.state != before[0]:
            self._said.append(f"controller: {state_text(self._controller.state)}")
        if (self._controller.state, self._controller.live) != before:
            self._tell()
        return result

    def _tell(self) -> None:
        for node_id, site in self._sites.items():
            if site.machine is not None and node_id not in self._deaf:
                site.told(PartitionUpdate(site.broker_epoch, 0, self._controller.state, self._controller.live))
                self._go_on(node_id)

    def _hand(self, sent: Sent) -> None:
        if sent.to == CONTROLLER:
            assert isinstance(sent.message, AlterPartition)
            asked = sent.message
            answer = self._change(lambda: self._controller.alter(asked))
            self._said.append(f"controller -> {sent.sender} {message_text(answer)}")
            self._flying.append(Sent(CONTROLLER, sent.sender, answer))
            return
        machine = self._sites[sent.to].machine
        if machine is not None and isinstance(sent.message, ReplicaFetch | ReplicaFetchAnswer | AlterPartitionAnswer):
            machine.tick(self._now_ms)
            machine.receive(sent.message)
            self._go_on(sent.to)

    def _is_on(self, sent: Sent, way: str) -> bool:
        return way in ("", f"{sent.sender}->{sent.to}")

    def _go_on(self, node_id: int) -> None:
        site = self._sites[node_id]
        site.say = lambda effect: self._said.append(f"{node_id} {effect_text(effect)}")
        while True:
            self._flying += [sent for sent in site.run() if not {sent.sender, sent.to} & self._cut]
            if node_id in self._held or site.machine is None or site.disk.written is site.disk.synced:
                return
            site.end_sync(site.begin_sync())


def main() -> None:
    """Write all transcripts again."""
    for path in sorted(TRANSCRIPTS.glob("*.txt")):
        path.write_text(Script().run(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
