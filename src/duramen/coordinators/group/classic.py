"""Classic groups: drives their state machines, stores their changes, responds.

Every operation calls its `done` once. Times come from the clock and the deadlines.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from duramen.base.deadlines import Alarm, Deadlines
from duramen.base.errors import DuramenError, GroupNotEmpty, RebalanceInProgress, SessionTimeoutInvalid, UnknownMember
from duramen.base.ports import Clock
from duramen.base.settings import Settings
from duramen.coordinators.group.kinds import CommitMember, GroupDescription, GroupKind, GroupListing
from duramen.coordinators.group.memory import GroupRoom
from duramen.coordinators.group.offsets import GroupOffsets
from duramen.groups.consumer_classic import CONSUMERS
from duramen.groups.consumer_table import ConsumerTable, Record
from duramen.groups.group import Group
from duramen.groups.members import request_bytes
from duramen.groups.migration import downgraded
from duramen.groups.records import GroupKey, encode_group, encode_key
from duramen.groups.subscription import subscribes_to
from duramen.groups.topics import TopicCatalogue
from duramen.groups.values import (
    GroupState,
    JoinRequest,
    JoinResult,
    ReplyEffect,
    StoreEffect,
    SyncRequest,
    SyncResult,
)

__all__ = ["ClassicGroups", "JoinDone", "LeavingMember"]

JoinDone = Callable[[JoinResult | SyncResult | DuramenError], None]
Done = Callable[[DuramenError | None], None]


class LeavingMember(NamedTuple):
    """A member that leaves, by its id, its instance id, or both."""

    member_id: str
    instance_id: str | None


class ClassicGroups:
    """All groups of the classic protocol."""

    kind = GroupKind.CLASSIC

    def __init__(
        self, offsets: GroupOffsets, clock: Clock, deadlines: Deadlines, settings: Settings, room: GroupRoom
    ) -> None:
        self._offsets = offsets
        self._clock = clock
        self._deadlines = deadlines
        self._room = room
        self._initial_delay_ms = settings.integer("group.initial.rebalance.delay.ms")
        self._min_session_ms = settings.integer("group.min.session.timeout.ms")
        self._max_session_ms = settings.integer("group.max.session.timeout.ms")
        self._max_size = settings.integer("group.max.size")
        self._groups: dict[str, Group] = {}
        self._alarms: dict[str, Alarm] = {}

    # -- groups -------------------------------------------------------------------------------------

    def find(self, group_id: str) -> Group | None:
        """The group, from memory or loaded from its record."""
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
        group = self.find(group_id)
        if group is None:
            group = Group(group_id, initial_delay_ms=self._initial_delay_ms, max_size=self._max_size)
            self._groups[group_id] = group
        return group

    def _settle(self, group: Group) -> None:
        """Execute the group's effects, and set the alarm for its next deadline."""
        for effect in group.take_effects():
            if isinstance(effect, ReplyEffect):
                effect.token(effect.result)
            else:
                self._store(group, effect)
        self._schedule(group)
        self._room.account(group.id, group.held_bytes)
        if group.untouched and self._groups.get(group.id) is group:
            del self._groups[group.id]

    def _store(self, group: Group, store: StoreEffect) -> None:
        def stored(error: DuramenError | None) -> None:
            group.stored(store, error, self._clock.monotonic_ms())
            if self._groups.get(group.id) is group:
                self._settle(group)
            else:
                _reply(group)  # the group was released: another group may have its name by now

        self._offsets.store_group(group.id, store.snapshot, stored)

    def _schedule(self, group: Group) -> None:
        if group.id not in self._alarms:
            self._alarms[group.id] = Alarm(self._deadlines, partial(self._tick, group))
        if not self._alarms[group.id].move(group.next_deadline_ms()):
            del self._alarms[group.id]

    def _tick(self, group: Group) -> None:
        group.tick(self._clock.monotonic_ms())
        self._settle(group)

    # -- membership ---------------------------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest, done: JoinDone) -> None:
        """A member joins; responds when the rebalance is complete."""
        try:
            group = self.find(group_id)
            if group is None and request.member_id:
                raise UnknownMember(f"there is no group {group_id}")
            self._room.check(group_id, [request_bytes(request)], 0 if group is None else group.held_for(request))
        except DuramenError as error:
            done(error)
            return
        group = self._find_or_make(group_id)
        group.join(request, done, self._clock.monotonic_ms())
        self._settle(group)

    def check_session(self, session_timeout_ms: int) -> None:
        """Raise SessionTimeoutInvalid if a session timeout is out of bounds."""
        if not self._min_session_ms <= session_timeout_ms <= self._max_session_ms:
            raise SessionTimeoutInvalid(
                f"a session timeout is {self._min_session_ms} to {self._max_session_ms} ms, not {session_timeout_ms}"
            )

    def sync(self, group_id: str, request: SyncRequest, done: JoinDone) -> None:
        """A member requests its assignment; responds when the leader has sent it."""
        try:
            self._room.check(group_id, [len(assignment) for _, assignment in request.assignments])
            group = self._get(group_id)
        except DuramenError as error:
            done(error)
            return
        group.sync(request, done, self._clock.monotonic_ms())
        self._settle(group)

    def _get(self, group_id: str) -> Group:
        group = self.find(group_id)
        if group is None:
            raise UnknownMember(f"there is no group {group_id}")
        return group

    def heartbeat(self, group_id: str, member: CommitMember, done: Done) -> None:
        """A heartbeat of a member."""
        try:
            group = self._get(group_id)
            group.heartbeat(member.member_id, member.instance_id, member.generation, self._clock.monotonic_ms())
        except DuramenError as error:
            done(error)
        else:
            done(None)

    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        done: Callable[[list[DuramenError | None] | DuramenError], None],
    ) -> None:
        """Members leave; responds with one result for each."""
        try:
            group = self._get(group_id)
        except DuramenError as error:
            done(error)
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

    # -- going over to another kind and coming back ----------------------------------------------------

    def release(self, group: Group) -> Record:
        """Convert the group to the consumer protocol; returns the tombstone of its record.

        Waiting members must rejoin.
        """
        group.close(RebalanceInProgress(f"group {group.id} goes over to the consumer protocol"))
        self._forget(group)
        return encode_key(GroupKey(group.id)), None

    def adopt(self, table: ConsumerTable, topics: TopicCatalogue) -> Record:
        """Convert a consumer group to the classic protocol with its members; returns the group's record."""
        group, snapshot = downgraded(
            table, topics, self._clock.monotonic_ms(), initial_delay_ms=self._initial_delay_ms, max_size=self._max_size
        )
        self._groups[group.id] = group
        self._settle(group)
        return encode_key(GroupKey(group.id)), encode_group(snapshot, self._clock.wall_ms())

    def can_adopt(self, members: int) -> bool:
        """Whether a group may have that many members."""
        return members <= self._max_size

    def drop(self, group_id: str) -> None:
        """Drop the group from memory after a failed write, so that its stored state applies."""
        group = self._groups.get(group_id)
        if group is not None:
            group.close()
            self._forget(group)

    def _forget(self, group: Group) -> None:
        self._groups.pop(group.id, None)
        self._settle(group)

    # -- requests of all kinds of groups ------------------------------------------------------------

    def has(self, group_id: str) -> bool:
        """Whether there is a classic group with that id."""
        return group_id in self._groups or self._offsets.has_group(group_id)

    def listing(self) -> Iterator[GroupListing]:
        """Every classic group, stored ones included."""
        listed = set(self._groups)
        for group in list(self._groups.values()):
            yield GroupListing(group.id, group.protocol_type, group.state)
        for group_id in self._offsets.each_classic():
            stored = None if group_id in listed else self._offsets.group(group_id)
            if stored is not None:
                state = GroupState.STABLE if stored[0].members else GroupState.EMPTY
                yield GroupListing(group_id, stored[0].protocol_type, state)

    def describe(self, group_id: str) -> GroupDescription:
        """A group with its members. Raises UnknownMember if it does not exist."""
        group = self._get(group_id)
        return GroupDescription(group_id, group.state, group.snapshot())

    def empty_since_ms(self, group_id: str) -> int | None:
        """Since when a group has no members (ms since 1970); None while it has members, or some are joining."""
        group = self._groups.get(group_id)
        stored = self._offsets.group(group_id)
        if stored is None or (stored[0].members if group is None else not group.is_empty):
            return None
        return stored[1]

    def subscribes(self, group_id: str, topic: str) -> bool:
        """Whether a consumer of the group subscribes to the topic; unreadable subscriptions count as all topics."""
        members = self._get(group_id).members
        return any(subscribes_to(metadata, topic) for member in members for _, metadata in member.protocols)

    def check_commit(self, group_id: str, member: CommitMember) -> None:
        """Raise the reason that keeps the member from committing offsets."""
        group = self._get(group_id)
        group.check_commit(
            member.member_id, member.instance_id, member.generation, self._clock.monotonic_ms(),
            transactional=member.transactional,
        )  # fmt: skip

    def check_delete_offsets(self, group_id: str) -> None:
        """Raise GroupNotEmpty if the group has members that are not consumers: their topics are unknown."""
        group = self._get(group_id)
        if group.members and group.protocol_type != CONSUMERS:
            raise GroupNotEmpty(f"group {group_id} has {len(group.members)} members")

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Every member may read the offsets of a classic group."""

    def discard_state(self, group_id: str, done: Done) -> None:
        """A classic group has no state besides its records."""
        del group_id
        done(None)

    def remove(self, group_id: str) -> Sequence[bytes]:
        """Remove a group from memory; returns the keys of its records. Raises GroupNotEmpty."""
        group = self._get(group_id)
        if not group.is_empty:
            raise GroupNotEmpty(f"group {group_id} has {len(group.members)} members")
        group.close()
        self._forget(group)
        return [] if not self._offsets.has_group(group_id) else [encode_key(GroupKey(group_id))]

    def restore(self, index: int | None) -> Iterator[None]:
        """Load the groups that have members, so that their session timeouts run."""
        for group_id in list(self._offsets.each_classic(index)):
            stored = self._offsets.group(group_id)
            if stored is not None and stored[0].members:
                self.find(group_id)
            yield

    def let_go(self, those: Callable[[str], bool], error: DuramenError) -> None:
        """The node no longer coordinates these groups."""
        for group in [group for group in self._groups.values() if those(group.id)]:
            group.close(error)
            self._forget(group)


def _reply(group: Group) -> None:
    for effect in group.take_effects():
        if isinstance(effect, ReplyEffect):
            effect.token(effect.result)
