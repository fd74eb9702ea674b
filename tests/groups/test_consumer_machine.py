"""A group of the consumer protocol under whatever members of both protocols, topics, time and restarts do.

What must hold at every step: no two members that are alive believe that they may read the same partition. What must
hold once nothing happens any more: every partition of a topic that somebody wants is read by one who wants it.
"""

from collections import Counter
from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from tests.examples import examples
from tests.groups.consumers import CONFIG, Driver, Someone

from duramen.base.errors import (
    FencedInstance,
    FencedMemberEpoch,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
    UnreleasedInstance,
)
from duramen.codec.kafka.membership import decode_assignment, encode_subscription
from duramen.groups import consumer_classic
from duramen.groups.consumer_classic import names_of, places_of
from duramen.groups.consumer_values import ConsumerState
from duramen.groups.topics import TopicPartition
from duramen.groups.values import JoinRequest, SyncRequest

TOPICS = ("a", "b", "c")
SUBSCRIPTIONS = st.frozensets(st.sampled_from(TOPICS), min_size=1)
_GONE = (UnknownMember, FencedMemberEpoch, FencedInstance, IllegalGeneration)


class Classic:
    """A member of the classic protocol as a client plays it: it joins, syncs, reads, and joins again when called."""

    def __init__(self, driver: Driver, name: str, topics: frozenset[str], *, cooperative: bool) -> None:
        self.driver = driver
        self.id = name
        self.topics = topics
        self.protocol = "cooperative-sticky" if cooperative else "range"
        self.cooperative = cooperative
        self.generation = -1
        self.owned: frozenset[TopicPartition] = frozenset()
        self.lingering: frozenset[TopicPartition] = frozenset()

    def join(self) -> None:
        """Join, or join again, and sync; an eager member gives everything up before."""
        if not self.cooperative:
            self.owned = frozenset()
        for _ in range(20):
            group = self.driver.group
            subscription = encode_subscription(sorted(self.topics)) if not self.owned else _owning(self)
            request = JoinRequest(
                self.id, None, self.id, False, "c", "/h", 1000, 500, "consumer",
                [("range", subscription), ("cooperative-sticky", subscription)],
            )  # fmt: skip
            self.generation = consumer_classic.join(group, request, self.driver.now_ms).generation
            self.driver.store()
            try:
                synced = consumer_classic.sync(
                    group, SyncRequest(self.id, None, self.generation, None, None, ()), self.driver.now_ms
                )
            except RebalanceInProgress:
                continue
            given = places_of(self.driver.topics, decode_assignment(synced.assignment))
            again = self.cooperative and bool(self.owned - given)
            self.owned = given
            if not again:
                return

    def beat(self) -> bool:
        """A heartbeat, and what follows of it; whether anything changed."""
        before = (self.generation, self.owned)
        try:
            consumer_classic.heartbeat(self.driver.group, self.id, None, self.generation, self.driver.now_ms)
        except RebalanceInProgress:
            self.join()
        finally:
            self.driver.store()
        return (self.generation, self.owned) != before

    def leave(self, epoch: int = -1) -> None:
        """Leave."""
        del epoch
        consumer_classic.leave(self.driver.group, self.id, None)
        self.driver.store()


def _owning(member: Classic) -> bytes:
    """The subscription of a cooperative member, version 1: topics, no user data, and what it has kept."""
    head = b"\0\1" + encode_subscription(sorted(member.topics))[2:]
    owned = names_of(member.driver.topics, member.owned)
    body = len(owned).to_bytes(4, "big")
    for name, indexes in owned.items():
        body += len(name).to_bytes(2, "big") + name.encode() + len(indexes).to_bytes(4, "big")
        body += b"".join(index.to_bytes(4, "big") for index in indexes)
    return head + body


class Groups(RuleBasedStateMachine):
    """The rules."""

    members = Bundle("members")

    @initialize(a=st.integers(1, 6), b=st.integers(1, 6))
    def begin(self, a: int, b: int) -> None:
        """Two topics of three are there."""
        self.driver = Driver(CONFIG, a=a, b=b)
        self.made = 0
        self.alive: list[Someone | Classic] = []

    def _came(self, member: Someone | Classic) -> Someone | Classic:
        self.alive.append(member)
        return member

    @rule(target=members, topics=SUBSCRIPTIONS, instance=st.sampled_from([None, None, "i", "j"]),
          assignor=st.sampled_from([None, "range", "uniform"]))  # fmt: skip
    def join(self, topics: frozenset[str], instance: str | None, assignor: str | None) -> object:
        """Somebody new joins with the consumer protocol."""
        self.made += 1
        member = Someone(self.driver, f"m{self.made}", *topics, instance=instance, assignor=assignor)
        try:
            member.join()
        except UnreleasedInstance:
            return multiple()
        return self._came(member)

    @rule(target=members, topics=SUBSCRIPTIONS, cooperative=st.booleans())
    def join_classic(self, topics: frozenset[str], cooperative: bool) -> object:
        """Somebody new joins with the classic protocol, where there is somebody."""
        if not self.alive:
            return multiple()
        self.made += 1
        member = Classic(self.driver, f"k{self.made}", topics, cooperative=cooperative)
        member.join()
        return self._came(member)

    @rule(member=members)
    def beat(self, member: Someone | Classic) -> None:
        """A member's heartbeat; one that is fenced lets go of everything and joins again."""
        self._beat(member)

    def _beat(self, member: Someone | Classic) -> None:
        if member not in self.alive:
            return
        try:
            member.beat()
        except _GONE:
            member.owned = member.lingering = frozenset()
            try:
                member.join()
            except (UnreleasedInstance, FencedInstance, UnknownMember, MemberIdRequired):
                self.alive.remove(member)
        self.nobody_shares()

    @rule(member=consumes(members), epoch=st.sampled_from([-1, -1, -2]))
    def leave(self, member: Someone | Classic, epoch: int) -> None:
        """A member leaves; a static one may come back."""
        if member not in self.alive:
            return
        self.alive.remove(member)
        if isinstance(member, Someone) and member.instance is None:
            epoch = -1
        with suppress(*_GONE):
            member.leave(epoch)

    @rule(member=consumes(members))
    def die(self, member: Someone | Classic) -> None:
        """A member is never heard of again; what it read it reads no more."""
        if member in self.alive:
            self.alive.remove(member)

    @rule(member=members, topics=SUBSCRIPTIONS)
    def want(self, member: Someone | Classic, topics: frozenset[str]) -> None:
        """A member wants something else."""
        if member not in self.alive or isinstance(member, Classic):
            return
        member.topics = topics
        try:
            member.beat(topics=topics)
        except _GONE:
            member.owned = member.lingering = frozenset()

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 6))
    def make_or_grow(self, name: str, partitions: int) -> None:
        """A topic comes, or gets more partitions."""
        topic = self.driver.topics.find(name)
        self.driver.change(name, partitions if topic is None else topic.partitions + partitions)

    @rule(name=st.sampled_from(TOPICS))
    def delete(self, name: str) -> None:
        """A topic goes."""
        if self.driver.topics.find(name) is not None:
            self.driver.change(name, None)

    @rule(duration_ms=st.integers(1, 700))
    def wait(self, duration_ms: int) -> None:
        """Time goes by; whom the group has given up reads nothing from then on."""
        self.driver.advance(duration_ms)
        self._notice()

    def _notice(self) -> None:
        for member in self.alive:
            if member.id not in self.driver.group.table.members:
                member.owned = member.lingering = frozenset()

    @rule()
    def restart(self) -> None:
        """The node dies and comes back."""
        before = self.driver.group.table
        self.driver.restart()
        after = self.driver.group.table
        assert after.members == before.members
        assert after.target == before.target
        assert (after.epoch, after.target_epoch) == (before.epoch, before.target_epoch)

    @invariant()
    def nobody_shares(self) -> None:
        """No two members believe that a partition is theirs."""
        if hasattr(self, "alive"):
            held = Counter(place for member in self.alive for place in member.owned | member.lingering)
            assert all(count == 1 for count in held.values()), held

    @rule()
    def settle(self) -> None:
        """Once nothing happens any more, everything wanted is read, and by one who wants it."""
        for _ in range(60):
            for member in list(self.alive):
                self._beat(member)
            self.driver.advance(50)
            self._notice()
        if not self.alive:
            assert self.driver.state() is ConsumerState.EMPTY
            return
        assert self.driver.state() is ConsumerState.STABLE
        existing = {name: topic for name in TOPICS if (topic := self.driver.topics.find(name)) is not None}
        wanted = {name for member in self.alive for name in member.topics}
        held = {place for member in self.alive for place in member.owned}
        assert held == {
            (topic.id, index) for name, topic in existing.items() if name in wanted for index in range(topic.partitions)
        }
        for member in self.alive:
            allowed = {existing[name].id for name in member.topics if name in existing}
            assert {topic for topic, _ in member.owned} <= allowed


Groups.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestGroups = Groups.TestCase
