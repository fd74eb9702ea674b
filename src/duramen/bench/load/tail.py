"""A consumer at the tail: the time from when a record is due until an unmodified client has it.

Producer and consumer are librdkafka's; one thread sends records when they are due, another receives them.
"""

import struct
import threading
import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from duramen.base.errors import RequestInvalid, RequestTimedOut
from duramen.bench.contenders import Contender
from duramen.bench.load.open_loop import wait_until_ns
from duramen.bench.load.schedule import Schedule

__all__ = ["tail"]

_DUE: Final = struct.Struct(">q")
_LEAD_NS: Final = 500_000_000
_POLL_S: Final = 0.1
_DRAIN_S: Final = 30.0


class _Receiver(threading.Thread):
    """Reads the topic from its end until it has so many records of which it is to know how long they took."""

    def __init__(self, contender: Contender, count: int) -> None:
        super().__init__(daemon=True)
        self.took_us: list[int] = []
        self.failure = ""
        self.done = threading.Event()
        self._count = count
        self._end_s = time.monotonic() + 1e9
        self._consumer = Consumer(
            {"bootstrap.servers": contender.records, "group.id": "bench-tail", "enable.auto.commit": False}
        )
        _, end = self._consumer.get_watermark_offsets(TopicPartition(contender.stream, 0), timeout=_DRAIN_S)
        self._consumer.assign([TopicPartition(contender.stream, 0, end)])

    def run(self) -> None:
        try:
            while len(self.took_us) < self._count and time.monotonic() < self._end_s:
                message = self._consumer.poll(_POLL_S)
                now_ns = time.monotonic_ns()
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    self.failure = error.str()
                    return
                (due_ns,) = _DUE.unpack_from(message.value() or bytes(_DUE.size))
                if due_ns:
                    self.took_us.append((now_ns - due_ns) // 1000)
        finally:
            self._consumer.close()
            self.done.set()

    def give_up_after(self, seconds: float) -> None:
        """Whatever has not come by then does not come."""
        self._end_s = time.monotonic() + seconds


def tail(contender: Contender, value_bytes: int, warm: Schedule, schedule: Schedule) -> list[int]:
    """From when each record was due to when the consumer had it, in µs. What `warm` says goes before, not counted.

    Raises RequestInvalid or RequestTimedOut.
    """
    try:
        receiver = _Receiver(contender, schedule.messages)
    except KafkaException as error:
        raise RequestInvalid(f"reading from {contender.name}: {error}") from None
    receiver.start()
    producer = Producer({"bootstrap.servers": contender.records, "acks": "all", "linger.ms": 0})
    padding = bytes(max(0, value_bytes - _DUE.size))
    for part, counted in ((warm, False), (schedule, True)):
        start_ns = time.monotonic_ns() + _LEAD_NS
        for index in range(part.messages):
            due_ns = start_ns + part.due_ns(index)
            wait_until_ns(due_ns)
            producer.produce(contender.topic, _DUE.pack(due_ns if counted else 0) + padding, partition=0)
            producer.poll(0)
    producer.flush(_DRAIN_S)
    receiver.give_up_after(_DRAIN_S)
    receiver.done.wait()
    if receiver.failure:
        raise RequestInvalid(f"reading from {contender.name}: {receiver.failure}")
    missing = schedule.messages - len(receiver.took_us)
    if missing:
        raise RequestTimedOut(f"{contender.name} has not given {missing} of {schedule.messages} records")
    return receiver.took_us
