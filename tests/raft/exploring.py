"""Every order of events within small bounds: from one state of a quorum to all that may follow, each state once.

Of messages: any of those on their way arrives next, so in any order; one that never does is lost. Of exchanges, which
reaches further: a candidate asks a voter, or a follower fetches from a leader that it just heard of; the answer arrives
at once or is lost. Besides, in both: a node stands for leader, whatever the pre-vote would have said; its log is
synced; it loses power and starts again with what was synced; a leader is proposed to; a node hears that its connection
to its leader closed.

Clocks count from now, and fetches have no numbers of their own, so that ways that lead to the same state meet in it; a
message that its receiver will never heed again is forgotten.
"""

import math
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

from tests.raft.disk import Disk
from tests.raft.site import Sent, Site
from tests.raft.witness import Broken, Witness

from duramen.base.leader_epochs import LeaderEpochCache
from duramen.raft.ballots import Count
from duramen.raft.elections import CandidateRole
from duramen.raft.epochs import EpochTable
from duramen.raft.follower import FollowerRole
from duramen.raft.leader import LeaderRole
from duramen.raft.machine import RaftMachine
from duramen.raft.messages import BeginEpoch, CurrentLeader, Fetch, FetchAnswer, Vote, VoteAnswer
from duramen.raft.parked_fetches import ParkedRaftFetches
from duramen.raft.progress import VoterProgress
from duramen.raft.replica import RaftCore
from duramen.raft.roles import RaftRole
from duramen.raft.timeouts import RaftTimeouts
from duramen.raft.unattached import UnattachedRole
from duramen.raft.voters import ReplicaId, Voter, VoterHistory, Voters

__all__ = ["Bounds", "Explored", "explore"]

SHORT_MS: Final = 1
LONG_MS: Final = 1_000
STEPS: Final = RaftTimeouts(election_ms=LONG_MS, fetch_ms=LONG_MS, retry_ms=SHORT_MS, wait_ms=0, desertion_ms=1 << 40)


_Value = TypeVar("_Value")
_PARTS: Final = (
    Disk, RaftMachine, RaftCore, EpochTable, LeaderEpochCache, VoterHistory, UnattachedRole, CandidateRole,
    FollowerRole, LeaderRole, VoterProgress, ParkedRaftFetches, Count,
)  # fmt: skip
"""What a site changes, and its twin must not."""


class Bounds(NamedTuple):
    """Messages or exchanges; how many epochs, and how often a record is proposed, a node restarts, one is lost."""

    exchanges: bool
    epochs: int
    records: int
    restarts: int
    closings: int = 0
    voters: int = 3


class Explored(NamedTuple):
    """How many states there are, steps between them, and whether that is all of them."""

    states: int
    steps: int
    complete: bool


class _Node(NamedTuple):
    """A site, which is copied before it goes on, what tells it from others, and what is asked of it all the time."""

    site: Site
    key: int
    epoch: int
    role: RaftRole
    leader: ReplicaId | None
    waiting: Fetch | None
    sync_due: bool


class _State(NamedTuple):
    nodes: tuple[_Node, ...]
    flying: frozenset[Sent]
    witness: Witness
    records: int
    restarts: int
    closings: int
    path: Any

    @property
    def key(self) -> int:
        """What tells it from others."""
        seen = self.witness
        history = (
            frozenset(seen.leaders.items()),
            frozenset(seen.votes.items()),
            frozenset(seen.ordered.items()),
            tuple(seen.committed),
        )
        nodes = tuple(node.key for node in self.nodes)
        return hash((nodes, self.flying, history, self.records, self.restarts, self.closings))


def no_chance(most: int) -> int:
    """Always the least."""
    return most * 0


def explore(bounds: Bounds, most_states: float, most_cpu_s: float = math.inf) -> Explored:
    """Walk through the states within the bounds, so many and so long at most. Raises Broken, with the steps to it."""
    until_s = time.process_time() + most_cpu_s
    following = _exchanges if bounds.exchanges else _messages
    start = _first(bounds)
    seen = {start.key}
    waiting = deque([start])
    steps = 0
    while waiting and len(seen) < most_states and time.process_time() < until_s:
        state = waiting.pop()
        for after in (*following(state, bounds), *_steps(state, bounds)):
            steps += 1
            key = after.key
            if key not in seen:
                seen.add(key)
                waiting.append(after)
    return Explored(len(seen), steps, not waiting)


def _first(bounds: Bounds) -> _State:
    voters = Voters(Voter(ReplicaId(node_id, "a")) for node_id in range(1, bounds.voters + 1))
    witness = Witness()
    nodes = []
    for voter in voters.ids:
        site = Site(voter, Disk(voters), witness, no_chance, ())
        site.timeouts = STEPS
        site.most_batches = 1
        site.start(0)
        site.run()
        nodes.append(_kept(site, exchanges=bounds.exchanges))
    return _State(tuple(nodes), frozenset(), witness, 0, 0, 0, None)


def _messages(state: _State, bounds: Bounds) -> Iterator[_State]:
    """A message arrives."""
    for sent in state.flying:
        step = _Step(state, bounds, f"{sent.sender} -> {sent.to} {type(sent.message).__name__}")
        with step:
            step.receive(sent.to - 1, sent)
        yield step.after(state.flying - {sent})


def _exchanges(state: _State, bounds: Bounds) -> Iterator[_State]:
    """Somebody asks, and is answered or not."""
    for asking, node in enumerate(state.nodes):
        for asked, other in enumerate(state.nodes):
            if asking == asked:
                continue
            if node.role is RaftRole.CANDIDATE or other.role is RaftRole.LEADER:
                for answered in (True, False):
                    step = _Step(state, bounds, f"{asking + 1} asks {asked + 1}{'' if answered else ', in vain'}")
                    with step:
                        step.exchange(asking, asked, answered=answered)
                    yield step.after(frozenset())


def _steps(state: _State, bounds: Bounds) -> Iterator[_State]:
    """A node does something by itself."""
    for at, node in enumerate(state.nodes):
        names = []
        if node.sync_due and state.restarts < bounds.restarts:
            names.append("sync")
        # The voters are alike until one of them stands: it may as well be the first.
        if node.role is not RaftRole.LEADER and node.epoch < bounds.epochs and (at == 0 or state.nodes[0].epoch > 0):
            names.append("stand")
        if state.restarts < bounds.restarts and node.epoch > 0:
            names.append("restart")
        if node.role is RaftRole.LEADER and state.records < bounds.records:
            names.append("propose")
        if node.role is RaftRole.FOLLOWER and state.closings < bounds.closings:
            names.append("lose")
        for name in names:
            step = _Step(state, bounds, f"{at + 1} {name}")
            step.records += name == "propose"
            step.restarts += name == "restart"
            step.closings += name == "lose"
            with step:
                step.act(at, name)
            yield step.after(state.flying)


class _Step:
    """One step from a state to the next."""

    def __init__(self, state: _State, bounds: Bounds, name: str) -> None:
        self.records, self.restarts, self.closings = state.records, state.restarts, state.closings
        self._state, self._bounds = state, bounds
        self._path = (name, state.path)
        self._sites: dict[int, Site] = {}
        self._said: set[Sent] = set()
        self._witness = _twin(state.witness)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            raise Broken(f"{error}; after: {'; '.join(_told(self._path))}") from error

    def after(self, flying: frozenset[Sent]) -> _State:
        """The state that comes of it, with these messages and what was said."""
        nodes = list(self._state.nodes)
        for at, site in self._sites.items():
            nodes[at] = _kept(site, exchanges=self._bounds.exchanges)
        said = frozenset() if self._bounds.exchanges else flying | self._said
        alive = frozenset(sent for sent in said if not _is_dead(sent, nodes[sent.to - 1]))
        return _State(tuple(nodes), alive, self._witness, self.records, self.restarts, self.closings, self._path)

    def receive(self, at: int, sent: Sent) -> None:
        """A message arrives at a node."""
        _machine(self._site(at)).receive(sent.message)
        self._said |= self._settle(at)

    def exchange(self, asking: int, asked: int, *, answered: bool) -> None:
        """Ask for a vote, or a leader for what follows; nothing else that is said arrives."""
        machine, other = _machine(self._site(asking)), _machine(self._site(asked))
        if other.role is RaftRole.LEADER:
            machine.receive(BeginEpoch(other.me, other.epoch))
        machine.tick(SHORT_MS)
        for question in self._settle(asking):
            if question.to == asked + 1:
                other.receive(question.message)
        for answer in self._settle(asked):
            if answered and answer.to == asking + 1:
                machine.receive(answer.message)
        self._settle(asking)

    def act(self, at: int, name: str) -> None:
        """What a node does by itself."""
        site = self._site(at)
        if name == "sync":
            site.end_sync(site.begin_sync())
        elif name == "propose":
            _machine(site).propose(self.records)
        elif name == "restart":
            site.crash()
            site.start(0)
        elif name == "lose":
            machine = _machine(site)
            assert machine.leader is not None
            machine.disconnected(machine.leader.node_id)
        else:
            _stand(_machine(site))
        self._said |= self._settle(at)

    def _site(self, at: int) -> Site:
        if at not in self._sites:
            self._sites[at] = _twin(self._state.nodes[at].site)
            self._sites[at].witness = self._witness
        return self._sites[at]

    def _settle(self, at: int) -> set[Sent]:
        """What a node says.

        A ballot is written at once: later would be the same as what waits for it arriving later, and never, for want
        of power, the same as what made it promise never having arrived. So is the log, once nobody restarts any more.
        """
        site = self._sites[at]
        eager = self.restarts >= self._bounds.restarts
        said = site.run()
        while site.writes_ballot or (eager and site.disk.written is not site.disk.synced):
            if site.writes_ballot:
                site.ballot_written()
            else:
                site.end_sync(site.begin_sync())
            said += site.run()
        return {sent for sent in said if not _is_pre(sent)}


def _machine(site: Site) -> RaftMachine:
    assert site.machine is not None
    return site.machine


def _stand(machine: RaftMachine) -> None:
    """Let the time of a node come; it would win. Who is gone stays gone."""
    gone = set(machine.core.gone)
    machine.tick(LONG_MS)
    epoch = machine.epoch
    for voter in machine.voters.ids:
        machine.receive(VoteAnswer(voter, epoch, machine.me, None, granted=True, pre=True))
    machine.core.gone = gone


def _is_pre(sent: Sent) -> bool:
    return isinstance(sent.message, Vote | VoteAnswer) and sent.message.pre


def _is_dead(sent: Sent, node: _Node) -> bool:
    """Whether the receiver will never heed it."""
    message = sent.message
    if not isinstance(message, VoteAnswer | FetchAnswer | CurrentLeader | BeginEpoch):
        return False
    if message.epoch < node.epoch:
        return not isinstance(message, BeginEpoch)
    if message.epoch > node.epoch:
        return False
    if isinstance(message, BeginEpoch):
        return node.leader is not None
    if isinstance(message, VoteAnswer):
        return node.role is not RaftRole.CANDIDATE and message.leader is None
    return isinstance(message, FetchAnswer) and node.leader == message.sender and message.asked != node.waiting


def _kept(site: Site, *, exchanges: bool) -> _Node:
    machine = _machine(site)
    part = machine.part
    _rebase(machine.core, part, exchanges=exchanges)
    waiting = part.waiting if isinstance(part, FollowerRole) else None
    due = site.disk.written is not site.disk.synced and site.disk.written != site.disk.synced
    return _Node(site, hash(_told_apart(site, machine)), machine.epoch, machine.role, machine.leader, waiting, due)


def _rebase(replica: Any, part: Any, *, exchanges: bool) -> None:
    """Count time from now and fetches from none; what was asked in an exchange is answered by now, or never."""
    replica.now_ms = 0
    for name in vars(part):
        if name.endswith("_ms"):
            setattr(part, name, LONG_MS if name == "_until_ms" else SHORT_MS)
    if isinstance(part, LeaderRole):
        progress, parked = part.progress, part.parked
        progress.since_ms = 0
        progress.replicas = {one: known._replace(fetched_ms=0) for one, known in progress.replicas.items()}
        parked.fetches = {} if exchanges else {one: (0, fetch) for one, (_, fetch) in parked.fetches.items()}
    if exchanges:
        replica.confirmed = replica.leader is not None
        if isinstance(part, FollowerRole):
            part.waiting = None
        elif isinstance(part, CandidateRole):
            part.count.refused.clear()


def _told_apart(site: Site, machine: RaftMachine) -> tuple[Any, ...]:
    """All that may make a difference later; what the log says is in the disk's."""
    replica, part, disk = machine.core, machine.part, site.disk
    role: tuple[Any, ...]
    match part:
        case LeaderRole():
            replicas, parked = part.progress.replicas, part.parked.fetches
            role = (part.first_offset, frozenset(replicas.items()), frozenset(parked.items()))
        case FollowerRole():
            role = (part.leader, part.waiting)
        case CandidateRole():
            role = (frozenset(part.count.granted), frozenset(part.count.refused))
        case _:
            role = ()
    known = (replica.ballot, replica.role, replica.leader, replica.confirmed, replica.log.end, replica.synced_offset)
    gone = frozenset(replica.gone)
    return (known, gone, replica.high_watermark, site.committed, role, disk.ballot, disk.written, disk.synced)


def _twin(value: _Value, known: dict[int, object] | None = None) -> _Value:
    """The same again, with a twin of each of its parts; values that never change are shared."""
    known = {} if known is None else known
    twin = object.__new__(type(value))
    known[id(value)] = twin
    for name in getattr(value, "__slots__", None) or vars(value):
        held = getattr(value, name)
        if isinstance(held, _PARTS):
            held = known[id(held)] if id(held) in known else _twin(held, known)
        elif isinstance(held, list | set | dict | deque):
            held = held.copy()
        setattr(twin, name, held)
    return twin


def _told(path: Any) -> list[str]:
    told = []
    while path is not None:
        step, path = path
        told.append(step)
    return told[::-1]
