"""The kinds of groups, and the kind of a group id: an id names one group of one kind.

Each kind is a class that keeps its groups and stores their records, such as `coordinators/group/classic.py`. The
coordinator finds them through the registry and handles what they share: offsets, lists, descriptions, deletion.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from duramen.base.errors import DuramenError, GroupNotFound
from duramen.groups.values import GroupSnapshot

__all__ = ["CommitMember", "GroupDescription", "GroupKind", "GroupKinds", "GroupListing", "GroupsOfKind"]


class GroupKind(StrEnum):
    """Kafka's names of the kinds."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class CommitMember(NamedTuple):
    """The member that commits; a generation (or member epoch) below 0 means a consumer with manual assignment.

    `knows_epochs`: the request version supports member epochs and their errors (OffsetCommit 9). `partitions`: the
    partitions of the committed offsets, by topic and number, if known. `transactional`: the offsets take effect once a
    transaction is committed.
    """

    member_id: str
    instance_id: str | None
    generation: int
    knows_epochs: bool = False
    partitions: frozenset[tuple[str, int]] = frozenset()
    transactional: bool = False


class GroupListing(NamedTuple):
    """A row of ListGroups; `state` is Kafka's name of the state."""

    group_id: str
    protocol_type: str
    state: StrEnum
    kind: GroupKind = GroupKind.CLASSIC


class GroupDescription(NamedTuple):
    """A group with its members, as DescribeGroups shows groups of every kind.

    The assignments of consumers have the consumers' own encoding.
    """

    group_id: str
    state: StrEnum
    snapshot: GroupSnapshot
    kind: GroupKind = GroupKind.CLASSIC


class GroupsOfKind(Protocol):
    """All groups of one kind. Methods that take a group id require that the group exists and is of this kind."""

    @property
    def kind(self) -> GroupKind:
        """The kind of these groups."""

    def has(self, group_id: str) -> bool:
        """Whether there is a group of this kind with that id, in memory or stored."""

    def listing(self) -> Iterator[GroupListing]:
        """Every group of this kind, stored ones included."""

    def describe(self, group_id: str) -> GroupDescription:
        """A group with its members."""

    def empty_since_ms(self, group_id: str) -> int | None:
        """Since when a group has no members, in ms since 1970; None while it has some.

        0 if the time is not stored: such a group expires as soon as it has no offsets.
        """

    def subscribes(self, group_id: str, topic: str) -> bool:
        """Whether a member of the group subscribes to the topic."""

    def check_commit(self, group_id: str, member: CommitMember) -> None:
        """Raise the reason that keeps the member from committing offsets."""

    def check_delete_offsets(self, group_id: str) -> None:
        """Raise the reason that keeps every client from deleting any of the group's offsets."""

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Raise the reason that keeps a member from reading the group's offsets.

        Requests without id and epoch are allowed.
        """

    def discard_state(self, group_id: str, done: Callable[[DuramenError | None], None]) -> None:
        """Delete the state of an empty group besides its records, before its removal; or fail with GroupNotEmpty."""

    def remove(self, group_id: str) -> Sequence[bytes]:
        """Remove a group from memory; returns the keys of its records, which the caller deletes.

        GroupNotEmpty keeps it.
        """

    def restore(self, index: int | None) -> Iterator[None]:
        """Load the groups that have members, one by one, so that their session timeouts run.

        `index` selects one partition of `__consumer_offsets`; None selects all.
        """

    def let_go(self, those: Callable[[str], bool], error: DuramenError) -> None:
        """The node no longer coordinates these groups: clear their memory, and fail waiting requests with `error`."""


class GroupKinds:
    """The registered kinds, in the order of their registration."""

    def __init__(self, has_offsets: Callable[[str], bool]) -> None:
        """`has_offsets` tells whether a group has stored offsets."""
        self._kinds: list[GroupsOfKind] = []
        self._has_offsets = has_offsets

    def add(self, groups: GroupsOfKind) -> None:
        """Register a kind."""
        self._kinds.append(groups)

    def __iter__(self) -> Iterator[GroupsOfKind]:
        return iter(self._kinds)

    def of(self, group_id: str) -> GroupsOfKind | None:
        """The kind of a group; None if no kind has a group of that id, although offsets may be stored for it."""
        return next((groups for groups in self._kinds if groups.has(group_id)), None)

    def check(self, group_id: str, kind: GroupKind) -> None:
        """Raise GroupNotFound if the id belongs to a group of another kind, as Kafka does.

        A group that has only offsets counts as a classic one.
        """
        groups = self.of(group_id)
        if groups is not None:
            found = groups.kind
        elif self._has_offsets(group_id):
            found = GroupKind.CLASSIC
        else:
            return
        if found is not kind:
            raise GroupNotFound(f"group {group_id} is a {found} group, not a {kind} group")
