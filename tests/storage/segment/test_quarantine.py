"""What is damaged is named and not served; every other batch is, byte for byte."""

import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import LogDamaged
from duramen.codec.batch import HEADER_BYTES, TRANSACTIONAL, BatchInput, batches, check, encode
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.segment.damage import DamageCause
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import StoreLimits

ROOMY = StoreLimits(
    wal_file_bytes=1 << 20, wal_max_bytes=16 << 20, pending_bytes=8 << 20, copy_bytes=8 << 20, copy_interval_ms=1000
)


def log_of(sizes: list[int], segment_bytes: int = 1 << 30) -> tuple[StoreOnDoubles, Log]:
    """A log with a batch of one record of each size, all of it in files."""
    doubles = StoreOnDoubles(ROOMY)
    log = doubles.log(0, LogConfig(segment_bytes=segment_bytes))
    chance = random.Random(11)
    for size in sizes:
        doubles.append(log, chance.randbytes(size))
    doubles.settle()
    doubles.advance(1000)
    return doubles, log


def batch_of(doubles: StoreOnDoubles, log: Log, offset: int, max_bytes: int = 1) -> dict[int, bytes]:
    """The batches of one read, by offset."""
    slice_ = doubles.plan(log, offset, max_bytes)
    assert slice_ is not None
    data = doubles.bytes_of(slice_)
    return {head.base_offset: data[at : at + head.size] for at, head in batches(data)}


def readable(doubles: StoreOnDoubles, log: Log) -> tuple[dict[int, bytes], list[int]]:
    """Every batch by a read of its own, and the offsets of those that cannot be read."""
    found: dict[int, bytes] = {}
    lost = []
    for offset in range(log.start_offset, log.high_watermark):
        try:
            found |= batch_of(doubles, log, offset)
        except LogDamaged:
            lost.append(offset)
    return found, lost


SIZES = st.lists(st.one_of(st.integers(0, 300), st.integers(20_000, 90_000)), min_size=1, max_size=20)


@given(SIZES, st.sampled_from([3000, 200_000, 1 << 30]), st.booleans(), st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(60))
def test_one_byte_changed_costs_one_batch(
    sizes: list[int], segment_bytes: int, cold: bool, restarted: bool, data: st.DataObject
) -> None:
    doubles, log = log_of(sizes, segment_bytes)
    sound, _ = readable(doubles, log)
    if restarted:
        doubles.restart()
        log = doubles.log()
    doubles.files.cold = cold
    victim = data.draw(st.integers(0, len(sizes) - 1))
    segment = max((one for one in log.segments if one.base_offset <= victim), key=lambda one: one.base_offset)
    start = sum(len(sound[offset]) for offset in range(segment.base_offset, victim))
    place = data.draw(st.one_of(st.integers(0, HEADER_BYTES - 1), st.integers(0, len(sound[victim]) - 1)))
    doubles.files.corrupt(segment.path + ".log", start + place, data.draw(st.integers(1, 255)))
    found, lost = readable(doubles, log)
    assert lost == [victim]
    del sound[victim]
    assert found == sound
    assert doubles.metrics.counter("duramen_damaged_ranges_total").value == 1
    assert doubles.store.quarantine.ranges == 1
    assert [(one.start, one.first_offset) for one in segment.damage] == [(start, victim)]


def test_it_is_reported_once_with_file_bytes_and_offsets() -> None:
    doubles, log = log_of([1000] * 100)
    reported: list[str] = []
    doubles.files.corrupt(log.active.path + ".log", 50 * 1070 + 500)
    for offset in (50, 50):
        with pytest.raises(LogDamaged):
            batch_of(doubles, log, offset)
    doubles.store.quarantine.report_to(reported.append)
    where = f"{log.active.path}.log: bytes 53500 to 54570 (offsets 50 to 50) are damaged"
    assert reported == [f"{where}: {DamageCause.BATCH_CRC.words}; it is not served, the records around it are"]
    doubles.files.corrupt(log.active.path + ".log", 52 * 1070 + 500)
    found, lost = readable(doubles, log)
    assert lost == [50, 52], "what changes in a block that was looked into is found too"
    assert len(found) == 98
    assert len(reported) == 2


def test_reading_on_behind_it_skips_it() -> None:
    doubles, log = log_of([1000] * 100)
    doubles.files.corrupt(log.active.path + ".log", 50 * 1070 + 16)
    with pytest.raises(LogDamaged):
        batch_of(doubles, log, 50)
    assert log.plan_skip(50) == 51
    assert list(batch_of(doubles, log, 51, 10**6)) == list(range(51, 100))
    assert list(batch_of(doubles, log, 0, 10**6)) == list(range(50))


def test_what_is_appended_behind_a_damaged_end_is_read() -> None:
    doubles, log = log_of([1000] * 100)
    doubles.files.corrupt(log.active.path + ".log", 99 * 1070 + 16)
    assert readable(doubles, log)[1] == [99]
    for _ in range(200):
        doubles.append(log, b"later" * 100)
    doubles.settle()
    found, lost = readable(doubles, log)
    assert lost == [99]
    doubles.advance(1000)
    again, lost = readable(doubles, log)
    assert lost == [99]
    assert again == found
    assert len(again) == 299


def test_what_a_copy_has_written_that_is_not_over_is_not_taken_for_damage() -> None:
    doubles, log = log_of([30_000, 20_000])
    doubles.append(log, bytes(5000))
    active = log.active
    path, copied, written = f"{active.path}.log", active.copied, active.size
    doubles.append(log, bytes(30_000))
    doubles.settle()
    assert copied < written
    doubles.files.corrupt(path, HEADER_BYTES + 100)
    doubles.files.open(path).write(active.pending_buffers(copied, written), copied)
    for _ in range(2):
        found, lost = readable(doubles, log)
        assert (sorted(found), lost) == ([1, 2, 3], [0])
        doubles.advance(1000)
    assert active.copied == active.size


def test_an_older_copy_with_batches_elsewhere_gives_nobody_what_lies_before_the_offset() -> None:
    doubles, log = log_of([100] * 6)
    older = doubles.log(1)
    for size in (170 + 100, 170 + 100, 100, 50):  # its fourth batch lies where the sixth is
        doubles.append(older, bytes(size))
    doubles.settle()
    doubles.advance(1000)
    assert list(batch_of(doubles, log, 4)) == [4]  # so that the next read begins where this one ended
    slice_ = doubles.plan(log, 5, 1)
    assert slice_ is not None
    doubles.files.replace(f"{log.active.path}.log", doubles.files.content(f"{older.active.path}.log"))
    with pytest.raises(LogDamaged):
        doubles.bytes_of(slice_)
    for offset in range(5, -1, -1):
        with suppress(LogDamaged):
            assert offset in batch_of(doubles, log, offset)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("size", [0, 30, 66_000, 99 * 1070])
def test_a_file_cut_short_is_readable_up_to_there(size: int, restarted: bool) -> None:
    doubles, log = log_of([1000] * 100, 1070 * 100)
    for _ in range(10):
        doubles.append(log, b"next segment")
    doubles.settle()
    doubles.advance(1000)
    path = log.segments[0].path + ".log"
    if restarted:
        doubles.stop()
    doubles.files.open(path).truncate(size)
    if restarted:
        doubles.boot()
        log = doubles.log()
    found: dict[int, bytes] = {}
    lost = []
    for offset in range(110):
        try:
            found |= batch_of(doubles, log, offset)
        except LogDamaged:
            lost.append(offset)
    assert lost == list(range(size // 1070, 100))
    assert len(found) == 110 - len(lost)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_wrong_epoch_in_a_block_that_is_cut_short_is_found(restarted: bool) -> None:
    doubles, log = log_of([1000] * 10)
    if restarted:
        doubles.restart()
        log = doubles.log()
    path = log.active.path + ".log"
    doubles.files.corrupt(path, 2 * 1070 + 14)  # the third byte of the epoch
    doubles.files.open(path).truncate(5 * 1070)
    found, lost = readable(doubles, log)
    assert lost == [2, 5, 6, 7, 8, 9]
    assert sorted(found) == [0, 1, 3, 4]


def test_a_length_that_leads_to_a_later_batch_by_chance_costs_one_batch() -> None:
    size = 128
    doubles, log = log_of([size - 69] * 6)
    path = log.active.path + ".log"
    assert doubles.files.open(path).size() == 6 * size
    doubles.files.corrupt(path, size + 10, 1)  # 256 bytes longer: two batches
    assert readable(doubles, log)[1] == [1]


@pytest.mark.parametrize("byte", [0, 7, 14, 100])
def test_a_damaged_batch_that_is_not_decided_costs_readers_of_what_is_committed_no_neighbour(byte: int) -> None:
    doubles, log = log_of([1000] * 5)
    batch = encode(
        [BatchInput(doubles.clock.wall_ms(), None, b"open" * 100)],
        attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    start = log.active.size
    doubles.store.append(log, batch, check(batch), doubles.store.node_epoch, None)
    doubles.append(log, b"behind")
    doubles.settle()
    doubles.restart()
    log = doubles.log()
    assert log.last_stable_offset == 5
    doubles.files.corrupt(log.active.path + ".log", start + byte)
    assert readable(doubles, log)[1] == [5]
    for offset in range(5):
        while isinstance(plan := log.plan_read(offset, 1 << 20, committed=True), Blocked):
            doubles.store.unblock(plan, lambda _: None)
            doubles.settle()
        assert plan is not None
        data = doubles.bytes_of(plan)
        assert [head.base_offset for _, head in batches(data)] == list(range(offset, 5))


def test_a_file_that_is_missing_costs_its_segment() -> None:
    doubles, log = log_of([1000] * 100, 1070 * 40)
    doubles.restart()
    log = doubles.log()
    doubles.files.unlink(log.segments[1].path + ".log")
    found: dict[int, bytes] = {}
    lost = []
    for offset in range(100):
        try:
            found |= batch_of(doubles, log, offset)
        except LogDamaged:
            lost.append(offset)
    assert lost == list(range(40, 80))
    assert log.plan_skip(50) == 80
    assert [one.cause for one in log.segments[1].damage] == [DamageCause.MISSING_FILE]


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("clean", [False, True])
def test_records_are_appended_where_the_last_file_is_missing(durability: str, clean: bool) -> None:
    store = StoreOnDoubles()
    log = store.log(0, LogConfig(durability=durability))
    for value in (b"a", b"b"):
        store.append(log, value)
    store.settle()
    store.advance(61_000)  # a checkpoint
    if clean:
        assert store.stop() is None
    store.files.lose(log.active.path + ".log")
    store.kill()
    appended = store.append(store.log(), b"c")
    store.settle()
    store.advance(1000)  # a copy
    assert appended.base_offset == 2
    for _ in range(2):
        assert store.values(store.log(), 2) == [b"c"]
        for offset in (0, 1):
            with pytest.raises(LogDamaged):
                store.read(store.log(), offset)
        store.kill()


def test_a_missing_file_of_a_segment_that_is_closed_by_what_is_replayed_costs_that_segment() -> None:
    doubles, log = log_of([900] * 3, segment_bytes=3000)
    doubles.restart()
    log = doubles.log(0, log.config)
    path = log.active.path
    for _ in range(4):
        doubles.append(log, b"behind" * 100)
    doubles.settle()
    doubles.files.crash()
    doubles.files.lose(path + ".log")
    doubles.boot()
    assert [finding for finding in doubles.findings if path in finding] == doubles.findings != []
    good, bad = readable(doubles, doubles.log())
    assert (sorted(good), bad) == ([3, 4, 5, 6], [0, 1, 2])


def test_an_index_of_another_segment_harms_nothing() -> None:
    doubles, log = log_of([1000] * 200, 100_000)
    sound, _ = readable(doubles, log)
    doubles.restart()
    log = doubles.log()
    first, second = (doubles.files.open(segment.path + ".index") for segment in log.segments[:2])
    content = bytes(first.read(0, first.size()))
    second.write([content], 0)
    assert readable(doubles, log) == (sound, [])


def test_deleting_the_log_ends_its_quarantine() -> None:
    doubles, log = log_of([1000] * 100)
    doubles.files.corrupt(log.active.path + ".log", 50 * 1070 + 500)
    assert readable(doubles, log)[1] == [50]
    doubles.store.delete(log)
    doubles.settle()
    assert doubles.store.quarantine.ranges == 0
