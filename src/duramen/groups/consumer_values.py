"""Inputs and outputs of the state machine of a consumer-protocol group (KIP-848). Values only."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from duramen.groups.assignors import ASSIGNORS, Assignor
from duramen.groups.topics import TopicPartition

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "STATIC_LEAVE_EPOCH",
    "ClassicSide",
    "ConsumerConfig",
    "ConsumerHeartbeatResult",
    "ConsumerMember",
    "ConsumerState",
    "HeartbeatRequest",
    "MemberState",
]

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""The member epochs of requests that mean: to join; to leave; to leave and to come back as the same instance."""


class ConsumerConfig(NamedTuple):
    """Settings of all groups; times in ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = (1 << 31) - 1
    assignors: Mapping[str, Assignor] = ASSIGNORS  # the first is the default


class ConsumerState(StrEnum):
    """Kafka's names of the states of a group."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """Where a member stands on its way to its target, by the numbers that are stored."""

    STABLE = 0
    UNREVOKED = 1  # it has to revoke partitions and has not confirmed that
    UNRELEASED = 2  # other members have not revoked yet all partitions of its target
    UNKNOWN = 127


class ClassicSide(NamedTuple):
    """The join of a member of the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMember(NamedTuple):
    """A member; `classic` is None for one of the consumer protocol."""

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicSide | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: frozenset[TopicPartition] = frozenset()
    revoking: frozenset[TopicPartition] = frozenset()
    since: Mapping[TopicPartition, int] = MappingProxyType({})  # the epoch in which it was given each, where known

    def settled_at(self, target_epoch: int) -> bool:
        """Whether it has all of the target of that epoch and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def holding(self, other: "ConsumerMember") -> "ConsumerMember":
        """The member with the partitions of the other, and in its epoch."""
        return self._replace(
            epoch=other.epoch, previous_epoch=other.previous_epoch, state=other.state, assigned=other.assigned,
            revoking=other.revoking, since=other.since,
        )  # fmt: skip

    def had(self, place: TopicPartition, epoch: int) -> bool:
        """Whether a partition that it has was its own in that epoch already."""
        return place in self.assigned | self.revoking and self.since.get(place, self.epoch) <= epoch

    def having_revoked(self) -> "ConsumerMember":
        """The member without the partitions to revoke."""
        since = {place: epoch for place, epoch in self.since.items() if place in self.assigned}
        return self._replace(revoking=frozenset(), since=since)

    def at_epoch(self, epoch: int) -> "ConsumerMember":
        """The member once it has received this epoch."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch)


class HeartbeatRequest(NamedTuple):
    """The heartbeat of a member of the consumer protocol; None (rebalance timeout -1): unchanged."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicPartition] | None = None

    @property
    def is_full(self) -> bool:
        """Whether it has all fields: the member wants a full response."""
        subscribed = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms != -1 and subscribed and self.owned is not None


class ConsumerHeartbeatResult(NamedTuple):
    """The response; `assigned` is None if the member has received it before."""

    member_id: str
    epoch: int
    assigned: frozenset[TopicPartition] | None = None
