"""Senders of every client library, and Duramen's own: what each is told of a record that it sends, record by record.

Each has one record in a batch, several batches under way where the library does that, and sequences.
"""

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, Self

from confluent_kafka import KafkaError, Message, Producer
from tests.consistency.history import Send
from tests.untyped import untyped

from duramen.client import BrokerCluster
from duramen.client import Producer as OwnProducer
from duramen.client.pending_batches import SequenceRange

__all__ = ["LIBRARIES", "JavaSender", "Sender"]

_END_S: Final = 60.0
_AGAIN_MS: Final = 20
_DRIVER: Final = Path(__file__).parent / "java" / "SendDriver.java"


class Sender(Protocol):
    """A producer that begins with the first call of `send`."""

    def __init__(self, address: str, topic: str) -> None: ...

    def send(self, sends: Sequence[Send]) -> list[Send]:
        """Send these in order; each is `delivered`, with its offset, where the library says that it is stored."""

    def close(self) -> None:
        """It is done."""


class _Confluent(Sender):
    """librdkafka."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1,
                "retry.backoff.ms": _AGAIN_MS, "log_level": 0, "error_cb": self._said,
            }
        )  # fmt: skip

    def _said(self, error: KafkaError) -> None:
        """The library says that something is wrong; it goes on by itself."""

    def send(self, sends: Sequence[Send]) -> list[Send]:
        found = list(sends)

        def told(at: int, error: KafkaError | None, message: Message) -> None:
            if error is None:
                found[at] = found[at]._replace(offset=message.offset(), delivered=True)

        for at, one in enumerate(sends):
            value = b"%d" % one.value
            self._producer.produce(self._topic, value, partition=one.key, on_delivery=partial(told, at))
        assert self._producer.flush(_END_S) == 0
        return found

    def close(self) -> None:
        self._producer.flush(_END_S)


class _KafkaPython(Sender):
    """kafka-python."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._producer = untyped("kafka").KafkaProducer(
            bootstrap_servers=address, enable_idempotence=True, batch_size=0, linger_ms=0, retry_backoff_ms=_AGAIN_MS
        )

    def send(self, sends: Sequence[Send]) -> list[Send]:
        futures = [self._producer.send(self._topic, b"%d" % one.value, partition=one.key) for one in sends]
        return [_told(one, future) for one, future in zip(sends, futures, strict=True)]

    def close(self) -> None:
        self._producer.close()


def _told(one: Send, future: Any) -> Send:
    try:
        place = future.get(_END_S)
    except untyped("kafka.errors").KafkaError:
        return one
    return one._replace(offset=place.offset if place.offset >= 0 else None, delivered=True)


class _Aiokafka(Sender):
    """aiokafka."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._loop = asyncio.Runner()
        self._producer = self._loop.run(self._start(address))

    async def _start(self, address: str) -> Any:
        producer = untyped("aiokafka").AIOKafkaProducer(
            bootstrap_servers=address, enable_idempotence=True, max_batch_size=80, linger_ms=0,
            retry_backoff_ms=_AGAIN_MS,
        )  # fmt: skip
        await producer.start()
        return producer

    def send(self, sends: Sequence[Send]) -> list[Send]:
        return self._loop.run(self._send(sends))

    async def _send(self, sends: Sequence[Send]) -> list[Send]:
        futures = [await self._producer.send(self._topic, b"%d" % one.value, partition=one.key) for one in sends]
        places = await asyncio.gather(*futures, return_exceptions=True)
        return [
            one if isinstance(place, BaseException) else one._replace(offset=place.offset, delivered=True)
            for one, place in zip(sends, places, strict=True)
        ]

    def close(self) -> None:
        self._loop.run(self._producer.stop())
        self._loop.close()


class _Own(Sender):
    """Duramen's own, on which its command line and its Python interface stand."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._cluster = BrokerCluster(address, timeout_s=_END_S)
        self._stored: dict[tuple[int, int], int] = {}
        self._next: dict[int, int] = {}
        self._producer = OwnProducer(self._cluster, batch_bytes=80, on_stored=self._told)

    def _told(self, stretch: SequenceRange, base_offset: int) -> None:
        for index in range(stretch.records):
            self._stored[stretch.at.partition, stretch.sequence + index] = base_offset + index

    def send(self, sends: Sequence[Send]) -> list[Send]:
        places = []
        for one in sends:
            sequence = self._next[one.key] = self._next.get(one.key, -1) + 1
            places.append((one.key, sequence))
            self._producer.produce(self._topic, b"%d" % one.value, partition=one.key)
        self._producer.flush()
        return [
            one._replace(offset=self._stored[place], delivered=True) if place in self._stored else one
            for one, place in zip(sends, places, strict=True)
        ]

    def close(self) -> None:
        self._cluster.close()


class JavaSender(Sender):
    """Java's KafkaProducer: `java/SendDriver.java` runs it by lines on a pipe. `jars` are Apache Kafka's."""

    jars: Path

    def __init__(self, address: str, topic: str) -> None:
        java = shutil.which("java")
        assert java is not None, "these tests need Java 17"
        self._process = subprocess.Popen(
            [java, "-Xmx128m", "-cp", f"{self.jars}/*", str(_DRIVER), address, topic],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, sends: Sequence[Send]) -> list[Send]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(f"{one.key}:{one.value}" for one in sends) + "\n")
        self._process.stdin.flush()
        offsets = [int(word) for word in self._process.stdout.readline().split()]
        return [
            one if offset < 0 else one._replace(offset=offset, delivered=True)
            for one, offset in zip(sends, offsets, strict=True)
        ]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_END_S)
        self._process.stdout.close()


LIBRARIES: Final[dict[str, type[Sender]]] = {
    "confluent-kafka": _Confluent, "kafka-python": _KafkaPython, "aiokafka": _Aiokafka, "duramen": _Own,
}  # fmt: skip
