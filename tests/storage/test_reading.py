"""Reading: from any offset, by time, in pieces, from memory and files, hot and cold; and what damage does to it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duramen.base.errors import LogDamaged, OffsetOutOfRange
from duramen.codec.batch import Header, batches, records
from duramen.sim.machine.disk import MemoryFile, MemoryFileSystem
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.scan import scan_log
from duramen.storage.segment.index import BLOCK_BYTES
from duramen.storage.segment.reader import Blocked, Slice
from duramen.storage.store import StoreLimits
from tests.examples import examples

ROOMY = StoreLimits(
    wal_file_bytes=1 << 20, wal_max_bytes=16 << 20, pending_bytes=8 << 20, copy_bytes=8 << 20, copy_interval_ms=1000
)


def filled(sizes: list[int], *, cold: bool = False, segment_bytes: int = 1 << 30) -> StoreOnDoubles:
    """A log of batches with one record of each size; a part copied, a part in memory."""
    doubles = StoreOnDoubles(ROOMY)
    doubles.files.cold = cold
    log = doubles.log(0, LogConfig(segment_bytes=segment_bytes))
    chance = random.Random(5)
    for number, size in enumerate(sizes):
        doubles.append(log, chance.randbytes(size), timestamp=1000 + number)
        if number == len(sizes) * 2 // 3:
            doubles.settle()
            doubles.advance(1000)
    doubles.settle()
    return doubles


@pytest.mark.parametrize("cold", [True, False])
def test_memory_need_not_keep_what_came_from_the_disk_far_behind_the_tail(
    monkeypatch: pytest.MonkeyPatch, *, cold: bool
) -> None:
    paths: dict[MemoryFile, str] = {}
    forgotten: dict[str, set[int]] = {}
    open_ = MemoryFileSystem.open

    def opened(files: MemoryFileSystem, path: str, **how: bool) -> MemoryFile:
        file = open_(files, path, **how)
        paths[file] = path
        return file

    def forget(file: MemoryFile, position: int, size: int) -> None:
        assert position % BLOCK_BYTES == size % BLOCK_BYTES == 0
        blocks = range(position // BLOCK_BYTES, (position + size) // BLOCK_BYTES)
        if paths[file].startswith("logs/"):  # new files of the write-ahead log are forgotten too
            forgotten.setdefault(paths[file], set()).update(blocks)

    monkeypatch.setattr(MemoryFileSystem, "open", opened)
    monkeypatch.setattr(MemoryFile, "forget", forget)
    doubles = filled([50_000] * 40, segment_bytes=500_000)
    doubles.stop()
    doubles.boot()
    log = doubles.log()
    doubles.files.cold = cold
    assert len(doubles.values(log)) == 40
    closed = log.segments[:-1]
    assert len(closed) > 2
    expected = {f"{one.path}.log": set(range(one.size // BLOCK_BYTES)) for one in closed} if cold else {}
    assert forgotten == expected  # and nothing of the active segment


@pytest.mark.parametrize(("alone", "pieces_ahead"), [(False, 1), (True, 8)])
def test_who_had_to_wait_for_the_disk_asks_for_every_piece_until_the_rest_is_in_memory(
    monkeypatch: pytest.MonkeyPatch, *, alone: bool, pieces_ahead: int
) -> None:
    doubles = filled([50_000] * 40)
    log = doubles.log()
    copied = log.active.copied
    assert 8 * BLOCK_BYTES < copied < log.active.size - BLOCK_BYTES
    slice_ = doubles.plan(log, 0, 10**8)
    assert slice_ is not None
    ahead: list[tuple[int, int]] = []
    monkeypatch.setattr(MemoryFile, "read_ahead", lambda _, position, size: ahead.append((position, position + size)))
    doubles.files.cold = True
    waited = []
    while slice_.position < copied:
        start = slice_.position
        piece = slice_.piece(2 * BLOCK_BYTES, alone=alone)
        doubles.files.cold = False  # from here on the page cache has everything
        waited.append(isinstance(piece, Blocked))
        assert slice_.cold
        if isinstance(piece, Blocked):
            piece.apply(piece.job())
            slice_.piece(2 * BLOCK_BYTES, alone=alone)
        assert slice_.position > start
    assert waited == [True] + [not alone] * (len(waited) - 1)  # where nobody writes it takes what is there
    # With each, what is read next; nothing that is in memory only.
    pieces = range(0, 1 if alone else copied, 2 * BLOCK_BYTES)
    assert ahead == [(low, min(low + 2 * BLOCK_BYTES * (1 + pieces_ahead), copied)) for low in pieces]
    assert not isinstance(slice_.piece(1), Blocked)
    assert not slice_.cold


SIZES = st.lists(st.one_of(st.integers(0, 300), st.integers(20_000, 90_000)), min_size=1, max_size=25)


@given(SIZES, st.booleans(), st.sampled_from([1, 500, 70_000, 10**6]), st.sampled_from([3000, 200_000, 1 << 30]))
@settings(deadline=None, max_examples=examples(60))
def test_every_offset_can_be_read_from(sizes: list[int], cold: bool, max_bytes: int, segment_bytes: int) -> None:
    doubles = filled(sizes, cold=cold, segment_bytes=segment_bytes)
    for restart in (False, True):
        if restart:
            doubles.stop()
            doubles.boot()
            doubles.files.cold = cold
        log = doubles.log()
        everything = doubles.values(log)
        assert [len(value) for value in everything] == sizes
        for offset in range(len(sizes)):
            slice_ = doubles.plan(log, offset, max_bytes)
            assert slice_ is not None
            data = doubles.bytes_of(slice_)
            found = [header for _, header in batches(data)]
            assert found[0].base_offset == offset, "the first batch is the one that holds the offset"
            assert sum(header.size for header in found) == len(data), "whole batches only"
            assert len(found) == 1 or len(data) <= max_bytes, "only the first may be larger than asked for"


@given(SIZES, st.integers(5000, 200_000))
@settings(deadline=None, max_examples=examples(40))
def test_pieces_add_up_to_the_slice(sizes: list[int], piece_bytes: int) -> None:
    doubles = filled(sizes)
    log = doubles.log()
    whole = doubles.bytes_of(doubles.plan(log, 0, 10**8) or pytest.fail("nothing"))
    slice_ = doubles.plan(log, 0, 10**8)
    assert slice_ is not None
    parts: list[bytes] = []
    while len(slice_):
        piece = slice_.piece(piece_bytes)
        assert not isinstance(piece, Blocked)
        parts += map(bytes, piece)
        assert all(len(part) <= max(piece_bytes, BLOCK_BYTES) for part in parts)
    assert b"".join(parts) == whole


def test_outside_the_log_is_out_of_range_and_at_its_end_is_nothing_yet() -> None:
    doubles = filled([10] * 5)
    log = doubles.log()
    assert doubles.plan(log, 5, 100) is None
    for offset in (-1, 6):
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is not in 0 to 5"):
            doubles.plan(log, offset, 100)


def test_what_is_not_synced_is_not_seen() -> None:
    doubles = StoreOnDoubles()
    doubles.append(doubles.log(), b"synced")
    doubles.settle()
    doubles.append(doubles.log(), b"unsynced")
    doubles.worker.run_soon()
    assert doubles.values(doubles.log()) == [b"synced"]
    assert doubles.plan(doubles.log(), 1, 100) is None


def first_at(doubles: StoreOnDoubles, log: Log, timestamp: int) -> int | None:
    while isinstance(plan := log.plan_time(timestamp), Blocked):
        doubles.store.unblock(plan, lambda _: None)
        doubles.settle()
    if plan is None:
        return None
    found = (record.offset for record in records(doubles.bytes_of(plan)) if record.timestamp >= timestamp)
    return next(found)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40), st.integers(0, 70), st.booleans())
@settings(deadline=None, max_examples=examples(60))
def test_by_time_the_first_record_at_or_after_it_is_found(timestamps: list[int], wanted: int, restarted: bool) -> None:
    doubles = StoreOnDoubles(ROOMY)
    log = doubles.log(0, LogConfig(segment_bytes=3000))
    for number, timestamp in enumerate(timestamps):
        doubles.append(log, b"x" * 300, timestamp=timestamp)
        if number % 7 == 3:
            doubles.settle()
            doubles.advance(1000)
    doubles.settle()
    if restarted:
        doubles.stop()
        doubles.boot()
        log = doubles.log()
    expected = next((offset for offset, timestamp in enumerate(timestamps) if timestamp >= wanted), None)
    assert first_at(doubles, log, wanted) == expected


def test_a_reader_in_the_middle_of_a_deleted_log_finishes() -> None:
    doubles = filled([50_000] * 6)
    log = doubles.log()
    slice_ = doubles.plan(log, 0, 10**8)
    assert slice_ is not None
    expected = doubles.bytes_of(doubles.plan(log, 0, 10**8) or pytest.fail("nothing"))
    first = slice_.piece(1)
    assert not isinstance(first, Blocked)
    doubles.store.delete(log)
    doubles.settle()
    assert b"".join(map(bytes, first)) + doubles.bytes_of(slice_) == expected


class TestDamage:
    """A flipped bit is found when its block is read; its batch is refused, everything around it is served."""

    def damaged(self, at: int) -> tuple[StoreOnDoubles, Log]:
        doubles = StoreOnDoubles(ROOMY)
        log = doubles.log(0, LogConfig())
        for number in range(300):
            doubles.append(log, bytes([number % 256]) * 1000)
        doubles.settle()
        doubles.advance(1000)
        assert log.active.copied == log.active.size
        doubles.files.corrupt(log.active.path + ".log", at)
        return doubles, log

    def read_around(self, doubles: StoreOnDoubles, log: Log) -> tuple[list[int], list[int]]:
        good, bad, offset = [], [], 0
        while offset < log.high_watermark:
            try:
                slice_ = doubles.plan(log, offset, 1)
                assert slice_ is not None
                data = doubles.bytes_of(slice_)
            except LogDamaged:
                bad.append(offset)
                offset += 1
                continue
            for position, header in batches(data):
                for record in records(data[position : position + header.size]):
                    assert record.value == bytes([record.offset % 256]) * 1000
                    good.append(record.offset)
                    offset = record.offset + 1
        return good, bad

    @pytest.mark.parametrize("where", ["record", "offset", "length", "epoch"])
    def test_one_flipped_bit(self, where: str) -> None:
        size = 1070
        doubles, log = self.damaged(100 * size + {"record": 500, "offset": 7, "length": 11, "epoch": 15}[where])
        good, bad = self.read_around(doubles, log)
        assert bad == [100], "the batch, and none of its neighbours"
        assert good == [offset for offset in range(300) if offset != 100]

    @pytest.mark.parametrize("where", ["record", "offset", "length", "epoch", "several", "magic", "end"])
    def test_a_scan_goes_round_it_and_names_it(self, where: str) -> None:
        size = 1070
        places = {"record": 500, "offset": 7, "length": 11, "epoch": 15, "several": 600, "magic": 16, "end": 199 * size}
        doubles, log = self.damaged(100 * size + places[where])
        if where == "several":
            for at in (0, 101, 103, 250):
                doubles.files.corrupt(log.active.path + ".log", at * size + 300)
        good, lost = self.scan(doubles, log)
        assert sorted([*good, *(offset for first, last in lost for offset in range(first, last + 1))]) == list(
            range(300)
        )
        expected = {"several": [(0, 0), (100, 101), (103, 103), (250, 250)], "end": [(299, 299)]}
        assert lost == expected.get(where, [(100, 100)])

    def scan(self, doubles: StoreOnDoubles, log: Log) -> tuple[list[int], list[tuple[int, int]]]:
        good: list[int] = []
        lost: list[tuple[int, int]] = []
        ended: list[object] = []

        def take(_: Header, batch: bytes) -> None:
            good.extend(record.offset for record in records(batch))

        scan_log(doubles.store, log, 0, take, ended.append, lambda first, last, _: lost.append((first, last)))
        doubles.settle()
        assert ended == [None]
        return good, lost

    def test_a_scan_that_is_not_to_go_round_it_ends_with_it(self) -> None:
        doubles, log = self.damaged(100 * 1070 + 500)
        ended: list[object] = []
        scan_log(doubles.store, log, 0, lambda *_: None, ended.append)
        doubles.settle()
        assert [type(error) for error in ended] == [LogDamaged]

    def test_a_scan_of_a_segment_cut_short_has_all_that_is_there(self) -> None:
        doubles = filled([1000] * 300)
        whole = len(doubles.values(doubles.log()))
        doubles.stop()
        path = doubles.log().active.path + ".log"
        doubles.files.open(path).truncate(200_000)
        doubles.boot()
        good, lost = self.scan(doubles, doubles.log())
        first = good[-1] + 1
        assert good == list(range(first))
        assert lost == [(first, whole - 1)]

    def test_a_bulk_read_stops_before_it_and_goes_on_behind_it(self) -> None:
        doubles, log = self.damaged(100 * 1070 + 500)
        slice_ = doubles.plan(log, 0, 10**8)
        assert slice_ is not None
        with pytest.raises(LogDamaged):
            doubles.bytes_of(slice_)
        again = doubles.plan(log, 0, 10**8)
        assert again is not None
        assert [header.base_offset for _, header in batches(doubles.bytes_of(again))] == list(range(100))
        behind = doubles.plan(log, 101, 10**8)
        assert behind is not None
        assert [header.base_offset for _, header in batches(doubles.bytes_of(behind))] == list(range(101, 300))

    def test_a_segment_cut_short_is_named_not_taken_for_a_clean_end(self) -> None:
        doubles = filled([1000] * 300)
        doubles.stop()
        path = doubles.log().active.path + ".log"
        doubles.files.open(path).truncate(200_000)
        doubles.boot()
        good, bad = self.count(doubles)
        assert good + bad == 300
        assert bad > 0

    def count(self, doubles: StoreOnDoubles) -> tuple[int, int]:
        log, good, bad, offset = doubles.log(), 0, 0, 0
        while offset < log.high_watermark:
            try:
                slice_ = doubles.plan(log, offset, 1)
                assert isinstance(slice_, Slice)
                good += len(list(batches(doubles.bytes_of(slice_))))
            except LogDamaged:
                bad += 1
            offset += 1
        return good, bad

    @pytest.mark.parametrize("how", ["flipped", "missing"])
    def test_a_bad_index_is_made_anew(self, how: str) -> None:
        doubles = filled([1000] * 300, segment_bytes=100_000)
        expected = doubles.values(doubles.log())
        doubles.stop()
        for path in doubles.files.paths():
            if path.endswith(".index") and how == "missing":
                doubles.files.unlink(path)
            elif path.endswith(".index"):
                doubles.files.corrupt(path, 60)
        doubles.boot()
        assert doubles.values(doubles.log()) == expected


def test_no_read_leads_over_what_is_lost() -> None:
    doubles = StoreOnDoubles()
    for value in (b"before", b"lost", b"after"):
        doubles.append(doubles.log(), value * 20)
        doubles.settle()
    doubles.files.locks.clear()
    path = next(path for path in doubles.files.paths() if path.startswith("wal/"))
    file = doubles.files.open(path)
    doubles.files.corrupt(path, bytes(file.read(0, file.size())).index(b"lostlost"))
    doubles.boot()
    log = doubles.log()
    assert log.damage == [(1, 1)]
    slice_ = doubles.plan(log, 0, 100_000)
    assert slice_ is not None
    assert [found.base_offset for _, found in batches(doubles.bytes_of(slice_))] == [0]
    with pytest.raises(LogDamaged, match="offsets 1 to 1 of this partition were lost"):
        doubles.plan(log, 1, 100_000)
    assert doubles.values(log, 2) == [b"after" * 20]
