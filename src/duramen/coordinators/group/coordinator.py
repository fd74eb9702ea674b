"""The group coordinator: determines a group's kind, stores offsets, lists, describes and deletes groups.

`offset_expiration` removes old offsets. Each kind has a module of its own (`kinds` defines the common interface). Every
operation calls its `done` once. Times come from the clock and the deadlines.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    GroupIdInvalid,
    GroupNotFound,
    GroupSubscribed,
    IllegalGeneration,
    InconsistentProtocol,
    NodeStopping,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownMember,
)
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock, Randomness
from duramen.base.settings import Settings
from duramen.broker.streams import BrokerStreams
from duramen.coordinators.group.classic import ClassicGroups, JoinDone, LeavingMember
from duramen.coordinators.group.consumer import ConsumerGroups, HeartbeatDone
from duramen.coordinators.group.kinds import (
    CommitMember,
    GroupDescription,
    GroupKind,
    GroupKinds,
    GroupListing,
    GroupsOfKind,
)
from duramen.coordinators.group.memory import GroupRoom
from duramen.coordinators.group.offset_expiration import OffsetExpiration, record_keys
from duramen.coordinators.group.offsets import GroupOffsets
from duramen.coordinators.group.rows import Key
from duramen.coordinators.group.topics import GroupTopics
from duramen.groups.consumer_classic import topics_wanted
from duramen.groups.consumer_values import ConsumerState, HeartbeatRequest
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.groups.share_group import ShareGroupState
from duramen.groups.values import GroupSnapshot, GroupState, JoinRequest, SyncRequest

__all__ = ["CommitMember", "Coordinator", "GroupDescription", "GroupListing", "LeavingMember"]

_MEMBERS_SHARE: Final = 8  # the members of all groups use at most an eighth of memory.limit.bytes

_RESTORED_AT_ONCE: Final = 100  # groups per step: a few milliseconds

_OF_CLASSIC_MEMBERS: Final = frozenset({GroupKind.CLASSIC, GroupKind.CONSUMER})  # groups convert between the two

_STATES: Final[Mapping[GroupKind, Sequence[StrEnum]]] = {
    GroupKind.CLASSIC: list(GroupState),
    GroupKind.CONSUMER: list(ConsumerState),
    GroupKind.SHARE: list(ShareGroupState),
}

Done = Callable[[DuramenError | None], None]


class Coordinator:
    """All groups of this node. `kinds` is the registry of kinds of groups."""

    def __init__(
        self,
        offsets: GroupOffsets,
        streams: BrokerStreams,
        clock: Clock,
        deadlines: Deadlines,
        randomness: Randomness,
        settings: Settings,
        configs: Callable[[str], Mapping[str, str]],
        metrics: Metrics,
        report: Callable[[str], None],
        *,
        alone: bool,
    ) -> None:
        """`configs` returns the configs that a group overrides.

        `report` receives, at a limited rate, a message about members that are refused because the memory budget is used
        up.
        """
        self._offsets = offsets
        self.topics = GroupTopics(streams)
        self._clock = clock
        self._deadlines = deadlines
        self._randomness = randomness
        self._max_metadata_bytes = settings.integer("offset.metadata.max.bytes")
        self.room = GroupRoom(settings.integer("memory.limit.bytes") // _MEMBERS_SHARE, clock, report)
        self.classic = ClassicGroups(offsets, clock, deadlines, settings, self.room)
        self.kinds = GroupKinds(self._has_offsets)
        self.consumer = ConsumerGroups(
            offsets, streams, self.topics, self.classic, clock, deadlines, settings, configs, self.room, report
        )
        self.kinds.add(self.classic)
        self.kinds.add(self.consumer)
        retention_ms = settings.integer("offsets.retention.minutes") * 60_000
        self.expiration = OffsetExpiration(offsets, self.kinds, self.topics, clock, deadlines, retention_ms)
        offsets.groups = self
        self._restored = not alone
        self._stopping = False
        self._gauges = {
            (state.value, kind.value): metrics.counter("duramen_groups", state.value, kind.value)
            for kind, states in _STATES.items()
            for state in states
        }

    def _has_offsets(self, group_id: str) -> bool:
        return next(self._offsets.of_group(group_id), None) is not None

    def check(self, group_id: str) -> None:
        """Raise the reason that keeps every request about the group from being served."""
        if self._stopping:
            raise NodeStopping("this node is stopping")
        if not group_id:
            raise GroupIdInvalid("a group needs an id")
        self.check_coordinated(group_id)

    def check_coordinated(self, group_id: str) -> None:
        """Raise NotCoordinator, CoordinatorLoading or StorageFailed unless the group is coordinated here."""
        self._offsets.check(group_id)

    def new_member_id(self, prefix: str) -> str:
        """A new member id: the client id (or instance id), as clients expect, and a unique suffix."""
        token = self._randomness.token(16).hex()
        return f"{prefix}-{token[:8]}-{token[8:12]}-{token[12:16]}-{token[16:20]}-{token[20:]}"

    # -- members of the classic protocol ------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest, done: JoinDone) -> None:
        """A member joins; responds when the rebalance is complete."""
        try:
            self.check(group_id)
            self.classic.check_session(request.session_timeout_ms)
            kind = self._kind(group_id)
            if kind is GroupKind.CONSUMER and self.consumer.is_empty(group_id):
                self.consumer.discard(group_id)
                kind = GroupKind.CLASSIC
            if kind not in _OF_CLASSIC_MEMBERS:
                raise InconsistentProtocol(f"group {group_id} is a {kind} group")
        except DuramenError as error:
            done(error)
            return
        if kind is GroupKind.CONSUMER:
            then = partial(self.consumer.join, group_id, request, done)
            self._when_named(group_id, topics_wanted(request), None, then, done)
        else:
            self.classic.join(group_id, request, done)

    def _kind(self, group_id: str) -> GroupKind:
        found = self.kinds.of(group_id)
        return GroupKind.CLASSIC if found is None else found.kind

    def _of_member(self, group_id: str) -> GroupKind:
        """The kind of a group that a classic member names. Raises UnknownMember."""
        self.check(group_id)
        kind = self._kind(group_id)
        if kind not in _OF_CLASSIC_MEMBERS:
            raise UnknownMember(f"group {group_id} is a {kind} group")
        return kind

    def sync(self, group_id: str, request: SyncRequest, done: JoinDone) -> None:
        """A member requests its assignment; responds when the leader has sent it."""
        try:
            kind = self._of_member(group_id)
        except DuramenError as error:
            done(error)
            return
        (self.consumer if kind is GroupKind.CONSUMER else self.classic).sync(group_id, request, done)

    def heartbeat(self, group_id: str, member: CommitMember, done: Done) -> None:
        """A heartbeat of a member."""
        try:
            kind = self._of_member(group_id)
        except DuramenError as error:
            done(error)
            return
        (self.consumer.beat if kind is GroupKind.CONSUMER else self.classic.heartbeat)(group_id, member, done)

    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        done: Callable[[list[DuramenError | None] | DuramenError], None],
    ) -> None:
        """Members leave; responds with one result for each."""
        try:
            kind = self._of_member(group_id)
        except DuramenError as error:
            done(error)
            return
        (self.consumer if kind is GroupKind.CONSUMER else self.classic).leave(group_id, members, done)

    # -- members of the consumer protocol -----------------------------------------------------------

    def consumer_heartbeat(self, group_id: str, request: HeartbeatRequest, done: HeartbeatDone) -> None:
        """A member of the consumer protocol joins, sends a heartbeat or leaves; responds once the change is durable."""
        try:
            self.check(group_id)
            if self._kind(group_id) not in _OF_CLASSIC_MEMBERS:
                self.kinds.check(group_id, GroupKind.CONSUMER)
        except DuramenError as error:
            done(error)
        else:
            then = partial(self.consumer.heartbeat, group_id, request, done)
            self._when_named(group_id, request.topics or (), request.pattern, then, done)

    def _when_named(
        self, group_id: str, names: Iterable[str], pattern: str | None, then: Callable[[], None],
        refuse: Callable[[DuramenError], None],
    ) -> None:  # fmt: skip
        """Continue a request about a group once the members' subscriptions are looked up."""

        def named(error: DuramenError | None) -> None:
            try:
                if error is not None:
                    raise CoordinatorLoading(f"names of topics cannot be told now: {error}")
                self.check(group_id)
            except DuramenError as refused:
                refuse(refused)
            else:
                then()

        try:
            wanted = self.consumer.wanted(group_id, names, pattern)
        except DuramenError as error:
            refuse(error)
        else:
            self.topics.when_named(*wanted, named)

    # -- offsets ------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member: CommitMember,
        offsets: Sequence[tuple[OffsetKey, CommittedOffset]],
        done: Callable[[list[DuramenError | None] | DuramenError], None],
    ) -> None:
        """Store offsets; responds with one result for each once they are durable."""
        if not member.partitions:
            member = member._replace(partitions=frozenset((key.topic, key.partition) for key, _ in offsets))
        try:
            self._check_commit(group_id, member)
        except DuramenError as error:
            done(error)
            return
        results = self.check_metadata(offsets)
        accepted = [offset for offset, error in zip(offsets, results, strict=True) if error is None]
        if not accepted:
            done(results)
            return

        def stored(error: DuramenError | None) -> None:
            done([error if result is None else result for result in results])

        self._offsets.commit(group_id, accepted, stored)

    def _check_commit(self, group_id: str, member: CommitMember) -> None:
        if self._stopping:
            raise NodeStopping("this node is stopping")
        self.check_coordinated(group_id)
        found = self.kinds.of(group_id)
        if found is not None:
            found.check_commit(group_id, member)
        elif member.generation >= 0:
            # Clients that know member epochs accept GroupNotFound; older versions have no such error.
            missing = GroupNotFound if member.knows_epochs else IllegalGeneration
            raise missing(f"there is no group {group_id}")

    def check_metadata(self, offsets: Sequence[tuple[OffsetKey, CommittedOffset]]) -> list[DuramenError | None]:
        """For each offset, None or the reason why its metadata is invalid."""
        return [
            OffsetMetadataTooLarge(f"an offset's metadata has {self._max_metadata_bytes} bytes at most")
            if len(committed.metadata.encode()) > self._max_metadata_bytes
            else None
            for _, committed in offsets
        ]

    def check_transactional(self, group_id: str, member: CommitMember) -> None:
        """Raise unless this member may commit offsets in a transaction.

        A request without a member is allowed, except for share groups. A stale epoch raises IllegalGeneration, as in
        Kafka: producers know no other error for it.
        """
        self.check_coordinated(group_id)
        found = self.kinds.of(group_id)
        named = member.member_id or member.instance_id is not None or member.generation >= 0
        if not (self._stopping or named or (found is not None and found.kind is GroupKind.SHARE)):
            return
        try:
            self._check_commit(group_id, member._replace(knows_epochs=found is not None, transactional=True))
        except StaleMemberEpoch as error:
            raise IllegalGeneration(str(error)) from None

    def unstable(self, key: OffsetKey) -> bool:
        """Whether an open transaction commits an offset for the partition."""
        return self._offsets.unstable(key)

    def unstable_of(self, group_id: str) -> frozenset[OffsetKey]:
        """The partitions for which open transactions commit offsets in a group."""
        return self._offsets.unstable_of(group_id)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Raise the reason that keeps a member from reading the group's offsets.

        Requests without id and epoch are allowed.
        """
        self.check_coordinated(group_id)
        found = self.kinds.of(group_id)
        if found is not None:
            found.check_fetch(group_id, member_id, epoch)

    def committed(self, key: OffsetKey) -> CommittedOffset | None:
        """The offset that a group has committed for a partition."""
        return self._offsets.get(key)

    def all_committed(self, group_id: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Every offset that a group has committed."""
        return self._offsets.of_group(group_id) if self._offsets.coordinates(group_id) else iter(())

    def delete_offsets(
        self,
        group_id: str,
        keys: Sequence[OffsetKey],
        done: Callable[[list[DuramenError | None] | DuramenError], None],
    ) -> None:
        """Delete committed offsets of partitions without subscribed members; responds with one result for each."""

        def known(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._delete_offsets(group_id, keys, done)

        self.topics.when_known({key.topic for key in keys}, known)

    def _delete_offsets(
        self,
        group_id: str,
        keys: Sequence[OffsetKey],
        done: Callable[[list[DuramenError | None] | DuramenError], None],
    ) -> None:
        try:
            self.check(group_id)
            found = self.kinds.of(group_id)
            if found is None and not self._has_offsets(group_id):
                raise GroupNotFound(f"there is no group {group_id}")
            if found is not None:
                found.check_delete_offsets(group_id)
            topics = {key.topic for key in keys}
            wanted = {topic for topic in topics if found is not None and self._wants(found, group_id, topic)}
        except DuramenError as error:
            done(error)
            return
        results: list[DuramenError | None] = [
            GroupSubscribed(f"members of group {group_id} read {self.topics.shown(key.topic)}")
            if key.topic in wanted
            else None
            for key in keys
        ]
        gone = [key for key in keys if key.topic not in wanted and self._offsets.get(key) is not None]

        def removed(error: DuramenError | None) -> None:
            done([error if result is None else result for result in results])

        self._offsets.remove(group_id, gone, removed)

    def _wants(self, kind: GroupsOfKind, group_id: str, topic: str) -> bool:
        return any(kind.subscribes(group_id, name) for name in self.topics.names_of(topic))

    # -- administration -----------------------------------------------------------------------------

    def listing(self) -> list[GroupListing]:
        """Every group that this node coordinates, including those that have only offsets."""
        listed = {line.group_id: line for groups in self.kinds for line in groups.listing()}
        for group_id in self._offsets.each_with_offsets():
            if group_id not in listed:
                listed[group_id] = GroupListing(group_id, "", GroupState.EMPTY)
        return list(listed.values())

    def describe(self, group_id: str) -> GroupDescription:
        """A group with its members. Raises GroupNotFound, or like `check_coordinated`."""
        self.check_coordinated(group_id)
        found = self.kinds.of(group_id)
        if found is not None:
            return found.describe(group_id)
        if not self._has_offsets(group_id):
            raise GroupNotFound(f"there is no group {group_id}")
        return GroupDescription(group_id, GroupState.EMPTY, GroupSnapshot(0, "", None, None, ()))

    def delete(self, group_id: str, done: Done) -> None:
        """Delete a group without members, and its offsets."""
        try:
            self.check_coordinated(group_id)
            found = self.kinds.of(group_id)
            keys: list[Key] = [key for key, _ in self._offsets.of_group(group_id)]
            if found is None and not keys:
                raise GroupNotFound(f"there is no group {group_id}")
        except DuramenError as error:
            done(error)
            return
        if found is None:
            self._offsets.remove(group_id, keys, done)
        else:
            found.discard_state(group_id, partial(self._discarded, found, group_id, done))

    def _discarded(self, kind: GroupsOfKind, group_id: str, done: Done, error: DuramenError | None) -> None:
        try:
            if error is not None:
                raise error
            keys: list[Key] = [key for key, _ in self._offsets.of_group(group_id)]
            keys += record_keys(kind.remove(group_id))
        except DuramenError as refused:
            done(refused)
        else:
            self._offsets.remove(group_id, keys, done)

    # -- the node -----------------------------------------------------------------------------------

    def measure(self) -> None:
        """Update the gauges."""
        counts = dict.fromkeys(self._gauges, 0)
        for listed in self.listing():
            counts[listed.state.value, listed.kind.value] += 1
        for labels, count in counts.items():
            self._gauges[labels].value = count

    def restore(self) -> None:
        """Load the groups that have members, after the start of a standalone node."""
        self._restored = True
        for _ in self.restore_some(None):
            pass

    def restore_some(self, index: int | None) -> Iterator[None]:
        """Load the groups that have members, step by step, so that their session timeouts run.

        On a standalone node this does nothing before `restore`.

        `index` selects one partition of `__consumer_offsets`; None selects all. Offsets of topics that do not exist are
        deleted: a crash may have come between the deletion of a topic and that of its offsets.
        """
        for groups in self.kinds if self._restored else ():
            for at, _ in enumerate(groups.restore(index), 1):
                if not at % _RESTORED_AT_ONCE:
                    yield
        if self._restored:
            yield from self.expiration.forget_where(self.topics.is_gone, index)

    def let_go(self, index: int, error: DuramenError) -> None:
        """The node no longer coordinates the groups of a partition; waiting requests get `error`."""
        for groups in self.kinds:
            groups.let_go(lambda group_id: self._offsets.partition_of(group_id) == index, error)

    def stop(self) -> None:
        """Refuse new requests; members find the group again after the restart."""
        self._stopping = True
