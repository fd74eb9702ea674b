"""Messages that come again under their `Nats-Msg-Id`: answered with the original, also after a crash."""

from tests.doors.nats.capturing import Place, error_of, message

from duramen.codec.batch import BatchInput, encode

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
    assert error_of(place.settle())[:2] == (503, 10023)
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
    batch = encode([BatchInput(now_ms, None, b"k", [(b"Nats-Msg-Id", b"i")])])
    place.broker.streams.get("s").partition(0).append(batch, None)
    place.settle()
    again = place.crashed()
    again.remember()
    again.take(message("a", reply="r", headers=_ID))
    ((_, ack),) = again.settle()
    assert "duplicate" not in ack
