"""Unmodified Kafka clients of the demo: a producer, a group member, and a consumer that reads everything."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread
from typing import Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from duramen.base.errors import DemoFailed

__all__ = ["PRODUCERS", "DemoTopic", "GroupMember", "RecordProducer", "read_all"]

PRODUCERS: Final = 10
"""A client asks for the metadata of all topics that it knows with each new one: some know fewer each."""

_WINDOW: Final = 500
_POLL_S: Final = 0.05
_CHUNK: Final = 500
_STUCK_S: Final = 120.0
_OTHER_NAME: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
_NOT_SENT: Final = _OTHER_NAME | {KafkaError._DESTROY}
"""librdkafka reports _DESTROY for records that are still queued when it drops the partition of an old name."""

_MEMBER_ERRORS: Final = _OTHER_NAME | {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


class DemoTopic:
    """A topic that records are produced to: TENANT/NAMESPACE/TOPIC now, and the numbers that were acknowledged."""

    def __init__(self, index: int, path: str) -> None:
        self.index = index
        self.path = path
        self.acknowledged: list[int] = []

    @property
    def name(self) -> str:
        """What Kafka calls it now."""
        return self.path.replace("/", ".", 2)

    def value(self, number: int) -> bytes:
        """A record's value."""
        return b"%d %d" % (self.index, number)


def _quiet(*_: object) -> None:
    """The clients connect again by themselves."""


class RecordProducer:
    """Some producers. A record for a name that its topic has no longer goes to the name of now."""

    def __init__(self, kafka: str) -> None:
        configuration = {
            "bootstrap.servers": kafka, "enable.idempotence": True, "linger.ms": 0,
            "allow.auto.create.topics": False, "topic.metadata.propagation.max.ms": 1000,
            "reconnect.backoff.max.ms": 500, "log_level": 0, "error_cb": _quiet,
        }  # fmt: skip
        self._producers = [Producer(configuration) for _ in range(PRODUCERS)]
        self._number = 0
        self._open = 0
        self._again: list[tuple[DemoTopic, int]] = []
        self.acknowledged: list[tuple[float, float]] = []
        """When each record was acknowledged (`time.perf_counter`), and how long that took, s."""
        self.renamed = 0
        """Records that came to a name that its topic had no longer."""

    def send(self, topics: Sequence[DemoTopic], show: Callable[[int], None]) -> None:
        """Send a record to each, and have all acknowledged. Raises DemoFailed."""
        before = len(self.acknowledged)
        for topic in topics:
            self._wait(_WINDOW, lambda: show(len(self.acknowledged) - before))
            self._send(topic, self._number)
            self._number += 1
            self._send_again()
        while self._open or self._again:
            self._send_again()
            self._wait(1, lambda: show(len(self.acknowledged) - before))

    def _send_again(self) -> None:
        again, self._again = self._again, []
        for topic, number in again:
            self._send(topic, number)

    def _wait(self, window: int, show: Callable[[], None]) -> None:
        """Until fewer records than that are under way."""
        until_s = time.monotonic() + _STUCK_S
        self._poll(0)
        while self._open >= window:
            self._poll(_POLL_S / PRODUCERS)
            if time.monotonic() > until_s:
                raise DemoFailed(f"{self._open:,} records are not acknowledged")
        show()

    def _poll(self, timeout_s: float) -> None:
        for producer in self._producers:
            producer.poll(timeout_s)

    def _send(self, topic: DemoTopic, number: int) -> None:
        self._open += 1
        told = partial(self._told, topic, number, time.perf_counter())
        self._producers[topic.index % PRODUCERS].produce(topic.name, topic.value(number), on_delivery=told)

    def _told(self, topic: DemoTopic, number: int, began_s: float, error: KafkaError | None, _: Message) -> None:
        self._open -= 1
        if error is None:
            now_s = time.perf_counter()
            self.acknowledged.append((now_s, now_s - began_s))
            topic.acknowledged.append(number)
        elif error.code() in _NOT_SENT:
            self.renamed += 1
            self._again.append((topic, number))
        else:
            raise DemoFailed(f"a record for {topic.name} was not taken: {error}")


class GroupMember:
    """The member of a group that reads some topics, whatever they are called, and commits after each poll."""

    def __init__(self, kafka: str, topics: Sequence[DemoTopic]) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka, "group.id": "demo", "auto.offset.reset": "earliest",
                "enable.auto.commit": False, "reconnect.backoff.max.ms": 500, "log_level": 0, "error_cb": _quiet,
                "allow.auto.create.topics": False,
            }
        )  # fmt: skip
        self._topics = topics
        self.numbers: dict[int, list[int]] = {topic.index: [] for topic in topics}
        self.subscriptions = 0
        self._over = Event()
        self._failed: list[Exception] = []
        self._thread = Thread(target=self._run, daemon=True)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While this lasts it reads, and in the end what was acknowledged until then. Raises DemoFailed."""
        self._thread.start()
        try:
            yield
            until_s = time.monotonic() + _STUCK_S
            while not self._failed and any(map(self._lacks, self._topics)):
                if time.monotonic() > until_s:
                    raise DemoFailed("the group does not get on")
                time.sleep(_POLL_S)
        finally:
            self._over.set()
            self._thread.join()
        if self._failed:
            raise DemoFailed(f"the member of the group failed: {self._failed[0]}")

    def _lacks(self, topic: DemoTopic) -> bool:
        return bool(set(topic.acknowledged) - set(self.numbers[topic.index]))

    def _run(self) -> None:
        names = list[str]()
        try:
            while not self._over.is_set():
                now = [topic.name for topic in self._topics]
                if now != names:
                    names = now
                    self._consumer.subscribe(names)
                    self.subscriptions += 1
                self._take(self._consumer.consume(500, timeout=0.2))
            self._consumer.close()
        except (KafkaException, ValueError, RuntimeError) as error:
            self._failed.append(error)

    def _take(self, messages: Sequence[Message]) -> None:
        read = False
        for message in messages:
            error = message.error()
            if error is None:
                index, number = (message.value() or b"").split()
                self.numbers[int(index)].append(int(number))
                read = True
            elif error.code() not in _MEMBER_ERRORS:
                raise KafkaException(error)
        if read:
            with suppress(KafkaException):  # the node is away: it is committed with the records that follow
                self._consumer.commit(asynchronous=False)


def read_all(kafka: str, topics: Sequence[DemoTopic], show: Callable[[int], None]) -> dict[int, list[int]]:
    """All records of topics: their numbers by the index of the topic. Raises DemoFailed where one is in another."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka, "group.id": "demo-check", "enable.auto.commit": False,
            "enable.partition.eof": True, "log_level": 0, "error_cb": _quiet, "fetch.wait.max.ms": 50,
        }
    )  # fmt: skip
    found: dict[int, list[int]] = {}
    for at in range(0, len(topics), _CHUNK):
        indexes = {topic.name: topic.index for topic in topics[at : at + _CHUNK]}
        consumer.assign([TopicPartition(name, 0, 0) for name in indexes])
        _read_chunk(consumer, indexes, found)
        show(min(at + _CHUNK, len(topics)))
    consumer.close()
    return found


def _read_chunk(consumer: Consumer, indexes: dict[str, int], found: dict[int, list[int]]) -> None:
    left, until_s = dict(indexes), time.monotonic() + _STUCK_S
    while left:
        messages = consumer.consume(1000, timeout=0.1)
        if time.monotonic() > until_s:
            raise DemoFailed(f"{len(left):,} topics cannot be read")
        for message in messages:
            name, error = message.topic() or "", message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                left.pop(name, None)
            elif error is not None:
                raise DemoFailed(f"{name} cannot be read: {error}")
            else:
                index, number = map(int, (message.value() or b"").split())
                if index != indexes[name]:
                    raise DemoFailed(f"{name} has a record of another topic")
                found.setdefault(index, []).append(number)
