"""A node that forms a cluster with others or joins one: takes messages and returns effects. Pure.

The seed with the lowest node id proposes once all seeds have told it that they belong to no cluster and have the same
list. It forms the cluster once all of them have promised that proposal; the others join it when they learn of that.

There are never two clusters, because of what is on disk before it is sent:

- A directory counts its attempts; each start and each abandoned proposal begins a new one. So a number identifies one
  proposal, and a node that sends a higher number never forms its earlier proposals.
- Only a higher number of the same directory replaces a promise. Until then the node promises nothing else, proposes
  nothing and joins no other cluster.
- Only the proposer forms the cluster, in the attempt that all have promised.
"""

from collections.abc import Iterable
from uuid import UUID

from duramen.raft.forming.obstacles import obstacle
from duramen.raft.forming.values import (
    Belongs,
    ClusterProposal,
    Effect,
    FormationAttempt,
    FormationDiskState,
    FormationHello,
    FormationReply,
    Message,
    PersistFormation,
    ProposeCluster,
    SendFormationMessage,
)
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voter, Voters

__all__ = ["Forming"]


class Forming:
    """The state machine of the node `me`, from its disk state. After each call, `take` has the effects."""

    def __init__(self, me: ReplicaId, kept: FormationDiskState, seeds: Iterable[str]) -> None:
        """`seeds` are addresses; they include the node's own address if it is a seed."""
        self.me = me
        self.seeds = tuple(sorted(set(seeds)))
        self.kept = kept
        self.proposal: ClusterProposal | None = None
        self.heard: dict[str, FormationHello] = {}
        self._effects: list[Effect] = []
        if kept.cluster_id is None:
            self._begin()
        else:
            self._effects.append(Belongs(kept.cluster_id, kept.voters))

    @property
    def hello(self) -> FormationHello:
        """The node's hello: its identity, seeds, attempt, promise and cluster."""
        kept = self.kept
        promised = None if kept.promise is None else kept.promise.attempt
        return FormationHello(self.me, self.seeds, kept.attempt, promised, kept.cluster_id)

    @property
    def cluster_id(self) -> UUID | None:
        """The node's cluster."""
        return self.kept.cluster_id

    @property
    def obstacle(self) -> str:
        """The reason why the node belongs to no cluster yet, in one line; empty if it belongs to one."""
        return obstacle(self.hello, self.heard, self.kept.promise)

    def take(self) -> list[Effect]:
        """The effects since the last call, in order; a Persist must be on disk before the effects after it."""
        effects, self._effects = self._effects, []
        return effects

    # -- events -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Ask all seeds again after some time."""
        if self.cluster_id is not None:
            return
        for address in self.seeds:
            if not self._is_mine(address):
                self._ask(address)

    def itself(self, address: str) -> None:
        """Note that the seed at `address` is the node itself."""
        if address in self.seeds and self.cluster_id is None:
            self.heard[address] = self.hello
            self._decide()

    def answered(self, address: str, hello: FormationHello) -> None:
        """Take the hello of the seed at `address`."""
        if address in self.seeds and self.cluster_id is None:
            self.heard[address] = hello
            self._weigh(hello)
            self._decide()

    def lost(self, address: str) -> None:
        """Forget the hello of a seed without a connection."""
        self.heard.pop(address, None)

    def asked(self, message: Message, request: object) -> None:
        """Respond to a message; the response carries `request`."""
        if self.cluster_id is None:
            if isinstance(message, ProposeCluster):
                self._consider(message.proposal)
            else:
                self._weigh(message)
        self._effects.append(FormationReply(request, self.hello))

    # -- promises -----------------------------------------------------------------------------------

    def _consider(self, proposal: ClusterProposal) -> None:
        """Promise a proposal, unless something forbids it."""
        promise, attempt = self.kept.promise, proposal.attempt
        if self.proposal is not None or self.me not in proposal.voters or self.seeds != proposal.seeds:
            return
        if promise is not None and (promise.attempt.proposer != attempt.proposer or promise.attempt >= attempt):
            return
        self._persist(self.kept._replace(promise=proposal))

    def _weigh(self, hello: FormationHello) -> None:
        """Compare a hello with the promise: the promised cluster exists, or can never exist."""
        promise = self.kept.promise
        if promise is None or self.cluster_id is not None:
            return
        if hello.cluster_id == promise.attempt.cluster_id:
            self._belong(hello.cluster_id, promise.voters)
            return
        proposer, number = promise.attempt
        if hello.cluster_id is None and hello.sender == proposer and hello.attempt > number:
            self._persist(self.kept._replace(promise=None))

    # -- proposing ----------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Propose, form the cluster or join one, if the known hellos suffice."""
        if self.cluster_id is not None:
            return
        clusters = {hello.cluster_id for hello in self.heard.values() if hello.cluster_id is not None}
        if clusters:
            self._let_go()
            if len(clusters) == 1 and self.kept.promise is None:
                self._belong(clusters.pop(), NO_VOTERS)
            return
        voters = self._agreeing()
        if voters is None:
            return
        if self.proposal is not None and self.proposal.voters != voters:
            self._let_go()
        if self.me == voters.ids[0] and self.kept.promise is None:
            self._propose(voters)

    def _agreeing(self) -> Voters | None:
        """All seeds as voters, if all hellos are known, include this node, and agree on the list and the ids."""
        heard = self.heard.values()
        node_ids = {hello.sender.node_id for hello in heard}
        if len(node_ids) < len(self.seeds) or any(hello.seeds != self.seeds for hello in heard):
            return None
        voters = Voters(Voter(hello.sender, address) for address, hello in self.heard.items())
        return voters if self.me in voters else None

    def _propose(self, voters: Voters) -> None:
        if self.proposal is None:
            self.proposal = ClusterProposal(FormationAttempt(self.me, self.kept.attempt), self.seeds, voters)
            self.tick()
        attempt = self.proposal.attempt
        others = [hello for hello in self.heard.values() if hello.sender != self.me]
        if all(hello.promised == attempt for hello in others):
            self._belong(attempt.cluster_id, voters)

    def _let_go(self) -> None:
        """Abandon the proposal, if there is one."""
        if self.proposal is not None:
            self.proposal = None
            self._begin()

    def _begin(self) -> None:
        """Begin a new attempt."""
        self._persist(self.kept._replace(attempt=self.kept.attempt + 1))

    def _belong(self, cluster_id: UUID, voters: Voters) -> None:
        self.proposal = None
        self._persist(self.kept._replace(promise=None, cluster_id=cluster_id, voters=voters))
        self._effects.append(Belongs(cluster_id, voters))

    # -- effects ------------------------------------------------------------------------------------

    def _persist(self, kept: FormationDiskState) -> None:
        self.kept = kept
        self._effects.append(PersistFormation(kept))

    def _ask(self, address: str) -> None:
        message = self.hello if self.proposal is None else ProposeCluster(self.proposal)
        self._effects.append(SendFormationMessage(address, message))

    def _is_mine(self, address: str) -> bool:
        heard = self.heard.get(address)
        return heard is not None and heard.sender == self.me
