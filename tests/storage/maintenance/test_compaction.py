"""Compaction on a disk in memory: what is left, crashes in every call, failing and full disks, readers meanwhile."""

import errno
import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import LogDamaged
from duramen.codec.batch import BatchInput, DecodedRecord, Header, batches, check, encode, records
from duramen.sim.machine.disk import Crashed
from duramen.sim.machine.store import SMALL, AppendOutcome, StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.planning.compaction import CompactionConfig, CompactionLimits
from duramen.storage.store import StoreLimits

COMPACT = LogConfig(
    segment_bytes=4000, compact=True, compaction=CompactionConfig(min_dirty_ratio=0, delete_retention_ms=60_000)
)
ROUNDS = "duramen_compactions_total"
FAILURES = "duramen_compaction_failures_total"

Row = tuple[bytes, bytes | None]


def put(
    doubles: StoreOnDoubles, log: Log, *rows: Row, codec: int = 0, producer: tuple[int, int] | None = None
) -> AppendOutcome:
    producer_id, sequence = producer if producer is not None else (-1, -1)
    batch = encode(
        (BatchInput(doubles.clock.wall_ms(), key, value) for key, value in rows),
        codec=codec, producer_id=producer_id, producer_epoch=min(producer_id, 0), base_sequence=sequence,
    )  # fmt: skip
    appended = AppendOutcome(())
    doubles.store.append(log, batch, check(batch), doubles.store.node_epoch, appended.done)
    return appended


def fill(doubles: StoreOnDoubles, log: Log, count: int = 60, keys: int = 7, seed: int = 1) -> list[Row]:
    """Batches of a few records with few keys, settled and checkpointed; returns all rows by offset."""
    chance = random.Random(seed)
    rows: list[Row] = []
    for _ in range(count):
        batch: list[Row] = []
        for _ in range(chance.randrange(1, 4)):
            value = None if chance.random() < 0.1 else chance.randbytes(150)
            batch.append((b"key-%d" % chance.randrange(keys), value))
        put(doubles, log, *batch, codec=chance.choice([0, 0, 2, 4]))
        doubles.clock.advance(10)
        rows += batch
    doubles.settle()
    doubles.advance(61_000)
    return rows


def compact(doubles: StoreOnDoubles) -> None:
    doubles.store.compact()
    for _ in range(200):
        doubles.settle()
        if not doubles.metrics.counter("duramen_compaction_running").value:
            break
        doubles.advance(1000)
    doubles.settle()


def everything(doubles: StoreOnDoubles, log: Log) -> list[DecodedRecord]:
    """Every record from the log start on, by fetches of each size that a client may ask for."""
    at, found = log.start_offset, []
    while at < log.high_watermark:
        slice_ = doubles.plan(log, at, 1000)
        assert slice_ is not None, f"nothing comes at {at} of {log.high_watermark}"
        data = doubles.bytes_of(slice_)
        for position, head in batches(data):
            found += [one for one in records(memoryview(data)[position : position + head.size]) if one.offset >= at]
            assert head.next_offset > at
            at = head.next_offset
    return found


def state(rows: list[Row], start: int = 0) -> dict[bytes, tuple[int, bytes]]:
    """What who reads from `start` ends with."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for offset, (key, value) in enumerate(rows[start:], start):
        if value is None:
            found.pop(key, None)
        else:
            found[key] = offset, value
    return found


def read_state(found: list[DecodedRecord]) -> dict[bytes, tuple[int, bytes]]:
    kept: dict[bytes, tuple[int, bytes]] = {}
    for record in found:
        if record.value is None:
            kept.pop(record.key or b"", None)
        else:
            kept[record.key or b""] = record.offset, record.value
    return kept


def check_log(doubles: StoreOnDoubles, log: Log, rows: list[Row]) -> list[DecodedRecord]:
    found = everything(doubles, log)
    assert log.end_offset == len(rows)
    assert all((record.key, record.value) == rows[record.offset] for record in found)
    assert read_state(found) == state(rows, log.start_offset)
    return found


def test_of_every_key_only_the_newest_stays_below_the_active_segment() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, COMPACT)
    rows = fill(doubles, log)
    before, base = log.size_bytes(), log.active.base_offset
    compact(doubles)
    assert doubles.metrics.counter(ROUNDS).value == 1
    found = check_log(doubles, log, rows)
    below = [record.key for record in found if record.offset < base]
    assert len(below) == len(set(below)) == 7
    assert log.cleaned_offset == base
    assert log.size_bytes() < before / 2
    assert len(doubles.files.names(log.directory)) == 2 * len(log.segments), "the old files are gone"
    for restart in (doubles.restart, doubles.kill, doubles.crash):
        restart()
        assert doubles.findings == []
        check_log(doubles, doubles.log(), rows)
        assert doubles.log().cleaned_offset == base
        assert len(doubles.files.names(log.directory)) == 2 * len(doubles.log().segments)
    more = fill(doubles, doubles.log(0, COMPACT), seed=2)
    segments = len(doubles.log().segments)
    compact(doubles)
    check_log(doubles, doubles.log(), rows + more)
    assert len(doubles.log().segments) < segments, "small segments become one"


def test_a_tombstone_goes_a_while_after_it_was_seen_and_never_before_what_it_deletes() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, COMPACT)
    rows: list[Row] = [(b"gone", b"x" * 100)]
    put(doubles, log, *rows)
    tail: list[Row] = [(b"gone", None), (b"stays", b"y" * 4000)]
    for row in tail:
        put(doubles, log, row)
        doubles.settle()
    rows += tail
    rows += fill(doubles, log, 20)
    compact(doubles)
    assert [record.offset for record in check_log(doubles, log, rows) if record.key == b"gone"] == [1]
    timestamps = [record.timestamp for record in everything(doubles, log)]
    assert timestamps == sorted(timestamps), "a delete horizon moves no record's timestamp"
    rows += fill(doubles, log, 20, seed=3)
    doubles.advance(60_000)
    compact(doubles)
    assert not [record for record in check_log(doubles, log, rows) if record.key == b"gone"]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_crash_in_any_call_leaves_the_old_or_the_new(seed: int | None) -> None:
    calls = 0
    crashed = 0
    while True:
        doubles = StoreOnDoubles()
        log = doubles.log(0, COMPACT)
        rows = fill(doubles, log, 25, 5)
        start = doubles.files.calls
        calls += 1
        doubles.files.crash_at = start + calls
        try:
            compact(doubles)
            doubles.advance(61_000)
        except Crashed:
            crashed += 1
        else:
            break
        finally:
            doubles.files.crash_at = None
        doubles.crash(None if seed is None else random.Random(seed + calls))
        assert doubles.findings == []
        log = doubles.log(0, COMPACT)
        check_log(doubles, log, rows)
        assert not [path for path in doubles.files.paths() if path.endswith(".new") and path.startswith("logs/")]
        compact(doubles)
        check_log(doubles, log, rows)
        assert len({record.key for record in everything(doubles, log) if record.offset < log.active.base_offset}) <= 5
    assert crashed > 15


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_call_that_fails_gives_the_round_up_and_loses_nothing(code: int) -> None:
    for number in range(100):
        doubles = StoreOnDoubles()
        reports: list[str] = []
        doubles.store.compactor.report = reports.append
        log = doubles.log(0, COMPACT)
        rows = fill(doubles, log, 25, 5)
        made: list[str] = []

        def interfere(call: str, path: str, size: int, at: int = number, made: list[str] = made) -> int:
            if path.endswith(".new") and path.startswith("logs/") and call != "unlink":
                made.append(call)
                if len(made) == at + 1:
                    raise OSError(code, os.strerror(code))
            return size

        doubles.files.interfere = interfere
        compact(doubles)
        check_log(doubles, log, rows)
        if len(made) <= number:
            assert number > 3
            break
        assert doubles.metrics.counter(FAILURES).value == 1
        assert os.strerror(code) in reports[0]
        assert not [path for path in doubles.files.paths() if path.endswith(".new") and path.startswith("logs/")]
        compact(doubles)
        assert doubles.metrics.counter(ROUNDS).value == 0, "not at once again"
        doubles.advance(61_000)
        compact(doubles)
        assert doubles.metrics.counter(ROUNDS).value == 1
        check_log(doubles, log, rows)
        doubles.crash()
        check_log(doubles, doubles.log(), rows)


def test_a_damaged_segment_stays_as_it_is_and_keeps_the_tombstones_behind_it() -> None:
    doubles = StoreOnDoubles()
    reports: list[str] = []
    doubles.store.compactor.report = reports.append
    log = doubles.log(0, COMPACT)
    rows = fill(doubles, log, 60)
    damaged = log.segments[1]
    doubles.files.corrupt(damaged.path + ".log", 200)
    compact(doubles)
    assert damaged.path in reports[0]
    doubles.advance(61_000)
    compact(doubles)
    assert doubles.metrics.counter(ROUNDS).value == 1
    assert damaged in log.segments
    assert log.segments[0] is not damaged
    assert log.dirty_offset == damaged.base_offset
    after = [segment for segment in log.segments if segment.base_offset > damaged.base_offset]
    found = []
    for segment in after:
        at = segment.base_offset
        slice_ = doubles.plan(log, at, 1 << 20)
        assert slice_ is not None
        data = doubles.bytes_of(slice_)
        for position, head in batches(data):
            found += list(records(memoryview(data)[position : position + head.size]))
    assert all((record.key, record.value) == rows[record.offset] for record in found)
    deleted = {key for key in {row[0] for row in rows} if key not in state(rows)}
    assert deleted <= {record.key for record in found}
    with pytest.raises(LogDamaged):
        doubles.read(log, damaged.base_offset)
    compact(doubles)
    assert doubles.metrics.counter(ROUNDS).value == 1, "the damaged part is not looked at over and over"


def test_readers_in_the_middle_of_an_old_segment_finish() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, COMPACT)
    rows = fill(doubles, log)
    slices = [doubles.plan(log, segment.base_offset, 1 << 20) for segment in log.segments[:-1]]
    compact(doubles)
    doubles.advance(200_000)
    offsets = []
    for slice_ in slices:
        assert slice_ is not None
        data = doubles.bytes_of(slice_)
        for position, head in batches(data):
            offsets += [record.offset for record in records(memoryview(data)[position : position + head.size])]
    assert offsets == list(range(log.active.base_offset))
    check_log(doubles, log, rows)


def test_reading_at_every_offset_and_time_of_a_compacted_log() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, COMPACT)
    rows = fill(doubles, log)
    compact(doubles)
    found = check_log(doubles, log, rows)
    for offset in range(log.end_offset):
        expected = [record for record in found if record.offset >= offset]
        slice_ = doubles.plan(log, offset, 1)
        assert slice_ is not None
        data = doubles.bytes_of(slice_)
        read = [record for record in records(data) if record.offset >= offset]
        assert read == expected[: len(read)]
        doubles.files.cold = bool(offset % 2)
        time = log.plan_time(found[0].timestamp + offset)
        assert time is not None
    doubles.files.cold = False


def test_idempotent_producers_are_known_after_their_records_went() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, COMPACT)
    first = put(doubles, log, (b"key-1", b"a"), producer=(5, 0))
    doubles.settle()
    fill(doubles, log)
    compact(doubles)
    for restart in (doubles.restart, doubles.crash):
        assert put(doubles, doubles.log(), (b"key-1", b"a"), producer=(5, 0)).base_offset in (None, first.base_offset)
        restart()
    kept = [head for head in heads(doubles, doubles.log()) if head.producer_id == 5]
    assert [(head.base_offset, head.records, head.base_sequence) for head in kept] == [(0, 0, 0)]


def heads(doubles: StoreOnDoubles, log: Log) -> Iterator[Header]:
    at = log.start_offset
    while at < log.high_watermark:
        slice_ = doubles.plan(log, at, 1000)
        assert slice_ is not None
        for _, head in batches(doubles.bytes_of(slice_)):
            yield head
            at = head.next_offset


def test_a_table_too_small_for_all_keys_takes_more_rounds() -> None:
    limits = StoreLimits(*SMALL[:-1], compaction=CompactionLimits(buffer_bytes=24 * 11, load_factor=0.5))
    doubles = StoreOnDoubles(limits)
    log = doubles.log(0, COMPACT)
    rows = fill(doubles, log, 60, keys=25)
    for _ in range(40):
        compact(doubles)
        doubles.advance(61_000)
        check_log(doubles, log, rows)
    assert doubles.metrics.counter(ROUNDS).value > 3
    below = [record.key for record in everything(doubles, log) if record.offset < log.active.base_offset]
    assert len(below) == len(set(below))
    assert set(below) >= set(state(rows[: log.active.base_offset]))


def test_the_rate_is_kept_and_appends_go_on_meanwhile() -> None:
    limits = StoreLimits(*SMALL[:-1], compaction=CompactionLimits(bytes_per_second=10_000))
    doubles = StoreOnDoubles(limits)
    log = doubles.log(0, COMPACT)
    rows = fill(doubles, log)
    doubles.store.compact()
    started_ms, dirty = doubles.clock.monotonic_ms(), sum(segment.size for segment in log.segments[:-1])
    while doubles.metrics.counter("duramen_compaction_running").value:
        row = (b"key-1", b"more")
        put(doubles, log, row)
        rows.append(row)
        doubles.advance(100)
    taken_ms = doubles.clock.monotonic_ms() - started_ms
    assert taken_ms >= 2 * dirty * 1000 // 10_000
    check_log(doubles, log, rows)


def test_a_log_deleted_or_a_node_stopped_in_the_middle_of_a_round() -> None:
    for stopped in (False, True):
        limits = StoreLimits(*SMALL[:-1], compaction=CompactionLimits(bytes_per_second=10_000))
        doubles = StoreOnDoubles(limits)
        log = doubles.log(0, COMPACT)
        rows = fill(doubles, log)
        doubles.store.compact()
        doubles.advance(3000)
        assert doubles.metrics.counter("duramen_compaction_running").value
        if stopped:
            doubles.restart()
            check_log(doubles, doubles.log(), rows)
        else:
            doubles.store.delete(log)
            doubles.advance(100_000)
            assert not doubles.metrics.counter("duramen_compaction_running").value
        assert not [path for path in doubles.files.paths() if path.endswith(".new")]


def test_a_stop_waits_for_the_step_that_is_under_way_and_leaves_nothing_half_written() -> None:
    for jobs in range(12):
        doubles = StoreOnDoubles()
        log = doubles.log(0, COMPACT)
        rows = fill(doubles, log)
        doubles.store.compact()
        for _ in range(jobs):
            _ = doubles.worker.step("disk") or doubles.worker.step("read") or soon(doubles)
        deliver = doubles.worker.start("read") if doubles.worker.jobs["read"] else lambda: None
        stopped: list[OSError | None] = []
        doubles.store.stop(stopped.append)
        deliver()
        doubles.settle()
        assert stopped == [None]
        assert not [path for path in doubles.files.paths() if path.endswith(".new")]
        doubles.restart()
        assert doubles.findings == []
        check_log(doubles, doubles.log(), rows)


def test_retention_and_compaction_together() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, COMPACT._replace(retention_ms=100_000))
    fill(doubles, log)
    compact(doubles)
    doubles.advance(50_000)
    doubles.store.enforce_retention(doubles.clock.wall_ms())
    doubles.settle()
    assert log.start_offset == log.end_offset > 0
    doubles.advance(100_000)
    stem = f"{log.end_offset:020d}"
    assert set(doubles.files.names(log.directory)) == {f"{stem}.index", f"{stem}.log"}
    assert doubles.files.content(f"{log.directory}/{stem}.log") == b""
    put(doubles, log, (b"a", b"b"))
    doubles.crash()
    assert doubles.findings == []


def test_without_any_checkpoint_the_newest_generation_is_believed() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, COMPACT)
    rows = fill(doubles, log)
    compact(doubles)
    doubles.stop()
    for path in doubles.files.paths():
        if path.startswith("checkpoint-"):
            doubles.files.unlink(path)
    doubles.boot()
    assert not [finding for finding in doubles.findings if "missing" in finding]
    check_log(doubles, doubles.log(), rows)


def test_the_older_checkpoint_finds_the_files_that_it_names() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, COMPACT)
    rows = fill(doubles, log)
    old = len(doubles.files.names(log.directory))
    doubles.store.compact()
    while len(doubles.files.names(log.directory)) <= old + 1:
        assert (
            doubles.worker.step("disk") or doubles.worker.step("read") or doubles.worker.step("sync") or soon(doubles)
        )
    numbers = sorted(path for path in doubles.files.paths() if path.startswith("checkpoint-"))
    doubles.files.corrupt(numbers[-1], 40)
    doubles.crash()
    check_log(doubles, doubles.log(), rows)


def soon(doubles: StoreOnDoubles) -> bool:
    doubles.worker.run_soon()
    return True


batch_of_rows = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.one_of(st.none(), st.binary(max_size=900))),
    min_size=1,
    max_size=3,
)
steps = st.one_of(batch_of_rows, st.sampled_from(["compact", "half", "crash", "restart", "later", "retain", "delete"]))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(steps, min_size=5, max_size=40))
def test_whatever_happens_readers_see_the_last_of_every_key(history: list[list[Row] | str]) -> None:
    doubles = StoreOnDoubles()
    config = COMPACT._replace(segment_bytes=1500, segment_ms=100_000)
    log = doubles.log(0, config)
    rows: list[Row] = []
    for step in history:
        if isinstance(step, list):
            put(doubles, log, *step)
            doubles.settle()
            rows += step
        elif step == "compact":
            doubles.advance(61_000)
            compact(doubles)
        elif step == "later":
            doubles.advance(120_000)
        elif step == "half":
            doubles.store.compact()
            for _ in range(len(rows) % 7):
                _ = doubles.worker.step("disk") or doubles.worker.step("read") or soon(doubles)
        elif step == "delete":
            doubles.store.delete_before(log, (log.start_offset + log.high_watermark) // 2, lambda _: None)
            doubles.settle()
        elif step == "retain":
            doubles.store.enforce_retention(doubles.clock.wall_ms())
        elif step == "crash":
            doubles.crash(random.Random(len(rows)))
        elif step == "restart":
            doubles.restart()
        log = doubles.log(0, config)
        check_log(doubles, log, rows)
        assert doubles.findings == []


@pytest.mark.parametrize("durability", ["os", "memory"])
def test_other_durabilities(durability: str) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, COMPACT._replace(durability=durability))
    rows = fill(doubles, log)
    compact(doubles)
    if durability == "memory":
        assert doubles.metrics.counter(ROUNDS).value == 0
        assert len(everything(doubles, log)) == len(rows)
        return
    assert doubles.metrics.counter(ROUNDS).value == 1
    check_log(doubles, log, rows)
    for restart in (doubles.kill, doubles.crash, doubles.restart):
        restart()
        assert doubles.findings == []
        check_log(doubles, doubles.log(), rows)
        assert len(doubles.files.names(log.directory)) == 2 * len([one for one in doubles.log().segments if one.size])


def test_a_crash_with_durability_os_in_any_call() -> None:
    for calls in range(1, 200):
        doubles = StoreOnDoubles()
        log = doubles.log(0, COMPACT._replace(durability="os"))
        rows = fill(doubles, log, 25, 5)
        doubles.files.crash_at = doubles.files.calls + calls
        try:
            compact(doubles)
        except Crashed:
            doubles.files.crash_at = None
        else:
            assert calls > 15
            return
        doubles.crash(random.Random(calls))
        assert doubles.findings == []
        check_log(doubles, doubles.log(), rows)
    raise AssertionError("it never ended")


def test_where_gaps_may_be_is_known_before_there_is_one() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, COMPACT)
    fill(doubles, log)
    doubles.store.compact()
    while doubles.metrics.counter("duramen_compaction_running").value:
        assert (
            doubles.worker.step("disk") or doubles.worker.step("read") or doubles.worker.step("sync") or soon(doubles)
        )
        compacted = [one for one in log.segments if one.generation]
        assert not compacted or log.cleaned_offset > compacted[-1].base_offset
    assert log.cleaned_offset == log.dirty_offset == log.active.base_offset


def test_segments_that_are_let_go_in_the_middle_of_a_round_do_not_end_it() -> None:
    for offset in (20, 60, 90):
        for jobs in (2, 9, 16):
            doubles = StoreOnDoubles()
            log = doubles.log(0, COMPACT)
            rows = fill(doubles, log)
            doubles.store.compact()
            for _ in range(jobs):
                _ = doubles.worker.step("disk") or doubles.worker.step("read") or soon(doubles)
            doubles.store.delete_before(log, offset, lambda _: None)
            compact(doubles)
            check_log(doubles, log, rows)
            assert doubles.metrics.counter(FAILURES).value == 0
            assert doubles.metrics.counter(ROUNDS).value == 1
            doubles.advance(61_000)
            doubles.crash()
            check_log(doubles, doubles.log(), rows)
            assert doubles.log().start_offset == offset
            assert len(doubles.files.names(log.directory)) == 2 * len(doubles.log().segments)
