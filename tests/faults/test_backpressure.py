"""Clients that do not read, do not finish or do not stop, all at once: memory stays bounded, nothing is dropped."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import CONFLUENT, Place, metric, until
from tests.raw import connect, stream_id

from duramen.base.units import MIB
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from duramen.codec.kafka.fetch import encode_request as encode_fetch
from duramen.codec.kafka.header import encode_request
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_HOSTILE = 200
_LARGE = 1_000_000
_FETCH_VERSION = 16
_PRODUCE_VERSION = 9
_RECORDS = 150_000
_BEHIND = 5
_WAIT_S = 60.0


def _peak_bytes(pid: int) -> int:
    """The most that a process has ever held resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("there is no VmHWM")


class _Producer:
    """librdkafka, producing one value again and again; counts what is acknowledged, and where the last one is."""

    def __init__(self, address: str, stream: str, size: int) -> None:
        self.acknowledged = 0
        self.errors: list[KafkaError] = []
        self.places: set[Place] = set()
        self._stream = stream
        self._value = bytes(size)
        self._producer = Producer(
            {
                "bootstrap.servers": address, "linger.ms": 5, "message.max.bytes": 1_048_000,
                "queue.buffering.max.kbytes": 65_536, "batch.size": 1_000_000,
            }
        )  # fmt: skip

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged += 1
            self.places.add(Place(message.partition() or 0, message.offset() or 0))

    def one(self) -> None:
        """Produce one record, as soon as there is room for it."""
        while True:
            try:
                self._producer.produce(self._stream, self._value, on_delivery=self._told)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        assert self._producer.flush(_WAIT_S) == 0


class _Firehose(threading.Thread):
    """Batches of 1 MB as fast as they are taken."""

    def __init__(self, address: str, stream: str) -> None:
        super().__init__()
        self.producer = _Producer(address, stream, _LARGE)
        self.stopping = threading.Event()

    def has_more_than(self, acknowledged: int) -> bool:
        return self.producer.acknowledged > acknowledged

    def run(self) -> None:
        while not self.stopping.is_set():
            self.producer.one()
        self.producer.flush()


def _open(node: NodeProcess) -> socket.socket:
    host, _, port = node.kafka.rpartition(":")
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    opened.connect((host, int(port)))
    return opened


def _stop_reading(node: NodeProcess, fetch: bytes) -> socket.socket:
    """A consumer that reads the beginning of a large answer and no more."""
    opened = _open(node)
    opened.sendall(fetch)
    assert len(opened.recv(1000)) > 0
    return opened


def _send_half(node: NodeProcess, at: int) -> socket.socket:
    """A producer that sends half of a request and no more."""
    opened = _open(node)
    if at % 2:
        # Every second one was a client like any other before.
        opened.sendall(encode_request(ApiKey.API_VERSIONS, 0, 1, f"half {at}", b""))
        assert opened.recv(4096)
    request = encode_request(ApiKey.PRODUCE, _PRODUCE_VERSION, 1, f"half {at}", bytes(_LARGE))
    opened.settimeout(0.2)  # the node may have stopped reading: then less than half is what is sent
    with contextlib.suppress(TimeoutError):
        opened.sendall(request[: len(request) // 2])
    return opened


def _fetch_everything(node: NodeProcess, stream: str, offset: int = 0) -> bytes:
    connection = connect(node)
    topic = FetchTopic(stream_id(connection, stream), [FetchPartition(0, offset, 1 << 30)])
    connection.close()
    body = encode_fetch(_FETCH_VERSION, FetchRequest(-1, 100, 1, 1 << 30, 0, 0, -1, [topic]))
    return encode_request(ApiKey.FETCH, _FETCH_VERSION, 1, "stalled", body)


def _rate(producer: _Producer, records: int) -> float:
    started = time.monotonic()
    for _ in range(records):
        producer.one()
    producer.flush()
    return records / (time.monotonic() - started)


@pytest.mark.long
@pytest.mark.parametrize(
    "limit_bytes", [128 * MIB, pytest.param(512 * MIB, marks=pytest.mark.long)], ids=["smallest", "default"]
)
def test_memory_is_bounded_and_nothing_is_dropped(
    new_node: Callable[..., NodeProcess], limit_bytes: int, record_property: Callable[[str, object], None]
) -> None:
    node = new_node({"memory.limit.bytes": limit_bytes}).start()
    admin = AdminClient({"bootstrap.servers": node.kafka})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("large", "small")]).values():
        future.result(_WAIT_S)
    filling = _Producer(node.kafka, "large", _LARGE)
    for _ in range(60):
        filling.one()
    filling.flush()
    good = _Producer(node.kafka, "small", 1000)
    alone = _rate(good, _RECORDS)
    fetch = _fetch_everything(node, "large")
    hostile = [_stop_reading(node, fetch) for _ in range(_HOSTILE)]
    firehose = _Firehose(node.kafka, "large")
    firehose.start()
    try:
        senders = [
            threading.Thread(target=lambda at=at: hostile.append(_send_half(node, at))) for at in range(_HOSTILE)
        ]
        for sender in senders:
            sender.start()
        beside = _rate(good, _RECORDS)
        for sender in senders:
            sender.join()
        until(lambda: firehose.producer.acknowledged >= 200)
        assert metric(node, "duramen_kafka_paused_reads_total", cause="slow reader") >= _HOSTILE
        assert metric(node, "duramen_kafka_paused_reads_total", cause="memory") > 0
    finally:
        firehose.stopping.set()
        firehose.join()
        for opened in hostile:
            opened.close()
    peak = _peak_bytes(node.pid)
    record_property("peak_mib", peak // MIB)
    record_property("records_per_s_alone", round(alone))
    record_property("records_per_s_beside", round(beside))
    print(f"\npeak {peak // MIB} MiB of {limit_bytes // MIB}; {alone:.0f} records/s alone, {beside:.0f} beside")
    assert peak <= limit_bytes
    for producer in (filling, firehose.producer, good):
        assert producer.errors == []
        assert len(producer.places) == producer.acknowledged
    assert good.acknowledged == 2 * _RECORDS
    assert len(CONFLUENT.consume(node.kafka, "small", 1, 2 * _RECORDS)) == 2 * _RECORDS
    stored = CONFLUENT.consume(node.kafka, "large", 1, filling.acknowledged + firehose.producer.acknowledged)
    assert {read.place for read in stored} == filling.places | firehose.producer.places
    assert node.stop() == 0
    assert "Traceback" not in node.log_path.read_text()


def test_who_stops_reading_at_the_end_of_a_log_keeps_no_whole_batches_in_memory(
    new_node: Callable[..., NodeProcess], record_property: Callable[[str, object], None]
) -> None:
    limit_bytes = 128 * MIB
    node = new_node({"memory.limit.bytes": limit_bytes}).start()
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic("large", 1, 1)])["large"].result(_WAIT_S)
    firehose = _Firehose(node.kafka, "large")
    firehose.start()
    hostile = []
    try:
        until(lambda: firehose.producer.acknowledged >= _BEHIND)
        for _ in range(_HOSTILE):
            seen = firehose.producer.acknowledged
            hostile.append(_stop_reading(node, _fetch_everything(node, "large", seen - _BEHIND)))
            # The next one stops at batches that this one has not seen.
            until(partial(firehose.has_more_than, seen))
    finally:
        firehose.stopping.set()
        firehose.join()
        for opened in hostile:
            opened.close()
    peak = _peak_bytes(node.pid)
    record_property("peak_mib", peak // MIB)
    assert peak <= limit_bytes
    assert firehose.producer.errors == []
    assert len(firehose.producer.places) == firehose.producer.acknowledged
    assert node.stop() == 0
