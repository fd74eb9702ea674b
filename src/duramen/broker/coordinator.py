"""The coordinator of the consumer groups: feeds their state machines, stores what they want stored, answers.

Every operation ends in one call of its `done`. Times come through the clock and the deadlines.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import (
    DuramenError,
    GroupIdInvalid,
    GroupNotEmpty,
    GroupNotFound,
    IllegalGeneration,
    NodeStopping,
    OffsetMetadataTooLarge,
    SessionTimeoutInvalid,
    UnknownMember,
)
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock, Randomness
from duramen.base.settings import Settings
from duramen.broker.offsets import Offsets
from duramen.broker.room import GroupRoom
from duramen.groups.group import Group
from duramen.groups.members import request_bytes
from duramen.groups.records import CommittedOffset, GroupKey, OffsetKey
from duramen.groups.values import (
    GroupSnapshot,
    GroupState,
    JoinRequest,
    JoinResult,
    Reply,
    Store,
    SyncRequest,
    SyncResult,
)

__all__ = ["CommitMember", "Coordinator", "GroupDescription", "GroupListing", "Leaving"]

_MEMBERS_SHARE: Final = 8  # the members of all groups may take an eighth of memory.limit.bytes

JoinDone = Callable[[JoinResult | SyncResult | DuramenError], None]
Done = Callable[[DuramenError | None], None]


class Leaving(NamedTuple):
    """A member that goes, by its id, its instance id, or both."""

    member_id: str
    instance_id: str | None


class CommitMember(NamedTuple):
    """Who commits; a generation below 0 is a consumer that manages its partitions itself."""

    member_id: str
    instance_id: str | None
    generation: int


class GroupListing(NamedTuple):
    """A line of the list of groups."""

    group_id: str
    protocol_type: str
    state: GroupState


class GroupDescription(NamedTuple):
    """A group with its members."""

    group_id: str
    state: GroupState
    snapshot: GroupSnapshot


class Coordinator:
    """All groups of this node."""

    def __init__(
        self,
        offsets: Offsets,
        clock: Clock,
        deadlines: Deadlines,
        randomness: Randomness,
        settings: Settings,
        metrics: Metrics,
        report: Callable[[str], None],
    ) -> None:
        """`report` is told, once in a while, that members are refused for want of memory."""
        self._offsets = offsets
        self._clock = clock
        self._deadlines = deadlines
        self._randomness = randomness
        self._initial_delay_ms = settings.integer("group.initial.rebalance.delay.ms")
        self._min_session_ms = settings.integer("group.min.session.timeout.ms")
        self._max_session_ms = settings.integer("group.max.session.timeout.ms")
        self._max_size = settings.integer("group.max.size")
        self._max_metadata_bytes = settings.integer("offset.metadata.max.bytes")
        self._retention_ms = settings.integer("offsets.retention.minutes") * 60_000
        self._room = GroupRoom(settings.integer("memory.limit.bytes") // _MEMBERS_SHARE, clock, report)
        self._groups: dict[str, Group] = {}
        self._deadline: dict[str, Deadline] = {}
        self._stopping = False
        self._gauges = {state: metrics.counter("duramen_groups", state.value) for state in GroupState}

    # -- groups -------------------------------------------------------------------------------------

    def _find(self, group_id: str) -> Group | None:
        """The group, from memory or as it was stored."""
        group = self._groups.get(group_id)
        if group is None:
            stored = self._offsets.group(group_id)
            if stored is not None:
                group = Group.restore(
                    group_id, stored[0], self._clock.monotonic_ms(),
                    initial_delay_ms=self._initial_delay_ms, max_size=self._max_size,
                )  # fmt: skip
                self._groups[group_id] = group
                self._settle(group)
        return group

    def _find_or_make(self, group_id: str) -> Group:
        group = self._find(group_id)
        if group is None:
            group = Group(group_id, initial_delay_ms=self._initial_delay_ms, max_size=self._max_size)
            self._groups[group_id] = group
        return group

    def _settle(self, group: Group) -> None:
        """Carry out what the group wants done, and see to its next deadline."""
        for effect in group.take_effects():
            if isinstance(effect, Reply):
                effect.token(effect.result)
            else:
                self._store(group, effect)
        self._schedule(group)
        self._room.account(group)
        if group.untouched and self._groups.get(group.id) is group:
            del self._groups[group.id]

    def _store(self, group: Group, store: Store) -> None:
        def stored(error: DuramenError | None) -> None:
            group.stored(store, error, self._clock.monotonic_ms())
            self._settle(group)

        self._offsets.store_group(group.id, store.snapshot, stored)

    def _schedule(self, group: Group) -> None:
        at_ms = group.next_deadline_ms()
        current = self._deadline.get(group.id)
        if at_ms is None:
            if current is not None:
                current.cancel()
                del self._deadline[group.id]
            return
        # A heartbeat moves the deadline back: the earlier one fires for nothing and asks again, which is cheaper.
        if current is None or current.action is None or at_ms < current.at_ms:
            if current is not None:
                current.cancel()
            self._deadline[group.id] = self._deadlines.at(at_ms, lambda: self._tick(group))

    def _tick(self, group: Group) -> None:
        self._deadline.pop(group.id, None)
        group.tick(self._clock.monotonic_ms())
        self._settle(group)

    def _check(self, group_id: str) -> None:
        if self._stopping:
            raise NodeStopping("this node is stopping")
        if not group_id:
            raise GroupIdInvalid("a group needs an id")

    # -- membership ---------------------------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest, done: JoinDone) -> None:
        """A member joins; answered when the rebalance is complete."""
        try:
            self._check(group_id)
            if not self._min_session_ms <= request.session_timeout_ms <= self._max_session_ms:
                raise SessionTimeoutInvalid(
                    f"a session timeout is {self._min_session_ms} to {self._max_session_ms} ms,"
                    f" not {request.session_timeout_ms}"
                )
            group = self._find(group_id)
            if group is None and request.member_id:
                raise UnknownMember(f"there is no group {group_id}")
            self._room.check(group_id, [request_bytes(request)], 0 if group is None else group.held_for(request))
        except DuramenError as error:
            done(error)
            return
        group = self._find_or_make(group_id)
        group.join(request, done, self._clock.monotonic_ms())
        self._settle(group)

    def new_member_id(self, prefix: str) -> str:
        """An id for a member: its client id (or instance id), as clients expect, and something unique."""
        token = self._randomness.token(16).hex()
        return f"{prefix}-{token[:8]}-{token[8:12]}-{token[12:16]}-{token[16:20]}-{token[20:]}"

    def sync(self, group_id: str, request: SyncRequest, done: JoinDone) -> None:
        """A member asks for its assignment; answered when the leader has brought it."""
        try:
            self._room.check(group_id, [len(assignment) for _, assignment in request.assignments])
        except DuramenError as error:
            done(error)
            return
        group = self._member_group(group_id, done)
        if group is not None:
            group.sync(request, done, self._clock.monotonic_ms())
            self._settle(group)

    def _member_group(self, group_id: str, done: Callable[[DuramenError], None]) -> Group | None:
        try:
            self._check(group_id)
        except DuramenError as error:
            done(error)
            return None
        group = self._find(group_id)
        if group is None:
            done(UnknownMember(f"there is no group {group_id}"))
        return group

    def heartbeat(self, group_id: str, member: CommitMember, done: Done) -> None:
        """A sign of life."""
        group = self._member_group(group_id, done)
        if group is not None:
            try:
                group.heartbeat(member.member_id, member.instance_id, member.generation, self._clock.monotonic_ms())
            except DuramenError as error:
                done(error)
            else:
                done(None)

    def leave(
        self,
        group_id: str,
        members: Sequence[Leaving],
        done: Callable[[list[DuramenError | None] | DuramenError], None],
    ) -> None:
        """Members go; answered with one result for each."""
        group = self._member_group(group_id, done)
        if group is None:
            return
        results: list[DuramenError | None] = []
        for member in members:
            try:
                group.leave(member.member_id, member.instance_id, self._clock.monotonic_ms())
                results.append(None)
            except DuramenError as error:
                results.append(error)
        self._settle(group)
        done(results)

    # -- offsets ------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member: CommitMember,
        offsets: Sequence[tuple[OffsetKey, CommittedOffset]],
        done: Callable[[list[DuramenError | None] | DuramenError], None],
    ) -> None:
        """Store offsets; answered with one result for each once they are durable."""
        try:
            self._check_commit(group_id, member)
        except DuramenError as error:
            done(error)
            return
        results: list[DuramenError | None] = [
            OffsetMetadataTooLarge(f"an offset's metadata has {self._max_metadata_bytes} bytes at most")
            if len(committed.metadata.encode()) > self._max_metadata_bytes
            else None
            for _, committed in offsets
        ]
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
        group = self._find(group_id)
        if group is None:
            if member.generation >= 0:
                raise IllegalGeneration(f"there is no group {group_id}")
            return
        group.check_commit(member.member_id, member.instance_id, member.generation, self._clock.monotonic_ms())

    def committed(self, key: OffsetKey) -> CommittedOffset | None:
        """The offset that a group has committed for a partition."""
        return self._offsets.get(key)

    def all_committed(self, group_id: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Every offset that a group has committed."""
        return self._offsets.of_group(group_id)

    # -- administration -----------------------------------------------------------------------------

    def listing(self) -> list[GroupListing]:
        """Every group, those that only have offsets included."""
        listed = {group.id: GroupListing(group.id, group.protocol_type, group.state) for group in self._groups.values()}
        for group_id in self._offsets.each_group():
            if group_id not in listed:
                stored = self._offsets.group(group_id)
                protocol_type = stored[0].protocol_type if stored is not None else ""
                state = GroupState.STABLE if stored is not None and stored[0].members else GroupState.EMPTY
                listed[group_id] = GroupListing(group_id, protocol_type, state)
        return list(listed.values())

    def describe(self, group_id: str) -> GroupDescription:
        """A group with its members. Raises GroupNotFound."""
        group = self._find(group_id)
        if group is None:
            if next(self._offsets.of_group(group_id), None) is None:
                raise GroupNotFound(f"there is no group {group_id}")
            return GroupDescription(group_id, GroupState.EMPTY, GroupSnapshot(0, "", None, None, ()))
        return GroupDescription(group_id, group.state, group.snapshot())

    def delete(self, group_id: str, done: Done) -> None:
        """Remove a group without members, and its offsets."""
        group = self._find(group_id)
        keys: list[OffsetKey | GroupKey] = [key for key, _ in self._offsets.of_group(group_id)]
        if group is None and not keys:
            done(GroupNotFound(f"there is no group {group_id}") if group_id else GroupIdInvalid("a group needs an id"))
            return
        if group is not None:
            if group.members or group.state is not GroupState.EMPTY:
                done(GroupNotEmpty(f"group {group_id} has {len(group.members)} members"))
                return
            group.close()
            self._drop(group)
            if self._offsets.group(group_id) is not None:
                keys.append(GroupKey(group_id))
        self._offsets.remove(group_id, keys, done)

    def _drop(self, group: Group) -> None:
        self._groups.pop(group.id, None)
        self._settle(group)

    def forget_topic(self, topic: str) -> None:
        """A topic is deleted: what groups have committed of it goes."""
        self._forget_topics(lambda known: known == topic)

    def _forget_topics(self, gone: Callable[[str], bool]) -> None:
        by_group: dict[str, list[OffsetKey | GroupKey]] = {}
        for key, _ in self._offsets.each_offset():
            if gone(key.topic):
                by_group.setdefault(key.group, []).append(key)
        self._remove_all(by_group)

    def _remove_all(self, by_group: dict[str, list[OffsetKey | GroupKey]]) -> None:
        for group_id, keys in by_group.items():
            self._offsets.remove(group_id, keys, lambda _: None)

    def expire(self) -> None:
        """Forget offsets of groups without members that are older than offsets.retention.minutes."""
        before_ms = self._clock.wall_ms() - self._retention_ms
        expired: dict[str, list[OffsetKey | GroupKey]] = {}
        remaining: set[str] = set()
        for key, committed in self._offsets.each_offset():
            if self._idle_since(key.group, committed) < before_ms:
                expired.setdefault(key.group, []).append(key)
            else:
                remaining.add(key.group)
        for group_id in self._empty_groups():
            stored = self._offsets.group(group_id)
            if group_id not in remaining and stored is not None and stored[1] < before_ms:
                expired.setdefault(group_id, []).append(GroupKey(group_id))
                group = self._groups.get(group_id)
                if group is not None:
                    group.close()
                    self._drop(group)
        self._remove_all(expired)

    def _empty_groups(self) -> Iterable[str]:
        for group_id in list(self._offsets.each_group()):
            group = self._groups.get(group_id)
            if group is not None:
                if not group.members and group.state is GroupState.EMPTY:
                    yield group_id
            else:
                stored = self._offsets.group(group_id)
                if stored is not None and not stored[0].members:
                    yield group_id

    def _idle_since(self, group_id: str, committed: CommittedOffset) -> int:
        """Since when nobody has used the offset (ms): never while the group has members."""
        group = self._groups.get(group_id)
        if group is not None and group.members:
            return self._clock.wall_ms()
        stored = self._offsets.group(group_id)
        if stored is None:
            return committed.commit_ms
        return self._clock.wall_ms() if stored[0].members else max(stored[1], committed.commit_ms)

    # -- the node -----------------------------------------------------------------------------------

    def measure(self) -> None:
        """Bring the gauges up to date."""
        counts = dict.fromkeys(GroupState, 0)
        for listed in self.listing():
            counts[listed.state] += 1
        for state, count in counts.items():
            self._gauges[state].value = count

    def restore(self, exists: Callable[[str], bool]) -> None:
        """Take in the groups that have members, so that those that are gone are noticed.

        Offsets of topics that do not exist go: a crash may have come between a topic's deletion and theirs.
        """
        self._forget_topics(lambda topic: not exists(topic))
        for group_id in list(self._offsets.each_group()):
            stored = self._offsets.group(group_id)
            if stored is not None and stored[0].members:
                self._find(group_id)

    def stop(self) -> None:
        """Take no more requests; members will find the group again after the restart."""
        self._stopping = True
