"""A controller that answers as a test says, and a cluster's state made of events."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from duramen.base.errors import DuramenError
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import Answer, Value, When
from duramen.controller.admin.cluster import ClusterAdmin
from duramen.metadata.events import ClusterFormed, Endpoint, NodeDraining, NodeFenced, NodeRegistered, StreamCreated
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId, PartitionState, difference
from duramen.metadata.state import ControllerState
from duramen.raft.description import QuorumDescription, ReplicaProgress
from duramen.raft.voters import ReplicaId, Voter, Voters

__all__ = ["STREAM", "Operated", "Scripted", "described", "office_of", "state_of"]

STREAM = UUID(int=7)
DIRECTORIES = {number: str(UUID(int=number)) for number in range(1, 6)}

Scripting = Callable[[Request], Value | DuramenError | None]


class Scripted:
    """Keeps what is asked; `script` makes the answer, None: there is none yet."""

    def __init__(self, script: Scripting) -> None:
        self.script = script
        self.asked: list[Request] = []
        self.within_ms: list[int] = []
        self.waiting: list[When] = []

    def ask(self, request: Request, done: When, *, within_ms: int) -> None:
        self.asked.append(request)
        self.within_ms.append(within_ms)
        outcome = self.script(request)
        if outcome is None:
            self.waiting.append(done)
        else:
            done(outcome if isinstance(outcome, DuramenError) else Answer(outcome, 9))


def state_of(*partitions: PartitionState) -> ControllerState:
    """Four nodes, of which 3 drains and 4 is fenced; the stream `a` with these partitions."""
    state = ControllerState()
    state.apply(ClusterFormed("c"))
    for node_id in range(1, 5):
        endpoints = (Endpoint("kafka", f"h{node_id}", 9092), Endpoint("cluster", f"h{node_id}", 9096))
        directory, rack = DIRECTORIES[node_id], None if node_id == 1 else f"r{node_id}"
        state.apply(NodeRegistered(node_id, directory, f"i{node_id}", node_id, rack, endpoints=endpoints))
    state.apply(NodeDraining(3, 3))
    state.apply(NodeFenced(4, 4))
    state.apply(StreamCreated("a", str(STREAM), len(partitions)))
    for index, partition in enumerate(partitions):
        state.apply(difference(PartitionId(STREAM, index), None, partition))
    return state


def described() -> QuorumDescription:
    """Node 1 leads, 2 is behind, 3 follows without a vote."""
    ids = {number: ReplicaId(number, DIRECTORIES[number]) for number in (1, 2, 3)}
    voters = (ReplicaProgress(ids[1], 20, 20, 1000, 1000), ReplicaProgress(ids[2], 17, 15, 990, 900))
    endpoints = Voters([Voter(ids[1], "h1:9096"), Voter(ids[2], "[::2]:9096")])
    return QuorumDescription(1, 5, 15, voters, (ReplicaProgress(ids[3], 20, 20, 980, 980),), endpoints)


def office_of(script: Scripting, state: ControllerState | None = None) -> tuple[ClusterAdmin, Scripted]:
    """An office, and the controller behind it."""
    asking, known = Scripted(script), state_of() if state is None else state
    return ClusterAdmin(asking, lambda: known, described), asking


class Operated:
    """A broker's standing in a cluster as far as an operator sees it; all else is as `alone` has it."""

    def __init__(self, alone: Any, cluster_admin: ClusterAdmin) -> None:
        self._alone = alone
        self.cluster_admin = cluster_admin
        self.controller_id = 1

    @property
    def nodes(self) -> Sequence[Node]:
        return [node for node in self.cluster_admin.state.registrations if not node.fenced]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._alone, name)
