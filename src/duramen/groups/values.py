"""Inputs and outputs of a group's state machine: requests, results, effects, snapshots. Values only."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from duramen.base.errors import DuramenError

__all__ = [
    "Effect",
    "GroupSnapshot",
    "GroupState",
    "JoinRequest",
    "JoinResult",
    "MemberSnapshot",
    "MemberSubscription",
    "ReplyEffect",
    "StoreEffect",
    "SyncRequest",
    "SyncResult",
    "Token",
]

Token = Any
"""A value that the caller gets back with a reply."""


class GroupState(StrEnum):
    """Kafka's names of the states."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class JoinRequest(NamedTuple):
    """A member joins, or joins again. `new_member_id` becomes its id if it has none yet."""

    member_id: str
    instance_id: str | None
    new_member_id: str
    id_required: bool  # the member can be asked to join again with its id (KIP-394)
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    can_skip_assignment: bool = False


class MemberSubscription(NamedTuple):
    """A member as the group's leader gets it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to a join that succeeded; `members` is filled for the leader only."""

    generation: int
    protocol_type: str
    protocol: str
    leader_id: str
    member_id: str
    members: tuple[MemberSubscription, ...]
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """A member asks for its assignment; the leader brings everybody's."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Sequence[tuple[str, bytes]]


class SyncResult(NamedTuple):
    """The answer to a sync that succeeded."""

    protocol_type: str
    protocol: str
    assignment: bytes


class ReplyEffect(NamedTuple):
    """Answer the request that came with `token`."""

    token: Token
    result: JoinResult | SyncResult | DuramenError


class StoreEffect(NamedTuple):
    """Store the group as it is in `snapshot`, then call `stored`; `replies` wait until then."""

    snapshot: "GroupSnapshot"
    replies: tuple[ReplyEffect, ...] = ()


Effect = ReplyEffect | StoreEffect


class MemberSnapshot(NamedTuple):
    """A member as it is stored and described."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupSnapshot(NamedTuple):
    """A group as it is stored and described."""

    generation: int
    protocol_type: str
    protocol: str | None
    leader_id: str | None
    members: tuple[MemberSnapshot, ...]
