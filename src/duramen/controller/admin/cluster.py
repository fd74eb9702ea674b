"""Operators' requests about a cluster, on any of its nodes: sent to the active controller, or answered locally.

A standalone node has the same interface in `standalone`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from duramen.base.errors import (
    DuramenError,
    ElectionNotNeeded,
    LeaderUnavailable,
    NodeNotFound,
    NotController,
    OutcomeUnknown,
    ReplicationFactorInvalid,
    StreamNotFound,
    VoterDuplicate,
    VoterNotFound,
    VotersUnsettled,
)
from duramen.base.hosts import host_port
from duramen.broker.control import requests
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import Answer, Observed, Outcome, Planned, Stepped, When
from duramen.broker.membership import NodeMembership
from duramen.controller.admin.replica_survey import Survey
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId
from duramen.metadata.rebalance import MovesProgress, ReplicaMove, progress
from duramen.metadata.registration import unregister
from duramen.metadata.state import ControllerState
from duramen.raft.description import QuorumDescription
from duramen.raft.voters import ReplicaId, Voter

__all__ = [
    "CLUSTER_ENDPOINT",
    "WITHIN_MS",
    "AdministeredMembership",
    "ClusterAdmin",
    "ControllerClient",
    "Elected",
    "QuorumView",
    "endpoint_of",
]

WITHIN_MS: Final = 10_000
"""The default timeout of a request."""

CLUSTER_ENDPOINT: Final = "cluster"
"""The name of the endpoint for other nodes."""

_AT_ONCE: Final = 64  # concurrent requests of one operation

Settled = Callable[[DuramenError | None], None]
"""Called with None on success, or with the error."""


class ControllerClient(Protocol):
    """Sends requests to the active controller: see `Asker`."""

    def ask(self, request: Request, done: When, *, within_ms: int) -> None:
        """`done` gets the response once, or the error."""


class Elected(NamedTuple):
    """The outcome of one partition's election: None, or the reason why its leader is unchanged."""

    place: PartitionId
    error: DuramenError | None


class QuorumView(NamedTuple):
    """The quorum, and whether its leader has reported it: only the leader knows the others' progress."""

    observed: Observed
    from_leader: bool


class ClusterAdmin:
    """The active controller decides requests; reads return the state that this node has applied, which may be older."""

    def __init__(
        self,
        asking: ControllerClient,
        state: Callable[[], ControllerState],
        described: Callable[[], QuorumDescription | None],
    ) -> None:
        """`state` returns the committed state known to this node.

        `described` returns the quorum, None before the node joins.
        """
        self._asking = asking
        self._state = state
        self._described = described

    # -- state --------------------------------------------------------------------------------------

    @property
    def state(self) -> ControllerState:
        """The committed state that this node has applied: read-only, and not to be kept."""
        return self._state()

    def find(self, stream: str, partition: int) -> PartitionId:
        """A partition by its stream's name. Raises StreamNotFound."""
        known = self.state.streams.get(stream)
        if known is None:
            raise StreamNotFound(f"there is no stream {stream}")
        if not 0 <= partition < known.partitions:
            raise StreamNotFound(f"{stream} has no partition {partition}: it has {known.partitions}")
        return PartitionId(known.id, partition)

    def name(self, place: PartitionId) -> str:
        """The name of a partition's stream; its id if the stream is deleted."""
        stream = self.state.stream_by_id(place.stream_id)
        return str(place.stream_id) if stream is None else stream.name

    def observe(self, done: Callable[[Observed | DuramenError], None], *, within_ms: int = WITHIN_MS) -> None:
        """The quorum and the progress of all replicas, from the active controller."""

        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, DuramenError):
                done(outcome)
            elif isinstance(outcome.value, Observed):
                done(outcome.value)

        self._asking.ask(requests.Observe(), answered, within_ms=within_ms)

    def seen_from_here(self) -> Observed:
        """The quorum as known to this node alone. Raises NotController before it joins."""
        described = self._described()
        if described is None:
            raise NotController("this node has not joined a cluster yet")
        return Observed(*described[:5], tuple(described.endpoints))

    def look(self, done: Callable[[QuorumView | DuramenError], None], *, within_ms: int = WITHIN_MS) -> None:
        """Like `observe`; what this node knows if no controller responds."""

        def answered(observed: Observed | DuramenError) -> None:
            if isinstance(observed, Observed):
                done(QuorumView(observed, from_leader=True))
            elif isinstance(observed, NotController | OutcomeUnknown):
                self._look_from_here(done)
            else:
                done(observed)

        self.observe(answered, within_ms=within_ms)

    def _look_from_here(self, done: Callable[[QuorumView | DuramenError], None]) -> None:
        try:
            seen = self.seen_from_here()
        except DuramenError as error:
            done(error)
        else:
            done(QuorumView(seen, from_leader=False))

    # -- leaders ------------------------------------------------------------------------------------

    def elect(
        self,
        places: Iterable[PartitionId],
        done: Callable[[list[Elected]], None],
        *,
        within_ms: int = WITHIN_MS,
    ) -> None:
        """Elect the preferred replicas as leaders."""
        self._elect([requests.ElectLeader(place) for place in places], done, within_ms)

    def elect_unclean(
        self, surveys: Sequence[Survey], done: Callable[[list[Elected]], None], *, within_ms: int = WITHIN_MS
    ) -> None:
        """For partitions without a leader, elect the most complete replica that has responded.

        The records that it lacks are lost.
        """
        none = [Elected(one.place, self._unelectable(one)) for one in surveys if one.best is None]
        wanted = [requests.ElectLeader(one.place, True, one.best) for one in surveys if one.best is not None]
        self._elect(wanted, lambda elected: done([*elected, *none]), within_ms)

    def _unelectable(self, survey: Survey) -> DuramenError:
        known = self.state.partitions.get(survey.place)
        if known is not None and known.leader is not None:
            return ElectionNotNeeded(f"node {known.leader} leads")
        return _unheard(survey)

    def _elect(
        self, wanted: Sequence[requests.ElectLeader], done: Callable[[list[Elected]], None], within_ms: int
    ) -> None:

        def answered(outcomes: list[Outcome]) -> None:
            done([Elected(one.place, _error(outcome)) for one, outcome in zip(wanted, outcomes, strict=True)])

        self._each(wanted, answered, within_ms)

    def electable(self, *, unclean: bool = False) -> list[PartitionId]:
        """The partitions that an election could give another leader, as far as this node knows."""
        return [
            place
            for place, partition in self.state.partitions
            if (partition.leader is None if unclean else partition.leader != partition.target[0])
        ]

    def move_leader(self, place: PartitionId, node_id: int, done: Settled, *, within_ms: int = WITHIN_MS) -> None:
        """Make an in-sync replica the leader."""
        self._settle(requests.MoveLeader(place, node_id), done, within_ms)

    # -- replicas -----------------------------------------------------------------------------------

    def reassign(
        self,
        place: PartitionId,
        replicas: Sequence[int] | None,
        done: Settled,
        *,
        may_resize: bool = True,
        within_ms: int = WITHIN_MS,
    ) -> None:
        """Set the replicas of a partition; None cancels a reassignment in progress.

        `may_resize`: their number may change.
        """
        known = self.state.partitions.get(place)
        if replicas is None:
            self._settle(requests.CancelReassignment(place), done, within_ms)
        elif not may_resize and known is not None and len(known.target) != len(replicas):
            done(ReplicationFactorInvalid(f"the replication factor is {len(known.target)}, not {len(replicas)}"))
        else:
            self._settle(requests.Reassign(place, tuple(replicas)), done, within_ms)

    def plan(
        self,
        without_nodes: Sequence[int],
        done: Callable[[tuple[ReplicaMove, ...] | DuramenError], None],
        *,
        within_ms: int = WITHIN_MS,
    ) -> None:
        """Plan a balanced distribution of replicas over the nodes, without those in `without_nodes`."""
        missing = [node_id for node_id in without_nodes if node_id not in self.state.registrations]
        if missing:
            done(NodeNotFound(f"node {missing[0]} is not registered"))
            return

        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, DuramenError):
                done(outcome)
            elif isinstance(outcome.value, Planned):
                done(outcome.value.moves)

        self._asking.ask(requests.PlanMoves(tuple(without_nodes)), answered, within_ms=within_ms)

    def begin(
        self,
        moves: Sequence[ReplicaMove],
        at_once: int,
        done: Callable[[MovesProgress | DuramenError], None],
        *,
        within_ms: int = WITHIN_MS,
    ) -> None:
        """Continue a plan, with `at_once` moves in progress."""
        self._step(requests.BeginMoves(tuple(moves), at_once), done, within_ms)

    def cancel(
        self,
        moves: Sequence[ReplicaMove],
        done: Callable[[MovesProgress | DuramenError], None],
        *,
        within_ms: int = WITHIN_MS,
    ) -> None:
        """Cancel the moves of a plan that are in progress."""
        self._step(requests.CancelMoves(tuple(moves)), done, within_ms)

    def progress(self, moves: Sequence[ReplicaMove]) -> MovesProgress:
        """The progress of a plan, as far as this node knows."""
        return progress(self.state, moves)

    # -- nodes --------------------------------------------------------------------------------------

    def drain(self, node_id: int, done: Settled, *, within_ms: int = WITHIN_MS) -> None:
        """Move leadership off a node and keep it from becoming leader until it registers again."""
        self._settle(requests.DrainNode(node_id), done, within_ms)

    def unregister(self, node_id: int, done: Settled, *, within_ms: int = WITHIN_MS) -> None:
        """Unregister a stopped node without replicas."""
        self._settle(requests.UnregisterNode(node_id), done, within_ms)

    def remove(self, node_id: int, done: Settled, *, within_ms: int = WITHIN_MS) -> None:
        """Like `unregister`; a voter is removed from the voters first."""
        try:
            unregister(self.state, node_id)
        except DuramenError as error:
            done(error)
            return

        def removed(error: DuramenError | None) -> None:
            if error is None or isinstance(error, VoterNotFound):
                self.unregister(node_id, done, within_ms=within_ms)
            else:
                done(error)

        self.remove_voter(node_id, removed, within_ms=within_ms)

    def set_feature_level(self, level: int, done: Settled, *, within_ms: int = WITHIN_MS) -> None:
        """Raise the cluster's feature level; it never decreases."""
        self._settle(requests.SetFeatureLevel(level), done, within_ms)

    # -- voters -------------------------------------------------------------------------------------

    def add_voter(self, node_id: int, done: Settled, *, within_ms: int = WITHIN_MS) -> None:
        """Make a registered node, which follows the metadata log, a voter."""

        def seen(observed: Observed | DuramenError) -> None:
            if isinstance(observed, DuramenError):
                done(observed)
                return
            try:
                voter = self._voter_to_be(node_id, observed)
            except DuramenError as error:
                done(error)
            else:
                self.change_voters(requests.AddVoter(voter), done, within_ms=within_ms)

        self.observe(seen, within_ms=within_ms)

    def _voter_to_be(self, node_id: int, observed: Observed) -> Voter:
        if any(seen.replica.node_id == node_id for seen in observed.voters):
            raise VoterDuplicate(f"node {node_id} is already a voter")
        node = self.state.registrations.get(node_id)
        if node is None:
            raise NodeNotFound(f"node {node_id} is not registered: start it with a live node among its seeds first")
        followers = [seen.replica for seen in observed.observers if seen.replica.node_id == node_id]
        if not followers:
            raise VotersUnsettled(f"node {node_id} has not caught up with the metadata log yet")
        host, port = endpoint_of(node, CLUSTER_ENDPOINT) or ("", 0)
        where = host_port(host, port)
        replica = ReplicaId(node_id, node.directory_id)
        return Voter(replica if replica in followers else followers[-1], where if port else "")

    def remove_voter(self, node_id: int, done: Settled, *, within_ms: int = WITHIN_MS) -> None:
        """Remove a voter; the node continues as an observer."""

        def seen(observed: Observed | DuramenError) -> None:
            if isinstance(observed, DuramenError):
                done(observed)
                return
            voters = [seen.replica for seen in observed.voters if seen.replica.node_id == node_id]
            if voters:
                self.change_voters(requests.RemoveVoter(voters[0]), done, within_ms=within_ms)
            else:
                done(VoterNotFound(f"node {node_id} is no voter"))

        self.observe(seen, within_ms=within_ms)

    def change_voters(
        self, change: requests.AddVoter | requests.RemoveVoter, done: Settled, *, within_ms: int = WITHIN_MS
    ) -> None:
        """Add or remove one voter, given completely."""
        self._settle(change, done, within_ms)

    # -- asking -------------------------------------------------------------------------------------

    def _settle(self, request: Request, done: Settled, within_ms: int) -> None:
        self._asking.ask(request, lambda outcome: done(_error(outcome)), within_ms=within_ms)

    def _step(self, request: Request, done: Callable[[MovesProgress | DuramenError], None], within_ms: int) -> None:
        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, DuramenError):
                done(outcome)
            elif isinstance(outcome.value, Stepped):
                step = outcome.value
                done(MovesProgress(step.done, step.moving, step.waiting, step.void))

        self._asking.ask(request, answered, within_ms=within_ms)

    def _each(self, wanted: Sequence[Request], done: Callable[[list[Outcome]], None], within_ms: int) -> None:
        _Each(self._asking, wanted, done, within_ms).go_on()


class _Each:
    """Several requests, with a limited number in progress; the responses are in order."""

    def __init__(
        self, asking: ControllerClient, wanted: Sequence[Request], done: Callable[[list[Outcome]], None], within_ms: int
    ) -> None:
        self._asking = asking
        self._wanted = wanted
        self._done = done
        self._within_ms = within_ms
        self._outcomes: dict[int, Outcome] = {}
        self._next = 0
        self._going = False

    def go_on(self) -> None:
        """Send the requests that the limit allows; a response may come within the call."""
        if self._going:
            return
        self._going = True
        while self._next < len(self._wanted) and self._next - len(self._outcomes) < _AT_ONCE:
            at = self._next
            self._next += 1
            self._asking.ask(self._wanted[at], self._answer_of(at), within_ms=self._within_ms)
        self._going = False
        if len(self._outcomes) == len(self._wanted):
            self._done([self._outcomes[at] for at in range(len(self._wanted))])

    def _answer_of(self, at: int) -> When:
        def answered(outcome: Outcome) -> None:
            self._outcomes[at] = outcome
            self.go_on()

        return answered


def endpoint_of(node: Node, name: str) -> tuple[str, int] | None:
    """Host and port of a node's endpoint; None if it has none of that name."""
    return next(((one.host, one.port) for one in node.endpoints if one.name == name), None)


def _unheard(survey: Survey) -> LeaderUnavailable:
    silent = ", ".join(map(str, survey.silent))
    return LeaderUnavailable(f"no replica has reported its log; these nodes did not respond: {silent}")


def _error(outcome: Answer | DuramenError) -> DuramenError | None:
    return outcome if isinstance(outcome, DuramenError) else None


class AdministeredMembership(NodeMembership, Protocol):
    """The membership of a node, with its cluster admin; a standalone node has one too."""

    @property
    def cluster_admin(self) -> ClusterAdmin:
        """The operators' requests about the cluster."""
