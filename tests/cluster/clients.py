"""Clients of a history besides those of `tests/consistency/clients.py`: what they write down is the same."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tests.consistency.clients import TOPIC, Client, PlainSender
from tests.consistency.history import Outcome, Poll, Send
from tests.untyped import untyped

__all__ = ["AiokafkaReader", "AiokafkaSender", "KafkaPythonReader", "KafkaPythonSender", "Undisturbed", "Watching"]

_STEP_S: Final = 0.02
_ANSWER_S: Final = 2.0
_END_S: Final = 60.0
_QUICK: Final[Mapping[str, int]] = {"request_timeout_ms": 10_000, "retry_backoff_ms": 50, "metadata_max_age_ms": 5000}
_READING: Final[Mapping[str, object]] = {"enable_auto_commit": False, "isolation_level": "read_committed", **_QUICK}


class Undisturbed(PlainSender):
    """A producer to which nothing fails. That a node which restarts has no connection it may hear."""

    def said(self, error: KafkaError) -> None:
        if error.code() != KafkaError._TRANSPORT:
            self.problem = f"{self.name} was told {error}"

    def complete(self, outcome: Outcome, parts: Sequence[Send | Poll]) -> None:
        super().complete(outcome, parts)
        if outcome != "ok":
            self.problem = f"{self.name} sent something and does not know what became of it"


class Watching(Client):
    """Asks for the end of each partition again and again: what it was told once must not fall."""

    records = False

    def work(self) -> None:
        consumer = Consumer({**self.settings, "group.id": "watching", "enable.auto.commit": False})
        shown = dict.fromkeys(range(self.partitions), 0)
        while not self.problem and not self.stopping.is_set():
            for partition in shown:
                shown[partition] = self._look(consumer, partition, shown[partition])
            self.stopping.wait(_STEP_S)
        consumer.close()

    def _look(self, consumer: Consumer, partition: int, before: int) -> int:
        place = TopicPartition(TOPIC, partition)
        try:
            _, end = consumer.get_watermark_offsets(place, timeout=_ANSWER_S, cached=False)
        except KafkaException:
            return before
        if end < before:
            self.problem = f"{self.name}: the end of partition {partition} fell from {before} to {end}"
        return int(end)


class KafkaPythonSender(Client):
    """kafka-python's idempotent producer."""

    def work(self) -> None:
        kafka = untyped("kafka")
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._servers, acks="all", enable_idempotence=True, **_QUICK, delivery_timeout_ms=60_000
        )
        while not self.stopping.wait(_STEP_S):
            sends = self.sends(5)
            self.invoke(sends)
            futures = [producer.send(TOPIC, b"%d" % send.value, partition=send.key) for send in sends]
            parts = [self._told(future, send) for future, send in zip(futures, sends, strict=True)]
            self.complete("ok" if all(part.offset is not None for part in parts) else "info", parts)
        producer.close()

    def _told(self, future: Any, send: Send) -> Send:
        try:
            return send._replace(offset=future.get(_END_S).offset)
        except untyped("kafka.errors").KafkaError:
            return send

    @property
    def _servers(self) -> list[str]:
        return str(self.settings["bootstrap.servers"]).split(",")


class KafkaPythonReader(Client):
    """kafka-python's consumer, with all keys."""

    def work(self) -> None:
        kafka = untyped("kafka")
        servers = str(self.settings["bootstrap.servers"]).split(",")
        consumer = kafka.KafkaConsumer(bootstrap_servers=servers, **_READING)
        wanted = [kafka.TopicPartition(TOPIC, key) for key in range(self.partitions)]
        consumer.assign(wanted)
        consumer.seek_to_beginning(*wanted)
        while not self.stopping.is_set():
            self.invoke([])
            self.complete("ok", _polls(consumer.poll(100, max_records=500)))
        consumer.close()


class AiokafkaSender(Client):
    """aiokafka's idempotent producer."""

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        producer = untyped("aiokafka").AIOKafkaProducer(
            bootstrap_servers=self.settings["bootstrap.servers"], acks="all", enable_idempotence=True, **_QUICK
        )
        await producer.start()
        while not self.stopping.is_set():
            sends = self.sends(5)
            self.invoke(sends)
            futures = [await producer.send(TOPIC, b"%d" % send.value, partition=send.key) for send in sends]
            parts = [await self._told(future, send) for future, send in zip(futures, sends, strict=True)]
            self.complete("ok" if all(part.offset is not None for part in parts) else "info", parts)
            await asyncio.sleep(_STEP_S)
        await producer.stop()

    async def _told(self, future: Any, send: Send) -> Send:
        try:
            return send._replace(offset=(await future).offset)
        except untyped("aiokafka.errors").KafkaError:
            return send


class AiokafkaReader(Client):
    """aiokafka's consumer, with all keys."""

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        aiokafka = untyped("aiokafka")
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self.settings["bootstrap.servers"], **_READING)
        await consumer.start()
        wanted = [aiokafka.TopicPartition(TOPIC, key) for key in range(self.partitions)]
        consumer.assign(wanted)
        await consumer.seek_to_beginning(*wanted)
        while not self.stopping.is_set():
            self.invoke([])
            self.complete("ok", _polls(await consumer.getmany(timeout_ms=100, max_records=500)))
        await consumer.stop()


def _polls(batches: Mapping[Any, Sequence[Any]]) -> list[Poll]:
    return [
        Poll(place.partition, tuple((record.offset, int(record.value)) for record in records))
        for place, records in batches.items()
        if records
    ]
