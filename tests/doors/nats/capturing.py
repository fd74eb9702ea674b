"""A broker and its capture, whose disk, clock and threads are moved by hand."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.metrics import Metrics
from duramen.base.settings import Settings
from duramen.codec.batch import DecodedRecord, Header, records
from duramen.codec.nats import Message, encode_header_block
from duramen.doors.nats.capture import Capture
from duramen.doors.nats.recall import recall
from duramen.metadata.decisions import Definition
from duramen.service.admission import Service
from duramen.service.assembly import Ports
from duramen.service.broker import Broker
from duramen.sim.machine.clock import ManualClock, ManualWorker, SeededRandomness
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.sim.machine.views import MemoryStateStore
from duramen.storage.directory import open_directory
from duramen.storage.recovery.recovery import recover
from duramen.storage.scan import scan_log
from duramen.storage.segment.handles import Handles
from duramen.storage.store import Store, StoreLimits

__all__ = ["Place", "error_of", "message"]

_LIMITS = StoreLimits(wal_file_bytes=4 << 20, wal_max_bytes=32 << 20, pending_bytes=8 << 20, copy_bytes=1 << 20)


class Place:
    """A broker and a capture in memory; `answers` is what went out, as (reply subject, JSON)."""

    def __init__(self, files: MemoryFileSystem | None = None, clock: ManualClock | None = None) -> None:
        self.files = files or MemoryFileSystem()
        self.clock = clock or ManualClock()
        self.worker = ManualWorker()
        self.metrics = Metrics()
        self.deadlines = Deadlines()
        randomness = SeededRandomness()
        self.directory = open_directory(self.files, randomness, "memory")
        handles = Handles(self.files, 100)
        recovered = recover(self.files, self.directory.id, handles, print)
        store = Store(
            self.files, self.worker, self.clock, self.deadlines, self.metrics, self.directory, recovered, handles,
            node_id=1, limits=_LIMITS,
        )  # fmt: skip
        self.broker = Broker(
            Ports(self.worker, self.clock, randomness, MemoryStateStore),
            self.deadlines, store, Settings(BROKER), self.metrics, directory_id="d", report=print,
        )  # fmt: skip
        self.wait(self.broker.start)
        self.writes: list[bytes] = []
        self.room = 0
        self.service = Service(self.broker)
        self.capture = self.new_capture()

    def new_capture(self, *, duplicate_entries: int = 1000, limit_bytes: int = 1 << 20) -> Capture:
        def on_room() -> None:
            self.room += 1

        capture = Capture(
            self.broker, self.service, fingerprint_key=b"k", duplicate_entries=duplicate_entries,
            limit_bytes=limit_bytes, soon=self.worker.soon, send=self.writes.append, on_room=on_room,
        )  # fmt: skip
        for stream in self.broker.streams:
            capture.bind(stream)
        self.broker.streams.listeners = [capture.bind]
        self.capture = capture
        return capture

    def wait(self, begin: Callable[[Callable[[DuramenError | None], None]], None]) -> None:
        ended: list[DuramenError | None] = []
        begin(ended.append)
        self.worker.settle()
        assert ended == [None]

    def create(self, name: str, *subjects: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self.wait(lambda done: self.broker.create_stream(Definition(name, partitions, config or {}, subjects), done))

    def take(self, *messages: Message) -> None:
        self.capture.take(messages)

    def answers(self) -> list[tuple[str, dict[str, Any]]]:
        """What was sent since the last call."""
        answers = []
        data = b"".join(self.writes)
        self.writes.clear()
        while data:
            line, _, rest = data.partition(b"\r\n")
            command, reply, size = line.split(b" ")
            assert command == b"PUB"
            answers.append((reply.decode(), json.loads(rest[: int(size)])))
            data = rest[int(size) + 2 :]
        return answers

    def settle(self) -> list[tuple[str, dict[str, Any]]]:
        self.worker.settle()
        return self.answers()

    def records(self, name: str, partition: int = 0) -> list[DecodedRecord]:
        found: list[DecodedRecord] = []

        def take(_: Header, batch: bytes) -> None:
            found.extend(records(batch))

        log = self.broker.streams.get(name).partition(partition).log
        ended: list[DuramenError | OSError | None] = []
        scan_log(self.broker.store, log, 0, take, ended.append)
        self.worker.settle()
        assert ended == [None]
        return found

    def counted(self, name: str, *labels: str) -> float:
        return self.metrics.counter(name, *labels).value

    def crashed(self) -> "Place":
        """What a new process finds after kill -9."""
        self.directory.lock.release()
        return Place(self.files, self.clock)

    def remember(self, report: Callable[[str], object] = pytest.fail) -> None:
        done: list[None] = []
        places = [(bound, partition) for bound in self.capture.streams() for partition in bound.stream.partitions]
        recall(self.broker, self.capture, places, report, lambda: done.append(None))
        self.worker.settle()
        assert done == [None]


def message(
    subject: str, payload: bytes = b"x", reply: str | None = None, headers: Mapping[str, str] | None = None
) -> Message:
    block = None
    if headers is not None:
        block = encode_header_block([(name.encode(), value.encode()) for name, value in headers.items()])
    return (subject.encode(), None if reply is None else reply.encode(), block, payload)


def error_of(answers: list[tuple[str, dict[str, Any]]]) -> tuple[int, int, str]:
    """Status, code and description of the one answer there is, to the reply subject r."""
    ((reply, answer),) = answers
    assert reply == "r"
    error = answer["error"]
    return error["code"], error["err_code"], error["description"]
