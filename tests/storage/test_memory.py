"""Logs in memory: bounded, gone after a restart, and no offset is given twice whatever ended the process."""

import random
from collections.abc import Callable
from functools import partial

import pytest

from duramen.base.errors import StorageFull
from duramen.sim.machine.store import StoreOnDoubles, expected_values
from duramen.storage.append import reserved_offsets as reserving
from duramen.storage.log.log import LogConfig

BOUND = 64 << 10
MEMORY = LogConfig(durability="memory", memory_max_bytes=BOUND)


@pytest.fixture(autouse=True)
def few_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reservations end often enough to be seen."""
    monkeypatch.setattr(reserving, "OFFSETS_AHEAD", 10)


@pytest.mark.parametrize("seed", range(30))
def test_an_offset_is_given_once_over_crashes(seed: int) -> None:
    chance = random.Random(seed)
    doubles = StoreOnDoubles()
    ends = [0]
    for _ in range(6):
        appends = []
        for _ in range(chance.randrange(12)):
            appends.append(doubles.append(doubles.log(0, MEMORY), *[b"v"] * chance.randint(1, 8)))
            if chance.random() < 0.6:
                doubles.settle()
            if chance.random() < 0.2:
                doubles.advance(60_000)  # a checkpoint
        for append in appends:
            if append.acknowledged and append.base_offset is not None:
                assert append.base_offset >= ends[-1]
                ends.append(append.base_offset + len(append.values))
        clean = chance.random() < 0.3
        if clean:
            doubles.settle()
            ends.append(doubles.log().end_offset)
            doubles.restart()
        else:
            ways: list[Callable[[], None]] = [doubles.kill, doubles.crash, partial(doubles.crash, chance)]
            chance.choice(ways)()
        log = doubles.log(0, MEMORY)
        assert doubles.values(log) == []
        assert log.start_offset == log.end_offset >= ends[-1]
        assert not clean or log.end_offset == ends[-1]
        assert doubles.findings == []


def test_the_first_of_a_reservation_waits_for_it_and_the_others_do_not() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, MEMORY)
    first = doubles.append(log, b"first")
    doubles.worker.run_soon()
    assert not first.decided
    doubles.settle()
    assert first.acknowledged
    for number in range(10):
        assert doubles.append(log, b"%d" % number).acknowledged
    beyond = doubles.append(log, b"beyond")
    assert not beyond.decided
    doubles.settle()
    assert beyond.acknowledged


def test_what_was_on_disk_before_stays_there() -> None:
    doubles = StoreOnDoubles()
    kept = [doubles.append(doubles.log(0, LogConfig()), b"%d" % number) for number in range(5)]
    doubles.settle()
    for number in range(30):
        doubles.append(doubles.log(0, MEMORY), b"%d" % number)
    doubles.settle()
    doubles.kill()
    log = doubles.log(0, MEMORY)
    assert doubles.values(log) == expected_values(kept)
    assert log.end_offset == 5


def test_back_on_disk_its_offsets_are_its_own() -> None:
    doubles = StoreOnDoubles()
    for number in range(5):
        doubles.append(doubles.log(0, MEMORY), b"%d" % number)
    doubles.settle()
    appends = [doubles.append(doubles.log(0, LogConfig()), b"%d" % number) for number in range(5)]
    doubles.settle()
    assert [append.base_offset for append in appends] == [5, 6, 7, 8, 9]
    doubles.crash(random.Random(1))
    assert len(doubles.values(doubles.log(0, LogConfig()))) == 10


@pytest.mark.parametrize("end", ["kill", "crash", "restart"])
def test_emptied_on_its_way_to_disk_it_goes_on_where_it_was(end: str) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, MEMORY)
    doubles.append(log, b"in memory")
    doubles.settle()
    log.config = LogConfig()
    appends = [doubles.append(log, b"first")]
    doubles.store.delete_before(log, 1, lambda _: None)
    doubles.settle()
    appends.append(doubles.append(log, b"second"))
    doubles.settle()
    assert [append.base_offset for append in appends] == [1, 2]
    getattr(doubles, end)()
    log = doubles.log(0, LogConfig())
    assert doubles.values(log) == [b"first", b"second"]
    assert (log.start_offset, log.end_offset) == (1, 3)
    assert doubles.findings == []


@pytest.mark.parametrize("size", [100, 5000, 60_000])
def test_it_holds_no_more_than_its_bound(size: int) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, MEMORY)
    for number in range(3 * BOUND // size + 5):
        doubles.append(log, bytes([number % 256]) * size)
        doubles.settle()
        assert log.size_bytes() <= max(BOUND, size + 200)
        assert log.end_offset == number + 1
    held = doubles.read(log)
    assert [record.offset for record in held] == list(range(log.start_offset, log.end_offset))
    assert len(held) * size > BOUND // 2


def test_a_batch_larger_than_the_bound_is_held_alone() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, MEMORY)
    doubles.append(log, b"small")
    large = doubles.append(log, bytes(2 * BOUND))
    doubles.settle()
    assert large.acknowledged
    assert [record.offset for record in doubles.read(log)] == [1]
    doubles.append(log, b"next")
    doubles.settle()
    assert [record.offset for record in doubles.read(log)] == [2]


def test_retention_lets_go_of_it_too() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(durability="memory", memory_max_bytes=BOUND, retention_records=3, segment_bytes=300))
    for number in range(20):
        doubles.append(log, b"%d" % number * 50)
    doubles.settle()
    doubles.store.enforce_retention(doubles.clock.wall_ms())
    doubles.settle()
    assert 17 >= log.start_offset >= 10
    doubles.store.move_start(log, 19)
    doubles.settle()
    assert [record.offset for record in doubles.read(log)] == [19]
    assert not doubles.files.exists(log.directory)


def test_a_change_to_disk_that_failed_and_is_taken_back_leaves_nothing_half_on_disk() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, MEMORY)
    doubles.append(log, b"before")
    doubles.settle()
    log.config = LogConfig()
    doubles.files.free_bytes = 0
    refused = doubles.append(log, b"refused")
    doubles.settle()
    assert isinstance(refused.error, StorageFull)
    log.config = MEMORY
    doubles.files.free_bytes = 1 << 40
    later = doubles.append(log, b"later")
    doubles.settle()
    assert later.acknowledged
    assert doubles.values(log) == [b"before", b"later"]
    doubles.restart()
    assert doubles.values(doubles.log(0, MEMORY)) == [b"before"], "what had reached the disk is there, and is whole"
    assert doubles.findings == []
