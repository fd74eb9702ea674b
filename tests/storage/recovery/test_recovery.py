"""Coming back: from a crash at any call, a tail torn at any byte, damage, lost checkpoints, and a log that was cut."""

import random

import pytest

from duramen.base.errors import DirectoryUnusable, LogDamaged
from duramen.sim.machine.disk import Crashed, MemoryFileSystem
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles, expected_values
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.store import StoreLimits
from duramen.storage.wal.frames import FRAME_HEADER_BYTES

ONE_WAL_FILE = StoreLimits(
    wal_file_bytes=1 << 20, wal_max_bytes=8 << 20, pending_bytes=1 << 20, copy_bytes=1 << 20, copy_interval_ms=1000
)


def history(doubles: StoreOnDoubles, appends: list[AppendOutcome], seed: int) -> None:
    """A busy while: appends to three logs, rolls, copies, checkpoints, and a log that is deleted."""
    chance = random.Random(seed)
    for number in range(60):
        log = doubles.log(number % 3, LogConfig(segment_bytes=20_000))
        appends.append(doubles.append(log, chance.randbytes(chance.randrange(2500))))
        if chance.random() < 0.4:
            doubles.settle()
        if chance.random() < 0.1:
            doubles.advance(1000)
        if number == 30:
            doubles.append(doubles.log(9), b"to be deleted")
        if number == 45:
            doubles.store.delete(doubles.log(9))
    doubles.advance(61_000)
    doubles.settle()


def check(doubles: StoreOnDoubles, appends: list[AppendOutcome]) -> None:
    for number in range(3):
        log = doubles.store.log(doubles.log(number).key)
        assert log is not None
        acknowledged = [append for append in appends[number::3] if append.acknowledged]
        content = doubles.values(log)
        assert content[: len(acknowledged)] == expected_values(acknowledged)
        assert [record.offset for record in doubles.read(log)] == list(range(len(content)))


def calls_of_a_history() -> int:
    doubles = StoreOnDoubles()
    before = doubles.files.calls
    history(doubles, [], 1)
    return doubles.files.calls - before


CALLS = calls_of_a_history()


@pytest.mark.variants(2)
@pytest.mark.parametrize("survives", ["nothing unsynced", "a part", "every write"])
def test_a_crash_in_every_call_that_reaches_the_disk(survives: str) -> None:
    for call in range(1, CALLS + 1):
        doubles = StoreOnDoubles()
        doubles.files.crash_at = doubles.files.calls + call
        appends: list[AppendOutcome] = []
        with pytest.raises(Crashed):
            history(doubles, appends, 1)
        doubles.files.crash_at = None
        if survives == "every write":
            doubles.kill()
        else:
            doubles.crash(random.Random(call) if survives == "a part" else None)
        assert doubles.findings == []
        check(doubles, appends)


def test_a_crash_in_every_call_of_a_recovery() -> None:
    def crashed() -> tuple[StoreOnDoubles, list[AppendOutcome]]:
        doubles = StoreOnDoubles()
        appends: list[AppendOutcome] = []
        history(doubles, appends, 2)
        appends.extend(doubles.append(doubles.log(number % 3), bytes([number])) for number in range(60))
        doubles.worker.run_soon()
        doubles.worker.step("sync")
        doubles.files.crash()
        return doubles, appends

    doubles, _ = crashed()
    before = doubles.files.calls
    doubles.boot()
    for call in range(1, doubles.files.calls - before + 1):
        doubles, appends = crashed()
        doubles.files.crash_at = doubles.files.calls + call
        with pytest.raises(Crashed):
            doubles.boot()
        doubles.crash(random.Random(call) if call % 2 else None)
        check(doubles, appends)


@pytest.mark.variants(1)
@pytest.mark.parametrize("first", range(4))
def test_a_tail_torn_at_every_byte_of_the_last_three_unsynced_batches(first: int) -> None:
    def written() -> tuple[StoreOnDoubles, list[AppendOutcome], int, int]:
        doubles = StoreOnDoubles(ONE_WAL_FILE)
        synced = [doubles.append(doubles.log(), b"synced %d" % number) for number in range(3)]
        doubles.settle()
        start = doubles.store.wal_end & 0xFFFFFFFF
        for number in range(3):
            doubles.append(doubles.log(), b"unsynced %d" % number)
        doubles.worker.run_soon()
        return doubles, synced, start, doubles.store.wal_end & 0xFFFFFFFF

    _, _, start, end = written()
    for cut in range(start + first, end, 4):
        doubles, synced, _, _ = written()
        inode = doubles.files.open("wal/000000.wal")
        rest = bytes(inode.read(cut, end - cut))
        inode.write([bytes(byte ^ 0x5A for byte in rest)], cut)
        doubles.kill()
        assert doubles.findings == []
        whole = (cut - start) // ((end - start) // 3)
        assert doubles.values(doubles.log()) == expected_values(synced) + [b"unsynced %d" % n for n in range(whole)]


def test_damage_below_what_a_later_frame_vouches_for_is_named_contained_and_never_cut() -> None:
    doubles = StoreOnDoubles(ONE_WAL_FILE)
    log = doubles.log()
    ends = []
    for number in range(5):
        doubles.append(log, b"batch %d" % number)
        doubles.append(doubles.log(1), b"neighbour %d" % number)
        doubles.settle()
        ends.append(doubles.store.wal_end & 0xFFFFFFFF)
    # The third batch of the first log.
    doubles.files.corrupt("wal/000000.wal", ends[1] + FRAME_HEADER_BYTES + 70)
    doubles.kill()
    assert any("wal/000000.wal" in finding and "damage" in finding for finding in doubles.findings)
    assert any("offsets 2 to 2 are lost" in finding for finding in doubles.findings)
    assert doubles.values(doubles.log(1)) == [b"neighbour %d" % number for number in range(5)]
    log = doubles.log()
    assert log.high_watermark == 5
    assert [record.value for record in doubles.read(log, 3)] == [b"batch 3", b"batch 4"]
    assert doubles.bytes_of(doubles.plan(log, 0, 1) or pytest.fail("nothing to read"))
    with pytest.raises(LogDamaged, match="offsets 2 to 2"):
        doubles.plan(log, 2, 100)
    appended = doubles.append(log, b"after")
    doubles.settle()
    assert appended.base_offset == 5
    doubles.kill()
    with pytest.raises(LogDamaged):
        doubles.plan(doubles.log(), 2, 100)


def told_damaged(doubles: StoreOnDoubles) -> bool:
    """Whether the node has to say that it may have lost synced records."""
    return doubles.store.damaged


def test_damage_is_remembered_until_the_cluster_knows_of_it() -> None:
    doubles = StoreOnDoubles(ONE_WAL_FILE)
    ends = []
    for number in range(3):
        doubles.append(doubles.log(number), b"batch %d" % number)
        doubles.settle()
    doubles.kill()
    assert not told_damaged(doubles)
    for number in range(3):
        doubles.append(doubles.log(number), b"batch %d" % number)
        doubles.settle()
        ends.append(doubles.store.wal_end & 0xFFFFFFFF)
    # The last batch of its log: no gap tells that it is missing.
    doubles.files.corrupt("wal/000000.wal", ends[0] + FRAME_HEADER_BYTES + 70)
    doubles.kill()
    assert doubles.log(1).damage == []
    assert told_damaged(doubles)
    doubles.kill()  # before anybody was told
    assert told_damaged(doubles)
    doubles.store.damaged = False
    assert doubles.stop() is None
    doubles.kill()
    assert not told_damaged(doubles)
    assert doubles.store.metadata_damaged  # the batch may have been one of the metadata log, as far as anybody knows
    doubles.store.metadata_damaged = False
    assert doubles.stop() is None
    doubles.kill()
    assert not doubles.store.metadata_damaged


def test_a_gap_in_a_log_is_damage_at_every_start_until_the_log_begins_behind_it() -> None:
    doubles = StoreOnDoubles(ONE_WAL_FILE)
    ends = []
    for number in range(3):
        doubles.append(doubles.log(), b"batch %d" % number)
        doubles.settle()
        ends.append(doubles.store.wal_end & 0xFFFFFFFF)
    doubles.files.corrupt("wal/000000.wal", ends[0] + FRAME_HEADER_BYTES + 70)
    doubles.kill()
    assert doubles.log().damage == [(1, 1)]
    assert told_damaged(doubles)
    doubles.store.damaged = doubles.store.metadata_damaged = False
    assert doubles.stop() is None
    doubles.kill()
    assert told_damaged(doubles)
    assert not doubles.store.metadata_damaged  # the gap is in another log
    doubles.store.delete_before(doubles.log(), 2, lambda _: None)
    doubles.settle()
    doubles.store.damaged = False
    assert doubles.stop() is None
    doubles.kill()
    assert not told_damaged(doubles)


class TestCheckpoints:
    def busy(self) -> tuple[StoreOnDoubles, list[AppendOutcome]]:
        doubles = StoreOnDoubles()
        appends: list[AppendOutcome] = []
        history(doubles, appends, 3)
        appends += [doubles.append(doubles.log(number % 3), b"more") for number in range(9)]
        doubles.settle()
        return doubles, appends

    def damage(self, files: MemoryFileSystem, *which: int) -> None:
        names = [path for path in files.paths() if path.startswith("checkpoint-")]
        for at in which:
            files.corrupt(names[at], 20)

    @pytest.mark.parametrize("clean", [True, False])
    def test_the_older_generation_is_enough(self, clean: bool) -> None:
        doubles, appends = self.busy()
        if clean:
            assert doubles.stop() is None
        self.damage(doubles.files, -1)
        doubles.kill()
        assert any("checkpoint" in finding for finding in doubles.findings)
        check(doubles, appends)

    def test_without_any_the_batches_are_believed_and_it_says_so(self) -> None:
        doubles, appends = self.busy()
        epoch = doubles.store.node_epoch
        self.damage(doubles.files, -1, -2)
        doubles.kill()
        assert any("no checkpoint is sound" in finding for finding in doubles.findings)
        check(doubles, appends)
        assert doubles.store.node_epoch > epoch
        again = doubles.append(doubles.log(0), b"again")
        doubles.settle()
        assert again.acknowledged


def test_producers_survive_a_restart() -> None:
    doubles = StoreOnDoubles()
    first = doubles.append(doubles.log(), b"once", producer=(5, 0, 0))
    doubles.settle()
    for restart in (doubles.kill, doubles.crash, doubles.restart):
        restart()
        again = doubles.append(doubles.log(), b"once", producer=(5, 0, 0))
        doubles.settle()
        assert again.base_offset == first.base_offset
    assert doubles.values(doubles.log()) == [b"once"]


def test_a_takeover_is_written_with_the_first_batch_of_an_epoch_and_not_before() -> None:
    doubles = StoreOnDoubles()
    for _ in range(3):
        doubles.append(doubles.log(0), b"x")
        doubles.log(1)
        doubles.settle()
        doubles.kill()
        doubles.kill()
    log = doubles.log(0)
    assert [offset for _, _, offset in log.takeovers.rows()] == [0, 1, 2]
    epochs = [epoch for epoch, _, _ in log.takeovers.rows()]
    assert epochs == sorted(set(epochs))
    assert log.takeovers.rows()[0][1] == 1
    assert not doubles.files.exists(doubles.log(1).directory), "a log has no files before its first record"


class TestDurabilityOs:
    CONFIG = LogConfig(durability="os", segment_bytes=4000)

    def written(self) -> tuple[StoreOnDoubles, list[bytes]]:
        doubles = StoreOnDoubles()
        appends = [doubles.append(doubles.log(0, self.CONFIG), b"%d" % number * 50) for number in range(100)]
        doubles.settle()
        return doubles, expected_values(appends)

    def test_a_killed_process_loses_nothing(self) -> None:
        doubles, values = self.written()
        doubles.kill()
        assert doubles.values(doubles.log()) == values
        assert len(doubles.log().segments) > 3

    def test_what_a_killed_process_left_is_on_disk_after_the_next_start(self) -> None:
        doubles, values = self.written()
        doubles.kill()
        doubles.crash()
        assert doubles.values(doubles.log()) == values

    def test_power_loss_takes_an_unsynced_tail_and_nothing_else(self) -> None:
        for seed in range(30):
            doubles, values = self.written()
            if seed % 2:
                doubles.advance(61_000)
                doubles.append(doubles.log(), b"late")
                doubles.settle()
            doubles.crash(random.Random(seed))
            content = doubles.values(doubles.log())
            assert content == [*values, b"late"][: len(content)]
            assert len(content) >= len(values) or not seed % 2
            again = doubles.append(doubles.log(), b"again")
            doubles.settle()
            assert again.base_offset == len(content)
            doubles.kill()
            assert doubles.values(doubles.log()) == [*content, b"again"]

    def test_a_torn_batch_is_cut(self) -> None:
        doubles, values = self.written()
        last = doubles.log().active
        doubles.files.corrupt(last.path + ".log", last.size - 1)
        doubles.kill()
        assert doubles.values(doubles.log()) == values[:-1]


def test_a_deleted_log_does_not_come_back_and_its_id_is_not_used_again() -> None:
    doubles = StoreOnDoubles()
    doubles.append(doubles.log(), b"old")
    doubles.settle()
    old = doubles.log()
    doubles.store.delete(old)
    doubles.settle()
    assert not doubles.files.exists(old.directory)
    new = doubles.log()
    assert new.id > old.id
    doubles.append(new, b"new")
    doubles.settle()
    for restart in (doubles.kill, doubles.crash):
        restart()
        assert doubles.values(doubles.log()) == [b"new"]
        assert doubles.log().id == new.id


def values_of(log: Log, doubles: StoreOnDoubles) -> list[int]:
    return [int(value) for value in doubles.values(log)]


@pytest.mark.parametrize("cut", [0, 1, 7, 19, 20])
def test_a_cut_log_ends_there_now_and_after_a_restart(cut: int) -> None:
    doubles = StoreOnDoubles()
    config = LogConfig(segment_bytes=700)
    for number in range(20):
        doubles.append(doubles.log(0, config), b"%d" % number, producer=(1, 0, number))
    doubles.settle()
    outcome: list[object] = []
    doubles.store.truncate(doubles.log(), cut, 1, outcome.append)
    doubles.settle()
    assert outcome == [None]
    assert values_of(doubles.log(), doubles) == list(range(cut))
    for number in range(100, 105):
        doubles.append(doubles.log(), b"%d" % number, producer=(1, 1, number - 100))
    doubles.settle()
    expected = [*range(cut), *range(100, 105)]
    assert values_of(doubles.log(), doubles) == expected
    for restart in (doubles.kill, doubles.crash, doubles.restart):
        restart()
        assert values_of(doubles.log(), doubles) == expected
        assert doubles.findings == []
    # What is known of producers is what the batches left say.
    again = doubles.append(doubles.log(), b"104", producer=(1, 1, 4))
    doubles.settle()
    assert again.base_offset == cut + 4


def _cut_with_a_checkpoint(steps_before: int, steps_after: int) -> tuple[StoreOnDoubles, list[object]]:
    """A log of twenty is being cut to seven; after some jobs a checkpoint is asked for, some jobs later it ends."""
    doubles = StoreOnDoubles()
    for number in range(20):
        doubles.append(doubles.log(0, LogConfig(segment_bytes=700)), b"%d" % number)
    doubles.settle()
    outcome: list[object] = []
    doubles.store.truncate(doubles.log(), 7, 1, outcome.append)
    for steps in (steps_before, steps_after):
        doubles.worker.run_soon()
        for _ in range(steps):
            any(doubles.worker.step(lane) for lane in doubles.worker.jobs)
        if steps is steps_before:
            doubles.clock.advance(61_000)
            doubles.deadlines.fire(doubles.clock.monotonic_ms())
    return doubles, outcome


@pytest.mark.parametrize("steps_before", range(8))
def test_no_checkpoint_undoes_a_cut(steps_before: int) -> None:
    for steps_after in range(14):
        for end in ("kill", "crash"):
            doubles, outcome = _cut_with_a_checkpoint(steps_before, steps_after)
            getattr(doubles, end)()
            values = values_of(doubles.log(), doubles)
            assert doubles.findings == []
            assert values == list(range(7)) or (not outcome and values == list(range(20)))


class TestDirectory:
    def test_one_node_at_a_time(self) -> None:
        doubles = StoreOnDoubles()
        with pytest.raises(DirectoryUnusable, match="in use by another node"):
            StoreOnDoubles(files=doubles.files)

    def test_a_directory_that_is_not_ours(self) -> None:
        files = MemoryFileSystem()
        files.open("holiday.jpg", create=True)
        with pytest.raises(DirectoryUnusable, match=r"holiday\.jpg"):
            StoreOnDoubles(files=files)

    def test_a_directory_of_a_newer_version(self) -> None:
        files = MemoryFileSystem()
        files.open("duramen.json", create=True).write(
            [b'{"format":99,"directory_id":"00000000-0000-4000-8000-000000000000"}'], 0
        )
        with pytest.raises(DirectoryUnusable, match="format 99"):
            StoreOnDoubles(files=files)

    def test_a_damaged_description(self) -> None:
        files = MemoryFileSystem()
        files.open("duramen.json", create=True).write([b"{"], 0)
        with pytest.raises(DirectoryUnusable, match=r"duramen\.json is damaged"):
            StoreOnDoubles(files=files)


def test_a_wal_file_is_recycled_only_when_its_batches_lie_synced_in_segments() -> None:
    limits = StoreLimits(
        wal_file_bytes=16 << 10,
        wal_max_bytes=256 << 10,
        pending_bytes=1 << 20,
        copy_bytes=1 << 20,
        copy_interval_ms=1000,
    )
    for pace in (1, 3, 7, 20):
        doubles = StoreOnDoubles(limits)
        appends = []
        for number in range(300):
            appends.append(doubles.append(doubles.log(), bytes([number % 256]) * 2000))
            doubles.worker.run_soon()
            while doubles.worker.step("sync") or doubles.worker.step("read"):
                pass
            if number % pace == 0:
                doubles.worker.step("disk")
        doubles.files.crash()
        doubles.boot()
        acknowledged = [append for append in appends if append.acknowledged]
        assert len(acknowledged) > 100
        assert doubles.values(doubles.log())[: len(acknowledged)] == expected_values(acknowledged)


@pytest.mark.parametrize("size", [0, 1, 64, 5000])
def test_a_file_of_the_wal_that_a_crash_left_half_made_is_made_again(size: int) -> None:
    files = MemoryFileSystem()
    files.make_directory("wal")
    files.open("wal/000000.wal", create=True).truncate(size)
    files.sync_directory("")
    files.sync_directory("wal")
    files.open("duramen.json", create=True).write(
        [b'{"format":1,"directory_id":"01900000-0000-7000-8000-000000000000"}'], 0
    )
    doubles = StoreOnDoubles(files=files)
    appends = [doubles.append(doubles.log(), b"%d" % number) for number in range(20)]
    doubles.settle()
    assert all(append.acknowledged for append in appends)
    doubles.kill()
    assert doubles.values(doubles.log()) == expected_values(appends)


def test_bytes_of_a_segment_beyond_its_synced_position_are_no_evidence() -> None:
    doubles = StoreOnDoubles()
    doubles.append(doubles.log(), b"synced")
    doubles.settle()
    for value in (b"lost 1", b"lost 2"):
        doubles.append(doubles.log(), value)
    # The copy reaches the disk, the write-ahead log does not.
    doubles.advance_without_syncing(1000)
    segment = doubles.log().active
    assert segment.copied == segment.size
    doubles.files.open(segment.path + ".log").sync()
    doubles.crash()
    assert doubles.values(doubles.log()) == [b"synced"]
    doubles.append(doubles.log(), b"new  1")
    doubles.settle()
    doubles.stop()
    for path in doubles.files.paths():
        if path.startswith("checkpoint-"):
            doubles.files.corrupt(path, 20)
    doubles.boot()
    assert doubles.values(doubles.log()) == [b"synced", b"new  1"]
