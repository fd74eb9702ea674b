"""Operators that change the nodes of a cluster: voters are added and removed, nodes drain, leave and return."""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, Final

from duramen.base.errors import DuramenError, NodeNotFound
from duramen.broker.control import requests
from duramen.broker.control.responses import Observed
from duramen.raft.voters import ReplicaId, Voter
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import ClientCalls, Reply
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.cluster.join import address_of
from duramen.sim.cluster.victim import Victim

__all__ = ["Operator"]

_MOST_VOTERS: Final = 5
_PATIENCE: Final = 15  # how often it tries to empty a node, or to take it out
_AT_ONCE: Final = 8


class _Leaving(Enum):
    """How far a node is on its way out."""

    EMPTYING = "its replicas move to others"
    STOPPED = "it is to be registered no more"
    OUT = "it takes no part"


class Operator(ClusterClient):
    """Changes one thing at a time; a change with an unknown outcome may still take effect.

    `least_voters`: fewer must never remain, even if all such changes take effect.
    """

    def __init__(self, calls: ClientCalls, seed: str, think_us: int, cluster: Victim, least_voters: int) -> None:
        super().__init__(calls, seed, think_us)
        self._cluster = cluster
        self._least_voters = least_voters
        self._to_go: set[ReplicaId] = set()  # voters that may be removed yet
        self._to_come: set[ReplicaId] = set()  # learners that may be made voters yet
        self._leaving: tuple[int, _Leaving] | None = None
        self._tries = 0

    def step(self) -> None:
        if self._leaving is not None and self.chance.random() < 0.7:
            self._go_on(*self._leaving)
            return

        def answered(value: Any) -> None:
            if isinstance(value, Observed):
                self._choose(value)
            else:
                self.next()

        self.calls.ask(
            self.calls.any_node(), lambda broker, reply: broker.membership.cluster_admin.observe(reply), answered
        )

    def _choose(self, seen: Observed) -> None:
        voters = [one.replica for one in seen.voters]
        actions: list[Callable[[list[ReplicaId], Observed], bool]] = [
            self._add, self._add, self._remove, self._remove, self._drain, self._begin_to_take_out,
        ]  # fmt: skip
        if not self.chance.choice(actions)(voters, seen):
            self.next()

    def _ask(self, what: str, ask: Callable[[Broker, Reply], None], then: Callable[[Any], None]) -> None:
        self.calls.trace("an operator asks to %s", what)

        def answered(value: Any) -> None:
            self.calls.trace("an operator who asked to %s is answered %s", what, repr(value))
            then(value)

        self.calls.ask(self.calls.any_node(), ask, answered)

    def _settled(self, doubts: set[ReplicaId], replica: ReplicaId, what: str, value: Any) -> None:
        if not isinstance(value, DuramenError):
            doubts.discard(replica)
            self._cluster.counts[what] += 1
        self.next()

    # -- voters -------------------------------------------------------------------------------------

    def _add(self, voters: list[ReplicaId], seen: Observed) -> bool:
        """A node that is not a voter yet becomes one."""
        found = [one.replica for one in seen.observers if voters and not self._is_leaving(one.replica.node_id)]
        if not found or len(voters) >= _MOST_VOTERS:
            return False
        replica = self.chance.choice(found)
        self._to_come.add(replica)
        change = requests.AddVoter(Voter(replica, address_of(replica.node_id)))
        self._change(change, partial(self._settled, self._to_come, replica, "voters added"))
        return True

    def _remove(self, voters: list[ReplicaId], seen: Observed) -> bool:
        """One votes no more: rather one whose disk is lost."""
        del seen
        lost = [one for one in voters if self.calls.nodes[one.node_id].directory_id != one.directory_id]
        replica = self.chance.choice(lost or voters)
        if not lost and len({*voters} - self._to_go - {replica}) < self._least_voters:
            return False
        self._to_go.add(replica)
        self._change(
            requests.RemoveVoter(replica), partial(self._settled, self._to_go, replica, "voters removed")
        )  # fmt: skip
        return True

    def _change(self, change: requests.AddVoter | requests.RemoveVoter, then: Callable[[Any], None]) -> None:
        self._ask(str(change), lambda broker, reply: broker.membership.cluster_admin.change_voters(change, reply), then)

    # -- nodes --------------------------------------------------------------------------------------

    def _is_leaving(self, node_id: int) -> bool:
        return self._leaving is not None and self._leaving[0] == node_id

    def _drain(self, voters: list[ReplicaId], seen: Observed) -> bool:
        """A node is to lead nothing, and is started again after a while."""
        del voters, seen
        node = self.calls.nodes[self.calls.any_node()]
        if self._is_leaving(node.node_id):
            return False

        def restart() -> None:
            if self.calls.open and node.process is not None and not self._is_leaving(node.node_id):
                self._cluster.stop(node)

        def answered(_: Any) -> None:
            self.calls.at(self.chance.choice((100_000, 1_000_000, 4_000_000)), restart)
            self.next()

        self._cluster.counts["nodes drained"] += 1
        self._ask(
            f"drain {node.node_id}",
            lambda broker, reply: broker.membership.cluster_admin.drain(node.node_id, reply),
            answered,
        )
        return True

    def _begin_to_take_out(self, voters: list[ReplicaId], seen: Observed) -> bool:
        """A node that does not vote is to go."""
        del seen
        voting = {replica.node_id for replica in voters}
        able = [
            node.node_id
            for node in self.calls.nodes.values()
            if node.node_id not in voting and node.replica_id not in self._to_come and node.ready
        ]
        if self._leaving is not None or not able:
            return False
        node_id = self.chance.choice(able)
        self._move_to(node_id, _Leaving.EMPTYING)
        self._ask(
            f"drain {node_id}, which is to go",
            lambda broker, reply: broker.membership.cluster_admin.drain(node_id, reply),
            lambda _: self.next(),
        )
        return True

    def _move_to(self, node_id: int, how_far: _Leaving | None) -> None:
        self._leaving = None if how_far is None else (node_id, how_far)
        self._tries = 0

    def _go_on(self, node_id: int, how_far: _Leaving) -> None:
        self._tries += 1
        if how_far is _Leaving.OUT or self._tries > _PATIENCE:
            self._bring_back(node_id, how_far)
            self.next()
        elif how_far is _Leaving.EMPTYING:
            self._empty(node_id)
        else:
            self._take_out(node_id)

    def _empty(self, node_id: int) -> None:
        """Its replicas move to others; a node that has none is stopped."""
        if not self.calls.witness.council.state.partitions.replica_count(node_id):
            self._cluster.take_out(self.calls.nodes[node_id])
            self._move_to(node_id, _Leaving.STOPPED)
            self.next()
            return

        def planned(value: Any) -> None:
            if isinstance(value, DuramenError) or not value:
                self.next()
            else:
                self._ask(
                    f"begin {value}",
                    lambda broker, reply: broker.membership.cluster_admin.begin(value, _AT_ONCE, reply),
                    lambda _: self.next(),
                )

        self._ask(
            f"plan without {node_id}",
            lambda broker, reply: broker.membership.cluster_admin.plan((node_id,), reply),
            planned,
        )

    def _take_out(self, node_id: int) -> None:
        def answered(value: Any) -> None:
            if value is None or isinstance(value, NodeNotFound):
                self._cluster.counts["nodes taken out"] += 1
                self._move_to(node_id, _Leaving.OUT)
            self.next()

        self._ask(
            f"take {node_id} out", lambda broker, reply: broker.membership.cluster_admin.remove(node_id, reply),
            answered,
        )  # fmt: skip

    def _bring_back(self, node_id: int, how_far: _Leaving) -> None:
        """As it was, or with an empty disk."""
        self._move_to(node_id, None)
        node = self.calls.nodes[node_id]
        if how_far is _Leaving.EMPTYING:
            self._cluster.stop(node)
        else:
            blank = how_far is _Leaving.OUT and node.replica_id not in self._to_come and self.chance.random() < 0.5
            self._cluster.bring_back(node, blank=blank)
