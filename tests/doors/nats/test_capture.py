"""Messages to records to answers, on a broker whose disk, clock and threads are moved by hand."""

import errno
import json
import os
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duramen.base.catalogue import BROKER
from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.metrics import Metrics
from duramen.base.settings import Settings
from duramen.broker.broker import Broker, Ports
from duramen.codec.batch import Header, NewRecord, Record, encode, records
from duramen.codec.nats import Message, encode_header_block
from duramen.codec.partitioner import partition_of
from duramen.controller.decisions import Definition
from duramen.doors.nats.capture import Capture
from duramen.doors.nats.recall import recall
from duramen.sim.clock import ManualClock, ManualWorker, SeededRandomness
from duramen.sim.disk import MemoryFileSystem
from duramen.sim.views import MemoryViewStore
from duramen.storage.directory import open_directory
from duramen.storage.handles import Handles
from duramen.storage.recovery import recover
from duramen.storage.scanning import scan_log
from duramen.storage.store import Store, StoreLimits

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
            Ports(self.worker, self.clock, randomness, MemoryViewStore()),
            self.deadlines, store, Settings(BROKER), self.metrics, directory_id="d", report=print,
        )  # fmt: skip
        self.wait(self.broker.start)
        self.writes: list[bytes] = []
        self.room = 0
        self.capture = self.new_capture()

    def new_capture(self, *, duplicate_entries: int = 1000, limit_bytes: int = 1 << 20) -> Capture:
        def on_room() -> None:
            self.room += 1

        capture = Capture(
            self.broker, fingerprint_key=b"k", duplicate_entries=duplicate_entries, limit_bytes=limit_bytes,
            soon=self.worker.soon, send=self.writes.append, on_room=on_room,
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

    def records(self, name: str, partition: int = 0) -> list[Record]:
        found: list[Record] = []

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


@pytest.fixture
def place() -> Place:
    return Place()


# -- what is stored ---------------------------------------------------------------------------------


def test_a_message_becomes_a_record(place: Place) -> None:
    place.create("s", "a.>")
    headers = {"X": "1", "Duramen-Key": "k", "Nats-Msg-Id": "i"}
    place.take(message("a.b", b"plain"), message("a.c", b"headed", headers=headers), message("other"))
    assert place.settle() == []
    plain, headed = place.records("s")
    now_ms = place.clock.wall_ms()
    assert (plain.key, plain.value, plain.timestamp) == (None, b"plain", now_ms)
    assert plain.headers == ((b"Nats-Subject", b"a.b"),)
    assert (headed.key, headed.value, headed.timestamp) == (b"k", b"headed", now_ms)
    assert headed.headers == (
        (b"X", b"1"), (b"Duramen-Key", b"k"), (b"Nats-Msg-Id", b"i"), (b"Nats-Subject", b"a.c"),
    )  # fmt: skip
    assert place.counted("duramen_nats_messages_total", "s") == 2


def test_the_partition_is_that_of_the_key_or_else_of_the_subject(place: Place) -> None:
    place.create("s", ">", partitions=7)
    for number in range(30):
        place.take(message(f"a.{number}"), message("b", headers={"Duramen-Key": f"k{number}"}))
    place.settle()
    for partition in range(7):
        for record in place.records("s", partition):
            subject = dict(record.headers)[b"Nats-Subject"] or b""
            assert partition == partition_of(record.key or subject, 7)
    assert sum(len(place.records("s", partition)) for partition in range(7)) == 60


def test_more_partitions_take_effect_at_once(place: Place) -> None:
    place.create("s", "a.*")
    place.take(message("a.1", reply="r"))
    place.settle()
    place.wait(lambda done: place.broker.add_partitions("s", 50, done))
    subject = next(f"a.{number}" for number in range(100) if partition_of(f"a.{number}".encode(), 50))
    place.take(message(subject, reply="r"))
    ((_, ack),) = place.settle()
    assert (ack["partition"], ack["seq"]) == (partition_of(subject.encode(), 50), 1)


def test_one_batch_for_what_comes_together_and_more_where_it_would_be_too_large(place: Place) -> None:
    place.create("s", "a", config={"max.message.bytes": "5000"})
    place.take(*[message("a", b"y" * 1000, f"r{number}") for number in range(10)])
    acks = place.settle()
    assert [reply for reply, _ in acks] == [f"r{number}" for number in range(10)]
    assert [ack["seq"] for _, ack in acks] == list(range(1, 11))
    assert len(place.records("s")) == 10


# -- answers ----------------------------------------------------------------------------------------


def test_the_answer_comes_after_the_sync_and_all_of_one_sync_at_once(place: Place) -> None:
    place.create("s", "a")
    place.take(message("a", reply="r1"), message("a"), message("a", reply="r2"))
    place.take(message("a", reply="r3"))
    place.worker.run_soon()
    assert place.writes == []
    place.worker.settle()
    assert len(place.writes) == 1
    assert place.answers() == [
        (reply, {"stream": "s", "seq": offset + 1, "partition": 0, "offset": offset})
        for reply, offset in (("r1", 0), ("r2", 2), ("r3", 3))
    ]
    assert place.counted("duramen_nats_acks_total", "s") == 3
    assert place.counted("duramen_nats_inflight_bytes") == 0
    assert place.capture.idle


def test_every_stream_that_is_bound_stores_and_answers_once(place: Place) -> None:
    place.create("one", "a.>", "a.b", "*.b", ">")
    place.create("two", "*.b")
    place.create("silent", "a.b", config={"nats.ack": "never"})
    place.take(message("a.b", reply="r"))
    assert sorted(ack["stream"] for _, ack in place.settle()) == ["one", "two"]
    assert [len(place.records(name)) for name in ("one", "two", "silent")] == [1, 1, 1]


def test_ack_never_answers_neither_well_nor_badly(place: Place) -> None:
    place.create("s", "a", config={"nats.ack": "never", "max.message.bytes": "2000"})
    place.take(message("a", reply="r"), message("a", b"y" * 3000, "r"))
    place.take(message("a", reply="r", headers={"Nats-Expected-Last-Sequence": "7"}))
    assert place.settle() == []
    assert len(place.records("s")) == 2
    place.wait(lambda done: place.broker.configure_stream("s", {"nats.ack": "publish"}, done))
    place.take(message("a", reply="r"))
    assert len(place.settle()) == 1


def test_a_stream_that_is_deleted_takes_nothing_more(place: Place) -> None:
    place.create("s", "a")
    place.take(message("a", headers={"Nats-Msg-Id": "i"}))
    place.settle()
    place.wait(lambda done: place.broker.delete_stream("s", done))
    place.take(message("a", reply="r"))
    assert place.settle() == []
    place.create("s", "a")
    place.take(message("a", reply="r", headers={"Nats-Msg-Id": "i"}))
    assert place.settle() == [("r", {"stream": "s", "seq": 1, "partition": 0, "offset": 0})]


def test_one_that_is_deleted_while_messages_are_under_way_answers_them(place: Place) -> None:
    place.create("s", "a")
    place.take(message("a", reply="r", headers={"Nats-Msg-Id": "i"}))
    place.broker.delete_stream("s", lambda _: None)
    answers = place.settle()
    assert [reply for reply, _ in answers] == ["r"]
    assert place.capture.idle
    assert place.capture._allowance.left == 1000


# -- refusals ---------------------------------------------------------------------------------------


def _error(answers: list[tuple[str, dict[str, Any]]]) -> tuple[int, int, str]:
    ((reply, answer),) = answers
    assert reply == "r"
    error = answer["error"]
    return error["code"], error["err_code"], error["description"]


def test_too_large(place: Place) -> None:
    place.create("s", "a", config={"max.message.bytes": "2000"})
    place.take(message("a", b"y" * 2000, "r"), message("a", b"fits"), (b"a", None, None, None))
    code, err_code, description = _error(place.settle())
    assert (code, err_code) == (400, 10054)
    assert "stream s takes 1939 bytes" in description
    assert place.counted("duramen_nats_refused_total", "s", "batch-too-large") == 2
    assert [record.value for record in place.records("s")] == [b"fits"]


def test_a_full_disk(place: Place) -> None:
    place.create("s", "a", config={"durability": "os"})
    place.files.free_bytes = 0
    place.take(message("a", reply="r", headers={"Nats-Msg-Id": "i"}))
    assert _error(place.settle())[:2] == (500, 10047)
    place.files.free_bytes = 1 << 40
    place.take(message("a", reply="r", headers={"Nats-Msg-Id": "i"}))
    assert place.settle() == [("r", {"stream": "s", "seq": 1, "partition": 0, "offset": 0})]


def test_a_disk_that_failed(place: Place) -> None:
    place.create("s", "a")

    def fail(call: str, path: str, size: int) -> int:
        if call == "sync" and path.startswith("wal/"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size

    place.files.interfere = fail
    place.take(message("a", reply="r"))
    assert _error(place.settle())[:2] == (503, 10077)


def test_a_node_that_stops(place: Place) -> None:
    place.create("s", "a")
    place.broker.stop(lambda _: None)
    place.worker.settle()
    place.take(message("a", reply="r"))
    assert _error(place.settle())[:2] == (503, 10008)
    assert place.counted("duramen_nats_refused_total", "s", "node-stopping") == 1


def test_a_compacted_stream_needs_keys_and_one_message_without_harms_no_other(place: Place) -> None:
    place.create("s", "a", config={"cleanup.policy": "compact"})
    keyed = message("a", b"keyed", headers={"Duramen-Key": "k"})
    place.take(keyed, message("a", b"plain", "r"), keyed)
    assert _error(place.settle())[:2] == (400, 10003)
    assert [record.value for record in place.records("s")] == [b"keyed", b"keyed"]


def test_what_only_jetstream_does_is_refused_where_an_answer_is_wanted(place: Place) -> None:
    place.create("s", "a")
    headers = {"Nats-Expected-Last-Sequence": "5"}
    place.take(message("a", reply="r", headers=headers))
    code, err_code, description = _error(place.settle())
    assert (code, err_code) == (400, 10003)
    assert "Nats-Expected-Last-Sequence" in description
    place.take(message("a", headers=headers))
    assert place.settle() == []
    assert len(place.records("s")) == 1


def test_the_stream_that_a_publisher_expects(place: Place) -> None:
    place.create("one", "a")
    place.create("two", "a")
    place.take(message("a", reply="r", headers={"Nats-Expected-Stream": "two"}))
    assert place.settle() == [("r", {"stream": "two", "seq": 1, "partition": 0, "offset": 0})]
    place.take(message("a", reply="r", headers={"Nats-Expected-Stream": "three"}))
    assert _error(place.settle())[:2] == (400, 10060)
    assert [len(place.records(name)) for name in ("one", "two")] == [1, 1]


# -- duplicates -------------------------------------------------------------------------------------

_ID = {"Nats-Msg-Id": "i"}


def test_a_repetition_is_answered_with_the_original(place: Place) -> None:
    place.create("s", "a", "b", partitions=3)
    place.take(message("a"), message("a", reply="r", headers=_ID))
    ((_, original),) = place.settle()
    # On another subject, so for another partition, and again: it is the id that counts.
    place.take(message("b", reply="r", headers=_ID))
    assert place.settle() == [("r", original | {"duplicate": True})]
    assert place.counted("duramen_nats_duplicates_total", "s") == 1
    assert sum(len(place.records("s", partition)) for partition in range(3)) == 2


def test_a_repetition_waits_for_the_sync_of_the_original(place: Place) -> None:
    place.create("s", "a")
    place.take(message("a", reply="r1", headers=_ID), message("a", reply="r2", headers=_ID), message("a", headers=_ID))
    place.take(message("a", reply="r3", headers=_ID))
    place.worker.run_soon()
    assert place.answers() == []
    ack = {"stream": "s", "seq": 1, "partition": 0, "offset": 0}
    assert place.settle() == [("r1", ack), ("r2", ack | {"duplicate": True}), ("r3", ack | {"duplicate": True})]
    assert place.counted("duramen_nats_inflight_bytes") == 0


def test_a_repetition_of_what_was_refused_is_refused_too_and_may_come_again(place: Place) -> None:
    place.create("s", "a", config={"durability": "os"})
    place.files.free_bytes = 0
    place.take(message("a", reply="r1", headers=_ID), message("a", reply="r2", headers=_ID))
    answers = place.settle()
    assert [(reply, "error" in answer) for reply, answer in answers] == [("r1", True), ("r2", True)]
    place.files.free_bytes = 1 << 40
    place.take(message("a", reply="r", headers=_ID))
    assert place.settle() == [("r", {"stream": "s", "seq": 1, "partition": 0, "offset": 0})]


def test_after_the_window_an_id_is_new(place: Place) -> None:
    place.create("s", "a", config={"duplicate.window.ms": "1000"})
    place.take(message("a", headers=_ID))
    place.settle()
    place.clock.advance(1000)
    place.take(message("a", headers=_ID))
    place.settle()
    assert len(place.records("s")) == 1
    place.clock.advance(1001)
    place.take(message("a", headers=_ID))
    place.settle()
    assert len(place.records("s")) == 2


def test_a_window_of_nothing_and_an_empty_id_turn_it_off(place: Place) -> None:
    place.create("off", "a", config={"duplicate.window.ms": "0"})
    place.create("on", "b")
    place.take(*[message("a", headers=_ID), message("b", headers={"Nats-Msg-Id": ""})] * 2)
    place.settle()
    assert [len(place.records(name)) for name in ("off", "on")] == [2, 2]


def test_streams_have_ids_of_their_own(place: Place) -> None:
    place.create("one", "a")
    place.create("two", "a")
    place.take(*[message("a", headers=_ID)] * 2)
    place.settle()
    assert [len(place.records(name)) for name in ("one", "two")] == [1, 1]


def test_where_no_more_ids_fit_publishers_with_one_are_told(place: Place) -> None:
    place.create("s", "a", config={"duplicate.window.ms": "1000"})
    place.new_capture(duplicate_entries=2)
    place.take(*[message("a", headers={"Nats-Msg-Id": f"{number}"}) for number in range(2)])
    place.take(message("a", reply="r", headers={"Nats-Msg-Id": "2"}), message("a"))
    assert _error(place.settle())[:2] == (503, 10023)
    assert len(place.records("s")) == 3
    place.clock.advance(2000)
    place.capture.purge(1)
    place.take(message("a", reply="r", headers={"Nats-Msg-Id": "2"}))
    ((_, ack),) = place.settle()
    assert ack["seq"] == 4


def test_ids_are_known_again_after_a_crash(place: Place) -> None:
    place.create("s", "a", partitions=4, config={"duplicate.window.ms": "10000"})
    for number in range(50):
        place.take(message("a", b"%d" % number, headers={"Nats-Msg-Id": f"{number}", "Duramen-Key": f"k{number}"}))
        place.settle()
        place.clock.advance(300)
    again = place.crashed()
    again.remember()
    offsets = {
        record.value: (partition, record.offset) for partition in range(4) for record in again.records("s", partition)
    }
    for number in range(50):
        again.take(message("a", reply="r", headers={"Nats-Msg-Id": f"{number}"}))
        ((_, ack),) = again.settle()
        # 300 ms each, so the last 33 lie within ten seconds.
        assert ack.get("duplicate", False) == (number >= 17)
        if number >= 17:
            assert (ack["partition"], ack["offset"]) == offsets[b"%d" % number]


def test_damage_loses_the_ids_it_hits_and_no_others(place: Place) -> None:
    place.create("s", "a")
    for number in range(400):
        place.take(message("a", b"x" * 500, headers={"Nats-Msg-Id": f"{number}"}))
        place.settle()
    place.broker.stop(lambda _: None)
    place.settle()
    log = place.broker.streams.get("s").partition(0).log
    size = log.active.size // 400
    for number in (0, 117, 118, 300):
        place.files.corrupt(log.active.path + ".log", number * size + size // 2)
    again = place.crashed()
    reports: list[str] = []
    again.remember(reports.append)
    assert [line.partition("records ")[2].partition(" of")[0] for line in reports] == [
        "0 to 0",
        "117 to 118",
        "300 to 300",
    ]
    for number in range(400):
        again.take(message("a", reply="r", headers={"Nats-Msg-Id": f"{number}"}))
        ((_, ack),) = again.settle()
        assert ack.get("duplicate", False) == (number not in (0, 117, 118, 300))


def test_what_came_through_kafka_has_no_ids_after_a_crash_either(place: Place) -> None:
    place.create("s", "a")
    now_ms = place.clock.wall_ms()
    batch = encode([NewRecord(now_ms, None, b"k", [(b"Nats-Msg-Id", b"i")])])
    place.broker.streams.get("s").partition(0).append(batch, None)
    place.settle()
    again = place.crashed()
    again.remember()
    again.take(message("a", reply="r", headers=_ID))
    ((_, ack),) = again.settle()
    assert "duplicate" not in ack


# -- memory -----------------------------------------------------------------------------------------


def test_memory_is_counted_and_bounded(place: Place) -> None:
    place.create("s", "a")
    capture = place.new_capture(limit_bytes=50_000)
    place.take(*[message("a", b"y" * 1000) for _ in range(20)])
    full = [capture.full]
    place.take(*[message("a", b"y" * 1000) for _ in range(30)])
    assert [*full, capture.full] == [False, True]
    assert place.counted("duramen_nats_inflight_bytes") > 50_000
    assert capture.oldest_ms() == place.clock.wall_ms()
    place.settle()
    assert (capture.full, place.room, capture.idle) == (False, 1, True)
    assert place.counted("duramen_nats_inflight_bytes") == 0
    assert capture.oldest_ms() is None


def test_long_reply_subjects_count(place: Place) -> None:
    place.create("s", "a")
    capture = place.new_capture(limit_bytes=100_000)
    place.take(*[message("a", b"", "r" * 4000, {"Nats-Msg-Id": "i"}) for _ in range(20)])
    full = [capture.full]
    place.take(*[message("a", b"", "r" * 4000, {"Nats-Msg-Id": "i"}) for _ in range(5)])
    assert [*full, capture.full] == [False, True]
    assert len(place.settle()) == 25
    assert place.counted("duramen_nats_inflight_bytes") == 0


def test_many_long_subjects_take_bounded_memory(place: Place) -> None:
    place.create("s", "a.>")
    tracemalloc.start()
    try:
        for number in range(5000):
            place.take((b"a.%d.%b" % (number, b"x" * 4000), None, None, None))  # too large, so that nothing is stored
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert place.counted("duramen_nats_refused_total", "s", "batch-too-large") == 5000
    assert held < 8 << 20


def test_what_no_stream_could_take_need_not_be_kept(place: Place) -> None:
    largest = [place.capture.largest_message]
    place.create("s", "a", config={"max.message.bytes": "2000"})
    largest.append(place.capture.largest_message)
    place.create("t", "b", config={"max.message.bytes": "9000"})
    largest.append(place.capture.largest_message)
    place.wait(lambda done: place.broker.configure_stream("s", {"max.message.bytes": "3000"}, done))
    place.wait(lambda done: place.broker.delete_stream("t", done))
    largest.append(place.capture.largest_message)
    assert largest == [0, 2000 - 61, 9000 - 61, 3000 - 61]
    assert place.new_capture(limit_bytes=5000).largest_message == 2500


# -- hostile publishers -----------------------------------------------------------------------------

_NAMES = st.sampled_from([b"Nats-Msg-Id", b"Duramen-Key", b"Nats-TTL\xff", b"Nats-Expected-Stream", b"Nats-Subject"])
_LINES = st.binary(max_size=20) | st.builds(lambda name, value: name + b": " + value, _NAMES, st.binary(max_size=8))
_BLOCKS = st.none() | st.binary(max_size=40) | st.lists(_LINES).map(lambda lines: b"\r\n".join([b"NATS/1.0", *lines]))
_SUBJECTS = st.sampled_from([b"a.b", b"c", b"a.\xff", b"a..", b"\x00"]) | st.binary(min_size=1, max_size=12)


@settings(max_examples=60)
@given(st.lists(st.tuples(_SUBJECTS, st.none() | _SUBJECTS, _BLOCKS, st.none() | st.binary(max_size=20)), max_size=12))
def test_any_message_is_stored_or_refused_and_harms_no_other(messages: list[Message]) -> None:
    place = Place()
    place.create("s", ">", partitions=3)
    place.create("t", "a.*")
    place.create("u", ">", config={"cleanup.policy": "compact", "nats.ack": "never"})
    place.take(*messages, message("c", b"good", "last"))
    place.worker.settle()
    assert place.writes[-1].endswith(b"}\r\n")
    assert b"PUB last " in b"".join(place.writes)
    found = [record for index in range(3) for record in place.records("s", index)]
    assert (b"good", [(b"Nats-Subject", b"c")]) in [(record.value, list(record.headers)) for record in found]
    for record in [*found, *place.records("t"), *place.records("u")]:
        for name, _ in record.headers:
            assert name.decode()
    stored = place.counted("duramen_nats_messages_total", "s")
    assert stored == len(found)
    assert place.counted("duramen_nats_inflight_bytes") == 0


# -- everything together ----------------------------------------------------------------------------

_STREAMS = {"one": ("a.>", "a.b"), "two": ("*.b", "a.*"), "three": ("c",)}


@settings(max_examples=60)
@given(st.data())
def test_what_is_acknowledged_is_there_once_and_in_order(data: st.DataObject) -> None:
    place = Place()
    for name, subjects in _STREAMS.items():
        place.create(name, *subjects, partitions=2)
    bound = {"a.b": {"one", "two"}, "a.c": {"one", "two"}, "c": {"three"}, "x": set()}
    sent: dict[str, tuple[str, bytes, str | None]] = {}
    acks: list[tuple[str, dict[str, Any]]] = []
    number = 0
    for _ in range(data.draw(st.integers(1, 6))):
        chunk = []
        for _ in range(data.draw(st.integers(0, 8))):
            number += 1
            subject = data.draw(st.sampled_from(sorted(bound)))
            id_ = data.draw(st.none() | st.sampled_from(["i", "j", "k"]))
            payload = b"%d" % number
            sent[f"r{number}"] = (subject, payload, id_)
            chunk.append(message(subject, payload, f"r{number}", None if id_ is None else {"Nats-Msg-Id": id_}))
        place.take(*chunk)
        for _ in range(data.draw(st.integers(0, 3))):
            place.worker.run_soon()
            place.worker.step("sync")
        acks += place.answers()
    acks += place.settle()
    there = {
        (name, partition, record.offset): record
        for name in _STREAMS
        for partition in range(2)
        for record in place.records(name, partition)
    }
    assert sorted((reply, ack["stream"]) for reply, ack in acks) == sorted(
        (reply, name) for reply, (subject, _, _) in sent.items() for name in bound[subject]
    )
    newest: dict[tuple[str, int], int] = {}
    originals: dict[tuple[str, str], int] = {}
    for reply, ack in acks:
        subject, payload, id_ = sent[reply]
        where = (ack["stream"], ack["partition"], ack["offset"])
        assert ack["seq"] == ack["offset"] + 1
        if ack.get("duplicate"):
            assert dict(there[where].headers)[b"Nats-Msg-Id"] == (id_ or "").encode()
            continue
        assert there[where].value == payload
        assert newest.get(where[:2], -1) < ack["offset"]
        newest[where[:2]] = ack["offset"]
        if id_ is not None:
            originals[(ack["stream"], id_)] = originals.get((ack["stream"], id_), 0) + 1
    assert all(count == 1 for count in originals.values())
    assert len(there) == sum(1 for _, ack in acks if not ack.get("duplicate"))
