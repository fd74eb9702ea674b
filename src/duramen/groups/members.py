"""The members of a group: their state, their member and instance ids, and their common protocols."""

from collections.abc import Iterator
from typing import Final

from duramen.base.errors import FencedInstance, UnknownMember
from duramen.groups.subscription import same_topics
from duramen.groups.values import JoinRequest, MemberSnapshot, MemberSubscription, Token

__all__ = ["ClassicMember", "ClassicMembers", "request_bytes"]

_CONSUMER: Final = "consumer"
_MEMBER_BYTES: Final = 1024  # the memory of a member without the fields of its join


def request_bytes(request: JoinRequest) -> int:
    """The memory of a member for the fields of its join, without its assignment."""
    names = len(request.client_id) + len(request.member_id or request.new_member_id) + len(request.instance_id or "")
    return _MEMBER_BYTES + names + sum(len(name) + len(metadata) for name, metadata in request.protocols)


class ClassicMember:
    """A member and the request of its that waits, if any."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "expires_ms",
        "id",
        "instance_id",
        "joining",
        "protocols",
        "rebalance_timeout_ms",
        "request_bytes",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, request: JoinRequest, now_ms: int) -> None:
        self.id = member_id
        self.instance_id = request.instance_id
        self.update(request)
        self.assignment = b""
        self.joining: Token | None = None
        self.syncing: Token | None = None
        self.expires_ms = now_ms + self.session_timeout_ms

    def update(self, request: JoinRequest) -> None:
        """Apply the fields of a repeated join."""
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = max(0, request.rebalance_timeout_ms)
        self.protocols = list(request.protocols)
        self.request_bytes = request_bytes(request)

    @property
    def held_bytes(self) -> int:
        """Its memory."""
        return self.request_bytes + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        """The member's subscription under a protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    @property
    def waits(self) -> bool:
        """A member whose request waits here is alive."""
        return self.joining is not None or self.syncing is not None

    def wants_the_same(self, other: "ClassicMember", protocol_type: str, protocol: str | None) -> bool:
        """Whether both have the same subscription, so that one can take over the other's assignment."""
        mine, theirs = self.metadata(protocol), other.metadata(protocol)
        return mine == theirs or (protocol_type == _CONSUMER and same_topics(mine, theirs))

    def snapshot(self, protocol: str | None) -> MemberSnapshot:
        """The member as it is stored and described; its subscription under `protocol`, or none for None."""
        return MemberSnapshot(
            self.id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            b"" if protocol is None else self.metadata(protocol),
            self.assignment,
        )


class ClassicMembers:
    """Members by id, in the order in which they came; static ones by their instance id too."""

    __slots__ = ("_by_id", "_group_id", "_static")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._by_id: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}  # member ids by group.instance.id

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(list(self._by_id.values()))

    def get(self, member_id: str | None) -> ClassicMember | None:
        """The member of that id."""
        return self._by_id.get(member_id or "")

    def static(self, instance_id: str | None) -> ClassicMember | None:
        """The static member of that instance id."""
        return self._by_id.get(self._static.get(instance_id or "", ""))

    def known(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member with this id. Raises UnknownMember, or FencedInstance if another one took its place."""
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is None:
                raise UnknownMember(f"group {self._group_id} has no member {instance_id}")
            if current != member_id:
                raise FencedInstance(f"another member joined as {instance_id}")
        member = self._by_id.get(member_id)
        if member is None:
            raise UnknownMember(f"group {self._group_id} has no member {member_id}")
        return member

    def add(self, member: ClassicMember) -> None:
        """Take a member in."""
        self._by_id[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id

    def remove(self, member: ClassicMember) -> None:
        """Let a member go."""
        del self._by_id[member.id]
        if member.instance_id is not None and self._static.get(member.instance_id) == member.id:
            del self._static[member.instance_id]

    # -- common protocols ---------------------------------------------------------------------------

    def first(self, *, joined: bool = False) -> str | None:
        """The id of the member that came first, of those that wait for their join if `joined`."""
        return next((member.id for member in self._by_id.values() if not joined or member.joining is not None), None)

    def all_joined(self) -> bool:
        """Whether every member waits for its join."""
        return all(member.joining is not None for member in self._by_id.values())

    def longest_rebalance_ms(self) -> int:
        """The longest rebalance timeout; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    def common_protocols(self, without: str = "") -> set[str] | None:
        """The protocols that all members but `without` know; None where there are no such members."""
        known = [{name for name, _ in member.protocols} for member in self._by_id.values() if member.id != without]
        return set.intersection(*known) if known else None

    def elected_protocol(self) -> str:
        """Of the protocols that all members know, the one that most of them prefer."""
        common = self.common_protocols() or set()
        votes: dict[str, int] = {}
        for member in self._by_id.values():
            choice = next(name for name, _ in member.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def subscriptions(self, protocol: str | None) -> tuple[MemberSubscription, ...]:
        """The members as the leader gets them."""
        return tuple(
            MemberSubscription(member.id, member.instance_id, member.metadata(protocol))
            for member in self._by_id.values()
        )
