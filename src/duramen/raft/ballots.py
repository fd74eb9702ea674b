"""The promises of a voter and the count of votes. Pure.

A ballot is on disk before any other node learns of it. Otherwise a voter could answer, restart and promise the same
epoch twice.
"""

from collections.abc import Collection
from typing import NamedTuple

from duramen.raft.voters import ReplicaId, Voters

__all__ = ["Ballot", "Count"]


class Ballot(NamedTuple):
    """The newest epoch that a replica knows, and the candidate that it voted for in this epoch."""

    epoch: int = 0
    voted: ReplicaId | None = None

    def allows(self, candidate: ReplicaId) -> bool:
        """Whether the voter can vote for the candidate in this epoch."""
        return self.voted in (None, candidate)


class Count:
    """The responses that a candidate got from the voters it knows."""

    __slots__ = ("_voters", "granted", "refused")

    def __init__(self, voters: Voters, me: ReplicaId) -> None:
        self._voters = voters
        self.granted = {me}
        self.refused: set[ReplicaId] = set()

    def take(self, voter: ReplicaId, granted: bool) -> None:
        """Count a response; responses from other replicas and repeated responses change nothing."""
        (self.granted if granted else self.refused).add(voter)

    @property
    def unheard(self) -> list[ReplicaId]:
        """The voters that have not responded."""
        return [voter for voter in self._voters.ids if voter not in self.granted and voter not in self.refused]

    @property
    def won(self) -> bool:
        """Whether a majority granted its vote."""
        return self._voters.majority(self.granted)

    def is_lost(self, gone: Collection[int]) -> bool:
        """Whether no majority can grant its vote any more; the `gone` nodes will not respond."""
        hopes = [voter for voter in self._voters.ids if voter not in self.refused and voter.node_id not in gone]
        return not self._voters.majority({*hopes, *self.granted})
