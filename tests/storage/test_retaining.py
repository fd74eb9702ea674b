"""Retention by time, size and count; streams in memory; and the change from one durability to another."""

import random

import pytest

from duramen.base.errors import DuramenError, OffsetOutOfRange
from duramen.codec.batch import batches
from duramen.sim.machine.disk import Crashed
from duramen.sim.machine.store import StoreOnDoubles, expected_values
from duramen.storage.log.log import LogConfig

SEGMENT = 5000


def filled(config: LogConfig) -> StoreOnDoubles:
    doubles = StoreOnDoubles()
    for number in range(40):
        doubles.append(doubles.log(0, config), b"%02d" % number * 400)
        doubles.settle()
        doubles.advance(1000)
    return doubles


def only_a_place(doubles: StoreOnDoubles) -> bool:
    """Whether nothing is left of the log's records but the empty files that say where it ends."""
    log = doubles.log()
    stem = f"{log.end_offset:020d}"
    left = {name: doubles.files.content(f"{log.directory}/{name}") for name in doubles.files.names(log.directory)}
    return set(left) == {f"{stem}.index", f"{stem}.log"} and not left[f"{stem}.log"]


def test_by_time_in_a_log_that_nobody_touches() -> None:
    doubles = filled(LogConfig(segment_bytes=SEGMENT, retention_ms=20_000))
    log = doubles.log()
    assert log.start_offset == 0
    doubles.store.enforce_retention(doubles.clock.wall_ms())
    doubles.settle()
    assert 10 < log.start_offset < 25
    assert [record.offset for record in doubles.read(log)] == list(range(log.start_offset, 40))
    with pytest.raises(OffsetOutOfRange):
        doubles.plan(log, 0, 100)
    doubles.advance(100_000)
    doubles.store.enforce_retention(doubles.clock.wall_ms())
    doubles.settle()
    assert log.start_offset == log.end_offset == 40
    assert only_a_place(doubles), "the last segment goes by age too"
    more = doubles.append(log, b"more")
    doubles.settle()
    assert more.base_offset == 40
    for restart in (doubles.kill, doubles.crash):
        restart()
        assert doubles.log().start_offset == 40
        assert doubles.values(doubles.log()) == [b"more"]


def test_by_size_and_by_count() -> None:
    sizes = LogConfig(segment_bytes=SEGMENT, retention_bytes=12_000)
    counts = LogConfig(segment_bytes=SEGMENT, retention_records=10)
    for config in (sizes, counts):
        doubles = filled(config)
        doubles.store.enforce_retention(doubles.clock.wall_ms())
        doubles.settle()
        log = doubles.log()
        if config is sizes:
            assert 12_000 <= log.size_bytes() < 18_000
        else:
            assert 10 <= log.end_offset - log.start_offset < 17
        start = doubles.log().start_offset
        doubles.crash()
        assert doubles.log().start_offset == start
        assert len(doubles.read(doubles.log())) == 40 - start


def test_a_start_that_was_not_durable_may_come_back_but_never_a_hole() -> None:
    for seed in range(20):
        doubles = filled(LogConfig(segment_bytes=SEGMENT, retention_records=10))
        doubles.store.enforce_retention(doubles.clock.wall_ms())
        doubles.worker.run_soon()
        if seed % 2:
            doubles.worker.step("sync")
        doubles.crash(random.Random(seed))
        log = doubles.log()
        assert [record.offset for record in doubles.read(log)] == list(range(log.start_offset, 40))
        assert doubles.findings == []


def test_memory_is_bounded_and_nothing_survives() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(durability="memory", memory_max_bytes=64 << 10))
    appends = [doubles.append(log, bytes([number]) * 1000) for number in range(200)]
    doubles.settle()
    assert all(append.acknowledged for append in appends)
    assert log.size_bytes() <= 64 << 10
    assert 0 < log.start_offset < 150
    assert doubles.values(log) == expected_values(appends)[log.start_offset :]
    assert not doubles.files.exists(log.directory)
    doubles.kill()
    assert doubles.values(doubles.log()) == []


@pytest.mark.parametrize("before", ["sync", "os", "memory"])
@pytest.mark.parametrize("after", ["sync", "os", "memory"])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_change_of_durability_takes_effect_at_a_roll_after_all_before_it_is_synced(
    before: str, after: str, *, checkpointed: bool
) -> None:
    doubles = StoreOnDoubles()
    first = [doubles.append(doubles.log(0, LogConfig(durability=before)), b"%d" % number) for number in range(20)]
    doubles.settle()
    if checkpointed:
        doubles.advance(60_000)  # a checkpoint
    log = doubles.log(0, LogConfig(durability=after))
    second = [doubles.append(log, b"%d" % number) for number in range(20, 40)]
    doubles.settle()
    assert all(append.acknowledged for append in first + second)
    assert log.durability == after
    assert doubles.values(log) == expected_values(first + second)
    if before != after:
        assert len(log.segments) == 2
    kept = expected_values(first) if after == "memory" and before != "memory" else []
    kept = expected_values(first + second) if after != "memory" else kept
    doubles.kill()
    assert doubles.values(doubles.log()) == kept
    if after != "memory":
        third = doubles.append(doubles.log(), b"third")
        doubles.settle()
        assert third.base_offset == 40
        doubles.crash()
        assert doubles.values(doubles.log())[: len(kept)] == kept


@pytest.mark.parametrize(("before", "after"), [("os", "sync"), ("memory", "sync"), ("sync", "os"), ("memory", "os")])
@pytest.mark.parametrize("end", ["kill", "crash"])
def test_what_is_let_go_while_the_durability_changes_does_not_take_the_change_back(
    before: str, after: str, end: str
) -> None:
    """The frame that moves the start lies behind the one of the change, which is not synced yet."""
    doubles = StoreOnDoubles()
    doubles.append(doubles.log(0, LogConfig(durability=before)), b"first", b"second")
    doubles.settle()
    appends = [doubles.append(doubles.log(0, LogConfig(durability=after)), b"third")]
    noted_from = doubles.store.wal_end
    doubles.worker.run_soon()
    while doubles.store.wal_end == noted_from:
        assert doubles.worker.step("disk") or doubles.worker.step("sync")
    doubles.store.delete_before(doubles.log(), 1, lambda _: None)
    doubles.settle()
    assert doubles.log().durability == after
    appends.append(doubles.append(doubles.log(), b"fourth"))
    doubles.settle()
    assert all(append.acknowledged for append in appends)
    getattr(doubles, end)()
    assert doubles.log().durability == after
    kept = [b"second"] if (after, end) == ("os", "crash") else [b"second", b"third", b"fourth"]
    assert doubles.values(doubles.log()) == kept
    assert doubles.findings == []


def test_segments_roll_by_size_and_by_age() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(segment_bytes=3000, segment_ms=5000))
    for _ in range(10):
        doubles.append(log, bytes(1000))
    assert len(log.segments) == 5
    doubles.append(log, b"x", timestamp=doubles.clock.wall_ms() + 4000)
    doubles.append(log, b"x", timestamp=doubles.clock.wall_ms() + 12_000)
    assert len(log.segments) == 6
    doubles.settle()
    assert len(doubles.read(log)) == 12


def test_the_segment_of_a_log_that_nobody_writes_to_is_closed_by_age() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(segment_ms=50_000, retention_ms=500_000))
    doubles.append(log, b"first")
    doubles.advance(40_000)
    doubles.append(log, b"second")
    doubles.advance(5_000)
    doubles.store.enforce_retention(doubles.clock.wall_ms())
    assert len(log.segments) == 1
    doubles.advance(6_000)
    doubles.store.enforce_retention(doubles.clock.wall_ms())
    assert len(log.segments) == 2
    doubles.settle()
    doubles.store.enforce_retention(doubles.clock.wall_ms())
    assert len(log.segments) == 2, "there is nothing to close"
    for restart in (doubles.crash, doubles.restart):
        restart()
        log = doubles.log(0)
        assert [segment.base_offset for segment in log.segments] == [0, 2]
        assert doubles.values(log) == [b"first", b"second"]
    assert doubles.append(log, b"third").base_offset is None
    doubles.settle()
    assert doubles.values(log) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("durability", ["sync", "os", "memory"])
def test_records_are_deleted_up_to_any_offset(durability: str) -> None:
    doubles = filled(LogConfig(segment_bytes=SEGMENT, durability=durability))
    log = doubles.log()
    answers: list[DuramenError | None] = []
    for offset in (13, 7, 30):
        doubles.store.delete_before(log, offset, answers.append)
        doubles.settle()
        assert log.start_offset == max(13, offset)
        assert [record.offset for record in doubles.read(log)] == list(range(log.start_offset, 40))
    doubles.append(log, b"not copied yet")
    doubles.settle()
    doubles.store.delete_before(log, 41, answers.append)
    doubles.settle()
    assert log.start_offset == log.end_offset == 41
    assert answers == [None] * 4
    if durability != "memory":
        doubles.crash()
        assert doubles.findings == []
        assert doubles.log().start_offset == doubles.log().end_offset == 41
        assert only_a_place(doubles)
    doubles.append(doubles.log(), b"more")
    doubles.settle()
    assert doubles.values(doubles.log()) == [b"more"]


@pytest.mark.parametrize("seed", [None, 3])
def test_a_crash_in_any_call_while_records_are_deleted(seed: int | None) -> None:
    for calls in range(1, 200):
        doubles = filled(LogConfig(segment_bytes=SEGMENT))
        doubles.append(doubles.log(), b"last")
        answers: list[DuramenError | None] = []
        doubles.files.crash_at = doubles.files.calls + calls
        try:
            doubles.store.delete_before(doubles.log(), 20, answers.append)
            doubles.advance(61_000)
        except Crashed:
            doubles.files.crash_at = None
        else:
            assert calls > 5
            return
        doubles.crash(None if seed is None else random.Random(seed + calls))
        assert doubles.findings == []
        log = doubles.log()
        assert log.start_offset in (0, 20)
        assert log.start_offset == 20 or answers != [None], "what was answered stays"
        assert [record.offset for record in doubles.read(log)][:20] == list(
            range(log.start_offset, log.start_offset + 20)
        )
    raise AssertionError("it never ended")


def test_a_slice_planned_in_memory_is_read_after_its_segment_was_copied_and_let_go() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(segment_bytes=SEGMENT, retention_records=1))
    for number in range(18):
        doubles.append(log, b"%02d" % number * 400)
    doubles.worker.run_soon()
    while doubles.worker.step("sync"):
        doubles.worker.run_soon()
    first = doubles.plan(log, 0, 3000)
    assert first is not None
    assert log.segments[0].file is None
    doubles.settle()
    doubles.advance(61_000)
    doubles.store.enforce_retention(doubles.clock.wall_ms())
    doubles.settle()
    assert log.start_offset > 5
    assert not doubles.files.exists(f"{log.directory}/00000000000000000000.log")
    assert list(batches(doubles.bytes_of(first)))


def test_a_start_within_a_segment_of_durability_os_loses_nothing_behind_it() -> None:
    doubles = StoreOnDoubles()
    config = LogConfig(segment_bytes=1000, durability="os")
    log = doubles.log(0, config)
    for number in range(12):
        doubles.append(log, b"%02d" % number * 200, b"second")
        doubles.settle()
        if number == 0:
            doubles.advance(61_000)  # the checkpoint knows nothing of the segments that the start lies in
    # The first segments go, and the start lies in the middle of a batch of one that stays.
    doubles.store.move_start(log, 15)
    doubles.settle()
    expected = doubles.values(log)[-9:]
    doubles.kill()
    log = doubles.log(0, config)
    assert (log.start_offset, log.end_offset) == (15, 24)
    assert doubles.values(log) == expected


@pytest.mark.parametrize("start", [3, 4])
def test_a_start_of_durability_os_moved_twice_loses_nothing_behind_it_with_the_older_checkpoint(start: int) -> None:
    doubles = StoreOnDoubles()
    config = LogConfig(durability="os")
    log = doubles.log(0, config)
    doubles.append(log, b"0", b"1")
    doubles.settle()
    doubles.store.move_start(log, 2)  # a segment begins there
    doubles.append(log, b"2", b"3", b"4")
    doubles.settle()  # with a checkpoint: the first segment is gone
    doubles.store.move_start(log, start)
    doubles.store.flush()
    newest = max(path for path in doubles.files.paths() if path.startswith("checkpoint-"))
    doubles.files.corrupt(newest, 50)
    doubles.kill()
    log = doubles.log(0, config)
    assert (log.start_offset, log.end_offset) == (start, 5)
    assert doubles.values(log) == [b"3", b"4"][start - 3 :]
