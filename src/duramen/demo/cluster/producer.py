"""The producer: unmodified confluent-kafka, idempotent, acks=all, at a constant rate. It records each flight's offset.

It continues only as far as it is allowed to, so that the planned faults happen while flights flow.
"""

import threading
import time
from array import array
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from duramen.base.errors import DemoFailed
from duramen.demo.flights import DemoFlight, key_of, number_of

__all__ = ["FlightProducer"]

_TURN: Final = 100  # flights between two looks at the clock
_POLL_S: Final = 0.02
_PATIENCE_S: Final = 60.0
# A node that stands still keeps its connections: the client has to give up on them by itself.
_ANSWER_MS: Final = 3_000
_CONFIG: Final = {
    "acks": "all", "enable.idempotence": True, "linger.ms": 10, "compression.type": "lz4", "log_level": 0,
    "socket.timeout.ms": _ANSWER_MS, "request.timeout.ms": _ANSWER_MS, "message.timeout.ms": int(1000 * _PATIENCE_S),
    "reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50, "retry.backoff.max.ms": 200,
}  # fmt: skip


class FlightProducer(threading.Thread):
    """Produces flights until each is acknowledged; a key is what a flight is called, so each partition has its own."""

    def __init__(self, servers: str, stream: str, flights: Sequence[DemoFlight], seconds: float) -> None:
        """`seconds` is how long all of them are to take."""
        super().__init__(name="producer", daemon=True)
        count = self.count = len(flights)
        self._servers = servers
        self._stream = stream
        self._flights = flights
        self._rate = count / seconds
        self._most = count
        self._ending = threading.Event()
        self._sent_s = array("d", [0.0]) * count
        self.partitions = array("q", [-1]) * count
        self.offsets = array("q", [-1]) * count
        self.latencies_s = array("d", [0.0]) * count
        self.acknowledged = 0
        self.failure: DemoFailed | None = None
        self.began_s = 0.0
        self.ended_s = 0.0

    def allow(self, share: float) -> None:
        """Go no further than this share of all flights, until more is allowed."""
        self._most = round(share * len(self._flights))

    def cancel(self) -> None:
        """Produce no more, and wait for nothing."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        """Produce all; where that fails, `failure` says why."""
        producer = Producer({**_CONFIG, "bootstrap.servers": self._servers})
        self.began_s = time.perf_counter()
        for number, flight in enumerate(self._flights):
            if number % _TURN == 0:
                self._wait_turn(producer, number)
            if self.failure is not None or self._ending.is_set():
                break
            self._produce(producer, number, flight)
        while len(producer) and self.failure is None and not self._ending.is_set():
            producer.poll(_POLL_S)
        self.ended_s = time.perf_counter()
        producer.purge()

    def _wait_turn(self, producer: Producer, number: int) -> None:
        """Until this flight is due, and allowed."""
        while self.failure is None and not self._ending.is_set():
            left_s = self.began_s + number / self._rate - time.perf_counter()
            if left_s <= 0 and number < self._most:
                producer.poll(0)
                return
            producer.poll(min(max(left_s, 0.0), _POLL_S) or _POLL_S)

    def _produce(self, producer: Producer, number: int, flight: DemoFlight) -> None:
        self._sent_s[number] = time.perf_counter()
        while True:
            try:
                producer.produce(self._stream, flight.body, key_of(number), on_delivery=self._delivered)
            except BufferError:
                producer.poll(_POLL_S)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        number = number_of(message.key())
        if error is not None:
            self.failure = self.failure or DemoFailed(f"flight {number} was not acknowledged: {error.str()}")
            return
        self.partitions[number] = -1 if message.partition() is None else int(message.partition() or 0)
        self.offsets[number] = -1 if message.offset() is None else int(message.offset() or 0)
        self.latencies_s[number] = time.perf_counter() - self._sent_s[number]
        self.acknowledged += 1
