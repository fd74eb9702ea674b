"""Groups of the consumer protocol (KIP-848): drives their state machines, stores their changes, then responds.

A group's state in memory is ahead of the durable state; a response waits until everything that it could reveal is
durable. If a write fails, the group is discarded and loaded again from its records.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from duramen.base.deadlines import Alarm, Deadlines
from duramen.base.errors import (
    AssignorUnknown,
    BatchCorrupt,
    CoordinatorLoading,
    DuramenError,
    GroupNotEmpty,
    GroupNotFound,
    InconsistentProtocol,
    UnknownMember,
)
from duramen.base.ports import Clock
from duramen.base.settings import Settings
from duramen.broker.streams import BrokerStreams, Stream
from duramen.codec.kafka.membership import encode_assignment, encode_subscription
from duramen.coordinators.group.classic import ClassicGroups, JoinDone, LeavingMember
from duramen.coordinators.group.kinds import CommitMember, GroupDescription, GroupKind, GroupListing
from duramen.coordinators.group.memory import GroupRoom
from duramen.coordinators.group.offsets import GroupOffsets
from duramen.coordinators.group.topics import GroupTopics
from duramen.coordinators.group.values import consumer_config
from duramen.groups import consumer_classic
from duramen.groups.assignors import ASSIGNORS
from duramen.groups.consumer_classic import CONSUMERS, names_of
from duramen.groups.consumer_group import ConsumerGroupMachine
from duramen.groups.consumer_records import Key, RecordKind, encode_key
from duramen.groups.consumer_table import ConsumerTable, Record
from duramen.groups.consumer_values import (
    JOIN_EPOCH,
    ConsumerConfig,
    ConsumerHeartbeatResult,
    ConsumerMember,
    ConsumerState,
    HeartbeatRequest,
)
from duramen.groups.group import Group
from duramen.groups.members import request_bytes
from duramen.groups.migration import MigrationPolicy, upgraded
from duramen.groups.records import OtherKey
from duramen.groups.values import GroupSnapshot, JoinRequest, MemberSnapshot, SyncRequest

__all__ = ["ConsumerGroups", "HeartbeatDone"]

_MEMBER_BYTES: Final = 1024
_NAMES_MS: Final = 60_000

T = TypeVar("T")
Done = Callable[[DuramenError | None], None]
HeartbeatDone = Callable[[ConsumerHeartbeatResult | DuramenError], None]


class _Held:
    """A group in memory, with its pending writes."""

    __slots__ = ("alarm", "asked_ms", "broken", "ended", "group", "issued", "names", "waiting")

    def __init__(self, group: ConsumerGroupMachine, deadlines: Deadlines, tick: "Callable[[_Held], None]") -> None:
        """`tick` is called at the group's deadline."""
        self.group = group
        self.issued = 0  # number of writes started
        self.ended = 0  # number of writes ended
        self.waiting: list[tuple[int, Done]] = []  # responses without changes, and the write that each waits for
        self.broken: DuramenError | None = None
        self.asked_ms = -_NAMES_MS  # when its subscriptions were last looked up
        self.names: object = None  # the version of names against which the subscriptions were resolved
        self.alarm = Alarm(deadlines, partial(tick, self))


class ConsumerGroups:
    """All groups of the consumer protocol."""

    kind = GroupKind.CONSUMER

    def __init__(
        self, offsets: GroupOffsets, streams: BrokerStreams, topics: GroupTopics, classic: ClassicGroups, clock: Clock,
        deadlines: Deadlines,
        settings: Settings, configs: Callable[[str], Mapping[str, str]], room: GroupRoom,
        report: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`classic` converts groups from and to the classic protocol; `configs` returns a group's own configs.

        `report` receives a message about records that cannot be read.
        """
        self._offsets = offsets
        self._classic = classic
        self._policy = MigrationPolicy.named(settings.text("group.consumer.migration.policy"))
        self._clock = clock
        self._deadlines = deadlines
        self._room = room
        self._report = report
        self.topics = topics
        self.config = ConsumerConfig(
            settings.integer("group.consumer.session.timeout.ms"),
            settings.integer("group.consumer.heartbeat.interval.ms"),
            settings.integer("group.consumer.max.size"),
            {name: ASSIGNORS[name] for name in settings.text("group.consumer.assignors").split(",")},
        )
        self._settings = settings
        self._configs = configs
        self._held: dict[str, _Held] = {}
        streams.listeners.append(self._stream_changed)

    def config_of(self, group_id: str) -> ConsumerConfig:
        """The effective config of a group."""
        own = self._configs(group_id)
        return consumer_config(self._settings, own, self.config) if own else self.config

    def reconfigured(self, group_id: str) -> None:
        """Apply changed group configs; members get the new intervals with their next heartbeat."""
        held = self._held.get(group_id)
        if held is not None:
            held.group.config = self.config_of(group_id)

    # -- groups -------------------------------------------------------------------------------------

    def _stored(self, group_id: str) -> bool:
        return self._offsets.record(OtherKey(group_id, encode_key(Key(RecordKind.GROUP, group_id)))) is not None

    def has(self, group_id: str) -> bool:
        """Whether there is a group of this kind with that id."""
        return group_id in self._held or self._stored(group_id)

    def _find(self, group_id: str) -> _Held | None:
        """The group, from memory or loaded from its records. Raises CoordinatorLoading after a failed write."""
        held = self._held.get(group_id)
        if held is None and self._stored(group_id):
            table = ConsumerTable(group_id)
            for key, value in self._offsets.records_of(group_id):
                try:
                    table.replay(key, value)
                except BatchCorrupt as error:
                    self._report(f"a record of group {group_id} is skipped: {error}")
            held = self._hold(
                ConsumerGroupMachine.restore(table, self.config_of(group_id), self.topics, self._clock.monotonic_ms())
            )
        if held is not None and held.broken is not None:
            raise CoordinatorLoading(f"group {group_id} is loaded again: {held.broken}")
        return held

    def _new(self, group: ConsumerGroupMachine) -> _Held:
        return _Held(group, self._deadlines, self._tick)

    def _hold(self, group: ConsumerGroupMachine) -> _Held:
        held = self._new(group)
        self._held[group.id] = held
        self._settle(held)
        return held

    def get(self, group_id: str) -> ConsumerGroupMachine:
        """The group. Raises GroupNotFound, CoordinatorLoading."""
        held = self._find(group_id)
        if held is None:
            raise GroupNotFound(f"there is no consumer group {group_id}")
        return held.group

    def _settle(self, held: _Held) -> None:
        """Set the alarm for the group's next deadline, and update its memory account."""
        group = held.group
        self._room.account(group.id, group.table.held_bytes())
        held.alarm.move(group.next_deadline_ms())

    def _tick(self, held: _Held) -> None:
        if self._held.get(held.group.id) is not held or held.broken is not None:
            return
        held.group.tick(self._clock.monotonic_ms())
        self._finish(held, lambda _: None)

    def _finish(self, held: _Held, done: Done, before: Sequence[Record] = ()) -> None:
        """Store the changes, after the records `before`; calls `done` once all that the response rests on is stored."""
        group = held.group
        records = [*before, *group.take_records()]
        back = group.all_classic and self._policy.downgrade and self._classic.can_adopt(len(group.table.members))
        if back:
            # The last member of the consumer protocol has left: one batch ends the group and starts the classic one.
            gone = dict.fromkeys([*(key for key, _ in records), *group.table.every_key()])
            self._forget(held)
            records = [*gone.items(), self._classic.adopt(group.table, self.topics)]
        if records:
            held.issued += 1
            sequence = held.issued

            def stored(error: DuramenError | None) -> None:
                if error is not None and back:
                    self._classic.drop(group.id)
                self._ended(held, sequence, done, error)

            self._offsets.store_records(group.id, records, stored)
        elif held.ended != held.issued:
            held.waiting.append((held.issued, done))
            return
        if not back:
            self._settle(held)
        if not records:
            done(held.broken)

    def _ended(self, held: _Held, sequence: int, done: Done, error: DuramenError | None) -> None:
        held.ended = max(held.ended, sequence)
        if error is not None:
            held.broken = error
        if held.broken is not None and held.ended == held.issued:
            self._forget(held)
        ready = [waiting for at, waiting in held.waiting if at <= held.ended]
        held.waiting = [(at, waiting) for at, waiting in held.waiting if at > held.ended]
        for answer in (done, *ready):
            answer(held.broken)
        if held.broken is not None and held.ended == held.issued and self._offsets.coordinates(held.group.id):
            self._take_in(held.group.id)

    def _take_in(self, group_id: str) -> None:
        """Load a group from its records, so that the session timeouts of its members run."""
        held = self._find(group_id)
        if held is None:
            self._classic.find(group_id)
        elif not held.group.table.members:
            self._forget(held)

    def _forget(self, held: _Held) -> None:
        held.alarm.move(None)
        if self._held.get(held.group.id) is held:
            del self._held[held.group.id]
            self._room.account(held.group.id, 0)

    def _stream_changed(self, stream: Stream) -> None:
        for held in self._held.values():
            held.group.topic_changed(stream.name)

    # -- members ------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, request: HeartbeatRequest, done: HeartbeatDone) -> None:
        """A member joins, reports its state, or leaves; responds once the state in the response is durable."""
        try:
            held, classic = self._enter(group_id, request)
            self._follow_names(held)
            result = held.group.heartbeat(request, self._clock.monotonic_ms())
        except DuramenError as error:
            done(error)
            return
        self._held[group_id] = held
        before = [] if classic is None else [self._classic.release(classic)]
        self._finish(held, lambda error: done(result if error is None else error), before)

    def wanted(self, group_id: str, names: Iterable[str], pattern: str | None) -> tuple[list[str], list[str]]:
        """Names and patterns to look up for a member's request.

        From time to time these are the names and patterns of all members. Raises CoordinatorLoading.
        """
        wanted, patterns, now_ms = [*names], [pattern] if pattern else [], self._clock.monotonic_ms()
        held = self._find(group_id)
        if held is not None and now_ms - held.asked_ms >= _NAMES_MS:
            held.asked_ms = now_ms
            wanted += (name for member in held.group.table.members.values() for name in member.topics)
            patterns += held.group.table.patterns
        return wanted, patterns

    def _follow_names(self, held: _Held) -> None:
        """Resolve the group's subscriptions again if they may match other light topics."""
        version, table = self.topics.version(), held.group.table
        if version == held.names:
            return
        held.names = version
        wanted = (name for member in table.members.values() for name in member.topics)
        if self.topics.may_be_light(wanted, table.patterns):
            held.group.names_changed()

    def _enter(self, group_id: str, request: HeartbeatRequest) -> tuple[_Held, Group | None]:
        """The group. A join may create it; then the classic group that it replaces is returned too."""
        if request.assignor is not None and request.assignor not in self.config.assignors:
            known = ", ".join(self.config.assignors)
            raise AssignorUnknown(f"there is no assignor {request.assignor}; there are: {known}")
        held = self._find(group_id)
        if request.topics is not None or request.pattern is not None:
            names = [request.member_id, request.client_id, request.pattern or "", *(request.topics or ())]
            self._room.check(group_id, [_MEMBER_BYTES + sum(map(len, names))])
        if held is None and request.epoch == JOIN_EPOCH:
            return self._make(group_id)
        if held is None:
            raise GroupNotFound(f"there is no consumer group {group_id}")
        return held, None

    def _make(self, group_id: str) -> tuple[_Held, Group | None]:
        classic = self._classic.find(group_id)
        if classic is None or classic.is_empty:
            group = ConsumerGroupMachine(ConsumerTable(group_id), self.config_of(group_id), self.topics)
        elif not self._policy.upgrade:
            raise GroupNotFound(
                f"group {group_id} is a classic group, and group.consumer.migration.policy does not allow a conversion"
            )
        else:
            table = upgraded(classic, self.topics, self.config.max_size)
            group = ConsumerGroupMachine.restore(
                table, self.config_of(group_id), self.topics, self._clock.monotonic_ms()
            )
        return self._new(group), classic

    # -- members of the classic protocol --------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest, done: JoinDone) -> None:
        """A classic member joins a group that has members; responds once the state in the response is durable."""
        try:
            if not any(self._policy):
                raise InconsistentProtocol(f"group {group_id} uses the consumer protocol and accepts no other")
            self._room.check(group_id, [request_bytes(request)])
        except DuramenError as error:
            done(error)
        else:
            self._follow(group_id, lambda group, now_ms: consumer_classic.join(group, request, now_ms), done)

    def sync(self, group_id: str, request: SyncRequest, done: JoinDone) -> None:
        """A classic member requests its assignment."""
        self._follow(group_id, lambda group, now_ms: consumer_classic.sync(group, request, now_ms), done)

    def beat(self, group_id: str, member: CommitMember, done: Done) -> None:
        """A heartbeat of a classic member."""

        def beaten(group: ConsumerGroupMachine, now_ms: int) -> None:
            consumer_classic.heartbeat(group, member.member_id, member.instance_id, member.generation, now_ms)

        self._follow(group_id, beaten, done)

    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        done: Callable[[list[DuramenError | None] | DuramenError], None],
    ) -> None:
        """Members of either protocol leave; responds with one result for each."""

        def left(group: ConsumerGroupMachine, _: int) -> list[DuramenError | None]:
            results: list[DuramenError | None] = []
            for member in members:
                try:
                    consumer_classic.leave(group, member.member_id, member.instance_id)
                    results.append(None)
                except DuramenError as error:
                    results.append(error)
            return results

        self._follow(group_id, left, done)

    def _follow(
        self, group_id: str, act: Callable[[ConsumerGroupMachine, int], T], done: Callable[[T | DuramenError], None]
    ) -> None:
        """Run `act` on a group, and respond with its result or its error once the changes are durable."""
        try:
            held = self._find(group_id)
            if held is None:
                raise UnknownMember(f"there is no group {group_id}")
        except DuramenError as error:
            done(error)
            return
        answer: T | DuramenError
        try:
            answer = act(held.group, self._clock.monotonic_ms())
        except DuramenError as error:
            answer = error
        self._finish(held, lambda error: done(answer if error is None else error))

    def discard(self, group_id: str) -> None:
        """A classic member joins an empty group: it becomes a classic group."""
        self._offsets.store_records(group_id, [(key, None) for key in self.remove(group_id)], lambda _: None)

    def is_empty(self, group_id: str) -> bool:
        """Whether the group has no members. Raises GroupNotFound, CoordinatorLoading."""
        return not self.get(group_id).table.members

    # -- requests of all kinds of groups ------------------------------------------------------------

    def listing(self) -> Iterator[GroupListing]:
        """Every group of the consumer protocol, stored ones included."""
        for held in list(self._held.values()):
            yield GroupListing(held.group.id, CONSUMERS, held.group.state, self.kind)
        for group_id in list(self._offsets.each_other()):
            if group_id not in self._held and self._stored(group_id):
                yield GroupListing(group_id, CONSUMERS, ConsumerState.EMPTY, self.kind)

    def describe(self, group_id: str) -> GroupDescription:
        """A group with its members."""
        group = self.get(group_id)
        members = tuple(self._member(group, member) for member in group.table.members.values())
        snapshot = GroupSnapshot(group.table.epoch, CONSUMERS, group.assignor, None, members)
        return GroupDescription(group_id, group.state, snapshot, self.kind)

    def _member(self, group: ConsumerGroupMachine, member: ConsumerMember) -> MemberSnapshot:
        classic = member.classic
        return MemberSnapshot(
            member.id, member.instance_id, member.client_id, member.client_host,
            group.config.session_timeout_ms if classic is None else classic.session_timeout_ms,
            member.rebalance_timeout_ms, encode_subscription(sorted(group.table.subscribed(member))),
            encode_assignment(names_of(self.topics, member.assigned)),
        )  # fmt: skip

    def empty_since_ms(self, group_id: str) -> int | None:
        """0 for a group without members: the time is not stored."""
        held = self._held.get(group_id)
        return 0 if held is None or not held.group.table.members else None

    def subscribes(self, group_id: str, topic: str) -> bool:
        """Whether a member of the group subscribes to the topic."""
        return self.get(group_id).subscribes(topic)

    def check_commit(self, group_id: str, member: CommitMember) -> None:
        """Raise the reason that keeps the member from committing offsets."""
        self.get(group_id).check_commit(
            member.member_id, member.generation, knows_epochs=member.knows_epochs, partitions=member.partitions
        )

    def check_delete_offsets(self, group_id: str) -> None:
        """Offsets of topics without subscribed members may always be deleted."""

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Raise the reason that keeps a member from reading the group's offsets."""
        self.get(group_id).check_fetch(member_id, epoch)

    def discard_state(self, group_id: str, done: Done) -> None:
        """A consumer group has no state besides its records."""
        del group_id
        done(None)

    def remove(self, group_id: str) -> Sequence[bytes]:
        """Remove a group from memory; returns the keys of its records. Raises GroupNotEmpty."""
        held = self._find(group_id)
        if held is None:
            raise GroupNotFound(f"there is no consumer group {group_id}")
        if held.group.table.members:
            raise GroupNotEmpty(f"group {group_id} has {len(held.group.table.members)} members")
        self._forget(held)
        stored = [key for key, _ in self._offsets.records_of(group_id)]
        return list(dict.fromkeys([*stored, *held.group.table.every_key()]))

    def restore(self, index: int | None) -> Iterator[None]:
        """Load the groups that have members, so that their session timeouts run."""
        for group_id in list(self._offsets.each_other(index)):
            self._take_in(group_id)
            yield

    def let_go(self, those: Callable[[str], bool], error: DuramenError) -> None:
        """The node no longer coordinates these groups; pending writes respond when they end."""
        for held in [held for held in self._held.values() if those(held.group.id)]:
            held.broken = error
            self._forget(held)
