"""Transcripts: what happens to a cluster, and what its controller decides, as text that is compared with a file.

A line that begins with `> ` is done, and what follows up to the next one is what came of it. All that is decided is
committed at once. `python -m tests.metadata.cluster.script` writes the files again.

    nodes 1/a 2/b 3           nodes on these racks register and are unfenced; their directories are 1a, 2a, 3a
    register 1 a x [kept]     node 1 registers with the directory 1a and the incarnation x
    beat 1 [behind 5] [stops] node 1 sends a heartbeat; it lacks the last 5 events; it wants to stop
    closed 1                  its connection is closed
    wait 9000 [but 1 2]       so much time goes by, in which all send heartbeats but these, and who is silent is fenced
    stream s 1,2,3 2,3,1 [min.insync.replicas=2 ...]
    stream s 4 of 3           four partitions with three replicas, placed by the controller
    configure s min.insync.replicas=1
    alter 1 s-0 1,2 [epoch 3] [version 2] [old 2]   the leader 1 proposes who is in sync; 2 by an older registration
    report 2 s-0 [epoch 1]    2 cannot reach the leader of s-0
    reassign s-0 2,3,4, cancel s-0
    elect s-0 [unclean], unregister 3
    plan [without 3], step 2  a plan, and the next moves of it so that 2 are under way
    quietly …                 the same, and nothing is told of it
    show
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from tests.metadata.cluster.describing import event_text, members_text, partition_text
from tests.metadata.cluster.site import Site

from duramen.base.errors import DuramenError
from duramen.metadata.alter_partition import AlterPartitionRefusal, InSyncMember, InSyncProposal, alter_partition
from duramen.metadata.decisions import Definition
from duramen.metadata.elections import elect_preferred, elect_unclean
from duramen.metadata.events import Event
from duramen.metadata.fencing import fence
from duramen.metadata.leader_reports import Reports, depose
from duramen.metadata.partitions import PartitionId
from duramen.metadata.reassignment import cancel, reassign
from duramen.metadata.rebalance import ReplicaMove, begin_moves, plan, progress
from duramen.metadata.registration import Registration, unregister
from duramen.metadata.state import ControllerState
from duramen.metadata.streams import configure_replicated, create_replicated

TRANSCRIPTS = Path(__file__).parent / "transcripts"
BEAT_MS = 500


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _options(words: Sequence[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=False))


class Script:
    """A cluster that does what lines say."""

    def __init__(self) -> None:
        self._site = Site()
        self._reports = Reports()
        self._plan: list[ReplicaMove] = []
        self._said: list[str] = []

    def run(self, text: str) -> str:
        """The transcript with what its lines come to."""
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith("> "):
                lines.append(line)
                name, *words = line[2:].split()
                self._run(name, words)
                lines += [f"  {said}" for said in self._said]
                self._said.clear()
            elif not line.startswith("  "):
                lines.append(line)
        return "\n".join(lines) + "\n"

    def _run(self, name: str, words: Sequence[str]) -> None:
        command: Callable[..., None] = getattr(self, f"_do_{name}")
        try:
            command(*words)
        except DuramenError as error:
            self._said.append(f"{error.id}: {error}")

    @property
    def _state(self) -> ControllerState:
        return self._site.state

    # -- what may be done ---------------------------------------------------------------------------

    def _do_quietly(self, name: str, *words: str) -> None:
        self._run(name, words)
        self._said.clear()

    def _do_nodes(self, *words: str) -> None:
        for word in words:
            node, _, rack = word.partition("/")
            self._site.register(Registration(int(node), f"{node}a", "x", rack=rack or None))
            self._site.beat(int(node))

    def _do_register(self, node: str, directory: str, incarnation: str, kept: str = "") -> None:
        known = self._state.registrations.get(int(node))
        rack = None if known is None else known.rack
        wish = Registration(int(node), f"{node}{directory}", incarnation, rack=rack, kept=bool(kept))
        self._tell(self._site.register(wish))

    def _do_beat(self, node: str, *words: str) -> None:
        options = _options(words)
        verdict = self._site.beat(int(node), behind=int(options.get("behind", 0)), stops="stops" in words)
        self._tell(verdict.events)
        if verdict.may_stop:
            self._said.append(f"node {node} may stop")
        elif verdict.fenced:
            self._said.append(f"node {node} stays fenced")

    def _do_closed(self, node: str) -> None:
        self._site.membership.closed(int(node), self._site.now_ms)

    def _do_wait(self, for_ms: str, *but: str) -> None:
        silent = set(map(int, but[1:]))
        until_ms = self._site.now_ms + int(for_ms)
        while self._site.now_ms < until_ms:
            self._site.now_ms = min(until_ms, self._site.now_ms + BEAT_MS)
            for node in list(self._state.registrations):
                if node.id not in silent and not node.fenced:
                    self._tell(self._site.beat(node.id, stops=node.draining).events)
            for node_id in self._site.membership.silent(self._site.now_ms):
                found = self._state.registrations.get(node_id)
                assert found is not None
                self._commit(fence(self._state, found))
                self._site.membership.ended(node_id)

    def _do_stream(self, name: str, *words: str) -> None:
        config = dict(word.split("=") for word in words if "=" in word)
        given = [word for word in words if "=" not in word]
        placed = "of" in given
        assignment = None if placed else [_ids(word) for word in given]
        partitions, factor = (int(given[0]), int(given[2])) if placed else (len(given), 1)
        created = create_replicated(
            self._state,
            Definition(name, partitions, config),
            stream_id=UUID(int=len(self._state.streams) + 1),
            now_ms=self._site.now_ms,
            replication_factor=factor,
            assignment=assignment,
        )
        self._commit(created)

    def _do_configure(self, name: str, *changes: str) -> None:
        self._commit(configure_replicated(self._state, name, dict(word.split("=") for word in changes)))

    def _do_alter(self, node: str, where: str, isr: str, *words: str) -> None:
        options = _options(words)
        partition = self._state.partitions.get(self._place(where))
        assert partition is not None
        old = set(_ids(options["old"])) if "old" in options else set()

        def member(node_id: int) -> InSyncMember:
            known = self._state.registrations.get(node_id)
            return InSyncMember(node_id, 0 if known is None or node_id in old else known.epoch)

        proposal = InSyncProposal(
            self._place(where),
            member(int(node)),
            int(options.get("epoch", partition.leader_epoch)),
            int(options.get("version", partition.partition_epoch)),
            tuple(map(member, _ids(isr))),
        )
        answer = alter_partition(self._state, proposal)
        if isinstance(answer, AlterPartitionRefusal):
            self._said.append(f"{answer.name}: {answer.value}")
        else:
            self._commit(answer.events)
            if answer.new_leader:
                self._said.append("NEW_LEADER_ELECTED")

    def _do_report(self, node: str, where: str, *words: str) -> None:
        place_ = self._place(where)
        partition = self._state.partitions.get(place_)
        assert partition is not None
        epoch = int(_options(words).get("epoch", partition.leader_epoch))
        if self._reports.report(place_, partition, int(node), epoch, self._site.now_ms):
            self._commit(depose(self._state, place_))

    def _do_reassign(self, where: str, replicas: str) -> None:
        self._commit(reassign(self._state, self._place(where), _ids(replicas)))

    def _do_cancel(self, where: str) -> None:
        self._commit(cancel(self._state, self._place(where)))

    def _do_elect(self, where: str, unclean: str = "") -> None:
        elect = elect_unclean if unclean else elect_preferred
        self._commit(elect(self._state, self._place(where)))

    def _do_unregister(self, node: str) -> None:
        self._commit(unregister(self._state, int(node)))

    def _do_plan(self, *words: str) -> None:
        self._plan = plan(self._state, [int(word) for word in words[1:]])
        for move in self._plan:
            why = "; ".join(reason.value for reason in move.reasons)
            where = f"{self._name(move.place)} {members_text(move.before)} -> {members_text(move.after)}"
            self._said.append(f"{where}, {move.copies} to copy: {why}")

    def _do_step(self, at_once: str) -> None:
        self._commit(begin_moves(self._state, self._plan, int(at_once)))
        counts = progress(self._state, self._plan)
        self._said.append(f"{counts.done} done, {counts.moving} under way, {counts.waiting} to begin")

    def _do_show(self) -> None:
        for node in self._state.registrations:
            how = "fenced" if node.fenced else "draining" if node.draining else "live"
            self._said.append(f"node {node.id}/{node.directory_id} in epoch {node.epoch}, {how}")
        self._said += [partition_text(self._name(place_), partition) for place_, partition in self._state.partitions]

    # -- what comes of it ---------------------------------------------------------------------------

    def _place(self, text: str) -> PartitionId:
        name, _, partition = text.rpartition("-")
        return PartitionId(self._state.streams[name].id, int(partition))

    def _name(self, place_: PartitionId) -> str:
        stream = self._state.stream_by_id(place_.stream_id)
        assert stream is not None
        return f"{stream.name}-{place_.partition}"

    def _commit(self, events: Sequence[Event]) -> None:
        self._tell(self._site.commit(events))

    def _tell(self, events: Sequence[Event]) -> None:
        self._said += [event_text(event, self._state) for event in events]


def main() -> None:
    """Write all transcripts again."""
    for path in sorted(TRANSCRIPTS.glob("*.txt")):
        path.write_text(Script().run(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
