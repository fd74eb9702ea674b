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
    """Who commits; a generation (or member epoch) below 0 is a consumer that manages its partitions itself.

    `knows_epochs`: the request is of a version that knows member epochs and their errors (OffsetCommit 9).
    `partitions`: of which offsets are committed, by topic and number, where that is known.
    `transactional`: they count once a transaction is committed.
    """

    member_id: str
    instance_id: str | None
    generation: int
    knows_epochs: bool = False
    partitions: frozenset[tuple[str, int]] = frozenset()
    transactional: bool = False


class GroupListing(NamedTuple):
    """A line of the list of groups; `state` is Kafka's name of it."""

    group_id: str
    protocol_type: str
    state: StrEnum
    kind: GroupKind = GroupKind.CLASSIC


class GroupDescription(NamedTuple):
    """A group with its members, in the words of the classic protocol: what those of other kinds have of them.

    The assignments of consumers are encoded as they encode them themselves.
    """

    group_id: str
    state: StrEnum
    snapshot: GroupSnapshot
    kind: GroupKind = GroupKind.CLASSIC


class GroupsOfKind(Protocol):
    """All groups of one kind. Where a method takes a group's id, the group is there and of this kind."""

    @property
    def kind(self) -> GroupKind:
        """Which kind."""

    def has(self, group_id: str) -> bool:
        """Whether there is a group of this kind with that id, in memory or stored."""

    def listing(self) -> Iterator[GroupListing]:
        """Every group of this kind, those that are only stored included."""

    def describe(self, group_id: str) -> GroupDescription:
        """A group with its members."""

    def empty_since_ms(self, group_id: str) -> int | None:
        """Since when a group has no members, in ms since 1970; None while it has some.

        0 where that is not kept: such a group goes as soon as it has no offsets any more.
        """

    def subscribes(self, group_id: str, topic: str) -> bool:
        """Whether a member of the group wants the topic."""

    def check_commit(self, group_id: str, member: CommitMember) -> None:
        """Raise what keeps the member from committing offsets."""

    def check_delete_offsets(self, group_id: str) -> None:
        """Raise what keeps everybody from deleting any of the group's offsets."""

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Raise what keeps a member from reading the group's offsets; one without id and epoch may always."""

    def discard_state(self, group_id: str, done: Callable[[DuramenError | None], None]) -> None:
        """What is kept of a group without members beside its records goes, before it is removed; or GroupNotEmpty."""

    def remove(self, group_id: str) -> Sequence[bytes]:
        """Forget a group; the keys of its records, for the caller to remove. Raises GroupNotEmpty, and keeps it."""

    def restore(self, index: int | None) -> Iterator[None]:
        """Take in the groups that have members, one by one, so that those that are gone are noticed.

        Only those of a partition of the stream of offsets, None: all.
        """

    def let_go(self, those: Callable[[str], bool], error: DuramenError) -> None:
        """Groups with such ids are coordinated here no more: have nothing in memory, tell `error` to who waits."""


class GroupKinds:
    """The kinds that plugged in, in the order in which they did."""

    def __init__(self, has_offsets: Callable[[str], bool]) -> None:
        """`has_offsets` tells whether offsets are stored for a group."""
        self._kinds: list[GroupsOfKind] = []
        self._has_offsets = has_offsets

    def add(self, groups: GroupsOfKind) -> None:
        """Plug a kind in."""
        self._kinds.append(groups)

    def __iter__(self) -> Iterator[GroupsOfKind]:
        return iter(self._kinds)

    def of(self, group_id: str) -> GroupsOfKind | None:
        """The kind of a group; None where there is none of that id, though offsets may be stored for it."""
        return next((groups for groups in self._kinds if groups.has(group_id)), None)

    def check(self, group_id: str, kind: GroupKind) -> None:
        """Raise GroupNotFound where the id belongs to a group of another kind, as Kafka has it.

        A group of which there are only offsets is a classic one.
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
