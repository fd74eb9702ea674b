"""The share groups of this node: their members, and operations on whole groups.

Members are not stored: after a restart or a change of coordinator they get UNKNOWN_MEMBER_ID and rejoin automatically.
A group exists as long as its delivery state is stored or it has members.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from uuid import UUID

from duramen.base.deadlines import Alarm, Deadlines
from duramen.base.errors import CoordinatorLoading, DuramenError, GroupNotEmpty, GroupNotFound, RequestInvalid
from duramen.base.ports import Clock
from duramen.base.settings import Settings
from duramen.broker.streams import BrokerStreams, Stream
from duramen.codec.kafka.membership import encode_assignment, encode_subscription
from duramen.coordinators.group.kinds import CommitMember, GroupDescription, GroupKind, GroupKinds, GroupListing
from duramen.coordinators.group.memory import GroupRoom
from duramen.coordinators.group.topics import GroupTopics
from duramen.coordinators.share.group_metadata import ShareGroupMetadata
from duramen.coordinators.share.shares import Sharing
from duramen.coordinators.share.topics import ShareTopics
from duramen.groups.consumer_classic import CONSUMERS
from duramen.groups.share_assignor import Place
from duramen.groups.share_group import (
    LEAVING,
    ShareGroup,
    ShareGroupState,
    ShareHeartbeat,
    ShareHeartbeatResult,
    ShareMember,
)
from duramen.groups.share_records import ShareKey
from duramen.groups.values import GroupSnapshot, MemberSnapshot

__all__ = ["ShareGroups"]

HeartbeatDone = Callable[[ShareHeartbeatResult | DuramenError], None]
Done = Callable[[DuramenError | None], None]

_PROTOCOL = "share"


class ShareGroups:
    """All share groups."""

    kind = GroupKind.SHARE

    def __init__(
        self,
        sharing: Sharing,
        inventory: ShareGroupMetadata,
        topics: ShareTopics,
        names: GroupTopics,
        streams: BrokerStreams,
        clock: Clock,
        deadlines: Deadlines,
        settings: Settings,
        room: GroupRoom,
        kinds: GroupKinds,
    ) -> None:
        self._sharing = sharing
        self._inventory = inventory
        self._changing: set[str] = set()  # groups whose states an operator moves or deletes
        self._missed: set[str] = set()  # groups with streams that were missing at the last check
        self._topics = topics
        self._names = names
        self._clock = clock
        self._deadlines = deadlines
        self._max_size = settings.integer("group.share.max.size")
        self._room = room
        self._kinds = kinds
        self._groups: dict[str, ShareGroup] = {}
        self._alarms: dict[str, Alarm] = {}
        streams.listeners.append(self._stream_changed)

    # -- members ------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, heartbeat: ShareHeartbeat, done: HeartbeatDone) -> None:
        """A member joins, sends a heartbeat or leaves; its assignment is durable in the group before the response."""
        group, names = self._groups.get(group_id), heartbeat.topics or ()
        if group is not None and heartbeat.topics is None and heartbeat.epoch != LEAVING:
            names = group.topics_of(heartbeat.member_id)

        def named(error: DuramenError | None) -> None:
            if error is None:
                self._heartbeat(group_id, heartbeat, done)
            else:
                done(CoordinatorLoading(f"names of topics cannot be told now: {error}"))

        try:
            self._inventory.check(group_id)
        except DuramenError as error:
            done(error)
        else:
            self._names.when_named(names, (), named)

    def _heartbeat(self, group_id: str, heartbeat: ShareHeartbeat, done: HeartbeatDone) -> None:
        try:
            self._inventory.check(group_id)
            self._kinds.check(group_id, self.kind)
            self._check_unchanged(group_id)
            result = self._leave(group_id, heartbeat) if heartbeat.epoch == LEAVING else self._beat(group_id, heartbeat)
        except DuramenError as error:
            done(error)
            return
        group = self._groups.get(group_id)
        # As in Apache Kafka, every member prepares all partitions of the group, not only its own.
        places = group.places if group is not None and result.assignment is not None else ()
        there = {stored for place in places if (stored := self._topics.stored_as(place)) is not None}
        self._inventory.prepare(group_id, sorted(there), lambda error: done(result if error is None else error))

    def _beat(self, group_id: str, heartbeat: ShareHeartbeat) -> ShareHeartbeatResult:
        group = self._groups.get(group_id)
        if group is None:
            if heartbeat.epoch > 0 and not self.has(group_id):
                raise GroupNotFound(f"there is no share group {group_id}")
            group = ShareGroup(group_id)
        if heartbeat.topics is not None:
            self._room.check(
                group_id,
                [1024 + sum(64 + len(topic) for topic in heartbeat.topics)],
                group.held_for(heartbeat.member_id),
            )
        self._follow_names(group)
        result = group.heartbeat(
            heartbeat, self._topics.find, self._clock.monotonic_ms(),
            session_ms=self._sharing.config(group_id).session_ms, max_size=self._max_size,
        )  # fmt: skip
        self._groups[group_id] = group
        self._settle(group)
        return result

    def _follow_names(self, group: ShareGroup) -> None:
        """Resolve the group's subscriptions again if they may match other light topics."""
        version = self._names.version()
        if version != group.names:
            group.names = version
            if self._names.may_be_light((name for member in group for name in member.topics), ()):
                group.topics_changed(self._topics.find)

    def _leave(self, group_id: str, heartbeat: ShareHeartbeat) -> ShareHeartbeatResult:
        group = self._groups.get(group_id)
        if group is None:
            raise GroupNotFound(f"share group {group_id} has no members")
        group.leave(heartbeat.member_id, self._topics.find)
        self._settle(group)
        return ShareHeartbeatResult(heartbeat.member_id, LEAVING, None)

    def _settle(self, group: ShareGroup) -> None:
        self._room.account(group.id, group.held_bytes)
        if not len(group):
            self._groups.pop(group.id, None)  # another node has its state
        if group.id not in self._alarms:
            self._alarms[group.id] = Alarm(self._deadlines, partial(self._expire, group))
        if not self._alarms[group.id].move(group.next_deadline_ms()):
            del self._alarms[group.id]

    def _expire(self, group: ShareGroup) -> None:
        group.expire(self._topics.find, self._clock.monotonic_ms())
        self._settle(group)

    def _stream_changed(self, stream: Stream) -> None:
        if stream.deleted:
            self._inventory.forget_topics(self._topics.gone_with(stream))
        for group in self._groups.values():
            if group.subscribes(stream.name):
                group.topics_changed(self._topics.find)

    def topics_changed(self) -> None:
        """Names may be those of other queues."""
        for group in self._groups.values():
            group.topics_changed(self._topics.find)

    # -- requests of all kinds of groups ------------------------------------------------------------

    def has(self, group_id: str) -> bool:
        """Whether there is a share group with that id."""
        return group_id in self._groups or (bool(group_id) and self._inventory.has(group_id))

    def find(self, group_id: str) -> ShareGroup:
        """A share group in its present state. Raises GroupNotFound."""
        self._kinds.check(group_id, self.kind)
        if not self.has(group_id):
            raise GroupNotFound(f"there is no share group {group_id}")
        return self._groups.get(group_id) or ShareGroup(group_id)

    def listing(self) -> Iterator[GroupListing]:
        """Every share group."""
        for group_id in dict.fromkeys([*self._groups, *self._inventory.each()]):
            group = self._groups.get(group_id)
            state = ShareGroupState.EMPTY if group is None else group.state
            yield GroupListing(group_id, _PROTOCOL, state, self.kind)

    def describe(self, group_id: str) -> GroupDescription:
        """A share group with its members, as DescribeGroups shows them."""
        group = self.find(group_id)
        members = tuple(self._described(group_id, member) for member in group)
        snapshot = GroupSnapshot(group.epoch, CONSUMERS, None, None, members)
        return GroupDescription(group_id, group.state, snapshot, self.kind)

    def _described(self, group_id: str, member: ShareMember) -> MemberSnapshot:
        assigned: dict[str, list[int]] = {}
        for topic_id, index in sorted(member.assignment):
            name = self._topics.name_of(topic_id)
            if name is not None:
                assigned.setdefault(name, []).append(index)
        session_ms = self._sharing.config(group_id).session_ms
        return MemberSnapshot(
            member.id, None, member.client_id, member.client_host, session_ms, session_ms,
            encode_subscription(member.topics), encode_assignment(assigned),
        )  # fmt: skip

    def empty_since_ms(self, group_id: str) -> int | None:
        """None, as if it had members: a share group never expires."""
        return None if self.has(group_id) else 0

    def subscribes(self, group_id: str, topic: str) -> bool:
        """Whether a member of the group subscribes to the topic."""
        group = self._groups.get(group_id)
        return group is not None and group.subscribes(topic)

    def check_commit(self, group_id: str, member: CommitMember) -> None:
        """Share groups have no committed offsets: raise GroupNotFound, as Kafka does."""
        raise GroupNotFound(f"group {group_id} is a share group: {member.member_id} cannot commit offsets to it")

    def check_delete_offsets(self, group_id: str) -> None:
        """Share groups have no committed offsets: raise GroupNotFound, as Kafka does."""
        raise GroupNotFound(f"group {group_id} is a share group, without offsets to delete")

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Share groups have no committed offsets: reading none is allowed."""

    def discard_state(self, group_id: str, done: Done) -> None:
        """Delete the states of a group without members, one keeper after the other."""
        try:
            self._check_unchanged(group_id)
            self.check_empty(group_id)
            places = self._inventory.get(group_id).every
        except DuramenError as error:
            done(error)
        else:
            self._inventory.forget(group_id, places, self._until(group_id, done))

    def _check_unchanged(self, group_id: str) -> None:
        """Raise CoordinatorLoading while an operator changes the group: its steps may be repeated until all succeed."""
        if group_id in self._changing:
            raise CoordinatorLoading(f"share group {group_id} is being moved or deleted")

    def _until(self, group_id: str, done: Done) -> Done:
        """A `done` that keeps members from joining the group until it is called."""
        self._changing.add(group_id)

        def over(error: DuramenError | None) -> None:
            self._changing.discard(group_id)
            done(error)

        return over

    def remove(self, group_id: str) -> Sequence[bytes]:
        """Remove a group without states."""
        if group_id in self._groups:
            self.check_empty(group_id)
        return ()

    def restore(self, index: int | None) -> Iterator[None]:
        """Nothing: members rejoin by themselves."""
        del index
        return iter(())

    def let_go(self, those: Callable[[str], bool], error: DuramenError) -> None:
        """The node no longer coordinates these groups: their members join another coordinator."""
        del error  # failed writes report it to waiting requests
        self._inventory.let_go(those)
        for group in [group for group in self._groups.values() if those(group.id)]:
            del self._groups[group.id]
            self._room.account(group.id, 0)
            self._alarms.pop(group.id).move(None)

    # -- an operator --------------------------------------------------------------------------------

    def check_empty(self, group_id: str) -> None:
        """Raise GroupNotFound or GroupNotEmpty unless the group exists and has no members."""
        members = len(self.find(group_id))
        if members:
            raise GroupNotEmpty(f"share group {group_id} has {members} members")

    def keys(self, group_id: str) -> Sequence[ShareKey]:
        """The share partitions of a group, as their state is stored. Raises GroupNotFound."""
        self.find(group_id)
        return self._inventory.keys(group_id)

    def alter_offsets(self, group_id: str, starts: Sequence[tuple[Place, int]], done: Done) -> None:
        """Reset a group without members to these offsets; as in Apache Kafka, a missing group is created."""
        try:
            self._kinds.check(group_id, self.kind)
            self._check_unchanged(group_id)
            if self.has(group_id):
                self.check_empty(group_id)
            for (_, index), start in starts:
                if start < 0:
                    raise RequestInvalid(f"partition {index} cannot begin at offset {start}")
        except DuramenError as error:
            done(error)
        else:
            self._inventory.begin_anew(group_id, starts, self._until(group_id, done))

    def delete_offsets(self, group_id: str, topic_id: UUID, done: Done) -> None:
        """Delete the states of a group without members for a topic."""
        try:
            self._check_unchanged(group_id)
            self.check_empty(group_id)
            places = [place for place in self._inventory.get(group_id).every if place[0] == topic_id]
        except DuramenError as error:
            done(error)
        else:
            self._inventory.forget(group_id, places, self._until(group_id, done))

    # -- the node -----------------------------------------------------------------------------------

    def tidy(self, is_gone: Callable[[UUID], bool]) -> None:
        """Remove deleted streams from groups whose coordinator was missing at the deletion.

        A new coordinator may not know a new stream yet: a stream that is missing twice is deleted.
        """
        missed = {group for group, topics in self._inventory.each_with_topics() if any(map(is_gone, topics))}
        for group in sorted(missed & self._missed):
            self._inventory.forget_topics_of(group, is_gone)
        self._missed = missed - self._missed
