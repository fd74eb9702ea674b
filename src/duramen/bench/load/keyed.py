"""Keyed records through an unmodified librdkafka producer: at full speed or at a fixed rate."""

import random
import time
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from duramen.base.errors import RequestInvalid, RequestTimedOut
from duramen.bench.load.open_loop import wait_until_ns
from duramen.bench.load.schedule import Schedule

__all__ = ["VALUE_BYTES", "consume_live", "fill_keys", "pace_keys", "stream_keys", "update_keys"]

VALUE_BYTES: Final = 100
_CALL_RECORDS: Final = 10_000
_DRAWN: Final = 200_000  # records that are made before the clock runs, and sent again and again
_SILENCE_S: Final = 120.0
_FULL_S: Final = 0.001
_PIECE_RECORDS: Final = 1000
_PIECE_S: Final = 0.002  # how long a piece that is not full is waited for
_TICK_S: Final = 0.01


class _Sender:
    """A producer with acks=all, and what it was refused."""

    def __init__(self, address: str, topic: str, linger_ms: float) -> None:
        self._topic = topic
        self._failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": address, "acks": "all", "linger.ms": linger_ms, "batch.size": 1_000_000,
                "queue.buffering.max.messages": 500_000, "delivery.report.only.error": linger_ms > 0,
            }
        )  # fmt: skip
        self._producer.list_topics(topic, timeout=_SILENCE_S)

    def failed(self, error: KafkaError | None, _: Any) -> None:
        """What became of a record."""
        if error is not None:
            self._failures.append(error.str())

    def send(self, rows: list[dict[str, bytes]]) -> None:
        """Hand over records of partition 0, as fast as there is room."""
        while rows and not self._failures:
            taken = self._producer.produce_batch(self._topic, rows, 0, self.failed)
            rows = rows[taken:]
            if rows:
                self._producer.poll(_FULL_S)

    def send_one(self, key: bytes, value: bytes, done: Any) -> None:
        """One record; `done` is called with its error and itself."""
        self._producer.produce(self._topic, value, key, 0, on_delivery=done)

    def poll(self) -> None:
        """Call what is to be called."""
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait for what is under way. Raises RequestInvalid or RequestTimedOut."""
        left = self._producer.flush(_SILENCE_S)
        if self._failures:
            raise RequestInvalid(f"{len(self._failures)} records were refused: {self._failures[0]}")
        if left:
            raise RequestTimedOut(f"{left} records are not acknowledged")


def _row(key: int) -> dict[str, bytes]:
    return {"key": b"%016d" % key, "value": bytes(VALUE_BYTES)}


def _drawn(records: int, keys: int) -> Iterator[list[dict[str, bytes]]]:
    """So many records with any of the keys, some at a time."""
    chance = random.Random(5)
    rows = [_row(chance.randrange(keys)) for _ in range(min(records, _DRAWN))]
    at = 0
    while records:
        count = min(records, _CALL_RECORDS, len(rows) - at)
        yield rows[at : at + count]
        records -= count
        at = (at + count) % len(rows)


def fill_keys(address: str, topic: str, keys: int) -> None:
    """Each key once."""
    sender = _Sender(address, topic, 5)
    for first in range(0, keys, _CALL_RECORDS):
        sender.send([_row(key) for key in range(first, min(keys, first + _CALL_RECORDS))])
    sender.finish()


def update_keys(address: str, topic: str, records: int, keys: int) -> float:
    """Seconds until so many uniform updates are acknowledged."""
    sender = _Sender(address, topic, 5)
    pieces = list(_drawn(records, keys))
    began_s = time.monotonic()
    for rows in pieces:
        sender.send(rows)
    sender.finish()
    return time.monotonic() - began_s


def stream_keys(address: str, topic: str, rate_hz: float, duration_s: float, keys: int) -> float:
    """Uniform updates at a rate, in pieces of ten milliseconds; returns the rate that was reached."""
    sender = _Sender(address, topic, 5)
    piece = max(1, int(rate_hz * _TICK_S))
    pieces = [rows[:piece] for rows in _drawn(20 * _CALL_RECORDS, keys)]
    began_s, sent = time.monotonic(), 0
    ticks = max(1, int(duration_s / _TICK_S))
    for tick in range(ticks):
        wait_until_ns(int((began_s + tick * _TICK_S) * 1e9))
        rows = pieces[tick % len(pieces)]
        sender.send(rows)
        sent += len(rows)
    sender.finish()
    return sent / (time.monotonic() - began_s)


def pace_keys(address: str, topic: str, schedule: Schedule, keys: int) -> list[int]:
    """Single records when they are due; µs from then until each is acknowledged."""
    sender, chance = _Sender(address, topic, 0), random.Random(7)
    value, took_us = bytes(VALUE_BYTES), list[int]()
    start_ns = time.monotonic_ns()

    def sent(due_ns: int) -> Any:
        def done(error: KafkaError | None, message: Any) -> None:
            sender.failed(error, message)
            took_us.append((time.monotonic_ns() - due_ns) // 1000)

        return done

    for number in range(schedule.messages):
        due_ns = start_ns + schedule.due_ns(number)
        while time.monotonic_ns() < due_ns - 200_000:
            sender.poll()
            time.sleep(0.0001)
        wait_until_ns(due_ns)
        sender.send_one(b"%016d" % chance.randrange(keys), value, sent(due_ns))
        sender.poll()
    sender.finish()
    return took_us


def consume_live(address: str, topic: str) -> tuple[int, float]:
    """How many records an unchanged consumer gets from the start to the end of a pass of partition 0, and its seconds.

    The clock runs from the assignment to the end of the partition.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False,
            "enable.partition.eof": True, "queued.max.messages.kbytes": 1_000_000, "queued.min.messages": 1_000_000,
        }
    )  # fmt: skip
    consumer.list_topics(topic, timeout=_SILENCE_S)
    records, began_s = 0, time.monotonic()
    consumer.assign([TopicPartition(topic, 0, 0)])
    while True:
        messages = consumer.consume(_PIECE_RECORDS, _PIECE_S)
        errors = [error for message in messages if (error := message.error()) is not None]
        records += len(messages) - len(errors)
        if any(error.code() != KafkaError._PARTITION_EOF for error in errors):
            raise RequestInvalid(errors[0].str())
        if errors:
            took_s = time.monotonic() - began_s
            consumer.close()
            return records, took_s
        if time.monotonic() > began_s + _SILENCE_S:
            raise RequestTimedOut(f"{topic} did not come to its end")
