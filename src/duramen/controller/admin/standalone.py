"""Operators' requests to a standalone node: decided as in a cluster of this one node, which cannot change."""

from collections.abc import Callable
from typing import Final

from duramen.base.errors import DuramenError, RequestInvalid, VoterDuplicate, VoterNotFound
from duramen.broker.control import requests
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import Answer, Observed, Outcome, Value, When
from duramen.controller.active.admin_requests import grant
from duramen.controller.active.pending_changes import PendingChanges
from duramen.controller.admin.cluster import ClusterAdmin
from duramen.metadata.events import StreamCreated
from duramen.metadata.partitions import PartitionId, PartitionState, difference
from duramen.metadata.state import ControllerState
from duramen.raft.description import QuorumDescription

__all__ = ["StandaloneControllerClient", "standalone_admin"]

_FIRST_EPOCH: Final = 1


class StandaloneControllerClient:
    """Responds at once. `described` returns the quorum of this one node."""

    def __init__(
        self, node_id: int, state: Callable[[], ControllerState], described: Callable[[], QuorumDescription]
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._described = described

    def ask(self, request: Request, done: When, *, within_ms: int) -> None:
        """Decide; changes are refused."""
        del within_ms
        outcome: Outcome
        try:
            outcome = Answer(self._decide(request), 0)
        except DuramenError as error:
            outcome = error
        done(outcome)

    def _decide(self, request: Request) -> Value:
        match request:
            case requests.Observe():
                seen = self._described()
                return Observed(*seen[:5], tuple(seen.endpoints))
            case requests.AddVoter(voter) if voter.id.node_id == self._node_id:
                raise VoterDuplicate(f"node {self._node_id} is the only voter already")
            case requests.RemoveVoter(replica) if replica not in self._described().endpoints:
                raise VoterNotFound(f"{replica} is no voter")
            case requests.AddVoter() | requests.RemoveVoter():
                raise self._refusal()
        place: PartitionId | None = getattr(request, "place", None)
        draft = PendingChanges(self._cluster_of_one(place), 0)
        value = grant(request, draft)
        if draft.events:
            raise self._refusal()
        return value

    def _refusal(self) -> RequestInvalid:
        return RequestInvalid(f"node {self._node_id} is standalone: there is no other node for this")

    def _cluster_of_one(self, place: PartitionId | None) -> ControllerState:
        """A cluster of this node, and the partition of the request."""
        known, state = self._state(), ControllerState()
        state.registrations = known.registrations.copy()
        stream = None if place is None else known.stream_by_id(place.stream_id)
        if place is not None and stream is not None:
            state.apply(StreamCreated(stream.name, str(stream.id), stream.partitions, dict(stream.config)))
            own = PartitionState((self._node_id,), (self._node_id,), self._node_id, _FIRST_EPOCH)
            state.apply(difference(place, None, own))
        return state


def standalone_admin(
    node_id: int, state: Callable[[], ControllerState], described: Callable[[], QuorumDescription]
) -> ClusterAdmin:
    """The cluster admin of a standalone node."""
    return ClusterAdmin(StandaloneControllerClient(node_id, state, described), state, described)
