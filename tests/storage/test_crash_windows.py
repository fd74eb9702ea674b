"""Crashes in windows that are open for a moment: in a first start, a stop, a deletion, the beginning of a log."""

import random

import pytest

from duramen.base.errors import DuramenError, StorageFull
from duramen.sim.machine.disk import Crashed, MemoryFileSystem
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles, expected_values
from duramen.storage.log.log import LogConfig
from duramen.storage.segment.index import ENTRY_BYTES, INDEX_HEADER_BYTES, closed_entries


def first_start(crash_at: int) -> MemoryFileSystem | None:
    """A disk on which the first start ended in the call of that number; None where it has fewer."""
    files = MemoryFileSystem()
    files.crash_at = crash_at
    try:
        StoreOnDoubles(files=files)
    except Crashed:
        return files
    return None


@pytest.mark.parametrize("survives", ["nothing unsynced", "a part", "every write"])
def test_a_crash_in_every_call_of_the_first_start(survives: str) -> None:
    call = 1
    while (files := first_start(call)) is not None:
        files.crash_at = None
        if survives == "every write":
            files.locks.clear()
        else:
            files.crash(random.Random(call) if survives == "a part" else None)
        doubles = StoreOnDoubles(files=files)
        append = doubles.append(doubles.log(), b"first")
        doubles.settle()
        assert append.acknowledged
        call += 1
    assert call > 15


def test_a_crash_in_a_stop_that_came_during_a_checkpoint() -> None:
    disk_jobs = 0
    stopped: list[OSError | None] = []
    while not stopped:
        doubles = StoreOnDoubles()
        appends = [doubles.append(doubles.log(), b"copied")]
        doubles.settle()
        doubles.clock.advance(60_000)
        doubles.deadlines.fire(doubles.clock.monotonic_ms())
        for value in (b"covered by the checkpoint", b"not covered"):
            appends.append(doubles.append(doubles.log(), value))
            doubles.worker.run_soon()
            doubles.worker.step("sync")
            if value == b"covered by the checkpoint":
                doubles.worker.step("disk")  # the copy; now the checkpoint begins
        assert all(append.acknowledged for append in appends)
        stopped.clear()
        doubles.store.stop(stopped.append)
        doubles.worker.run_soon()
        for _ in range(disk_jobs):
            doubles.worker.step("disk")
        doubles.crash()
        assert doubles.values(doubles.log()) == expected_values(appends)
        disk_jobs += 1
    assert disk_jobs > 3


def test_a_log_that_is_deleted_during_a_checkpoint_is_not_taken_for_a_lost_one() -> None:
    doubles = StoreOnDoubles()
    log, other = doubles.log(), doubles.log(1)
    appends = [doubles.append(log, b"first"), doubles.append(other, b"copied")]
    doubles.settle()
    doubles.clock.advance(60_000)
    doubles.deadlines.fire(doubles.clock.monotonic_ms())
    appends.append(doubles.append(other, b"to be copied"))
    doubles.worker.step("disk")  # the copy; now the checkpoint begins
    doubles.append(log, b"behind the checkpoint")
    doubles.worker.run_soon()
    doubles.worker.step("sync")
    doubles.store.delete(log)
    doubles.settle()
    doubles.crash()
    assert doubles.findings == []
    assert doubles.store.log(log.key) is None
    assert doubles.values(doubles.log(1)) == expected_values(appends[1:])


def test_what_is_read_of_a_log_with_durability_os_survives_the_process_from_its_first_batch_on() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(durability="os"))
    first = doubles.append(log, b"first", producer=(1, 0, 0))
    again = doubles.append(log, b"first", producer=(1, 0, 0))
    assert doubles.values(log) == []
    assert not first.decided
    assert not again.decided
    doubles.settle()
    assert first.acknowledged
    assert again.base_offset == 0
    doubles.kill()
    assert doubles.values(doubles.log()) == [b"first"]


@pytest.mark.parametrize("durability", ["os", "memory"])
@pytest.mark.parametrize("checkpoints", range(3))
def test_either_checkpoint_knows_what_a_log_held_before_its_durability_changed(
    durability: str, checkpoints: int
) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(durability=durability))
    appends = [doubles.append(log, b"before")]
    doubles.settle()
    doubles.log(0, LogConfig(durability="sync"))
    appends.append(doubles.append(log, b"after"))
    doubles.settle()
    for _ in range(checkpoints):
        appends.append(doubles.append(log, b"later"))
        doubles.advance(61_000)
    newest = max(path for path in doubles.files.paths() if path.startswith("checkpoint-"))
    doubles.files.corrupt(newest, 20)
    doubles.crash()
    assert len(doubles.findings) == 1
    assert doubles.values(doubles.log()) == expected_values(appends)


def cut(doubles: StoreOnDoubles, end_offset: int) -> None:
    errors: list[DuramenError | None] = []
    doubles.store.truncate(doubles.log(), end_offset, doubles.store.node_epoch, errors.append)
    doubles.settle()
    assert errors == [None]


def test_a_node_starts_again_where_retention_let_go_all_of_a_log_with_durability_os() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(durability="os", retention_ms=1))
    doubles.append(log, b"first")
    doubles.advance(61_000)
    doubles.store.enforce_retention(doubles.clock.wall_ms())
    doubles.settle()
    left = {path: doubles.files.content(path) for path in doubles.files.paths() if path.startswith("logs/")}
    stem = "logs/1/00000000000000000001"
    assert set(left) == {f"{stem}.index", f"{stem}.log"}
    assert left[f"{stem}.log"] == b""
    doubles.kill()
    assert doubles.findings == []
    assert doubles.log().start_offset == 1
    again = doubles.append(doubles.log(), b"second")
    doubles.settle()
    assert again.base_offset == 1


def test_a_segment_that_is_closed_when_all_of_it_is_synced_gets_the_last_entry_of_its_index() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(segment_bytes=1000))
    doubles.append(log, bytes(600))
    doubles.advance(61_000)
    first = log.active
    doubles.append(log, bytes(600))
    doubles.advance(61_000)
    entries = doubles.files.open(first.path + ".index").size() - INDEX_HEADER_BYTES
    assert entries == closed_entries(first.size) * ENTRY_BYTES


def test_the_last_entry_of_an_index_from_a_longer_life_of_its_segment_is_not_believed() -> None:
    doubles = StoreOnDoubles()
    for number, size in ((0, 900), (1, 600)):
        log = doubles.log(number, LogConfig(segment_bytes=1000))
        for _ in range(2):
            doubles.append(log, bytes(size))
    doubles.advance(61_000)
    longer, shorter = (doubles.log(number).segments[0].path + ".index" for number in (0, 1))
    stale = bytes(doubles.files.open(longer).read(INDEX_HEADER_BYTES, 1000))
    doubles.files.open(shorter).write([stale], INDEX_HEADER_BYTES)
    doubles.restart()
    assert doubles.values(doubles.log(1)) == [bytes(600), bytes(600)]


def test_a_checkpoint_does_not_stand_where_the_write_ahead_log_is_not_synced() -> None:
    doubles = StoreOnDoubles()
    doubles.append(doubles.log(), b"first")
    before = doubles.files.paths()
    doubles.advance_without_syncing(61_000)
    doubles.advance_without_syncing(61_000)
    assert [path for path in doubles.files.paths() if path.startswith("checkpoint-") and path not in before] == []
    doubles.settle()
    assert [path for path in doubles.files.paths() if path.startswith("checkpoint-") and path not in before] != []


def test_a_deletion_that_a_recovery_has_carried_out_outlives_the_power() -> None:
    call, ended = 0, True
    while ended:
        call += 1
        doubles = StoreOnDoubles()
        doubles.append(doubles.log(), bytes(5000))
        doubles.advance(61_000)
        log = doubles.log()
        doubles.store.delete(log)
        doubles.worker.run_soon()  # in the write-ahead log, and not synced
        doubles.files.locks.clear()
        doubles.files.crash_at = doubles.files.calls + call
        try:
            doubles.boot()
            ended = False
        except Crashed:
            doubles.crash(random.Random(call))
        assert not any("damage" in finding for finding in doubles.findings)
        for left in doubles.store.each_log():
            assert doubles.values(left) == [bytes(5000)]
    assert call > 10


def test_a_log_that_was_cut_twice_comes_back_without_a_word() -> None:
    doubles = StoreOnDoubles()
    appends = [doubles.append(doubles.log(), b"%d" % number) for number in range(10)]
    doubles.advance(61_000)
    cut(doubles, 8)
    doubles.append(doubles.log(), b"cut off too")
    cut(doubles, 5)
    doubles.crash()
    assert doubles.findings == []
    assert doubles.values(doubles.log()) == expected_values(appends[:5])


def test_a_log_that_was_cut_and_deleted_does_not_keep_the_node_from_starting() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log()
    for number in range(10):
        doubles.append(log, b"%d" % number)
    doubles.advance(61_000)
    cut(doubles, 8)
    doubles.store.delete(log)
    doubles.settle()
    doubles.crash()
    assert doubles.findings == []
    assert doubles.store.log(log.key) is None


@pytest.mark.parametrize("seed", range(30))
def test_one_bad_frame_costs_one_batch_whatever_a_power_cut_leaves_of_the_segments(seed: int) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(segment_bytes=3000))
    values = [random.Random(number).randbytes(1000) for number in range(12)]
    for value in values:
        doubles.append(log, value)
        doubles.settle()
    doubles.advance(1_500)  # copied, and not synced
    bad = random.Random(seed).randrange(11)
    place = bytes(doubles.files.open("wal/000000.wal").read(0, 64 << 10)).find(values[bad])
    doubles.files.corrupt("wal/000000.wal", place)
    doubles.crash(random.Random(seed))
    log = doubles.log()
    assert log.end_offset == 12
    for offset, value in enumerate(values):
        slice_ = doubles.plan(log, offset, 1) if offset != bad or not log.damage else None
        assert slice_ is None or value in doubles.bytes_of(slice_)
    assert log.damage in ([], [(bad, bad)])


def test_an_epoch_whose_first_batch_was_refused_is_in_the_next_checkpoint() -> None:
    doubles = StoreOnDoubles()
    config = LogConfig(durability="os")
    doubles.files.free_bytes = 1 << 20
    refused: list[AppendOutcome] = []

    def append_to_a_full_disk() -> None:
        free_bytes, doubles.files.free_bytes = doubles.files.free_bytes, 0
        refused.append(doubles.append(doubles.log(0, config), b"refused"))
        doubles.files.free_bytes = free_bytes
        doubles.append(doubles.log(1), b"another log")
        doubles.settle()
        doubles.advance(61_000)  # a checkpoint

    append_to_a_full_disk()
    doubles.restart()
    append_to_a_full_disk()
    assert all(isinstance(append.error, StorageFull) for append in refused)
    kept = doubles.append(doubles.log(0, config), b"kept")
    doubles.settle()
    assert kept.acknowledged
    doubles.kill()
    assert doubles.values(doubles.log(0, config)) == [b"kept"]


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_what_is_let_go_during_a_checkpoint_is_whole_where_a_loss_of_power_takes_the_new_start(durability: str) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(segment_bytes=1000, durability=durability))
    appends = []
    for number in range(7):
        appends.append(doubles.append(log, b"%02d" % number * 300))
        if number < 6:
            doubles.advance(6000)  # copied
    doubles.worker.run_soon()
    doubles.worker.step("sync")
    doubles.clock.advance(60_000)
    doubles.deadlines.fire(doubles.clock.monotonic_ms())  # a checkpoint takes the states
    doubles.store.delete_before(log, 3, lambda _: None)
    assert log.start_offset == 3
    for _ in range(4):
        doubles.advance_without_syncing(0)
    doubles.crash()
    assert doubles.findings == []
    assert doubles.values(doubles.log()) == expected_values(appends)
