"""How many topics a node takes: create rate, memory and restart as their number grows, of Duramen and Apache Kafka.

Duramen's are topics of an inventory, loaded in bulk. Kafka's have a partition each, created in large requests until the
time is over, or the memory, or it does not go on. At each number a node is restarted, and ready where a producer's
record on a topic among them is acknowledged.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from duramen.base.errors import DuramenError, RequestTimedOut
from duramen.bench.load.idle import resident_mib
from duramen.bench.load.inventory import IN_NAMESPACE, TENANT, load_topics, topic_names
from duramen.bench.peers.kafka import ApacheKafka
from duramen.bench.report.plot import CurvePoint
from duramen.client.api.client import connect
from duramen.node.process import NodeProcess

__all__ = ["kafka_curve", "our_curve"]

_STEPS: Final = (1, 2, 5)
_FIRST_TOPICS: Final = 1000
_A_REQUEST: Final = 250
_TIMEOUT_S: Final = 120.0
_RETRY_S: Final = 0.05
_STOP_S: Final = 60.0
_SHOWN: Final = 200  # last characters of the error
_SETTLE_S: Final = 1.0
_FIRST_HEAP_MB: Final = 256

_Tell = Callable[[str], None]


def _numbers(first: int) -> Iterator[int]:
    """1, 2, 5, 10, 20 … times `first`."""
    while True:
        yield from (first * step for step in _STEPS)
        first *= 10


def our_curve(directory: Path, topics: int, until_s: float, tell: _Tell) -> list[CurvePoint]:
    """Up to so many topics, or as far as there is time."""
    found, namespaces = list[CurvePoint](), 0
    with NodeProcess(directory) as node:
        with connect(node.http) as client:
            client.inventory.create_tenants([TENANT])
        for number in _numbers(IN_NAMESPACE):
            if number > topics or time.time() > until_s:
                return found
            first, namespaces = namespaces, number // IN_NAMESPACE
            with connect(node.http) as client:
                client.inventory.create_namespaces(TENANT, [f"n{one}" for one in range(first, namespaces)])
            took_s = load_topics(node.http, namespaces, lambda made, _: tell(f"{made:,} more topics"), first=first)
            time.sleep(_SETTLE_S)
            memory_mib = resident_mib(node.pid)
            node.kill()
            began_s = time.monotonic()
            node.start()
            _produce(node.kafka, f"{TENANT}.n{first}.{topic_names(first)[0]}", until_s)
            restart_s = time.monotonic() - began_s
            hz = (namespaces - first) * IN_NAMESPACE / took_s
            found.append(CurvePoint(number, hz, memory_mib, restart_s))
            tell(f"Duramen: {number:,} topics, {found[-1]}")
    raise AssertionError("numbers do not end")


class _Grown(NamedTuple):
    """How many topics there are, the broker's memory, and why there are no more; empty where they are all there."""

    topics: int
    memory_mib: float
    why: str


def kafka_curve(directory: Path, memory_mib: int, until_s: float, tell: _Tell) -> tuple[list[CurvePoint], str]:
    """As far as the time and the memory go; and why it ended."""
    found, grown = list[CurvePoint](), _Grown(0, 0.0, "")
    with ApacheKafka(directory, heap_mb=memory_mib, first_heap_mb=_FIRST_HEAP_MB) as kafka:
        for number in _numbers(_FIRST_TOPICS):
            began_s, first = time.monotonic(), grown.topics
            grown = _grow(kafka, first, number, memory_mib, until_s, tell)
            hz = (grown.topics - first) / (time.monotonic() - began_s)
            restart_s, why = (None, grown.why) if grown.why else _restart(kafka, _topic(grown.topics - 1), until_s)
            if grown.topics > first:
                found.append(CurvePoint(grown.topics, hz, grown.memory_mib, restart_s))
                tell(f"Apache Kafka: {grown.topics:,} topics, {found[-1]}")
            if why:
                return found, why
    raise AssertionError("numbers do not end")


def _grow(kafka: ApacheKafka, made: int, number: int, memory_mib: int, until_s: float, tell: _Tell) -> _Grown:
    used_mib = 0.0
    while made < number:
        count = min(_A_REQUEST, number - made)
        why = _created(kafka.address, [_topic(one) for one in range(made, made + count)])
        if why:
            return _Grown(made, used_mib, why)
        made += count
        used_mib = 0.0 if kafka.process_id is None else resident_mib(kafka.process_id)
        tell(f"Apache Kafka: {made:,} topics, {used_mib:,.0f} MiB")
        if time.time() > until_s:
            return _Grown(made, used_mib, "the time was over")
        if used_mib > memory_mib:
            return _Grown(made, used_mib, f"it used {used_mib:,.0f} MiB")
    return _Grown(made, used_mib, "")


def _restart(kafka: ApacheKafka, topic: str, until_s: float) -> tuple[float | None, str]:
    """How long until a record on the topic is acknowledged; or why it was not."""
    kafka.stop(_STOP_S)
    began_s = time.monotonic()
    try:
        kafka.start(max(_RETRY_S, until_s - time.time()))
        _produce(kafka.address, topic, until_s)
    except DuramenError as error:
        return None, f"it was not up again in time: {str(error)[-_SHOWN:]}"
    return time.monotonic() - began_s, ""


def _topic(number: int) -> str:
    return f"device-{number:08d}"


def _created(address: str, names: list[str]) -> str:
    """Why not all of them were; empty where they were."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        topics = [NewTopic(name, 1) for name in names]
        for future in admin.create_topics(topics, request_timeout=_TIMEOUT_S).values():
            future.result()
    except KafkaException as error:
        return f"it created no more: {error}"
    return ""


def _produce(address: str, topic: str, until_s: float) -> None:
    """Come back once a record is acknowledged. Raises RequestTimedOut."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "log_level": 0})
    failed: list[KafkaError] = []

    def done(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    while True:
        producer.produce(topic, b"x", on_delivery=done)
        producer.flush(_TIMEOUT_S)
        if not failed:
            return
        if time.time() > until_s:
            raise RequestTimedOut(f"a record to {topic} was not acknowledged: {failed[0].str()}")
        failed.clear()
        time.sleep(_RETRY_S)
