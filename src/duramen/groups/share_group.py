"""The members of a share group (KIP-932): membership, assignments, epochs. Pure.

Every heartbeat of a member carries the epoch that it knows. Every change of members, subscriptions or topics starts a
new group epoch with a new assignment. A member enters it with its next heartbeat, because nothing has to be revoked
first.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from duramen.base.errors import FencedMemberEpoch, GroupFull, UnknownMember
from duramen.groups.share_assignor import Place, assign

__all__ = [
    "JOINING",
    "LEAVING",
    "ShareGroup",
    "ShareGroupState",
    "ShareHeartbeat",
    "ShareHeartbeatResult",
    "ShareMember",
]

JOINING = 0
LEAVING = -1

_MEMBER_BYTES = 1024

Topics = Callable[[str], tuple[UUID, int] | None]
"""The id and the number of partitions of the topic of a name."""


class ShareGroupState(StrEnum):
    """Kafka's names of the states."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareHeartbeat(NamedTuple):
    """A heartbeat. `topics` and `rack_id` are None if they are unchanged."""

    member_id: str
    epoch: int
    rack_id: str | None
    topics: Sequence[str] | None
    client_id: str
    client_host: str


class ShareHeartbeatResult(NamedTuple):
    """The member's epoch, and its assignment where it does not know it."""

    member_id: str
    epoch: int
    assignment: frozenset[Place] | None


class ShareMember:
    """A member. `deadline_ms` is when it is given up."""

    __slots__ = (
        "assignment", "client_host", "client_id", "deadline_ms", "epoch", "id", "previous_epoch", "rack_id", "topics",
    )  # fmt: skip

    def __init__(self, member_id: str) -> None:
        self.id = member_id
        self.rack_id: str | None = None
        self.client_id = self.client_host = ""
        self.topics: tuple[str, ...] = ()
        self.epoch = self.previous_epoch = 0
        self.assignment: frozenset[Place] = frozenset()
        self.deadline_ms = 0

    @property
    def held_bytes(self) -> int:
        """Its approximate memory."""
        return _MEMBER_BYTES + sum(64 + len(topic) for topic in self.topics)


class ShareGroup:
    """A share group. `epoch` is the one of its present assignment."""

    def __init__(self, group_id: str, epoch: int = 0) -> None:
        self.id = group_id
        self.epoch = epoch
        self._members: dict[str, ShareMember] = {}
        self._target: dict[str, frozenset[Place]] = {}
        self._seen: dict[str, tuple[UUID, int]] = {}  # the topics that the assignment was made for
        self.names: object = None  # the version of names against which the subscriptions were resolved

    def __iter__(self) -> Iterator[ShareMember]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    @property
    def state(self) -> ShareGroupState:
        """Where it is."""
        return ShareGroupState.STABLE if self._members else ShareGroupState.EMPTY

    @property
    def held_bytes(self) -> int:
        """The approximate memory of its members."""
        return sum(member.held_bytes for member in self)

    @property
    def places(self) -> set[Place]:
        """Every partition that is assigned to a member."""
        return {place for places in self._target.values() for place in places}

    def subscribes(self, topic: str) -> bool:
        """Whether a member wants the topic."""
        return any(topic in member.topics for member in self)

    def topics_of(self, member_id: str) -> Sequence[str]:
        """The names that the member subscribes to."""
        member = self._members.get(member_id)
        return () if member is None else member.topics

    def held_for(self, member_id: str) -> int:
        """The memory of the member."""
        member = self._members.get(member_id)
        return 0 if member is None else member.held_bytes

    # -- members ------------------------------------------------------------------------------------

    def heartbeat(
        self, heartbeat: ShareHeartbeat, topics: Topics, now_ms: int, *, session_ms: int, max_size: int
    ) -> ShareHeartbeatResult:
        """A member joins or is alive. Raises GroupFull, UnknownMember, FencedMemberEpoch."""
        member = self._find(heartbeat, max_size)
        member.deadline_ms = now_ms + session_ms
        changed = heartbeat.member_id not in self._members
        self._members[member.id] = member
        if heartbeat.rack_id is not None:
            member.rack_id = heartbeat.rack_id
        member.client_id, member.client_host = heartbeat.client_id, heartbeat.client_host
        wanted = member.topics if heartbeat.topics is None else tuple(sorted(set(heartbeat.topics)))
        if changed or wanted != member.topics:
            member.topics = wanted
            self._assign(topics)
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch
        before, member.assignment = member.assignment, self._target.get(member.id, frozenset())
        known = heartbeat.epoch == member.epoch and before == member.assignment
        return ShareHeartbeatResult(member.id, member.epoch, None if known else member.assignment)

    def _find(self, heartbeat: ShareHeartbeat, max_size: int) -> ShareMember:
        member = self._members.get(heartbeat.member_id)
        if heartbeat.epoch == JOINING:
            if member is None and len(self._members) >= max_size:
                raise GroupFull(f"share group {self.id} has {max_size} members")
            return member or ShareMember(heartbeat.member_id)
        if member is None:
            raise UnknownMember(f"share group {self.id} has no member {heartbeat.member_id}")
        if heartbeat.epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpoch(
                f"member {member.id} of share group {self.id} is in epoch {member.epoch}, not {heartbeat.epoch}"
            )
        return member

    def leave(self, member_id: str, topics: Topics) -> None:
        """A member goes. Raises UnknownMember."""
        if self._members.pop(member_id, None) is None:
            raise UnknownMember(f"share group {self.id} has no member {member_id}")
        self._assign(topics)

    def expire(self, topics: Topics, now_ms: int) -> list[str]:
        """Give up the members whose time is up."""
        late = [member.id for member in self if member.deadline_ms <= now_ms]
        for member_id in late:
            del self._members[member_id]
        if late:
            self._assign(topics)
        return late

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do."""
        return min((member.deadline_ms for member in self), default=None)

    # -- assigning ----------------------------------------------------------------------------------

    def topics_changed(self, topics: Topics) -> bool:
        """Topics have come, grown or gone: whether that makes a new assignment."""
        if self._known(topics) == self._seen:
            return False
        self._assign(topics)
        return True

    def _known(self, topics: Topics) -> dict[str, tuple[UUID, int]]:
        found = {name: topics(name) for name in sorted({name for member in self for name in member.topics})}
        return {name: topic for name, topic in found.items() if topic is not None}

    def _assign(self, topics: Topics) -> None:
        self.epoch += 1
        self._seen = self._known(topics)
        wanted = {
            member.id: {self._seen[name][0] for name in member.topics if name in self._seen} for member in self
        }  # fmt: skip
        self._target = assign(wanted, dict(self._seen.values()), self._target)
