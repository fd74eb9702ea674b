"""Consumers that know a state and read what is newer: through changes of snapshots, and through librdkafka."""

import json
import time
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from duramen.base.errors import RequestInvalid, RequestTimedOut
from duramen.bench.load.keyed_batches import first_state
from duramen.client.api.http import Question, answered
from duramen.client.api.snapshot_pages import Part, read_page
from duramen.client.http import HttpNode

__all__ = ["CaughtUp", "catch_up_by_changes", "catch_up_by_topic"]

_PIECE_RECORDS: Final = 10_000
_PIECE_S: Final = 0.01
_STATISTICS_MS: Final = 200
_DIGEST: Final = (1 << 64) - 1


class CaughtUp(NamedTuple):
    """What a consumer got until it had the current state: records, seconds, bytes; and what that state is."""

    records: int
    took_s: float
    received_bytes: int
    keys: int
    digest: int


def _digest(state: Mapping[bytes, int]) -> int:
    return sum(zlib.crc32(key) * (offset + 1) for key, offset in state.items()) & _DIGEST


def catch_up_by_changes(http: str, stream: str, keys: int) -> CaughtUp:
    """Read the changes since the snapshot that has each key once, as the Python client does."""
    node, state, received, records = HttpNode(http, keep=True), first_state(keys), 0, 0

    def ask(question: Question) -> Any:
        nonlocal received
        exchange = node.exchange(question.method, question.path, accept=question.accept)
        content = exchange.content()
        received += len(content)
        return content

    began_s = time.monotonic()
    at = node.get(f"/v1/streams/{stream}/snapshot")["partitions"][0]["at"]
    offset = 0
    while offset < at:
        page = answered(read_page(stream, Part(0, at, keys), offset, None), ask)
        for record in page.records:
            state[record.key or b""] = record.offset
        records += len(page.records)
        offset = max(offset + 1, page.next_offset)
    took_s = time.monotonic() - began_s
    node.close()
    return CaughtUp(records, took_s, received, len(state), _digest(state))


def catch_up_by_topic(address: str, topic: str, keys: int, until_s: float) -> CaughtUp:
    """Read a topic with an unchanged consumer, from behind the first record of each key to the end.

    Raises RequestTimedOut at a time.
    """
    received, state, records = 0, first_state(keys), 0

    def told(text: str) -> None:
        nonlocal received
        received = json.loads(text)["rx_bytes"]

    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False,
            "enable.partition.eof": True, "auto.offset.reset": "error", "queued.max.messages.kbytes": 131_072,
            "queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 10,
            "statistics.interval.ms": _STATISTICS_MS, "stats_cb": told,
        }
    )  # fmt: skip
    try:
        consumer.list_topics(topic, timeout=60)
        began_s = time.monotonic()
        consumer.assign([TopicPartition(topic, 0, keys)])
        while True:
            for message in consumer.consume(_PIECE_RECORDS, _PIECE_S):
                error = message.error()
                if error is None:
                    key, offset = message.key(), message.offset()
                    if isinstance(key, bytes) and offset is not None:
                        state[key] = offset
                    records += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    took_s, before = time.monotonic() - began_s, received
                    # What was received is told from time to time: all of it is here.
                    while received == before and time.time() < until_s:
                        consumer.poll(_PIECE_S)
                    return CaughtUp(records, took_s, received, len(state), _digest(state))
                else:
                    raise RequestInvalid(f"reading {topic}: {error.str()}")
            if time.time() > until_s:
                raise RequestTimedOut(f"{topic} was not read to its end in time: {records} records of it were")
    finally:
        consumer.close()
