"""The roles of a replica and the transitions between them: the state table, as data (KIP-595, KIP-996). Pure."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

__all__ = ["TRANSITIONS", "Cause", "RaftRole"]


class RaftRole(Enum):
    """The role of a replica in its epoch. A replica that does not vote is unattached or a follower."""

    UNATTACHED = "unattached"
    """The replica knows no leader, and waits for one or for its election timeout."""
    PROSPECTIVE = "prospective"
    """The replica asks for pre-votes, which do not change the epoch."""
    CANDIDATE = "candidate"
    """The replica asks for votes in its own new epoch."""
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"
    """The replica led this epoch, has resigned, and never leads again in this epoch."""


class Cause(Enum):
    """The cause of a role change."""

    EPOCH = "a higher epoch was heard of"
    LEADER = "the leader of the epoch was heard of"
    TIMEOUT = "nothing happened for too long"
    VOTED = "it gave its vote"
    WON = "a majority is for it"
    LOST = "no majority will be for it"
    CALLED = "the leader that resigned wants it to stand at once"
    ENDED = "its leader leads no more"
    DESERTED = "no majority fetches any more"
    REMOVED = "it is committed that it is no voter"
    ASKED = "it was asked to resign, or to stand no more"


def _table() -> Mapping[tuple[RaftRole, Cause], RaftRole]:
    waits, follows = (
        (RaftRole.UNATTACHED, RaftRole.PROSPECTIVE, RaftRole.CANDIDATE),
        (RaftRole.LEADER, RaftRole.FOLLOWER, RaftRole.RESIGNED),
    )
    table = {(role, Cause.EPOCH): RaftRole.UNATTACHED for role in (*waits, *follows)}
    table |= {(role, Cause.LEADER): RaftRole.FOLLOWER for role in waits}
    table |= {(RaftRole.LEADER, cause): RaftRole.RESIGNED for cause in (Cause.DESERTED, Cause.REMOVED, Cause.ASKED)}
    table |= {(role, Cause.ASKED): RaftRole.UNATTACHED for role in (RaftRole.PROSPECTIVE, RaftRole.CANDIDATE)}
    return MappingProxyType(
        table
        | {
            (RaftRole.UNATTACHED, Cause.TIMEOUT): RaftRole.PROSPECTIVE,
            (RaftRole.UNATTACHED, Cause.VOTED): RaftRole.UNATTACHED,
            (RaftRole.PROSPECTIVE, Cause.VOTED): RaftRole.UNATTACHED,
            (RaftRole.PROSPECTIVE, Cause.WON): RaftRole.CANDIDATE,
            (RaftRole.PROSPECTIVE, Cause.LOST): RaftRole.UNATTACHED,
            (RaftRole.PROSPECTIVE, Cause.TIMEOUT): RaftRole.UNATTACHED,
            (RaftRole.CANDIDATE, Cause.WON): RaftRole.LEADER,
            (RaftRole.CANDIDATE, Cause.LOST): RaftRole.UNATTACHED,
            (RaftRole.CANDIDATE, Cause.TIMEOUT): RaftRole.PROSPECTIVE,
            (RaftRole.FOLLOWER, Cause.TIMEOUT): RaftRole.PROSPECTIVE,
            (RaftRole.FOLLOWER, Cause.CALLED): RaftRole.PROSPECTIVE,
            (RaftRole.FOLLOWER, Cause.ENDED): RaftRole.UNATTACHED,
            (RaftRole.RESIGNED, Cause.TIMEOUT): RaftRole.UNATTACHED,
        }
    )


TRANSITIONS: Final = _table()
"""The role that follows from a role and a cause. Without an entry the role stays the same."""
