"""Topics of an inventory in use by Kafka producers: the first record of each, and many topics at once."""

import random
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import psutil
from confluent_kafka import KafkaError, KafkaException, Producer

from duramen.bench.load.inventory import TENANT, some_names
from duramen.node.process import NodeProcess

__all__ = ["InUse", "first_records", "use_topics"]

_FLUSH_S: Final = 120.0
_OF_A_PRODUCER: Final = 250
_SETTLED_S: Final = 12.0  # garbage is collected, and what was written goes into tables
_IDLE_S: Final = 20.0


class InUse(NamedTuple):
    """Topics that have got a record each: the processor's time of each, and what the node needs afterwards, idle."""

    topics: int
    produced_hz: float
    cpu_us: float
    memory_bytes: int
    idle_share: float


def _random_topics(namespaces: int, count: int, seed: int) -> Iterator[str]:
    chance, each = random.Random(seed), max(1, -(-count // namespaces))
    numbers = chance.sample(range(namespaces), -(-count // each))
    names = (f"{TENANT}.n{number}.{name}" for number in numbers for name in some_names(number, each, chance))
    for _, name in zip(range(count), names, strict=False):
        yield name


def _producer(address: str) -> Producer:
    return Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "message.timeout.ms": 100_000})


def _failed(error: KafkaError | None, _: object) -> None:
    if error is not None:
        raise KafkaException(error)


def _produce(producer: Producer, topics: Iterable[str]) -> None:
    for topic in topics:
        producer.produce(topic, b"x" * 100, on_delivery=_failed)
        producer.poll(0)
    if producer.flush(_FLUSH_S):
        raise AssertionError("records of topics in use were not acknowledged")


def first_records(node: NodeProcess, namespaces: int, count: int) -> list[float]:
    """How long a producer that is connected waits for the first record of a topic, in seconds, of so many topics."""
    producer, taken_s = _producer(node.kafka), list[float]()
    for topic in _random_topics(namespaces, count, 3):
        began_s = time.perf_counter()
        _produce(producer, [topic])
        taken_s.append(time.perf_counter() - began_s)
    return taken_s[1:]  # it was connecting before the first


def use_topics(node: NodeProcess, namespaces: int, count: int) -> InUse:
    """Write a record to each of so many topics, then look at the node while nobody asks anything."""
    process = psutil.Process(node.pid)

    def used_s() -> float:
        times = process.cpu_times()
        return times.user + times.system

    before_s, began_s = used_s(), time.perf_counter()
    topics = _random_topics(namespaces, count, 5)
    while some := list(islice(topics, _OF_A_PRODUCER)):
        _produce(_producer(node.kafka), some)
    took_s, cpu_s = time.perf_counter() - began_s, used_s() - before_s
    memory_bytes = process.memory_info().rss
    time.sleep(_SETTLED_S)
    idle_from_s = used_s()
    time.sleep(_IDLE_S)
    return InUse(count, count / took_s, 1e6 * cpu_s / count, memory_bytes, (used_s() - idle_from_s) / _IDLE_S)
