"""A group of the consumer protocol in a test's hand: topics, time, members that heartbeat, and its records."""

from collections.abc import Iterable
from uuid import UUID

from duramen.groups.consumer_group import ConsumerGroupMachine
from duramen.groups.consumer_table import ConsumerTable
from duramen.groups.consumer_values import ConsumerConfig, ConsumerHeartbeatResult, ConsumerState, HeartbeatRequest
from duramen.groups.topics import GroupTopic, TopicPartition

__all__ = ["CONFIG", "Driver", "FakeTopics", "Someone"]

CONFIG = ConsumerConfig(session_timeout_ms=1000, heartbeat_interval_ms=100, max_size=100)


class FakeTopics:
    """Topics that a test makes and deletes."""

    def __init__(self) -> None:
        self._topics: dict[str, GroupTopic] = {}
        self._made = 0

    def put(self, name: str, partitions: int) -> GroupTopic:
        """A topic, made or grown."""
        old = self._topics.get(name)
        self._made += 1
        topic = GroupTopic(name, UUID(int=self._made) if old is None else old.id, partitions)
        self._topics[name] = topic
        return topic

    def delete(self, name: str) -> None:
        """The topic is gone."""
        del self._topics[name]

    def find(self, name: str) -> GroupTopic | None:
        """The topic of that name."""
        return self._topics.get(name)

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of the topic with that id."""
        return next((topic.name for topic in self._topics.values() if topic.id == topic_id), None)

    def names(self, pattern: str) -> Iterable[str]:
        """Every name."""
        del pattern
        return list(self._topics)


class Driver:
    """The group, its topics, the time, and its records as they are stored."""

    def __init__(self, config: ConsumerConfig = CONFIG, **partitions: int) -> None:
        self.topics = FakeTopics()
        for name, count in partitions.items():
            self.topics.put(name, count)
        self.config = config
        self.group = ConsumerGroupMachine(ConsumerTable("g"), config, self.topics)
        self.now_ms = 0
        self.stored: dict[bytes, bytes] = {}

    def store(self) -> None:
        """What the group has changed is durable."""
        for key, value in self.group.take_records():
            if value is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = value

    def state(self) -> ConsumerState:
        """The group's state now."""
        return self.group.state

    def heartbeat(self, request: HeartbeatRequest) -> ConsumerHeartbeatResult:
        """A heartbeat, and what it changed stored."""
        result = self.group.heartbeat(request, self.now_ms)
        self.store()
        return result

    def advance(self, duration_ms: int) -> None:
        """Let time go by, telling the group of every time that it asked to be told of."""
        until_ms = self.now_ms + duration_ms
        while (at_ms := self.group.next_deadline_ms()) is not None and at_ms <= until_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.group.tick(self.now_ms)
            self.store()
        self.now_ms = until_ms

    def restart(self) -> None:
        """The node dies and starts again with what was stored."""
        table = ConsumerTable("g")
        for key, value in self.stored.items():
            table.replay(key, value)
        self.group = ConsumerGroupMachine.restore(table, self.config, self.topics, self.now_ms)

    def change(self, name: str, partitions: int | None) -> None:
        """A topic is made, grown, or (None) deleted, and the group hears of it."""
        if partitions is None:
            self.topics.delete(name)
        else:
            self.topics.put(name, partitions)
        self.group.topic_changed(name)

    def place(self, name: str, index: int) -> TopicPartition:
        """A partition of a topic that is there."""
        topic = self.topics.find(name)
        assert topic is not None
        return topic.id, index

    def settle(self, *members: "Someone") -> None:
        """Members heartbeat in turns until nothing changes any more."""
        for _ in range(100):
            changed = [member.beat() for member in members]
            if not any(changed):
                return
        raise AssertionError("the group does not settle")


class Someone:
    """A member as a client plays it: it keeps its epoch and what it may read, and gives up what it is told to."""

    def __init__(
        self, driver: Driver, name: str, *topics: str, instance: str | None = None, pattern: str | None = None,
        assignor: str | None = None,
    ) -> None:  # fmt: skip
        self.driver = driver
        self.id = name
        self.topics: frozenset[str] = frozenset(topics)
        self.instance = instance
        self.pattern = pattern
        self.assignor = assignor
        self.epoch = 0
        self.owned: frozenset[TopicPartition] = frozenset()
        self.lingering: frozenset[TopicPartition] = frozenset()  # what it is giving up, until its next heartbeat
        self._told: frozenset[TopicPartition] | None = None

    def join(self) -> ConsumerHeartbeatResult:
        """Join, or join anew with nothing."""
        self.owned = self.lingering = frozenset()
        request = HeartbeatRequest(
            self.id, 0, self.instance, rebalance_timeout_ms=500, topics=self.topics, pattern=self.pattern,
            assignor=self.assignor, owned=frozenset(),
        )  # fmt: skip
        result = self.driver.heartbeat(request)
        self._take(result)
        self.owned = result.assigned or frozenset()
        self._told = self.owned
        return result

    def beat(self, *, topics: frozenset[str] | None = None, pattern: str | None = None) -> bool:
        """A heartbeat that says what is new of what it has and wants; whether anything changed or is to be said."""
        before = (self.epoch, self.owned)
        self.lingering = frozenset()
        request = HeartbeatRequest(
            self.id, self.epoch, self.instance, owned=self._news(), topics=topics, pattern=pattern
        )
        self._take(self.driver.heartbeat(request))
        return (self.epoch, self.owned) != before or self.owned != self._told

    def _news(self) -> frozenset[TopicPartition] | None:
        news = None if self.owned == self._told else self.owned
        self._told = self.owned
        return news

    def _take(self, result: ConsumerHeartbeatResult) -> None:
        self.epoch = result.epoch
        if result.assigned is not None:
            self.lingering = self.owned - result.assigned
            self.owned = result.assigned

    def leave(self, epoch: int = -1) -> ConsumerHeartbeatResult:
        """Leave."""
        return self.driver.heartbeat(HeartbeatRequest(self.id, epoch, self.instance))
