"""The in-sync set as its leader knows it: the conditions of a commit, and pending changes of the set. Pure.

Between a proposal and its outcome, only the controller knows which of the two sets is in force. Meanwhile the leader
commits only records that are on all replicas of both sets (KIP-497). A refused or unanswered proposal may still be in
transit; only a later partition epoch invalidates it.
"""

from collections.abc import Iterable

from duramen.replication.messages import AlterPartition, InSyncReplica
from duramen.replication.partition import ReplicatedPartition

__all__ = ["InSync"]


class InSync:
    """The in-sync set of one leader epoch."""

    __slots__ = ("_partition_epoch", "attempted", "committed", "due_ms", "in_flight")

    def __init__(self, state: ReplicatedPartition) -> None:
        self._partition_epoch = -1
        self.take(state)

    def take(self, state: ReplicatedPartition) -> None:
        """The controller's new state: it includes or ends the earlier proposal.

        The same partition epoch as before gives no information: a proposal may still be in transit.
        """
        if state.partition_epoch <= self._partition_epoch:
            return
        self.committed = state.in_sync
        self._partition_epoch = state.partition_epoch
        self.attempted: frozenset[int] = frozenset()
        self.in_flight: AlterPartition | None = None
        self.due_ms = 0

    @property
    def maximal(self) -> frozenset[int]:
        """Every replica that may be in the set."""
        return self.committed | self.attempted if self.attempted else self.committed

    @property
    def is_open(self) -> bool:
        """Whether the set may contain more replicas than the controller has confirmed."""
        return not self.attempted <= self.committed

    def propose(
        self, leader: InSyncReplica, leader_epoch: int, in_sync: Iterable[InSyncReplica], due_ms: int
    ) -> AlterPartition:
        """The proposal to send to the controller, again at `due_ms`."""
        members = tuple(sorted(in_sync))
        self.attempted |= {member.node_id for member in members}
        self.in_flight = AlterPartition(*leader, leader_epoch, self._partition_epoch, members)
        self.due_ms = due_ms
        return self.in_flight

    def refused(self, proposal: AlterPartition, due_ms: int) -> None:
        """Note that the controller refused the proposal; the next proposal is possible at `due_ms`."""
        if proposal == self.in_flight:
            self.in_flight = None
            self.due_ms = due_ms
