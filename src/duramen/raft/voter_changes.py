"""Changes of the voters, one at a time (KIP-853): the valid requests and the conditions for them. Pure.

Two sets that differ by one voter have no disjoint majorities, so a new set may be in force while the old one still
decides elsewhere. This requires that a second change waits until the first is committed. In a leader's epoch it also
waits until an entry of that epoch is committed: earlier leaders may have left uncommitted changes.
"""

from enum import Enum
from typing import NamedTuple

from duramen.raft.voters import ReplicaId, Voter, Voters

__all__ = ["Change", "VoterAddition", "VoterChangeRefusal", "VoterRemoval", "VoterUpdate", "changed"]


class VoterAddition(NamedTuple):
    """Add a learner that has caught up to the voters."""

    voter: Voter


class VoterRemoval(NamedTuple):
    """Remove a voter."""

    replica: ReplicaId


class VoterUpdate(NamedTuple):
    """Change the endpoint of a voter."""

    voter: Voter


Change = VoterAddition | VoterRemoval | VoterUpdate


class VoterChangeRefusal(Enum):
    """The reason why this replica refuses a change or another request now."""

    NOT_LEADER = "only the leader decides that"
    NOT_READY = "the leader has committed nothing of its own epoch yet"
    UNDERWAY = "another change of the voters is not committed yet"
    DUPLICATE = "the node already has a voter: remove it first"
    UNKNOWN = "there is no such voter"
    NOT_CAUGHT_UP = "the learner has not synced all that is committed, or is silent"
    LAST = "it is the only voter"


def changed(voters: Voters, change: Change) -> Voters | VoterChangeRefusal:
    """The set of voters after the change."""
    match change:
        case VoterAddition(voter):
            present = voters.of_node(voter.id.node_id)
            return VoterChangeRefusal.DUPLICATE if present is not None else voters.including(voter)
        case VoterRemoval(replica):
            if replica not in voters:
                return VoterChangeRefusal.UNKNOWN
            return VoterChangeRefusal.LAST if len(voters) == 1 else voters.without(replica)
        case VoterUpdate(voter):
            return voters.including(voter) if voter.id in voters else VoterChangeRefusal.UNKNOWN
