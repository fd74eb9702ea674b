"""A group of the consumer protocol (KIP-848): the broker assigns, members reconcile heartbeat by heartbeat.

A member joins with epoch 0 and its subscription, and reports its partitions with every heartbeat. A change of
subscriptions or topics starts a new group epoch; the assignor computes that epoch's target, and each member moves to it
(`reconciliation`). The caller passes events and the time. Changes become records (`consumer_table`), and a response may
be sent once these are durable. The group never waits; `next_deadline_ms` is when it needs the time again.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from duramen.base.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    IllegalGeneration,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
    VersionTooOld,
)
from duramen.base.patterns import matching, pattern_of
from duramen.groups.assignors import Subscriber
from duramen.groups.consumer_table import ConsumerTable, Record
from duramen.groups.consumer_values import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerConfig,
    ConsumerHeartbeatResult,
    ConsumerMember,
    ConsumerState,
    HeartbeatRequest,
    MemberState,
)
from duramen.groups.reconciliation import reconcile
from duramen.groups.topics import GroupTopic, TopicCatalogue, TopicPartition, hash_of

__all__ = ["ConsumerGroupMachine"]

_FIRST_EPOCH: Final = 1  # before anybody has subscribed to anything, as Apache Kafka 4.4 counts


class ConsumerGroupMachine:
    """The state machine."""

    def __init__(self, table: ConsumerTable, config: ConsumerConfig, topics: TopicCatalogue) -> None:
        self.table = table
        self.config = config
        self.topics = topics
        self.expires_ms: dict[str, int] = {}  # when members' sessions end
        self.revoke_by_ms: dict[str, int] = {}  # the times by which members have to revoke their partitions
        self.follow_by_ms: dict[str, int] = {}  # when members of the classic protocol have to have joined, or synced
        self._stale = False  # topics have changed that members want

    @classmethod
    def restore(
        cls, table: ConsumerTable, config: ConsumerConfig, topics: TopicCatalogue, now_ms: int
    ) -> "ConsumerGroupMachine":
        """A group as it was stored: its members have whole timeouts to be heard of."""
        group = cls(table, config, topics)
        for member in table.members.values():
            group.touch(member, now_ms)
            group._watch_revoking(member, now_ms)
        for pattern in list(table.patterns):
            table.set_pattern(pattern, matching(pattern, topics.names(pattern)))
        group._stale = True
        return group

    # -- asking -------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The group's id."""
        return self.table.group_id

    @property
    def state(self) -> ConsumerState:
        """Kafka's name for how far the group is."""
        table = self.table
        if not table.members:
            return ConsumerState.EMPTY
        if table.epoch > table.target_epoch:
            return ConsumerState.ASSIGNING
        settled = all(member.settled_at(table.target_epoch) for member in table.members.values())
        return ConsumerState.STABLE if settled else ConsumerState.RECONCILING

    @property
    def all_classic(self) -> bool:
        """Whether there are members, and all of the classic protocol."""
        members = self.table.members.values()
        return bool(members) and all(member.classic is not None for member in members)

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for, of those there are; of several, and of none, the first."""
        asked = Counter(
            member.assignor for member in self.table.members.values() if member.assignor in self.config.assignors
        )
        return max(self.config.assignors, key=lambda name: asked[name])

    def take_records(self) -> list[Record]:
        """The records of the changes; once."""
        return self.table.take_records()

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return min((*self.expires_ms.values(), *self.revoke_by_ms.values(), *self.follow_by_ms.values()), default=None)

    def subscribes(self, topic: str) -> bool:
        """Whether a member wants the topic."""
        return any(topic in self.table.subscribed(member) for member in self.table.members.values())

    def check_commit(
        self, member_id: str, epoch: int, *, knows_epochs: bool, partitions: Iterable[tuple[str, int]] = ()
    ) -> None:
        """Raise unless offsets may be committed by this member in this epoch, or by anybody (epoch < 0).

        The answer with a new epoch may be under way to it: in an older one it may commit `partitions`, all of which it
        has had since then (KIP-1251); without any named it may not.
        """
        if epoch < 0 and not self.table.members:
            return
        member = self.member(member_id)
        if member.classic is None and not knows_epochs:
            raise VersionTooOld(f"group {self.id} uses the consumer protocol: commit with OffsetCommit 9 or later")
        if epoch == member.epoch or (0 <= epoch < member.epoch and self._had(member, epoch, list(partitions))):
            return
        if member.classic is not None:
            raise IllegalGeneration(f"member {member_id} is in generation {member.epoch}, not {epoch}")
        self._check_same_epoch(member, epoch)

    def _had(self, member: ConsumerMember, epoch: int, partitions: list[tuple[str, int]]) -> bool:
        places = [(topic.id, index) for name, index in partitions if (topic := self.topics.find(name)) is not None]
        return bool(places) and all(member.had(place, epoch) for place in places)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise unless this member may read the group's offsets; one without id and epoch always may."""
        if not member_id and epoch < 0:
            return
        member = self.member(member_id or "")
        self._check_same_epoch(member, epoch)

    def _check_same_epoch(self, member: ConsumerMember, epoch: int) -> None:
        if epoch != member.epoch:
            raise StaleMemberEpoch(f"member {member.id} is in epoch {member.epoch}, not {epoch}")

    def member(self, member_id: str) -> ConsumerMember:
        """The member of that id. Raises UnknownMember."""
        member = self.table.members.get(member_id)
        if member is None:
            raise UnknownMember(f"group {self.id} has no member {member_id}")
        return member

    # -- heartbeats ---------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ConsumerHeartbeatResult:
        """A member joins, sends a heartbeat with its partitions, or leaves. An error leaves everything unchanged.

        Raises UnknownMember, FencedMemberEpoch, FencedInstance, UnreleasedInstance, GroupFull, PatternInvalid.
        """
        if request.epoch < JOIN_EPOCH:
            return self._leave(request)
        if request.pattern:
            pattern_of(request.pattern)
        self.check_room(request.member_id, request.instance_id)
        before = self._subscribe(request)
        if before.state is MemberState.UNKNOWN and request.owned != frozenset():
            raise FencedMemberEpoch(f"member {before.id} is in an unknown state: it must join again")
        member = _updated(before, request)
        self.change(member)
        after = self.lead(self.table.members[member.id], request.owned, now_ms)
        self.touch(after, now_ms)
        tell = request.epoch == JOIN_EPOCH or request.is_full or after.assigned != before.assigned
        return ConsumerHeartbeatResult(after.id, after.epoch, after.assigned if tell else None)

    def check_room(self, member_id: str, instance_id: str | None) -> None:
        """Raise GroupFull where one more is too many."""
        known = member_id in self.table.members or self.table.static(instance_id) is not None
        if not known and len(self.table.members) >= self.config.max_size:
            raise GroupFull(f"group {self.id} has {len(self.table.members)} members, as many as it may")

    def _subscribe(self, request: HeartbeatRequest) -> ConsumerMember:
        """The member that the request is from: as it is known, or new."""
        joining = request.epoch == JOIN_EPOCH
        if request.instance_id is None:
            known = self.table.members.get(request.member_id)
            if known is None and joining:
                return ConsumerMember(request.member_id)
            return _check_epoch(self.member(request.member_id), request)
        static = self.table.static(request.instance_id)
        if joining:
            return self._join_static(static, request)
        self.check_static(static, request.member_id, request.instance_id)
        return _check_epoch(self.member(request.member_id), request)

    def _join_static(self, static: ConsumerMember | None, request: HeartbeatRequest) -> ConsumerMember:
        if static is None:
            return self.table.members.get(request.member_id) or ConsumerMember(request.member_id)
        if static.epoch != STATIC_LEAVE_EPOCH and static.classic is None:
            raise UnreleasedInstance(f"member {static.id} of group {self.id} still is {request.instance_id}")
        return self.replace_static(static, request.member_id, JOIN_EPOCH)

    def replace_static(self, static: ConsumerMember, member_id: str, epoch: int) -> ConsumerMember:
        """A static member returns under a new id: it takes over the assignment and the target of the old id."""
        member = static.having_revoked()._replace(
            id=member_id, epoch=epoch, previous_epoch=epoch, state=MemberState.STABLE
        )
        target = self.table.target_of(static.id)
        if static.id != member_id:
            self.forget_timers(static.id)
            self.table.remove(static.id)
        self.table.put(member)
        self.table.set_target(member_id, target)
        return member

    def check_static(self, static: ConsumerMember | None, member_id: str, instance_id: str) -> None:
        """Raise UnknownMember or FencedInstance unless the static member has that id."""
        if static is None:
            raise UnknownMember(f"group {self.id} has no member {instance_id}")
        if static.id != member_id:
            raise FencedInstance(f"another member joined as {instance_id}")

    def change(self, member: ConsumerMember) -> None:
        """Apply a member's subscription; if that or the set of topics is new: a new epoch and its target."""
        table = self.table
        before = table.members.get(member.id) or ConsumerMember(member.id)
        assignor = self.assignor
        table.put(member)
        self._resolve()
        same = (before.topics, before.pattern) == (member.topics, member.pattern)
        self.move_on(changed=not same or self.assignor != assignor)

    def _resolve(self) -> None:
        """Resolve new regular expressions, and forget unused ones."""
        used = {member.pattern for member in self.table.members.values() if member.pattern is not None}
        for pattern in self.table.patterns.keys() - used:
            self.table.set_pattern(pattern, None)
        for pattern in used - self.table.patterns.keys():
            self.table.set_pattern(pattern, matching(pattern, self.topics.names(pattern)))

    def move_on(self, *, changed: bool) -> None:
        """Into a new epoch where something `changed` or topics have; make the target where there is none for it."""
        table = self.table
        if table.epoch < _FIRST_EPOCH:
            table.set_epoch(_FIRST_EPOCH, 0)
        if changed or self._stale:
            self._stale = False
            found = hash_of(self._existing().values())
            if changed or found != table.metadata_hash:
                table.set_epoch(table.epoch + 1, found)
        if table.target_epoch < table.epoch:
            self._assign()

    def _existing(self) -> dict[str, GroupTopic]:
        """The topics that members want and that exist, by name."""
        wanted: set[str] = set()
        for member in self.table.members.values():
            wanted |= self.table.subscribed(member)
        return {name: topic for name in wanted if (topic := self.topics.find(name)) is not None}

    def _assign(self) -> None:
        table = self.table
        existing = self._existing()
        subscribers = {
            member.id: Subscriber(
                member.instance_id,
                frozenset(existing[name].id for name in table.subscribed(member) if name in existing),
                table.target_of(member.id),
            )
            for member in table.members.values()
        }
        partitions = {topic.id: topic.partitions for topic in existing.values()}
        for member_id, places in self.config.assignors[self.assignor](subscribers, partitions).items():
            table.set_target(member_id, places)
        table.set_target_epoch(table.epoch)

    def lead(self, member: ConsumerMember, owned: frozenset[TopicPartition] | None, now_ms: int) -> ConsumerMember:
        """Lead a member one step on towards its target."""
        table = self.table
        after = reconcile(
            member, table.target_epoch, table.target_of(member.id), owned,
            lambda place: table.owner(place) in (None, member.id),
        )  # fmt: skip
        if after != member:
            table.put(after)
            self._watch_revoking(after, now_ms)
        return after

    def _watch_revoking(self, member: ConsumerMember, now_ms: int) -> None:
        self.revoke_by_ms.pop(member.id, None)
        if member.state is MemberState.UNREVOKED and member.classic is None:
            self.revoke_by_ms[member.id] = now_ms + max(0, member.rebalance_timeout_ms)

    # -- leaving ------------------------------------------------------------------------------------

    def _leave(self, request: HeartbeatRequest) -> ConsumerHeartbeatResult:
        if request.instance_id is not None:
            self.check_static(self.table.static(request.instance_id), request.member_id, request.instance_id)
        member = self.member(request.member_id)
        if request.epoch == STATIC_LEAVE_EPOCH:
            self.table.put(member.having_revoked()._replace(epoch=STATIC_LEAVE_EPOCH))
            self.revoke_by_ms.pop(member.id, None)
        else:
            self.fence([member.id])
        return ConsumerHeartbeatResult(member.id, request.epoch)

    def fence(self, member_ids: list[str]) -> None:
        """Members leave or are removed: their partitions are free, and the group gets a new epoch."""
        for member_id in member_ids:
            self.forget_timers(member_id)
            self.table.remove(member_id)
        self._resolve()
        self.table.set_epoch(self.table.epoch + 1, self.table.metadata_hash)
        if not self.table.members:
            self.table.set_target_epoch(self.table.epoch)

    def forget_timers(self, member_id: str) -> None:
        """A member is gone."""
        for times in (self.expires_ms, self.revoke_by_ms, self.follow_by_ms):
            times.pop(member_id, None)

    # -- time, and topics ---------------------------------------------------------------------------

    def touch(self, member: ConsumerMember, now_ms: int) -> None:
        """A member has been heard of."""
        classic = member.classic
        session_ms = self.config.session_timeout_ms if classic is None else classic.session_timeout_ms
        self.expires_ms[member.id] = now_ms + session_ms

    def tick(self, now_ms: int) -> None:
        """Time has passed: remove members that sent no heartbeat, or did not revoke partitions in time."""
        timers = (self.expires_ms, self.revoke_by_ms, self.follow_by_ms)
        late = {member_id for times in timers for member_id, at_ms in times.items() if at_ms <= now_ms}
        if late:
            self.fence(sorted(late))

    def names_changed(self) -> None:
        """Any topic may have another name, or another topic its name: the heartbeat that follows acts on it."""
        for pattern in list(self.table.patterns):
            self.table.set_pattern(pattern, matching(pattern, self.topics.names(pattern)))
        self._stale = True

    def topic_changed(self, name: str) -> None:
        """A topic is new, has more partitions, or is gone; the next heartbeat of any member acts on it."""
        exists = self.topics.find(name) is not None
        for pattern, topics in list(self.table.patterns.items()):
            if pattern_of(pattern)(name):
                self.table.set_pattern(pattern, topics | {name} if exists else topics - {name})
        self._stale = True


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """The member. Raises FencedMemberEpoch if its epoch is not the last one that it was sent.

    The response with a new epoch may be lost: then it still sends the epoch before, with no more partitions than it
    has.
    """
    if request.epoch == JOIN_EPOCH:
        return member
    lost_answer = request.epoch == member.previous_epoch and request.owned is not None
    if request.epoch > member.epoch or (
        request.epoch < member.epoch and not (lost_answer and (request.owned or frozenset()) <= member.assigned)
    ):
        raise FencedMemberEpoch(
            f"member {member.id} is in epoch {member.epoch}, not {request.epoch}: it must join again"
        )
    return member


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=member.topics if request.topics is None else request.topics,
        pattern=member.pattern if request.pattern is None else request.pattern or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if request.assignor is None else request.assignor,
        classic=None,
    )
