"""Messages to records to answers, on a broker whose disk, clock and threads are moved by hand."""

import errno
import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.doors.nats.capturing import Place, error_of, message
from tests.examples import examples

from duramen.codec.partitioner import partition_of

# -- what is stored --------------------------------------------------------------------------------


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


# -- answers ---------------------------------------------------------------------------------------


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
    place.new_capture(duplicate_entries=1)
    place.take(message("a", reply="r", headers={"Nats-Msg-Id": "i"}))
    place.broker.delete_stream("s", lambda _: None)
    answers = place.settle()
    assert [reply for reply, _ in answers] == ["r"]
    assert place.capture.idle
    place.create("s", "a")
    place.take(message("a", reply="r", headers={"Nats-Msg-Id": "there is room for one id again"}))
    assert place.settle() == [("r", {"stream": "s", "seq": 1, "partition": 0, "offset": 0})]


# -- refusals --------------------------------------------------------------------------------------


def test_too_large(place: Place) -> None:
    place.create("s", "a", config={"max.message.bytes": "2000"})
    place.take(message("a", b"y" * 2000, "r"), message("a", b"fits"), (b"a", None, None, None))
    code, err_code, description = error_of(place.settle())
    assert (code, err_code) == (400, 10054)
    assert "stream s takes 1939 bytes" in description
    assert place.counted("duramen_nats_refused_total", "s", "batch-too-large") == 2
    assert [record.value for record in place.records("s")] == [b"fits"]


def test_a_full_disk(place: Place) -> None:
    place.create("s", "a", config={"durability": "os"})
    place.files.free_bytes = 0
    place.take(message("a", reply="r", headers={"Nats-Msg-Id": "i"}))
    assert error_of(place.settle())[:2] == (500, 10047)
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
    assert error_of(place.settle())[:2] == (503, 10077)


def test_a_node_that_stops(place: Place) -> None:
    place.create("s", "a")
    place.broker.stop(lambda _: None)
    place.worker.settle()
    place.take(message("a", reply="r"))
    assert error_of(place.settle())[:2] == (503, 10008)
    assert place.counted("duramen_nats_refused_total", "s", "node-stopping") == 1


def test_a_compacted_stream_needs_keys_and_one_message_without_harms_no_other(place: Place) -> None:
    place.create("s", "a", config={"cleanup.policy": "compact"})
    keyed = message("a", b"keyed", headers={"Duramen-Key": "k"})
    place.take(keyed, message("a", b"plain", "r"), keyed)
    assert error_of(place.settle())[:2] == (400, 10003)
    assert [record.value for record in place.records("s")] == [b"keyed", b"keyed"]


def test_what_only_jetstream_does_is_refused_where_an_answer_is_wanted(place: Place) -> None:
    place.create("s", "a")
    headers = {"Nats-Expected-Last-Sequence": "5"}
    place.take(message("a", reply="r", headers=headers))
    code, err_code, description = error_of(place.settle())
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
    assert error_of(place.settle())[:2] == (400, 10060)
    assert [len(place.records(name)) for name in ("one", "two")] == [1, 1]


# -- everything together ---------------------------------------------------------------------------


_STREAMS = {"one": ("a.>", "a.b"), "two": ("*.b", "a.*"), "three": ("c",)}


@settings(max_examples=examples(60))
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
