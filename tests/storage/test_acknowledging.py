"""What an acknowledgement stands for: syncs, their failures, the order of answers, and the WAL's files."""

import errno
import os
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import pytest

from duramen.base.errors import BatchTooLarge, DuramenError, NodeStopping, StorageFailed, StorageFull
from duramen.base.ports import Buffer
from duramen.codec.batch import BatchInput, check, encode
from duramen.sim.machine.disk import Interference, MemoryFile
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles, expected_values
from duramen.storage.log.log import LogConfig
from duramen.storage.store import StoreLimits


def fail(call: str, path_part: str, code: int) -> Interference:
    def interfere(made: str, path: str, size: int) -> int:
        if made == call and path_part in path:
            raise OSError(code, os.strerror(code))
        return size

    return interfere


def test_nothing_is_acknowledged_before_its_sync() -> None:
    doubles = StoreOnDoubles()
    first = doubles.append(doubles.log(), b"first")
    doubles.worker.run_soon()
    assert not first.decided
    assert doubles.log().high_watermark == 0
    doubles.worker.step("sync")
    assert first.acknowledged
    assert doubles.log().high_watermark == 1


def test_a_sync_does_not_cover_what_was_written_after_it_began() -> None:
    doubles = StoreOnDoubles()
    first = doubles.append(doubles.log(), b"first")
    doubles.worker.run_soon()
    deliver = doubles.worker.start("sync")
    second = doubles.append(doubles.log(), b"second")
    doubles.worker.run_soon()
    deliver()
    assert first.acknowledged
    assert not second.decided
    doubles.crash()
    assert doubles.values(doubles.log()) == [b"first"]


def lone_append(doubles: StoreOnDoubles) -> AppendOutcome:
    append = doubles.append(doubles.log(), b"lone")
    doubles.worker.run_soon()
    return append


class _Disk:
    """A store on a disk whose syncs take as long as the test says."""

    def __init__(self) -> None:
        self.doubles = StoreOnDoubles()
        self.doubles.worker.at_once = True
        self.doubles.files.interfere = self._sync
        self.sync_ms = 0

    def _sync(self, call: str, path: str, size: int) -> int:
        self.doubles.clock.advance(self.sync_ms if call == "sync" and "wal" in path else 0)
        return size

    def syncs_at_once(self, sync_ms: int = 0, after_ms: int = 20) -> bool:
        """Whether a lone append is synced at once, by a sync of that length, so long after the last one."""
        self.sync_ms = sync_ms
        self.doubles.clock.advance(after_ms)
        outcome = lone_append(self.doubles).acknowledged
        self.doubles.settle()
        return outcome


def test_once_syncs_are_known_to_be_short_a_lone_append_is_synced_at_once() -> None:
    disk = _Disk()
    doubles = disk.doubles
    assert [disk.syncs_at_once() for _ in range(102)] == [False] * 100 + [True] * 2
    crowd = [doubles.append(doubles.log(number), b"one of two") for number in range(2)]
    doubles.worker.run_soon()
    assert not any(append.decided for append in crowd)
    doubles.settle()
    disk.sync_ms = 0
    assert lone_append(doubles).acknowledged
    assert lone_append(doubles).acknowledged


@pytest.mark.parametrize(("sync_ms", "pause_ms"), [(1, 10), (4, 40)])
def test_between_two_such_syncs_the_event_loop_is_free(sync_ms: int, pause_ms: int) -> None:
    disk = _Disk()
    assert [disk.syncs_at_once() for _ in range(101)][-1]
    assert disk.syncs_at_once(sync_ms)
    assert not disk.syncs_at_once(0, after_ms=pause_ms - 1)
    assert disk.syncs_at_once(0, after_ms=2)


@pytest.mark.parametrize(("stall_ms", "rest_ms"), [(40, 2_000), (2_000, 1_000_000)])
def test_after_a_sync_that_stalls_the_thread_makes_them_for_a_while(stall_ms: int, rest_ms: int) -> None:
    disk = _Disk()
    assert [disk.syncs_at_once() for _ in range(101)][-1]
    assert disk.syncs_at_once(stall_ms), "nobody knew"
    assert not any(disk.syncs_at_once() for _ in range(60))
    disk.doubles.clock.advance(rest_ms - 61 * 20 - 1)
    assert not disk.syncs_at_once()
    assert disk.syncs_at_once()


@pytest.mark.parametrize(("sync_ms", "at_once"), [(1, True), (5, False)])
def test_a_slow_disk_never_keeps_the_event_loop_waiting(sync_ms: int, at_once: bool) -> None:
    disk = _Disk()
    assert any(disk.syncs_at_once(sync_ms) for _ in range(200)) is at_once


@pytest.mark.parametrize(("sync_ms", "crowd", "waits"), [(20, 2, True), (20, 1, False), (1, 2, False), (0, 2, False)])
def test_a_slow_sync_waits_a_moment_for_those_who_come_again_at_once(
    sync_ms: int, crowd: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubles = StoreOnDoubles()

    def slow(call: str, path: str, size: int) -> int:
        if call == "sync" and "wal" in path:
            doubles.clock.advance(sync_ms)
        return size

    doubles.files.interfere = slow
    doubles.append(doubles.log(), b"how long a sync takes here")
    doubles.settle()
    pauses_s: list[float] = []
    late: list[AppendOutcome] = []

    def pause(duration_s: float) -> None:
        pauses_s.append(duration_s)
        late.append(doubles.append(doubles.log(), b"once more"))
        doubles.worker.run_soon()

    monkeypatch.setattr(doubles.clock, "pause", pause)
    for number in range(crowd):
        doubles.append(doubles.log(number), b"of a crowd, or alone")
    doubles.worker.run_soon()
    doubles.worker.step("sync")
    assert [0 < duration_s <= 0.1 * sync_ms / 1000 for duration_s in pauses_s] == [True] * waits
    assert all(append.acknowledged for append in late)


@pytest.mark.parametrize(("sync_ms", "at_once"), [(1, True), (5, False)])
def test_where_syncs_are_short_the_next_begins_before_anybody_is_told_of_the_last(sync_ms: int, at_once: bool) -> None:
    doubles = StoreOnDoubles()
    meanwhile: list[AppendOutcome] = []

    def slow(call: str, path: str, size: int) -> int:
        if call == "sync" and "wal" in path:
            doubles.clock.advance(sync_ms)
            if not meanwhile:
                meanwhile.append(doubles.append(doubles.log(), b"while the first sync runs"))
                doubles.worker.run_soon()
        return size

    first = doubles.append(doubles.log(), b"first")
    doubles.worker.run_soon()
    doubles.files.interfere = slow
    tell_of_first = doubles.worker.start("sync")
    assert bool(doubles.worker.jobs["sync"]) is at_once
    if at_once:
        tell_of_second = doubles.worker.start("sync")
        tell_of_first()
        assert first.acknowledged
        assert not meanwhile[0].decided
        tell_of_second()
    else:
        tell_of_first()
        doubles.settle()
    assert meanwhile[0].acknowledged
    doubles.crash()
    assert doubles.values(doubles.log()) == [b"first", b"while the first sync runs"]


@pytest.mark.parametrize(("sync_ms", "crowd", "early"), [(1, 20, True), (1, 2, False), (0, 20, False), (5, 20, False)])
def test_a_disk_that_takes_its_time_does_not_rest_while_the_requests_of_many_are_handled(
    sync_ms: int, crowd: int, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubles = StoreOnDoubles()
    hurried: list[bool] = []
    monkeypatch.setattr(doubles.worker, "hurry", lambda *, crowded: hurried.append(crowded))

    def slow(call: str, path: str, size: int) -> int:
        if call == "sync" and "wal" in path:
            doubles.clock.advance(sync_ms)
        return size

    def requests() -> list[AppendOutcome]:
        return [doubles.append(doubles.log(), b"%d" % number) for number in range(crowd)]

    doubles.files.interfere = slow
    for _ in range(10):
        requests()
        doubles.settle()
    assert (hurried[-1:] == [True]) is early
    first = requests()
    doubles.store.flush_early()
    assert bool(doubles.worker.jobs["sync"]) is early
    if not early:
        doubles.worker.run_soon()
    second = requests()
    doubles.store.flush_early()
    doubles.worker.step("sync")
    assert all(append.acknowledged for append in first)
    assert [append.acknowledged for append in second] == [early] * crowd
    doubles.settle()
    assert all(append.acknowledged for append in second)


def test_while_syncs_follow_one_another_the_files_names_are_looked_for_now_and_then() -> None:
    doubles = StoreOnDoubles()
    looks: list[int] = []

    def call(made: str, path: str, size: int) -> int:
        if made == "sync" and "wal" in path:
            doubles.clock.advance(1)
            doubles.append(doubles.log(), b"meanwhile")
            doubles.worker.run_soon()
        return size

    in_place = doubles.files.in_place

    def look(path: str) -> bool:
        looks.append(doubles.clock.monotonic_ms())
        return in_place(path)

    doubles.append(doubles.log(), b"first")
    doubles.worker.run_soon()
    doubles.files.interfere = call
    doubles.files.in_place = look  # type: ignore[method-assign]
    for _ in range(250):
        doubles.worker.start("sync")
    assert [later - earlier for earlier, later in pairwise(looks)] == [101, 101]


def test_a_sync_leaves_files_alone_that_the_one_before_covered() -> None:
    doubles = StoreOnDoubles(StoreLimits(wal_file_bytes=8192, wal_max_bytes=1 << 20))
    appends = [doubles.append(doubles.log(), b"in the first file")]
    doubles.settle()  # there is a second file from here on
    appends.append(doubles.append(doubles.log(), b"next"))
    touched: list[list[str]] = []

    def append_meanwhile(call: str, path: str, size: int) -> int:
        if call == "sync" and "wal" in path:
            touched[-1].append(path)
            if len(touched) < 8 and len(touched[-1]) == 1:
                appends.append(doubles.append(doubles.log(), b"%d" % len(touched) * 3000))
                doubles.worker.run_soon()
        return size

    doubles.worker.run_soon()
    doubles.files.interfere = append_meanwhile
    tell = []
    while doubles.worker.jobs["sync"]:
        touched.append([])
        tell.append(doubles.worker.start("sync"))
    files = sorted({path for paths in touched for path in paths})
    assert len(files) > 1, "the write-ahead log went on in another file meanwhile"
    assert files[0] not in touched[-1], "it may be used again by now"
    for each in tell:
        each()
    doubles.settle()
    assert all(append.acknowledged for append in appends)
    doubles.crash()
    assert doubles.values(doubles.log()) == expected_values(appends)


def test_a_file_whose_name_was_not_synced_before_a_kill_is_not_lost_with_the_next_loss_of_power() -> None:
    doubles = StoreOnDoubles(StoreLimits(wal_file_bytes=8192, wal_max_bytes=1 << 20))
    doubles.append(doubles.log(), b"before")
    doubles.settle()
    made = doubles.files.open("wal/000007.wal", create=True)
    made.allocate(8192)
    made.sync()
    doubles.kill()
    appends = []
    for number in range(6):
        appends.append(doubles.append(doubles.log(), b"%d" % number * 3000))
        doubles.worker.run_soon()
        doubles.worker.step("sync")  # and nothing else: the file behind it is not made yet
    assert all(append.acknowledged for append in appends)
    doubles.crash()
    assert doubles.values(doubles.log())[1:] == [value for append in appends for value in append.values]


def test_batches_that_come_during_a_sync_share_the_next() -> None:
    doubles = StoreOnDoubles()
    appends = [doubles.append(doubles.log(), b"0")]
    doubles.worker.run_soon()
    deliver = doubles.worker.start("sync")
    appends += [doubles.append(doubles.log(number % 3), b"%d" % number) for number in range(1, 30)]
    doubles.worker.run_soon()
    deliver()
    doubles.worker.run_soon()
    assert len(doubles.worker.jobs["sync"]) == 1
    doubles.worker.step("sync")
    assert all(append.acknowledged for append in appends)
    assert not doubles.worker.jobs["sync"]


def test_answers_come_in_the_order_of_the_appends() -> None:
    doubles = StoreOnDoubles()
    order: list[int] = []

    def done(number: int, base_offset: int, error: DuramenError | None) -> None:
        assert error is None
        assert base_offset == number // 2
        order.append(number)

    for number in range(20):
        batch = encode([BatchInput(0, None, b"x")])
        log = doubles.log(number % 2)
        doubles.store.append(log, batch, check(batch), doubles.store.node_epoch, partial(done, number))
    doubles.settle()
    assert order == list(range(20))


@pytest.mark.parametrize("call", ["sync", "write"])
def test_a_failed_sync_or_write_of_the_wal_ends_writing_until_restart(call: str) -> None:
    doubles = StoreOnDoubles()
    before = doubles.append(doubles.log(), b"before")
    doubles.settle()
    doubles.files.interfere = fail(call, "wal/", errno.EIO)
    lost = doubles.append(doubles.log(), b"lost")
    doubles.settle()
    assert isinstance(lost.error, StorageFailed)
    doubles.files.interfere = None
    after = doubles.append(doubles.log(), b"after")
    doubles.settle()
    assert isinstance(after.error, StorageFailed), "a failed sync is never retried as if it had worked"
    assert doubles.values(doubles.log()) == [b"before"], "reads go on"
    assert doubles.metrics.counter("duramen_storage_failed").value == 1
    doubles.crash()
    assert before.acknowledged
    assert doubles.values(doubles.log())[:1] == [b"before"]
    again = doubles.append(doubles.log(), b"again")
    doubles.settle()
    assert again.acknowledged


def test_appends_wait_at_the_bound_of_the_wal_and_go_on_in_order() -> None:
    limits = StoreLimits(
        wal_file_bytes=16 << 10,
        wal_max_bytes=64 << 10,
        pending_bytes=1 << 20,
        copy_bytes=1 << 20,
        copy_interval_ms=1000,
    )
    doubles = StoreOnDoubles(limits)
    appends = [doubles.append(doubles.log(), bytes([number]) * 2000) for number in range(100)]
    waited = doubles.backlogged
    assert waited
    doubles.settle()
    assert not doubles.backlogged
    assert all(append.acknowledged for append in appends)
    assert doubles.values(doubles.log()) == expected_values(appends)
    wal_bytes = sum(doubles.files.open(f"wal/{name}").size() for name in doubles.files.names("wal"))
    assert wal_bytes <= 64 << 10
    assert doubles.metrics.counter("duramen_wal_full_total").value > 0


def test_waiting_at_the_bound_of_the_wal_costs_little_however_long_it_lasts() -> None:
    limits = StoreLimits(wal_file_bytes=16 << 10, wal_max_bytes=64 << 10, pending_bytes=1 << 20, copy_bytes=1 << 20)
    doubles = StoreOnDoubles(limits)
    worker = doubles.worker
    appends = [doubles.append(doubles.log(), bytes(2000)) for _ in range(400)]
    actions = 0
    while worker.actions or any(worker.jobs.values()):
        while worker.actions:
            worker.actions.popleft()()
            actions += 1
            assert actions < 5 * len(appends), "each checkpoint asks for more than the one before"
        for lane, jobs in worker.jobs.items():
            if jobs:
                worker.start(lane)()
    assert all(append.acknowledged for append in appends)


def test_memory_for_what_is_not_copied_yet_is_bounded() -> None:
    limits = StoreLimits(
        wal_file_bytes=1 << 20, wal_max_bytes=8 << 20, pending_bytes=50_000, copy_bytes=40_000, copy_interval_ms=1000
    )
    doubles = StoreOnDoubles(limits)
    appends = [doubles.append(doubles.log(), bytes(2000)) for _ in range(100)]
    assert doubles.backlogged
    assert doubles.metrics.counter("duramen_pending_bytes").value <= 50_000
    doubles.settle()
    assert all(append.acknowledged for append in appends)
    assert len(doubles.values(doubles.log())) == 100


def test_a_batch_larger_than_a_file_of_the_wal_gets_a_file_of_its_own() -> None:
    doubles = StoreOnDoubles()
    large = doubles.append(doubles.log(), bytes(200_000))
    small = doubles.append(doubles.log(), b"small")
    doubles.settle()
    assert large.acknowledged
    assert small.acknowledged
    doubles.crash()
    assert doubles.values(doubles.log()) == [bytes(200_000), b"small"]
    beyond = doubles.append(doubles.log(), bytes(2 << 20))
    doubles.settle()
    assert isinstance(beyond.error, BatchTooLarge)


def test_no_page_of_the_wal_is_written_in_part_that_was_not_just_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is not in memory would have to be read from the disk first, and everything would wait for it."""
    file_bytes = (4 << 10) + 100  # the last page of a file is no whole one
    doubles = StoreOnDoubles(StoreLimits(wal_file_bytes=file_bytes, wal_max_bytes=1 << 20))
    written: list[tuple[int, int]] = []
    write = MemoryFile.write

    def watched(file: MemoryFile, buffers: Sequence[Buffer], position: int) -> int:
        if file.size() == file_bytes:
            written.append((position, position + sum(map(len, buffers))))
        return write(file, buffers, position)

    monkeypatch.setattr(MemoryFile, "write", watched)
    for number in range(200):
        doubles.append(doubles.log(), bytes(number))
        doubles.settle()
    assert len(written) > 200
    known = 4096  # up to where what is written to is in memory: the start wrote to the first page
    for begin, end in written:
        assert begin % 4096 == 0 or begin <= known
        assert end % 4096 == 0 or end == file_bytes
        known = end
    doubles.crash()
    assert len(doubles.values(doubles.log())) == 200


def test_what_a_new_file_was_filled_with_does_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[tuple[int, int]] = []
    monkeypatch.setattr(MemoryFile, "forget", lambda _, position, size: forgotten.append((position, size)))
    StoreOnDoubles(StoreLimits(wal_file_bytes=1 << 16)).settle()
    assert forgotten == [(0, 1 << 16)] * 2


def test_wal_files_are_recycled_and_their_old_frames_forgotten() -> None:
    doubles = StoreOnDoubles()
    appends = [doubles.append(doubles.log(number % 3), bytes([number % 256]) * 3000) for number in range(300)]
    doubles.settle()
    more = [doubles.append(doubles.log(number % 3), bytes([number % 256]) * 3000) for number in range(300)]
    doubles.settle()
    assert len(doubles.files.names("wal")) <= 16, "1.8 MB went through files of 1 MiB in all"
    doubles.crash()
    for number in range(3):
        expected = expected_values(appends[number::3]) + expected_values(more[number::3])
        assert doubles.values(doubles.log(number)) == expected


def test_a_clean_stop_leaves_nothing_to_replay() -> None:
    doubles = StoreOnDoubles()
    appends = [doubles.append(doubles.log(number), b"%d" % number) for number in range(3)]
    doubles.settle()
    assert doubles.stop() is None
    refused = doubles.append(doubles.log(), b"late")
    assert isinstance(refused.error, NodeStopping)
    doubles.boot()
    assert doubles.recovered.replayed_bytes == 0
    assert [doubles.values(doubles.log(number)) for number in range(3)] == [list(append.values) for append in appends]


class TestDiskFull:
    """Running out of space refuses writes with a clear error; reads go on; with space writes go on too."""

    def test_the_wal_cannot_grow(self) -> None:
        doubles = StoreOnDoubles()
        before = doubles.append(doubles.log(), b"before")
        doubles.settle()
        doubles.files.free_bytes = 0
        appends = [doubles.append(doubles.log(), bytes(3000)) for _ in range(100)]
        doubles.settle()
        refused = [append for append in appends if isinstance(append.error, StorageFull)]
        assert refused
        assert all(append.acknowledged for append in appends if append not in refused)
        kept = expected_values([before, *(append for append in appends if append not in refused)])
        assert doubles.values(doubles.log()) == kept
        doubles.files.free_bytes = 1 << 30
        doubles.advance(2000)
        again = doubles.append(doubles.log(), b"again")
        doubles.settle()
        assert again.acknowledged
        doubles.crash()
        assert doubles.values(doubles.log()) == [*kept, b"again"]

    def test_segments_cannot_grow(self) -> None:
        doubles = StoreOnDoubles()
        doubles.files.interfere = fail("write", "logs/", errno.ENOSPC)
        appends = [doubles.append(doubles.log(), bytes(3000)) for _ in range(200)]
        doubles.settle()
        refused = [append for append in appends if append.error is not None]
        assert refused
        assert all(isinstance(append.error, StorageFull) for append in refused)
        assert doubles.metrics.counter("duramen_storage_full").value == 1
        doubles.files.interfere = None
        for _ in range(5):
            doubles.advance(1500)
        again = doubles.append(doubles.log(), b"again")
        doubles.settle()
        assert again.acknowledged
        assert doubles.metrics.counter("duramen_storage_full").value == 0
        kept = expected_values([append for append in appends if append.acknowledged])
        assert doubles.values(doubles.log()) == [*kept, b"again"]

    def test_a_segment_of_durability_os_cannot_grow(self) -> None:
        doubles = StoreOnDoubles()
        log = doubles.log(0, LogConfig(durability="os"))
        before = doubles.append(log, b"before")
        doubles.settle()
        doubles.files.free_bytes = 10
        full = doubles.append(log, b"full" * 100)
        assert isinstance(full.error, StorageFull)
        doubles.files.free_bytes = 1 << 20
        after = doubles.append(log, b"after")
        doubles.settle()
        assert doubles.values(log) == expected_values([before, after])
        doubles.kill()
        assert doubles.values(doubles.log()) == [b"before", b"after"]


def test_after_a_failed_sync_of_a_segment_the_wal_keeps_what_it_may_have_lost() -> None:
    doubles = StoreOnDoubles()
    appends = [doubles.append(doubles.log(), bytes([number]) * 3000) for number in range(10)]
    doubles.settle()
    doubles.files.interfere = fail("sync", ".log", errno.EIO)
    appends += [doubles.append(doubles.log(), bytes([number]) * 3000) for number in range(10, 60)]
    doubles.settle()
    doubles.advance(61_000)
    doubles.files.interfere = None
    doubles.crash()
    acknowledged = [append for append in appends if append.acknowledged]
    assert len(acknowledged) >= 10
    assert doubles.values(doubles.log())[: len(acknowledged)] == expected_values(acknowledged)
