"""Producers that write without end, each of one library, and remember what was acknowledged."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Self

import nats
from confluent_kafka import KafkaError, Message, Producer
from nats.aio.client import Client
from tests.clients import Place
from tests.untyped import untyped

__all__ = ["WRITERS", "NatsWriter", "Writer"]

_IN_FLIGHT: Final = 200
_STEP_S: Final = 0.005
_END_S: Final = 120.0


class Writer:
    """Writes numbered records until it is told to stop.

    `acknowledged` has each acknowledged record's place by its value, `refused` what was answered with an error.
    While `paused`, and once it has sent `most`, it sends nothing new; what is under way goes on.
    """

    idempotent = True

    def __init__(self, name: str, address: str, stream: str, partitions: int) -> None:
        self.name = name
        self.address = address
        self.stream = stream
        self.partitions = partitions
        self.acknowledged: dict[bytes, Place] = {}
        self.refused: list[str] = []
        self.sent = 0
        self.most = 1 << 40
        self.paused = False
        self.stopping = threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self._writing: Future[None] = Future()

    def start(self) -> Self:
        """Begin to write."""
        self._writing = self._threads.submit(self.write)
        return self

    def stop(self) -> None:
        """Wait for every answer, and end. Raises what went wrong meanwhile."""
        self.stopping.set()
        self._writing.result(_END_S)
        self._threads.shutdown()

    def write(self) -> None:
        """Write until `stopping`, then wait for what was sent."""
        raise NotImplementedError

    @property
    def has_room(self) -> bool:
        """Whether more may be under way."""
        if self.paused or self.sent >= self.most:
            return False
        return self.sent - len(self.acknowledged) - len(self.refused) < _IN_FLIGHT

    def next(self) -> tuple[bytes, int]:
        """The next record's value, and the partition that it goes to."""
        number, self.sent = self.sent, self.sent + 1
        return b"%s:%d:" % (self.name.encode(), number) + b"." * (number * 7 % 300), number % self.partitions


class _Confluent(Writer):
    def write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.address, "enable.idempotence": self.idempotent, "linger.ms": 1,
                "acks": -1 if self.idempotent else 1, "reconnect.backoff.max.ms": 200,
            }
        )  # fmt: skip
        while not self.stopping.is_set():
            while self.has_room:
                value, partition = self.next()
                producer.produce(self.stream, value, partition=partition, on_delivery=partial(self._told, value))
            producer.poll(_STEP_S)
        assert producer.flush(_END_S) == 0

    def _told(self, value: bytes, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
        else:
            self.acknowledged[value] = Place(message.partition() or 0, message.offset() or 0)


class _Plain(_Confluent):
    """Not idempotent: what it repeats may be stored twice, what is acknowledged must be stored."""

    idempotent = False


class _KafkaPython(Writer):
    def write(self) -> None:
        producer = untyped("kafka").KafkaProducer(
            bootstrap_servers=self.address, linger_ms=1, reconnect_backoff_max_ms=200, retry_backoff_ms=20
        )
        while not self.stopping.wait(_STEP_S):
            while self.has_room:
                value, partition = self.next()
                future = producer.send(self.stream, value, partition=partition)
                future.add_callback(partial(self._stored, value))
                future.add_errback(lambda error: self.refused.append(str(error)))
        producer.flush(_END_S)
        producer.close()

    def _stored(self, value: bytes, found: Any) -> None:
        self.acknowledged[value] = Place(found.partition, found.offset)


class _Aiokafka(Writer):
    def write(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        producer = untyped("aiokafka").AIOKafkaProducer(
            bootstrap_servers=self.address, linger_ms=1, enable_idempotence=True, retry_backoff_ms=20
        )
        await producer.start()
        try:
            while not self.stopping.is_set():
                while self.has_room:
                    value, partition = self.next()
                    future = await producer.send(self.stream, value, partition=partition)
                    future.add_done_callback(partial(self._told, value))
                await asyncio.sleep(_STEP_S)
            await producer.flush()
        finally:
            await producer.stop()

    def _told(self, value: bytes, future: Any) -> None:
        if future.exception() is not None:
            self.refused.append(str(future.exception()))
        else:
            self.acknowledged[value] = Place(future.result().partition, future.result().offset)


class NatsWriter(Writer):
    """Publishes one message after another with nats-py, each with an id and until it is acknowledged."""

    def write(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        async def quiet(_: Exception) -> None:
            pass

        client = await nats.connect(
            f"nats://{self.address}", error_cb=quiet, max_reconnect_attempts=-1, reconnect_time_wait=0.05
        )
        try:
            while not self.stopping.is_set():
                value, partition = self.next()
                while value not in self.acknowledged:
                    await self._publish(client, value, partition)
        finally:
            await client.close()

    async def _publish(self, client: Client, value: bytes, partition: int) -> None:
        headers = {"Nats-Msg-Id": value.decode()}
        try:
            answer = await client.request(f"{self.stream}.{partition}", value, timeout=2, headers=headers)
            found = json.loads(answer.data)
            self.acknowledged[value] = Place(found["partition"], found["offset"])
        except (nats.errors.Error, ConnectionError, KeyError):
            await asyncio.sleep(0.02)


WRITERS: Final[Sequence[tuple[str, Callable[..., Writer]]]] = (
    ("confluent-kafka", _Confluent), ("confluent-kafka-plain", _Plain), ("kafka-python", _KafkaPython),
    ("aiokafka", _Aiokafka),
)  # fmt: skip
