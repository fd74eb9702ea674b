"""What messages take of the memory, and messages that nobody should send."""

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.doors.nats.capturing import Place, message
from tests.examples import examples

from duramen.codec.nats import Message

# -- memory ----------------------------------------------------------------------------------------


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


# -- hostile publishers ----------------------------------------------------------------------------


_NAMES = st.sampled_from([b"Nats-Msg-Id", b"Duramen-Key", b"Nats-TTL\xff", b"Nats-Expected-Stream", b"Nats-Subject"])
_LINES = st.binary(max_size=20) | st.builds(lambda name, value: name + b": " + value, _NAMES, st.binary(max_size=8))
_BLOCKS = st.none() | st.binary(max_size=40) | st.lists(_LINES).map(lambda lines: b"\r\n".join([b"NATS/1.0", *lines]))
_SUBJECTS = st.sampled_from([b"a.b", b"c", b"a.\xff", b"a..", b"\x00"]) | st.binary(min_size=1, max_size=12)


@settings(max_examples=examples(60))
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
