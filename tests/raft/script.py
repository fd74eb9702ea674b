"""Transcripts: what is done to a quorum, and what it does, as text that is compared with a file.

A line that begins with `> ` is done, and what follows up to the next one is what came of it. Each node has a clock of
its own, which only `wait` moves. `python -m tests.raft.script` writes the files again.

    nodes 1 2 3 [seeds 1 2]   nodes with empty disks, which are the voters; with `seeds` nodes that know only those
    elect 1 by 2              1 and 2 hear nobody until 1 leads with the vote of 2, of which nobody hears yet
    wait 1 2000               2000 ms go by on node 1
    pass 600                  600 ms go by everywhere, and messages arrive
    deliver [1->2]            messages arrive, and what they bring about, until there are none; or only those of a way
    lose [1->2]               messages are lost
    hold 1, release 1         the disk of node 1 is slow; what waits for it is done
    fit 1 1                   an answer of node 1 has room for one batch
    cut 1, heal               nothing gets to node 1 or from it; everything does
    propose 1 x, change 1 add 4/a, change 1 remove 3/a, compact 1 5, resign 1
    unplug 1 2, plug 1 2      node 1 notices that its connections to node 2 closed; that there is one again
    crash 1, start 1 [joins], blank 1
    quietly …                 the same, and nothing is told of it
    show                      the logs: where they begin, epochs with their first offsets, end, synced, committed
"""

from collections.abc import Callable
from pathlib import Path

from tests.raft.describing import effect_text
from tests.raft.disk import Disk
from tests.raft.site import Sent, Site
from tests.raft.witness import Witness

from duramen.raft.machine import RaftMachine
from duramen.raft.roles import RaftRole
from duramen.raft.timeouts import RaftTimeouts
from duramen.raft.voter_changes import VoterAddition, VoterChangeRefusal, VoterRemoval
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voter, Voters

TIMEOUTS = RaftTimeouts(election_ms=1000, fetch_ms=2000, retry_ms=300, wait_ms=500, desertion_ms=3000, soon_ms=20)
TRANSCRIPTS = Path(__file__).parent / "transcripts"
MOST_MESSAGES = 300
MOST_ROUNDS = 3


def _replica(text: str) -> ReplicaId:
    node_id, directory_id = text.split("/")
    return ReplicaId(int(node_id), directory_id)


class Script:
    """A quorum that does what lines say."""

    def __init__(self) -> None:
        self._sites: dict[int, Site] = {}
        self._clocks: dict[int, int] = {}
        self._held: set[int] = set()
        self._cut: set[int] = set()
        self._flying: list[Sent] = []
        self._said: list[str] = []
        self._witness = Witness()

    def run(self, text: str) -> str:
        """The transcript with what its lines come to."""
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith("> "):
                lines.append(line)
                name, *words = line[2:].split()
                command: Callable[..., None] = getattr(self, f"_do_{name}")
                command(*words)
                lines += [f"  {said}" for said in self._said]
                self._said.clear()
            elif not line.startswith("  "):
                lines.append(line)
        return "\n".join(lines) + "\n"

    # -- what may be done ---------------------------------------------------------------------------

    def _do_nodes(self, *words: str) -> None:
        nodes, _, seeds = " ".join(words).partition(" seeds ")
        ids = [int(word) for word in nodes.split()]
        voters = NO_VOTERS if seeds else Voters(Voter(ReplicaId(node_id, "a")) for node_id in ids)
        known = tuple(int(word) for word in seeds.split())
        for node_id in ids:
            site = Site(ReplicaId(node_id, "a"), Disk(voters), self._witness, lambda _: 0, known)
            site.timeouts = TIMEOUTS
            self._sites[node_id] = site
            self._clocks[node_id] = 0
            self._do_start(str(node_id))

    def _do_start(self, node: str, joins: str = "") -> None:
        site = self._sites[int(node)]
        site.joins = bool(joins)
        site.start(self._clocks[int(node)])
        self._go_on(int(node))

    def _do_quietly(self, name: str, *words: str) -> None:
        getattr(self, f"_do_{name}")(*words)
        self._said.clear()

    def _do_elect(self, node: str, by: str, voter: str) -> None:
        assert by == "by"
        for _ in range(MOST_ROUNDS):
            for one, role in ((voter, RaftRole.UNATTACHED), (node, RaftRole.PROSPECTIVE)):
                while self._machine(one).role is not role:
                    self._do_lose()
                    self._do_wait(one, "1000")
            for way in (f"{node}->{voter}", f"{voter}->{node}") * 2:
                self._do_deliver(way)
            self._do_lose()
            if self._machine(node).role is RaftRole.LEADER:
                break
        place = self._said.index(f"{node} is leader in epoch {self._machine(node).epoch}")
        self._said = [said for said in self._said[place:] if "->" not in said]

    def _do_pass(self, for_ms: str) -> None:
        for _ in range(int(for_ms) // 100):
            for node_id, site in self._sites.items():
                if site.machine is not None:
                    self._do_wait(str(node_id), "100")
            self._do_deliver()

    def _do_fit(self, node: str, batches: str) -> None:
        self._sites[int(node)].most_batches = int(batches)

    def _do_unplug(self, node: str, other: str) -> None:
        self._machine(node).disconnected(int(other))
        self._go_on(int(node))

    def _do_plug(self, node: str, other: str) -> None:
        self._machine(node).connected(int(other))
        self._go_on(int(node))

    def _do_crash(self, node: str) -> None:
        self._sites[int(node)].crash()

    def _do_blank(self, node: str) -> None:
        """The disk is lost; another one is put in."""
        old = self._sites[int(node)]
        old.crash()
        me = ReplicaId(old.me.node_id, chr(ord(old.me.directory_id) + 1))
        seeds = tuple(node_id for node_id in self._sites if node_id != me.node_id)
        site = Site(me, Disk(), self._witness, lambda _: 0, seeds)
        site.timeouts = TIMEOUTS
        self._sites[me.node_id] = site

    def _do_wait(self, node: str, for_ms: str) -> None:
        self._clocks[int(node)] += int(for_ms)
        self._machine(node).tick(self._clocks[int(node)])
        self._go_on(int(node))

    def _do_deliver(self, way: str = "") -> None:
        for _ in range(MOST_MESSAGES):
            at = next((at for at, sent in enumerate(self._flying) if self._is_on(sent, way)), None)
            if at is None:
                return
            sent = self._flying.pop(at)
            machine = self._sites[sent.to].machine
            if machine is not None:
                machine.tick(self._clocks[sent.to])
                machine.receive(sent.message)
                self._go_on(sent.to)
        raise AssertionError("it goes on for ever")

    def _do_lose(self, way: str = "") -> None:
        self._flying = [sent for sent in self._flying if not self._is_on(sent, way)]

    def _do_hold(self, node: str) -> None:
        self._held.add(int(node))

    def _do_release(self, node: str) -> None:
        self._held.discard(int(node))
        self._go_on(int(node))

    def _do_cut(self, node: str) -> None:
        self._cut.add(int(node))

    def _do_heal(self) -> None:
        self._cut.clear()

    def _do_propose(self, node: str, payload: str) -> None:
        self._refused(node, self._machine(node).propose(payload))
        self._go_on(int(node))

    def _do_change(self, node: str, kind: str, replica: str) -> None:
        change = VoterAddition(Voter(_replica(replica))) if kind == "add" else VoterRemoval(_replica(replica))
        self._refused(node, self._machine(node).change(change))
        self._go_on(int(node))

    def _do_compact(self, node: str, offset: str) -> None:
        self._machine(node).compacted(int(offset))
        self._sites[int(node)].disk.compact(int(offset))
        self._go_on(int(node))

    def _do_resign(self, node: str) -> None:
        self._machine(node).resign()
        self._go_on(int(node))

    def _do_show(self) -> None:
        for node_id, site in self._sites.items():
            log = site.disk.written
            epochs = {batch.epoch: batch.first for batch in reversed(log.batches)}
            firsts = " ".join(f"{epoch}:{first}" for epoch, first in sorted(epochs.items()))
            machine = site.machine
            state = "is down" if machine is None else f"committed {machine.high_watermark}, voters {machine.voters}"
            self._said.append(
                f"{node_id} log from {log.snapshot}, epochs {firsts or 'none'}, ends {log.end},"
                f" synced {site.disk.synced.end}, {state}"
            )

    def _machine(self, node: str) -> RaftMachine:
        machine = self._sites[int(node)].machine
        assert machine is not None
        return machine

    # -- what comes of it ---------------------------------------------------------------------------

    def _refused(self, node: str, answer: object) -> None:
        if isinstance(answer, VoterChangeRefusal):
            self._said.append(f"{node} refuses: {answer.value}")

    def _is_on(self, sent: Sent, way: str) -> bool:
        return way in ("", f"{sent.sender}->{sent.to}")

    def _go_on(self, node_id: int) -> None:
        site = self._sites[node_id]
        site.say = lambda effect: self._said.append(f"{node_id} {effect_text(effect)}")
        while True:
            for sent in site.run():
                if sent.sender not in self._cut and sent.to not in self._cut and sent.to in self._sites:
                    self._flying.append(sent)
            if node_id in self._held:
                return
            if site.writes_ballot:
                site.ballot_written()
            elif site.disk.written is not site.disk.synced:
                site.end_sync(site.begin_sync())
            else:
                return


def main() -> None:
    """Write all transcripts again."""
    for path in sorted(TRANSCRIPTS.glob("*.txt")):
        path.write_text(Script().run(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
