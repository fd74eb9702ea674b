"""Members of a consumer group, of each library: they read in a thread of their own until they are told to leave."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaException
from tests.clients import Place, until
from tests.untyped import untyped

__all__ = ["MEMBERS", "Member"]

_POLL_S: Final = 0.1
_LONG_POLL_S: Final = 1.0
_END_S: Final = 60.0
_REBALANCING: Final = ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "_NO_OFFSET")


class Member:
    """One consumer in a group. `seen` is every record it was given, in order."""

    def __init__(self, address: str, stream: str, group: str, **options: object) -> None:
        """`options` are settings by Kafka's names with `_` for `.`; offsets are committed after each poll."""
        self.address = address
        self.stream = stream
        self.group = group
        self.options = options
        self.seen: list[tuple[Place, bytes]] = []
        self.leaving = threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self._reading: Future[None] = Future()
        self._assigned: frozenset[int] = frozenset()

    @property
    def assigned(self) -> frozenset[int]:
        """What it has now. Raises what went wrong where it has ended for that."""
        if self._reading.done():
            self._reading.result()
        return self._assigned

    def start(self) -> Self:
        """Begin to read."""
        self._reading = self._threads.submit(self.read)
        return self

    def leave(self) -> None:
        """Say good-bye to the group, and end. Raises what went wrong meanwhile."""
        self.leaving.set()
        self._reading.result(_END_S)
        self._threads.shutdown()
        self._assigned = frozenset()

    def read(self) -> None:
        """Join, and read until `leaving`."""
        raise NotImplementedError


class _Confluent(Member):
    def read(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.address, "group.id": self.group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "partition.assignment.strategy": "range", "session.timeout.ms": 60_000,
            "heartbeat.interval.ms": 200,
        }  # fmt: skip
        consumer = Consumer(settings | {name.replace("_", "."): value for name, value in self.options.items()})
        consumer.subscribe([self.stream])
        try:
            while not self.leaving.is_set():
                messages = consumer.consume(500, timeout=_POLL_S)
                self._assigned = frozenset(one.partition for one in consumer.assignment())
                for message in messages:
                    assert message.error() is None, message.error()
                    self.seen.append((Place(message.partition() or 0, message.offset() or 0), message.value() or b""))
                if messages:
                    self._commit(consumer)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            # The group rebalances: whoever gets the partitions reads these records again.
            if error.args[0].name() not in _REBALANCING:
                raise


class _KafkaPython(Member):
    def read(self) -> None:
        errors = untyped("kafka.errors")
        assignor = untyped("kafka.coordinator.assignors.range").RangePartitionAssignor
        settings: dict[str, Any] = {
            "bootstrap_servers": self.address, "group_id": self.group, "auto_offset_reset": "earliest",
            "enable_auto_commit": False, "partition_assignment_strategy": (assignor,), "session_timeout_ms": 60_000,
            "heartbeat_interval_ms": 200,
        }  # fmt: skip
        consumer = untyped("kafka").KafkaConsumer(self.stream, **settings | self.options)
        try:
            # A join that ends between two polls is begun anew by the next one: polls are long, so that few do.
            # It loses a rebalance of its own that fresh metadata caused and that outlives a poll, so the first poll
            # waits until it knows the partitions.
            until(lambda: consumer.partitions_for_topic(self.stream))
            while not self.leaving.is_set():
                batches = consumer.poll(_LONG_POLL_S * 1000)
                self._assigned = frozenset(one.partition for one in consumer.assignment())
                self.seen += _seen(batches)
                if batches:
                    with suppress(errors.CommitFailedError, errors.RebalanceInProgressError):
                        consumer.commit()
        finally:
            consumer.close()


class _Aiokafka(Member):
    def read(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        errors = untyped("aiokafka.errors")
        assignor = untyped("aiokafka.coordinator.assignors.range").RangePartitionAssignor
        settings: dict[str, Any] = {
            "bootstrap_servers": self.address, "group_id": self.group, "auto_offset_reset": "earliest",
            "enable_auto_commit": False, "partition_assignment_strategy": (assignor,), "session_timeout_ms": 60_000,
            "heartbeat_interval_ms": 200,
        }  # fmt: skip
        consumer = untyped("aiokafka").AIOKafkaConsumer(self.stream, **settings | self.options)
        await consumer.start()
        try:
            while not self.leaving.is_set():
                batches = await consumer.getmany(timeout_ms=int(_POLL_S * 1000))
                self._assigned = frozenset(one.partition for one in consumer.assignment())
                self.seen += _seen(batches)
                if batches:
                    with suppress(errors.CommitFailedError, errors.RebalanceInProgressError):
                        await consumer.commit()
        finally:
            await consumer.stop()


def _seen(batches: Any) -> list[tuple[Place, bytes]]:
    return [(Place(one.partition, one.offset), one.value) for batch in batches.values() for one in batch]


MEMBERS: Final[Mapping[str, type[Member]]] = {
    "confluent-kafka": _Confluent, "kafka-python": _KafkaPython, "aiokafka": _Aiokafka,
}  # fmt: skip
