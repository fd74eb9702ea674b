"""The Kafka door in a test's hand: a broker on doubles, time that stands still, and connections without sockets."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from duramen.codec.kafka.header import encode_request, response_body_start
from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.connection.connection import KafkaConnection
from duramen.doors.kafka.connection.faults import RequestFaults
from duramen.doors.kafka.door import KafkaDoor
from duramen.service.admission import Service
from duramen.service.broker import Broker
from duramen.sim.broker import ManualBroker

__all__ = ["ByHand", "ManualConnection"]


class _Transport(asyncio.Transport):
    """Keeps what is written, and whether it is read from."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = bytearray()
        self.calls = 0
        self.reading = True

    def write(self, data: Any) -> None:
        self.calls += 1
        self.written += data

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for data in list_of_data:
            self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.reading = False

    def abort(self) -> None:
        self.reading = False


class ByHand:
    """A door and the broker behind it."""

    def __init__(
        self, settings: dict[str, object] | None = None, manual: ManualBroker | None = None,
        service: Callable[[Broker], Service] | None = None, faults: RequestFaults | None = None,
    ) -> None:  # fmt: skip
        self.manual = ManualBroker(settings) if manual is None else manual
        self.door = KafkaDoor(
            self.manual.broker, self.manual.clock, self.manual.deadlines,
            service=Service(self.manual.broker) if service is None else service(self.manual.broker),
            cluster_id="c", advertise="localhost:9092", faults=faults,
        )  # fmt: skip

    def connect(self, client_id: str = "by-hand") -> "ManualConnection":
        """A client."""
        return ManualConnection(self, client_id)

    def advance(self, duration_ms: int) -> None:
        """Let time go by."""
        self.manual.advance(duration_ms)


class ManualConnection:
    """A client's side of a connection."""

    def __init__(self, by_hand: ByHand, client_id: str) -> None:
        self._by_hand = by_hand
        self._client_id = client_id
        self._correlation_id = 0
        self.transport = _Transport()
        self._connection = KafkaConnection(by_hand.door, by_hand.door.context("localhost", 9092))
        self._connection.connection_made(self.transport)

    def send(self, api: ApiKey, version: int, body: bytes) -> None:
        """A request comes, and what can be done at once is done."""
        self.send_together((api, version, body))

    def send_raw(self, data: bytes) -> None:
        """Bytes come, and what can be done at once is done."""
        self.come(data)
        self._by_hand.manual.settle()

    def send_together(self, *requests: tuple[ApiKey, int, bytes]) -> None:
        """Requests come in one piece."""
        frame = b""
        for api, version, body in requests:
            self._correlation_id += 1
            frame += encode_request(api, version, self._correlation_id, self._client_id, body)
        self.send_raw(frame)

    def come(self, data: bytes) -> None:
        """Bytes come, and nothing else is done yet."""
        while data:
            buffer = self._connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self._connection.buffer_updated(size)

    def answer(self, api: ApiKey, version: int) -> tuple[memoryview, int] | None:
        """The frame of the next answer and where its body begins; None where there is none yet."""
        written = self.transport.written
        if len(written) < 4:
            return None
        end = 4 + int.from_bytes(written[:4], "big")
        frame = memoryview(bytes(written[4:end]))
        del written[:end]
        return frame, response_body_start(api, version, frame)

    def lose(self) -> None:
        """The connection is gone."""
        self.transport.reading = False
        self._connection.connection_lost(None)

    def reads(self) -> bool:
        """Whether the door would read more of it."""
        return self.transport.reading
