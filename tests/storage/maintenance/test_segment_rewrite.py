"""Segments whose sync failed: written again from the write-ahead log, whatever the system did to the old bytes."""

import errno
import os
import random
from contextlib import suppress

import pytest

from duramen.base.errors import LogDamaged, StorageFailed
from duramen.sim.machine.disk import Crashed, MemoryFileSystem
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles, expected_values
from duramen.storage.log.log import LogConfig
from duramen.storage.segment.reader import Blocked, Slice
from duramen.storage.store import StoreLimits

WIDE = StoreLimits(
    wal_file_bytes=256 << 10, wal_max_bytes=4 << 20, pending_bytes=4 << 20, copy_bytes=4 << 20, copy_interval_ms=1000
)
REWRITTEN = "duramen_segments_rewritten_total"


class BadDisk:
    """Lets syncs of files below logs/ fail, and gives up what they should have written."""

    def __init__(self, files: MemoryFileSystem, ending: str = ".log", call: str = "sync") -> None:
        self.files = files
        self.ending = ending
        self.call = call
        self.fails = 0
        self.failed: list[str] = []
        files.interfere = self

    def __call__(self, call: str, path: str, size: int) -> int:
        if call == self.call and path.startswith("logs/") and path.endswith(self.ending) and self.fails:
            self.fails -= 1
            self.failed.append(path)
            self.files.drop(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size


def checkpoint(doubles: StoreOnDoubles) -> None:
    doubles.advance(61_000)


def history(doubles: StoreOnDoubles, disk: BadDisk) -> list[AppendOutcome]:
    """Synced records in two logs, then more across a few blocks and rolls, and a checkpoint whose sync fails once."""
    chance = random.Random(5)
    appends = []
    for number in range(120):
        log = doubles.log(number % 2, LogConfig(segment_bytes=150_000))
        appends.append(doubles.append(log, chance.randbytes(chance.randrange(6000))))
        if number == 50:
            doubles.settle()
            checkpoint(doubles)
    doubles.settle()
    disk.fails = 1
    checkpoint(doubles)
    return appends


def check(doubles: StoreOnDoubles, appends: list[AppendOutcome]) -> None:
    for number in range(2):
        acknowledged = expected_values([append for append in appends[number::2] if append.acknowledged])
        content = doubles.values(doubles.log(number))
        assert content[: len(acknowledged)] == acknowledged


def leftovers(doubles: StoreOnDoubles) -> list[str]:
    return [path for path in doubles.files.paths() if path.endswith(".new")]


@pytest.mark.parametrize("ending", [".log", ".index"])
def test_a_segment_whose_sync_failed_is_written_again_and_the_wal_let_go(ending: str) -> None:
    doubles = StoreOnDoubles(WIDE)
    disk = BadDisk(doubles.files, ending)
    appends = history(doubles, disk)
    assert len(disk.failed) == 1
    assert doubles.metrics.counter(REWRITTEN).value == 1
    check(doubles, appends)
    assert leftovers(doubles) == []
    written = doubles.metrics.counter("duramen_checkpoints_total").value
    held = doubles.metrics.counter("duramen_wal_bytes").value
    appends += [doubles.append(doubles.log(number % 2), b"later") for number in range(2)]
    doubles.settle()
    checkpoint(doubles)
    assert doubles.metrics.counter("duramen_checkpoints_total").value == written + 1
    assert doubles.metrics.counter("duramen_wal_bytes").value < held
    for restart in (doubles.crash, doubles.kill, doubles.restart):
        restart()
        assert doubles.findings == []
        check(doubles, appends)


def test_the_old_file_had_lost_what_it_could_not_sync() -> None:
    doubles = StoreOnDoubles(WIDE)
    disk = BadDisk(doubles.files)
    synced = doubles.append(doubles.log(), b"synced" * 1000)
    doubles.settle()
    checkpoint(doubles)
    segment = doubles.log().active
    start = segment.synced
    old = doubles.files.open(segment.path + ".log")
    lost = doubles.append(doubles.log(), b"lost" * 10_000)
    doubles.settle()
    disk.fails = 1
    checkpoint(doubles)
    assert b"lost" * 100 not in bytes(old.read(start, old.size()))
    assert segment.synced == segment.size
    assert not segment.suspect
    doubles.crash()
    assert doubles.recovered.replayed_bytes == 0
    assert doubles.values(doubles.log()) == expected_values([synced, lost])


def rewriting_calls() -> tuple[int, int]:
    """The calls of the cycle with the failed sync: where it begins, and where it ends."""
    doubles = StoreOnDoubles(WIDE)
    disk = BadDisk(doubles.files)
    history_until(doubles, disk)
    before = doubles.files.calls
    checkpoint(doubles)
    return before, doubles.files.calls


def history_until(doubles: StoreOnDoubles, disk: BadDisk) -> list[AppendOutcome]:
    appends = [doubles.append(doubles.log(number % 2), bytes([number]) * 3000) for number in range(40)]
    doubles.settle()
    checkpoint(doubles)
    appends += [doubles.append(doubles.log(number % 2), bytes([number]) * 3000) for number in range(40, 60)]
    doubles.settle()
    disk.fails = 1
    return appends


@pytest.mark.parametrize("survives", ["nothing unsynced", "a part", "every write"])
def test_a_crash_in_every_call_of_a_rewriting(survives: str) -> None:
    first, last = rewriting_calls()
    assert last - first > 10
    for call in range(first + 1, last + 1):
        doubles = StoreOnDoubles(WIDE)
        disk = BadDisk(doubles.files)
        appends = history_until(doubles, disk)
        doubles.files.crash_at = call
        with pytest.raises(Crashed):
            checkpoint(doubles)
        doubles.files.crash_at = None
        doubles.files.interfere = None
        if survives == "every write":
            doubles.kill()
        else:
            doubles.crash(random.Random(call) if survives == "a part" else None)
        assert doubles.findings == []
        assert leftovers(doubles) == []
        check(doubles, appends)
        appends += [doubles.append(doubles.log(number), b"again") for number in range(2)]
        doubles.settle()
        checkpoint(doubles)
        assert all(append.acknowledged for append in appends[-2:])
        doubles.crash()
        check(doubles, appends)


@pytest.mark.parametrize(
    ("call", "ending"),
    [
        ("sync", ".log.new"),
        ("sync", ".index.new"),
        ("create", ".log.new"),
        ("write", ".log.new"),
        ("rename", ".log.new"),
        ("rename", ".index.new"),
        ("sync_directory", ""),
    ],
)
def test_a_rewriting_that_fails_is_tried_again_and_loses_nothing(call: str, ending: str) -> None:
    doubles = StoreOnDoubles(WIDE)
    disk = BadDisk(doubles.files)
    appends = history_until(doubles, disk)
    written = doubles.metrics.counter("duramen_checkpoints_total").value
    rewriting = BadDisk(doubles.files, ending, call)

    def both(made: str, path: str, size: int) -> int:
        return rewriting(made, path, disk(made, path, size))

    doubles.files.interfere = both
    rewriting.fails = 3
    checkpoint(doubles)
    assert rewriting.failed
    assert doubles.metrics.counter("duramen_checkpoints_total").value == written
    appends += [doubles.append(doubles.log(number % 2), b"meanwhile" * 500) for number in range(20)]
    doubles.settle()
    assert all(append.acknowledged for append in appends)
    for _ in range(4):
        doubles.advance(1100)
    assert len(rewriting.failed) == 3
    assert doubles.metrics.counter("duramen_checkpoints_total").value > written
    check(doubles, appends)
    doubles.crash()
    assert doubles.findings == []
    check(doubles, appends)


def test_a_disk_that_stays_bad_ends_appends_at_the_bound_and_a_restart_loses_nothing() -> None:
    doubles = StoreOnDoubles()
    appends = [doubles.append(doubles.log(number % 2), bytes([number]) * 3000) for number in range(20)]
    doubles.settle()
    disk = BadDisk(doubles.files, "")
    disk.fails = 1 << 30
    for number in range(20, 600):
        appends.append(doubles.append(doubles.log(number % 2), bytes([number % 256]) * 3000))
        doubles.settle()
    for _ in range(5):
        doubles.advance(1100)
    refused = [append for append in appends if append.error is not None]
    assert refused
    assert all(isinstance(append.error, StorageFailed) for append in refused)
    assert sum(append.acknowledged for append in appends) > 200, "appends go on up to the bound"
    assert len(disk.failed) < 40, "what fails is tried again now and then, not for every append"
    assert doubles.stop() is not None
    doubles.crash()
    for number in range(2):
        acknowledged = [append for append in appends[number::2] if append.acknowledged]
        assert doubles.values(doubles.log(number))[: len(acknowledged)] == expected_values(acknowledged)


def test_a_disk_that_recovers_takes_appends_again_without_a_restart() -> None:
    doubles = StoreOnDoubles()
    disk = BadDisk(doubles.files, "")
    disk.fails = 1 << 30
    appends = [doubles.append(doubles.log(number % 2), bytes([number % 256]) * 3000) for number in range(600)]
    doubles.settle()
    assert any(append.error is not None for append in appends)
    disk.fails = 0
    for _ in range(4):
        doubles.advance(1100)
    kept = [[append for append in appends[number::2] if append.acknowledged] for number in range(2)]
    for number in range(2):
        kept[number].append(doubles.append(doubles.log(number), b"again"))
    doubles.settle()
    assert all(append.acknowledged for log in kept for append in log)
    assert doubles.stop() is None
    doubles.boot()
    assert [doubles.values(doubles.log(number)) for number in range(2)] == [expected_values(log) for log in kept]


@pytest.mark.parametrize("cut", [1, 11, 15, 39, 40])
def test_a_log_that_was_cut_and_rolled_since_the_last_checkpoint(cut: int) -> None:
    doubles = StoreOnDoubles(WIDE)
    disk = BadDisk(doubles.files)
    config = LogConfig(segment_bytes=20_000)
    for number in range(40):
        doubles.append(doubles.log(0, config), b"%d" % number * 900)
        if number == 12:
            doubles.settle()
            checkpoint(doubles)
    doubles.settle()
    outcome: list[object] = []
    doubles.store.truncate(doubles.log(), cut, doubles.store.node_epoch, outcome.append)
    doubles.settle()
    assert outcome == [None]
    for number in range(100, 130):
        doubles.append(doubles.log(), b"%d" % number * 900)
    doubles.settle()
    expected = [b"%d" % number * 900 for number in (*range(cut), *range(100, 130))]
    disk.fails = 1
    checkpoint(doubles)
    assert disk.failed
    assert doubles.metrics.counter(REWRITTEN).value == 1
    assert doubles.values(doubles.log()) == expected
    doubles.crash()
    assert doubles.findings == []
    assert doubles.values(doubles.log()) == expected


def test_a_log_is_not_cut_by_what_a_file_that_was_not_synced_says() -> None:
    doubles = StoreOnDoubles(WIDE)
    disk = BadDisk(doubles.files, "")
    for number in range(20):
        doubles.append(doubles.log(), b"%d" % number * 900)
    doubles.settle()
    disk.fails = 2
    checkpoint(doubles)
    outcome: list[object] = []
    doubles.store.truncate(doubles.log(), 15, doubles.store.node_epoch, outcome.append)
    doubles.settle()
    assert isinstance(outcome[0], StorageFailed)
    for _ in range(2):
        assert doubles.values(doubles.log()) == [b"%d" % number * 900 for number in range(20)], "refused is not done"
        doubles.crash()


def test_a_file_that_is_gone_is_damage_and_keeps_no_checkpoint_from_being_written() -> None:
    doubles = StoreOnDoubles(WIDE)
    log = doubles.log(0, LogConfig(segment_bytes=5000))
    for number in range(4):
        doubles.append(log, b"%d" % number * 900)
    doubles.settle()
    checkpoint(doubles)
    for number in range(4, 8):
        doubles.append(log, b"%d" % number * 900)
    doubles.settle()
    doubles.advance(1100)
    segment = log.segments[0]
    assert 0 < segment.synced < segment.copied == segment.size
    doubles.files.unlink(segment.path + ".log")
    segment.file = None
    written = doubles.metrics.counter("duramen_checkpoints_total").value
    checkpoint(doubles)
    assert doubles.metrics.counter("duramen_checkpoints_total").value == written + 1
    for restart in (doubles.kill, doubles.crash):
        for lost in range(4):
            with pytest.raises(LogDamaged):
                doubles.bytes_of(doubles.plan(doubles.log(), lost, 1) or pytest.fail("nothing to read"))
        for kept in range(4, 8):
            found = doubles.bytes_of(doubles.plan(doubles.log(), kept, 1) or pytest.fail("nothing to read"))
            assert b"%d" % kept * 900 in found
        restart()


class TestReaders:
    def written(self) -> tuple[StoreOnDoubles, BadDisk, list[bytes]]:
        doubles = StoreOnDoubles(WIDE)
        doubles.files.cold = True
        disk = BadDisk(doubles.files)
        log = doubles.log(0, LogConfig())
        appends = [doubles.append(log, bytes([number]) * 20_000) for number in range(10)]
        doubles.settle()
        doubles.advance(1100)
        return doubles, disk, expected_values(appends)

    def fail(self, doubles: StoreOnDoubles, disk: BadDisk) -> None:
        disk.fails = 1
        checkpoint(doubles)
        assert disk.failed

    def rest(self, doubles: StoreOnDoubles, slice_: Slice, piece: list[bytes]) -> bytes:
        return b"".join(piece) + doubles.bytes_of(slice_)

    @pytest.mark.parametrize("when", ["before", "after the job", "after its result"])
    def test_a_slice_in_the_middle_goes_on_with_the_same_bytes(self, when: str) -> None:
        doubles, disk, values = self.written()
        slice_ = doubles.plan(doubles.log(), 0, 1 << 20)
        assert slice_ is not None
        expected = doubles.bytes_of(doubles.plan(doubles.log(), 0, 1 << 20) or pytest.fail("nothing to read"))
        if when == "before":
            self.fail(doubles, disk)
            assert doubles.bytes_of(slice_) == expected
        else:
            blocked = slice_.piece(1 << 16)
            assert isinstance(blocked, Blocked)
            doubles.files.drop(doubles.log().active.path + ".log")
            result = blocked.job()
            if when == "after the job":
                self.fail(doubles, disk)
                blocked.apply(result)
            else:
                blocked.apply(result)
                with pytest.raises(LogDamaged):
                    slice_.piece(1 << 16)  # the bytes are not those that were written
                self.fail(doubles, disk)
            assert doubles.bytes_of(slice_) == expected
        assert doubles.log().active.damage == []
        assert doubles.values(doubles.log()) == values

    def test_damage_found_in_the_old_file_is_forgotten(self) -> None:
        doubles, disk, values = self.written()
        doubles.files.drop(doubles.log().active.path + ".log")
        with pytest.raises(Exception, match=r"damaged|no record batch"):
            doubles.values(doubles.log())
        self.fail(doubles, disk)
        assert doubles.values(doubles.log()) == values


def test_damage_of_synced_bytes_is_no_part_of_a_new_file_unless_it_is_known() -> None:
    doubles = StoreOnDoubles(WIDE)
    disk = BadDisk(doubles.files)
    appends = [doubles.append(doubles.log(0, LogConfig()), bytes([number]) * 30_000) for number in range(10)]
    doubles.settle()
    checkpoint(doubles)
    path = doubles.log().active.path + ".log"
    doubles.files.corrupt(path, 40_000)
    appends.append(doubles.append(doubles.log(), b"more" * 1000))
    doubles.settle()
    disk.fails = 1
    checkpoint(doubles)
    assert doubles.log().active.suspect
    with pytest.raises(Exception, match="damaged"):
        doubles.values(doubles.log())
    doubles.advance(1100)
    assert not doubles.log().active.suspect
    assert doubles.values(doubles.log(), 2) == expected_values(appends)[2:]


class TestDurabilityOs:
    CONFIG = LogConfig(durability="os")

    def failed(self, *, drop: bool) -> tuple[StoreOnDoubles, list[AppendOutcome], list[AppendOutcome]]:
        doubles = StoreOnDoubles(WIDE)
        disk = BadDisk(doubles.files)
        if not drop:
            disk.files = MemoryFileSystem()
        logged = [doubles.append(doubles.log(1), b"%d" % number * 900) for number in range(20)]
        unlogged = [doubles.append(doubles.log(0, self.CONFIG), b"%d" % number * 900) for number in range(20)]
        doubles.settle()
        disk.ending = doubles.log(0).active.path + ".log"
        disk.fails = 1
        checkpoint(doubles)
        assert disk.failed
        return doubles, unlogged, logged

    def test_what_the_file_still_has_is_kept_and_checkpoints_go_on(self) -> None:
        doubles, unlogged, _ = self.failed(drop=False)
        assert doubles.metrics.counter(REWRITTEN).value == 1
        refused = doubles.append(doubles.log(0), b"refused")
        doubles.settle()
        assert isinstance(refused.error, StorageFailed), "until restart"
        doubles.crash()
        assert doubles.values(doubles.log(0)) == expected_values(unlogged)

    def test_what_it_has_lost_is_not_taken_for_sound(self) -> None:
        doubles, _, logged = self.failed(drop=True)
        assert doubles.metrics.counter(REWRITTEN).value == 0
        doubles.crash()
        assert doubles.values(doubles.log(0)) == []
        assert doubles.values(doubles.log(1)) == expected_values(logged)


@pytest.mark.parametrize("gone", ["a segment", "the log"])
def test_what_is_let_go_in_the_middle_of_a_rewriting_does_not_come_back(gone: str) -> None:
    doubles = StoreOnDoubles(WIDE)
    disk = BadDisk(doubles.files)
    config = LogConfig(segment_bytes=30_000)
    appends = [doubles.append(doubles.log(0, config), bytes([number]) * 3000) for number in range(25)]
    doubles.settle()
    doubles.advance(1100)
    disk.fails = 1
    doubles.store.when_synced(lambda _: None)
    doubles.clock.advance(61_000)
    doubles.deadlines.fire(doubles.clock.monotonic_ms())
    while not disk.failed:
        doubles.worker.run_soon()
        deliver = doubles.worker.start("disk")
        deliver()
    if gone == "a segment":
        doubles.store.move_start(doubles.log(), doubles.log().segments[1].base_offset)
    else:
        doubles.store.delete(doubles.log())
    doubles.settle()
    first = expected_values(appends)[0]
    assert not any(path.startswith("logs/1/00000000000000000000.") for path in doubles.files.paths())
    assert leftovers(doubles) == []
    for restart in (doubles.kill, doubles.crash):
        restart()
        assert doubles.findings == []
        assert first not in doubles.values(doubles.log())


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_file_that_was_not_finished_is_removed_at_the_next_start(durability: str) -> None:
    doubles = StoreOnDoubles(WIDE)
    append = doubles.append(doubles.log(0, LogConfig(durability=durability)), b"kept")
    doubles.settle()
    doubles.advance(1100)
    doubles.files.open(doubles.log().active.path + ".log.new", create=True).write([b"half"], 0)
    doubles.kill()
    assert leftovers(doubles) == []
    assert doubles.values(doubles.log()) == expected_values([append])


@pytest.mark.parametrize("how", ["killed", "full", "full, and again"])
def test_a_new_name_that_only_the_system_has_is_settled_by_the_next_start(how: str) -> None:
    doubles = StoreOnDoubles(WIDE)
    disk = BadDisk(doubles.files)

    def interfere(call: str, path: str, size: int) -> int:
        if call == "rename" and path.endswith(".index.new"):
            if how == "killed":
                raise Crashed(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if how != "full" and call == "sync_directory" and path.startswith("logs/") and disk.failed:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return disk(call, path, size)

    doubles.files.interfere = interfere
    doubles.append(doubles.log(), b"synced" * 1000)
    doubles.settle()
    checkpoint(doubles)
    doubles.append(doubles.log(), b"suspect" * 1000)
    doubles.settle()
    disk.fails = 1
    with suppress(Crashed):
        checkpoint(doubles)
        checkpoint(doubles)
    assert disk.failed
    doubles.files.interfere = None
    doubles.kill()
    doubles.crash()
    assert doubles.findings == []
    assert doubles.values(doubles.log()) == [b"synced" * 1000, b"suspect" * 1000]
