"""Throughput with an unmodified Kafka client: one librdkafka producer, one librdkafka consumer."""

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from duramen.base.errors import RequestInvalid, RequestTimedOut, ServerUnreachable
from duramen.bench.contenders import Contender

__all__ = ["publish", "read_for", "subscribe"]

_LINGER_MS: Final = 5
_BATCH_BYTES: Final = 1_000_000
_QUEUE_KIB: Final = 128 * 1024
_QUEUE_MESSAGES: Final = 500_000
_QUEUE_FULL_MS: Final = 10  # by itself librdkafka fetches nothing for a second once records come faster than they go
_CALL_MESSAGES: Final = 10_000
_TURNS: Final = 4  # of each partition, where there are several
_CALL_BYTES: Final = 16 * 1024 * 1024
_SILENCE_S: Final = 60.0
_FULL_S: Final = 0.001
_POLL_S: Final = 0.1
_LARGEST_MESSAGE_BYTES: Final = 8_000_000


def publish(contender: Contender, value_bytes: int, messages: int, partitions: int = 1) -> float:
    """Seconds until `messages` records are all acknowledged (acks=all); of several partitions each has its turn.

    Raises ServerUnreachable, RequestInvalid or RequestTimedOut.
    """
    failures: list[str] = []

    def failed(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            failures.append(error.str())

    options: Mapping[str, Any] = {
        "bootstrap.servers": contender.records,
        "acks": "all",
        "linger.ms": _LINGER_MS,
        "batch.size": _BATCH_BYTES,
        "batch.num.messages": 1_000_000,
        "message.max.bytes": _LARGEST_MESSAGE_BYTES,
        "queue.buffering.max.kbytes": _QUEUE_KIB,
        "queue.buffering.max.messages": _QUEUE_MESSAGES,
        "delivery.report.only.error": True,
    }
    producer = Producer(dict(options))
    try:
        producer.list_topics(contender.topic, timeout=_SILENCE_S)
    except KafkaException as error:
        raise ServerUnreachable(f"{contender.name} at {contender.records} does not answer: {error}") from None
    value = {"value": os.urandom(value_bytes)}
    at_once = max(1, min(_CALL_MESSAGES, _CALL_BYTES // value_bytes))
    if partitions > 1:
        # Left to librdkafka some would be empty and some have five times as much, by chance and for everybody anew.
        at_once = max(1, min(at_once, messages // (partitions * _TURNS)))
    left, partition, in_turn = messages, 0, at_once
    began_s = time.monotonic()
    while left and not failures:
        taken = producer.produce_batch(contender.topic, [value] * min(left, in_turn), partition, failed)
        left -= taken
        in_turn -= taken
        if not in_turn:
            partition, in_turn = (partition + 1) % partitions, at_once
        if not taken:
            producer.poll(_FULL_S)
    undelivered = producer.flush(_SILENCE_S)
    took_s = time.monotonic() - began_s
    if failures:
        raise RequestInvalid(f"{contender.name} refused {len(failures)} records: {failures[0]}")
    if undelivered:
        raise RequestTimedOut(f"{contender.name} has not acknowledged {undelivered} of {messages} records")
    return took_s


def subscribe(contender: Contender, messages: int, partitions: int = 1) -> float:
    """Seconds until `messages` records of so many partitions are read, from the start.

    Raises RequestInvalid or RequestTimedOut.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": contender.records,
            "group.id": f"bench-{contender.topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": _QUEUE_KIB,
            "fetch.queue.backoff.ms": _QUEUE_FULL_MS,
        }
    )
    try:
        began_s = time.monotonic()
        consumer.assign([TopicPartition(contender.stream, index, 0) for index in range(partitions)])
        read, last_s = 0, began_s
        while read < messages:
            found = consumer.consume(min(_CALL_MESSAGES, messages - read), 1.0)
            for message in found:
                error = message.error()
                if error is not None:
                    raise RequestInvalid(f"reading from {contender.name}: {error.str()}")
            read += len(found)
            now_s = time.monotonic()
            if found:
                last_s = now_s
            elif now_s - last_s > _SILENCE_S:
                raise RequestTimedOut(f"{contender.name} has given {read} of {messages} records")
        return time.monotonic() - began_s
    except KafkaException as error:
        raise RequestInvalid(f"reading from {contender.name}: {error}") from None
    finally:
        consumer.close()


def read_for(contender: Contender, duration_s: float) -> int:
    """Read from the start, again and again, for so long; returns the bytes of values that were read.

    Raises RequestInvalid.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": contender.records,
            "group.id": f"bench-{contender.topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    start = [TopicPartition(contender.stream, 0, 0)]
    end_s = time.monotonic() + duration_s
    size = 0
    try:
        consumer.assign(start)
        while time.monotonic() < end_s:
            for message in consumer.consume(_CALL_MESSAGES, _POLL_S):
                error = message.error()
                if error is None:
                    size += len(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    consumer.assign(start)
                else:
                    raise RequestInvalid(f"reading from {contender.name}: {error.str()}")
    except KafkaException as error:
        raise RequestInvalid(f"reading from {contender.name}: {error}") from None
    finally:
        consumer.close()
    return size
