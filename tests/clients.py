"""Three unmodified client libraries behind one face, so that a test can say the same to each of them."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from duramen.node.process import NodeProcess
from tests.untyped import untyped

__all__ = [
    "AIOKAFKA",
    "CONFLUENT",
    "KAFKA_PYTHON",
    "LIBRARIES",
    "Library",
    "Place",
    "Read",
    "Record",
    "again",
    "metric",
    "metrics",
    "open_logs",
    "unhealthy",
    "unready",
    "until",
]

T = TypeVar("T")

_WAIT_S: Final = 60.0


class Record(NamedTuple):
    """What is produced. Without a partition the library chooses; without a timestamp it takes its clock."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Place(NamedTuple):
    """Where a record was stored, as the acknowledgement says."""

    partition: int
    offset: int


class Read(NamedTuple):
    """What is consumed. `timestamp_type` is 0 for CreateTime, 1 for LogAppendTime."""

    place: Place
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    timestamp_type: int


class Library(Protocol):
    """A client library."""

    name: str
    compressions: Sequence[str]

    def produce(
        self,
        address: str,
        stream: str,
        records: Sequence[Record],
        *,
        acks: int = -1,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[Place]:
        """Produce records in order with one producer; where they were stored, in their order."""

    def consume(self, address: str, stream: str, partitions: int, count: int) -> list[Read]:
        """The first `count` records of a stream, all partitions together, without a group."""


def again(call: Callable[[], object], tries: int = 30) -> None:
    """Call, and again where the client says that this may help."""
    for left in reversed(range(tries)):
        try:
            call()
        except KafkaException as error:
            if not left or not error.args[0].retriable():
                raise
        else:
            return


def until(condition: Callable[[], T], timeout_s: float = 60.0) -> T:
    """Wait until something is so that no event tells of; returns it."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


def metric(node: NodeProcess, name: str, **labels: str) -> float:
    """The value of a metric now; 0 where there is no such series yet."""
    return next((value for found, value in metrics(node, name, **labels) if found == labels), 0.0)


def metrics(node: NodeProcess, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
    """All series of a metric now that have these labels, with all of theirs."""
    connection = HTTPConnection(node.http, timeout=_WAIT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = [sample for sample in samples if sample.name == name]
    return [(sample.labels, sample.value) for sample in found if labels.items() <= sample.labels.items()]


def unready(node: NodeProcess) -> str:
    """Why the node is not ready, as /readyz says; empty where it is."""
    return _refused(node, "/readyz")


def unhealthy(node: NodeProcess) -> str:
    """Why the node wants to be restarted, as /healthz says; empty where it does not."""
    return _refused(node, "/healthz")


def _refused(node: NodeProcess, path: str) -> str:
    connection = HTTPConnection(node.http, timeout=_WAIT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        said = answer.read().decode()
    finally:
        connection.close()
    return "" if answer.status == 200 else said


def open_logs(node: NodeProcess) -> int:
    """How many files of logs the node's process has open, removed ones among them; where there is /proc."""
    place = Path(f"/proc/{node.pid}/fd")
    return sum("/logs/" in name for name in _targets(place))


def _targets(place: Path) -> Iterator[str]:
    for entry in place.iterdir():
        with suppress(FileNotFoundError):  # closed since
            yield str(entry.readlink())


class _Confluent(Library):
    """librdkafka, through confluent-kafka."""

    name = "confluent-kafka"
    compressions: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def produce(
        self, address: str, stream: str, records: Sequence[Record], *,
        acks: int = -1, compression: str = "none", idempotent: bool = False,
    ) -> list[Place]:  # fmt: skip
        places: dict[int, Place] = {}
        errors: list[KafkaError] = []

        def delivered(at: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            places[at] = Place(message.partition() or 0, -1 if message.offset() is None else int(message.offset() or 0))

        producer = Producer(
            {
                "bootstrap.servers": address, "acks": acks, "compression.codec": compression,
                "enable.idempotence": idempotent, "linger.ms": 5,
            }
        )  # fmt: skip
        for at, record in enumerate(records):
            options: dict[str, Any] = {"headers": list(record.headers)}
            if record.timestamp_ms is not None:
                options["timestamp"] = record.timestamp_ms
            if record.partition is not None:
                options["partition"] = record.partition
            producer.produce(
                stream, record.value, record.key,
                on_delivery=partial(delivered, at), **options,
            )  # fmt: skip
        assert producer.flush(_WAIT_S) == 0
        assert not errors
        return [places[at] for at in range(len(records))]

    def consume(self, address: str, stream: str, partitions: int, count: int) -> list[Read]:
        consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(stream, index, OFFSET_BEGINNING) for index in range(partitions)])
            found: list[Read] = []
            while len(found) < count:
                messages = consumer.consume(count - len(found), timeout=_WAIT_S)
                assert messages, f"{count - len(found)} records did not come"
                found += [_read_confluent(message) for message in messages]
            return found
        finally:
            consumer.close()


def _read_confluent(message: Message) -> Read:
    assert message.error() is None, message.error()
    kind, timestamp_ms = message.timestamp()
    key: Any = message.key()
    value: Any = message.value()
    headers: Any = tuple(message.headers() or ())
    return Read(Place(message.partition() or 0, message.offset() or 0), key, value, headers, timestamp_ms, kind - 1)


class _KafkaPython(Library):
    """kafka-python 3. Of its codecs only gzip needs no further package."""

    name = "kafka-python"
    compressions: Sequence[str] = ("none", "gzip")

    def produce(
        self, address: str, stream: str, records: Sequence[Record], *,
        acks: int = -1, compression: str = "none", idempotent: bool = False,
    ) -> list[Place]:  # fmt: skip
        producer = untyped("kafka").KafkaProducer(
            bootstrap_servers=address, acks=acks, compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent, linger_ms=5,
        )  # fmt: skip
        try:
            futures = [
                producer.send(
                    stream, record.value, key=record.key, headers=list(record.headers), partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                ) for record in records
            ]  # fmt: skip
            return [Place(found.partition, found.offset) for found in (future.get(_WAIT_S) for future in futures)]
        finally:
            producer.close()

    def consume(self, address: str, stream: str, partitions: int, count: int) -> list[Read]:
        kafka = untyped("kafka")
        consumer = kafka.KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
        try:
            wanted = [kafka.TopicPartition(stream, index) for index in range(partitions)]
            consumer.assign(wanted)
            consumer.seek_to_beginning(*wanted)
            found: list[Read] = []
            while len(found) < count:
                batches = consumer.poll(_WAIT_S * 1000, max_records=count - len(found))
                assert batches, f"{count - len(found)} records did not come"
                found += [_read(record) for batch in batches.values() for record in batch]
            return found
        finally:
            consumer.close()


class _Aiokafka(Library):
    """aiokafka."""

    name = "aiokafka"
    compressions: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def produce(
        self, address: str, stream: str, records: Sequence[Record], *,
        acks: int = -1, compression: str = "none", idempotent: bool = False,
    ) -> list[Place]:  # fmt: skip
        async def main() -> list[Place]:
            producer = untyped("aiokafka").AIOKafkaProducer(
                bootstrap_servers=address, acks="all" if acks == -1 else acks, enable_idempotence=idempotent,
                compression_type=None if compression == "none" else compression, linger_ms=5,
            )  # fmt: skip
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        stream, record.value, key=record.key, headers=list(record.headers), partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    ) for record in records
                ]  # fmt: skip
                found = [await future for future in futures]
            finally:
                await producer.stop()
            return [Place(-1, -1) if place is None else Place(place.partition, place.offset) for place in found]

        return _run(main())

    def consume(self, address: str, stream: str, partitions: int, count: int) -> list[Read]:
        async def main() -> list[Read]:
            aiokafka = untyped("aiokafka")
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
            await consumer.start()
            try:
                wanted = [aiokafka.TopicPartition(stream, index) for index in range(partitions)]
                consumer.assign(wanted)
                await consumer.seek_to_beginning(*wanted)
                found: list[Read] = []
                while len(found) < count:
                    batches = await consumer.getmany(timeout_ms=int(_WAIT_S * 1000), max_records=count - len(found))
                    assert batches, f"{count - len(found)} records did not come"
                    found += [_read(record) for batch in batches.values() for record in batch]
            finally:
                await consumer.stop()
            return found

        return _run(main())


def _run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


def _read(record: Any) -> Read:
    return Read(
        Place(record.partition, record.offset), record.key, record.value, tuple(record.headers), record.timestamp,
        record.timestamp_type,
    )  # fmt: skip


CONFLUENT: Final[Library] = _Confluent()
KAFKA_PYTHON: Final[Library] = _KafkaPython()
AIOKAFKA: Final[Library] = _Aiokafka()
LIBRARIES: Final[Sequence[Library]] = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
