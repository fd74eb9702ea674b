"""A replica in a test: the machine, its disk, and what carries out the effects; all waits for a ballot's write."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tests.raft.disk import Content, Disk
from tests.raft.witness import Witness

from duramen.raft.effects import Append, Became, Commit, Cut, Effect, Install, Persist, Send, Serve, ServeSnapshot
from duramen.raft.machine import RaftMachine
from duramen.raft.messages import Message, Vote, VoteAnswer
from duramen.raft.replica import Chance
from duramen.raft.roles import RaftRole
from duramen.raft.timeouts import RaftTimeouts
from duramen.raft.voters import ReplicaId, Voter

CALM = RaftTimeouts(election_ms=100, fetch_ms=200, retry_ms=30, wait_ms=50, desertion_ms=300, soon_ms=8)
HASTY = RaftTimeouts(election_ms=20, fetch_ms=40, retry_ms=8, wait_ms=10, desertion_ms=60, soon_ms=4)
"""So short that with slow messages elections cross each other all the time."""


class Sent(NamedTuple):
    """A message on its way."""

    sender: int
    to: int
    message: Message


class Site:
    """A node with one disk. `machine` is None while it is down."""

    def __init__(self, me: ReplicaId, disk: Disk, witness: Witness, chance: Chance, seeds: tuple[int, ...]) -> None:
        self.me = me
        self.disk = disk
        self.witness = witness
        self.machine: RaftMachine | None = None
        self.joins = False
        self.most_batches = 4
        self.installs = 0
        self.timeouts = CALM
        self._chance = chance
        self._seeds = seeds
        self._queue: deque[Effect] = deque()
        self.committed = 0
        self.say: Callable[[Effect], None] | None = None

    def start(self, now_ms: int) -> None:
        """The process starts."""
        joins = Voter(self.me) if self.joins else None
        self.committed = self.disk.written.snapshot.offset
        self.machine = RaftMachine(
            self.me,
            self.disk.kept(),
            now_ms=now_ms,
            chance=self._chance,
            timeouts=self.timeouts,
            seeds=self._seeds,
            joins=joins,
        )

    def crash(self) -> None:
        """The power goes."""
        if self.machine is not None:
            self.disk.damaged = self.machine.damaged
        self.machine = None
        self._queue.clear()
        self.disk.crash()

    @property
    def writes_ballot(self) -> bool:
        """Whether a ballot is to be written, and everything else waits for it."""
        return bool(self._queue) and isinstance(self._queue[0], Persist)

    def ballot_written(self) -> None:
        """The ballot is on disk."""
        effect = self._queue.popleft()
        assert isinstance(effect, Persist)
        self.disk.ballot = effect.ballot
        if self.say is not None:
            self.say(effect)

    def run(self) -> list[Sent]:
        """Carry out what may be carried out; what is to be sent."""
        if self.machine is None:
            return []
        self._queue.extend(self.machine.take())
        sent: list[Sent] = []
        while self._queue and not isinstance(self._queue[0], Persist):
            effect = self._queue.popleft()
            message = self._do(effect)
            if message is not None:
                sent.append(message)
            if self.say is not None:
                self.say(effect if message is None else Send(message.to, message.message))
        return sent

    def begin_sync(self) -> Content:
        """What a sync that begins now will have on disk."""
        return self.disk.written

    def end_sync(self, content: Content) -> None:
        """The sync is done."""
        self.disk.synced = content
        if self.machine is not None:
            self.machine.synced(content.end)

    def _do(self, effect: Effect) -> Sent | None:
        match effect:
            case Send(node_id, message):
                self._witness_votes(message)
                return Sent(self.me.node_id, node_id, message)
            case Serve(node_id, answer):
                batches = self.disk.batches_from(answer.asked.end.offset, self.most_batches)
                return Sent(self.me.node_id, node_id, answer._replace(batches=batches))
            case ServeSnapshot(node_id, snapshot_answer):
                if snapshot_answer.snapshot != self.disk.written.snapshot:
                    return None
                return Sent(self.me.node_id, node_id, snapshot_answer._replace(payload=self.disk.written.digest))
            case Append(batch):
                self.witness.appended(batch)
                self.disk.append(batch)
            case Cut(end_offset):
                self.disk.cut(end_offset)
            case Install(snapshot, voters, payload):
                assert isinstance(payload, int)
                self.installs += 1
                self.disk.install(snapshot, voters, payload)
                self.witness.installed(self.me, self.disk.written)
            case Commit(high_watermark):
                assert self.machine is not None
                self.witness.committed_up_to(
                    self.me, self.machine.epoch, self.disk.written, self.committed, high_watermark
                )
                self.committed = high_watermark
            case Became(RaftRole.LEADER, epoch, _):
                self.witness.led(self.me, epoch, self.disk.written)
        return None

    def _witness_votes(self, message: Message) -> None:
        if isinstance(message, Vote) and not message.pre:
            self.witness.voted(self.me, message.epoch, self.me)
        elif isinstance(message, VoteAnswer) and message.granted and not message.pre:
            self.witness.voted(self.me, message.epoch, message.candidate)
