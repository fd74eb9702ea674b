"""The promises of a voter: what it has promised, when it may promise more, and how they are counted. Pure.

A ballot is on disk before any other node learns of it: a voter that answers first and restarts could promise the same
epoch twice.
"""

from collections.abc import Collection
from typing import NamedTuple

from duramen.raft.voters import ReplicaId, Voters

__all__ = ["Ballot", "Count"]


class Ballot(NamedTuple):
    """The newest epoch that a replica knows, and whom it gave its vote in it."""

    epoch: int = 0
    voted: ReplicaId | None = None

    def allows(self, candidate: ReplicaId) -> bool:
        """Whether the vote of this epoch is the candidate's, or nobody's yet."""
        return self.voted in (None, candidate)


class Count:
    """The answers that a candidate got from the voters it knows."""

    __slots__ = ("_voters", "granted", "refused")

    def __init__(self, voters: Voters, me: ReplicaId) -> None:
        self._voters = voters
        self.granted = {me}
        self.refused: set[ReplicaId] = set()

    def take(self, voter: ReplicaId, granted: bool) -> None:
        """An answer; what does not come from a voter, or comes again, changes nothing."""
        (self.granted if granted else self.refused).add(voter)

    @property
    def unheard(self) -> list[ReplicaId]:
        """The voters that have not answered."""
        return [voter for voter in self._voters.ids if voter not in self.granted and voter not in self.refused]

    @property
    def won(self) -> bool:
        """A majority granted it."""
        return self._voters.majority(self.granted)

    def is_lost(self, gone: Collection[int]) -> bool:
        """No majority can grant it any more, where the nodes that are `gone` will not answer."""
        hopes = [voter for voter in self._voters.ids if voter not in self.refused and voter.node_id not in gone]
        return not self._voters.majority({*hopes, *self.granted})
