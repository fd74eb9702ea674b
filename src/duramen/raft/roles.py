"""The roles of a replica and what makes one of another: the state table, as data (KIP-595, KIP-996). Pure."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

__all__ = ["TRANSITIONS", "Cause", "Role"]


class Role(Enum):
    """What a replica is in its epoch. A replica that does not vote is unattached or a follower."""

    UNATTACHED = "unattached"
    """It knows of no leader, and waits for one or for its time to stand."""
    PROSPECTIVE = "prospective"
    """It asks whether it would be elected, without disturbing the epoch."""
    CANDIDATE = "candidate"
    """It asks for votes in an epoch of its own."""
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"
    """It led this epoch, leads no more, and never will again in this epoch."""


class Cause(Enum):
    """Why a replica changes its role."""

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


def _table() -> Mapping[tuple[Role, Cause], Role]:
    waits, follows = (Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE), (Role.LEADER, Role.FOLLOWER, Role.RESIGNED)
    table = {(role, Cause.EPOCH): Role.UNATTACHED for role in (*waits, *follows)}
    table |= {(role, Cause.LEADER): Role.FOLLOWER for role in waits}
    table |= {(Role.LEADER, cause): Role.RESIGNED for cause in (Cause.DESERTED, Cause.REMOVED, Cause.ASKED)}
    table |= {(role, Cause.ASKED): Role.UNATTACHED for role in (Role.PROSPECTIVE, Role.CANDIDATE)}
    return MappingProxyType(
        table
        | {
            (Role.UNATTACHED, Cause.TIMEOUT): Role.PROSPECTIVE,
            (Role.UNATTACHED, Cause.VOTED): Role.UNATTACHED,
            (Role.PROSPECTIVE, Cause.VOTED): Role.UNATTACHED,
            (Role.PROSPECTIVE, Cause.WON): Role.CANDIDATE,
            (Role.PROSPECTIVE, Cause.LOST): Role.UNATTACHED,
            (Role.PROSPECTIVE, Cause.TIMEOUT): Role.UNATTACHED,
            (Role.CANDIDATE, Cause.WON): Role.LEADER,
            (Role.CANDIDATE, Cause.LOST): Role.UNATTACHED,
            (Role.CANDIDATE, Cause.TIMEOUT): Role.PROSPECTIVE,
            (Role.FOLLOWER, Cause.TIMEOUT): Role.PROSPECTIVE,
            (Role.FOLLOWER, Cause.CALLED): Role.PROSPECTIVE,
            (Role.FOLLOWER, Cause.ENDED): Role.UNATTACHED,
            (Role.RESIGNED, Cause.TIMEOUT): Role.UNATTACHED,
        }
    )


TRANSITIONS: Final = _table()
"""The role that follows from a role and a cause; what is not here leaves the role as it is."""
