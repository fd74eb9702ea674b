"""Salvage on a disk in memory: of a sound directory it makes what recovery makes of it; compacted logs; lying disks."""

import errno
import random
from typing import Any

import pytest

from duramen.codec.batch import BatchInput, DecodedRecord, batches, encode, header, records, stamp
from duramen.sim.machine.clock import SeededRandomness
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.sim.machine.store import SMALL, StoreOnDoubles
from duramen.storage.directory import begin_directory, finish_directory
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.planning.salvage import OffsetRun, SalvagedHistory, SalvageGaps
from duramen.storage.readonly import ReadOnlyFileSystem
from duramen.storage.salvage.left import Leftovers, batches_of
from duramen.storage.salvage.reader import read_leftovers
from duramen.storage.salvage.selection import DamagedBytes, ExpectedBatches, FoundBatch, sift
from duramen.storage.salvage.writer import NewDirectory, NewLog, plan_of
from duramen.storage.segment.index import sound_entries
from tests.storage.maintenance.test_compaction import COMPACT, compact, everything, fill


def left_of(doubles: StoreOnDoubles) -> Leftovers:
    return read_leftovers(ReadOnlyFileSystem(doubles.files), doubles.directory.id)


def rebuilt(doubles: StoreOnDoubles) -> tuple[StoreOnDoubles, list[NewLog], Leftovers]:
    """A store on what salvage makes of the files as they are, and what it said."""
    source, files = ReadOnlyFileSystem(doubles.files), MemoryFileSystem()
    left = left_of(doubles)
    made = begin_directory(files, SeededRandomness(8), "memory", "test")
    directory = NewDirectory(files, made.id, lambda _: None)
    written = [
        directory.add(plan_of(log), batches_of(source, log)) for log in left.logs.values() if log.key is not None
    ]
    directory.finish(left.node_epoch, left.next_log_id)
    finish_directory(files)
    made.lock.release()
    again = StoreOnDoubles(doubles.limits, files)
    assert again.findings == []
    return again, written, left


def facts(log: Log) -> tuple[Any, ...]:
    rows = [row[:2] + row[3:] for row in log.producers.rows()]
    return (log.id, log.durability, log.start_offset, log.end_offset, log.damage, log.takeovers.rows(), rows)


def batches_in(doubles: StoreOnDoubles, log: Log) -> list[DecodedRecord]:
    return everything(doubles, log) if log.start_offset < log.end_offset else []


@pytest.mark.parametrize("seed", range(25))
def test_of_a_sound_directory_it_makes_what_recovery_makes(seed: int) -> None:
    chance = random.Random(seed)
    doubles = StoreOnDoubles(SMALL)
    sequences = [0, 0, 0]
    for number, durability in enumerate(("sync", "os", "sync")):
        doubles.log(number, LogConfig(durability=durability, segment_bytes=3000))
    for _ in range(chance.randrange(20, 120)):
        number = chance.randrange(3)
        log = doubles.log(number)
        match chance.randrange(30):
            case 0:
                doubles.advance(chance.choice([1500, 61_000]))
            case 1 if number != 2 and log.synced_offset > log.start_offset:
                doubles.settle()
                doubles.store.move_start(log, chance.randrange(log.start_offset, log.active.base_offset + 1))
                doubles.settle()
            case 2 if number == 0:
                doubles.settle()
                end_offset = chance.randrange(log.start_offset, log.end_offset + 1)
                doubles.store.truncate(log, end_offset, doubles.store.node_epoch, lambda _: None)
                doubles.settle()
            case 3:
                doubles.settle()
                doubles.kill()
                for each, durability in enumerate(("sync", "os", "sync")):
                    doubles.log(each, LogConfig(durability=durability, segment_bytes=3000))
            case 4 if number == 2:
                doubles.store.delete(log)
                sequences[2] = 0
                doubles.settle()
            case _:
                values = [chance.randbytes(chance.randrange(1, 400)) for _ in range(chance.randrange(1, 4))]
                doubles.append(log, *values)
                if chance.random() < 0.7:
                    doubles.settle()
    doubles.settle()
    doubles.files.locks.clear()
    again, written, left = rebuilt(doubles)
    assert (left.whole, left.findings) == (True, [])
    assert all(not new.lost for new in written)
    doubles.kill()
    found = {log.key: log for log in doubles.store.each_log()}
    assert {log.key for log in again.store.each_log()} == set(found)
    for log in again.store.each_log():
        known = found[log.key]
        assert facts(log) == facts(known)
        assert batches_in(again, log) == batches_in(doubles, known)
        assert [segment.base_offset for segment in log.segments if segment.size] == sorted(
            segment.base_offset for segment in log.segments if segment.size
        )


def compacted() -> tuple[StoreOnDoubles, Log]:
    doubles = StoreOnDoubles(SMALL)
    log = doubles.log(0, COMPACT)
    fill(doubles, log, count=150, keys=80)
    compact(doubles)
    fill(doubles, log, count=5)
    assert any(segment.generation for segment in log.segments)
    assert any(segment.generation == 0 for segment in log.segments)
    return doubles, log


def test_compacted_logs_have_gaps_that_are_no_loss() -> None:
    doubles, log = compacted()
    expected = everything(doubles, log)
    again, (new,), left = rebuilt(doubles)
    copy = again.log(0)
    assert (new.lost, left.whole, left.findings) == ([], True, [])
    assert everything(again, copy) == expected
    assert (copy.cleaned_offset, copy.end_offset) == (log.cleaned_offset, log.end_offset)
    assert any(segment.generation for segment in copy.segments)
    again.log(0, COMPACT)
    fill(again, copy)
    compact(again)
    assert everything(again, copy)[-1].offset == copy.end_offset - 1


def test_compacted_logs_without_a_checkpoint() -> None:
    doubles, log = compacted()
    expected = everything(doubles, log)
    for path in doubles.files.paths():
        if path.startswith("checkpoint-"):
            doubles.files.unlink(path)
    again, (new,), left = rebuilt(doubles)
    assert (new.lost, left.whole) == ([], False)
    assert everything(again, again.log(0)) == expected


def test_damage_in_a_compacted_segment_is_named() -> None:
    doubles, log = compacted()
    expected = everything(doubles, log)
    segment = max((segment for segment in log.segments if segment.generation), key=lambda segment: segment.size)
    path = segment.path + ".log"
    first = header(bytes(doubles.files.open(path).read(0, 100)))
    second = header(bytes(doubles.files.open(path).read(first.size, 100)))
    doubles.files.corrupt(path, first.size + 70)
    again, (new,), left = rebuilt(doubles)
    ((low, high),) = new.lost
    assert left.findings == [f"{path}: bytes {first.size} to {first.size + second.size} are not a sound batch"]
    assert low <= second.base_offset
    assert second.next_offset - 1 <= high
    kept = [record for record in expected if not low <= record.offset <= high]
    copy = again.log(0)
    assert read_to(again, copy, copy.start_offset, low) + read_to(again, copy, high + 1, copy.end_offset) == kept


def read_to(doubles: StoreOnDoubles, log: Log, at: int, stop: int) -> list[DecodedRecord]:
    """Every record from there on; whoever reads on comes to `stop`, never beyond it."""
    found: list[DecodedRecord] = []
    while at < stop:
        slice_ = doubles.plan(log, at, 100_000)
        assert slice_ is not None
        data = doubles.bytes_of(slice_)
        for position, head in batches(data):
            found += [one for one in records(memoryview(data)[position : position + head.size]) if one.offset >= at]
            at = head.next_offset
    assert at == stop
    return found


def test_a_missing_compacted_segment_is_named() -> None:
    doubles, log = compacted()
    at = max(range(len(log.segments) - 2), key=lambda at: log.segments[at].size)
    segment, following = log.segments[at], log.segments[at + 1]
    doubles.files.unlink(segment.path + ".log")
    _, (new,), left = rebuilt(doubles)
    assert f"{segment.path}.log is missing" in left.findings
    assert [lost for lost in new.lost if lost[0] <= segment.base_offset <= lost[1] < following.base_offset]


@pytest.mark.parametrize("wal", [False, True])
def test_an_older_copy_from_before_a_cut_is_not_believed(wal: bool) -> None:
    doubles = StoreOnDoubles(SMALL)
    for value in (b"a", b"b", b"c"):
        doubles.append(doubles.log(), value)
    doubles.settle()
    doubles.restart()
    log = doubles.log()
    path = log.active.path + ".log"
    older = doubles.files.content(path)
    doubles.store.truncate(log, 1, doubles.store.node_epoch, lambda _: None)
    for value in (b"d", b"e", b"f"):
        doubles.append(log, value)
    doubles.settle()
    assert doubles.stop() is None
    for name in [name for name in doubles.files.paths() if name.startswith("wal/") and not wal]:
        doubles.files.unlink(name)
    doubles.files.replace(path, older)
    left = left_of(doubles)
    assert left.findings == [f"{path}: bytes {len(older) // 3} to {len(older)} are not a sound batch"]
    found = [
        (record.offset, record.value)
        for _, whole in batches_of(ReadOnlyFileSystem(doubles.files), left.logs[log.id])
        for record in records(whole)
    ]
    assert found == [(0, b"a"), *([(1, b"d"), (2, b"e"), (3, b"f")] if wal else [])]


def test_what_came_after_a_cut_that_the_checkpoint_does_not_know_is_no_damage() -> None:
    doubles = StoreOnDoubles(SMALL)
    for value in (b"a", b"b", b"c"):
        doubles.append(doubles.log(), value)
    doubles.settle()
    doubles.restart()
    log = doubles.log()
    doubles.store.truncate(log, 1, doubles.store.node_epoch, lambda _: None)
    for value in (b"d", b"e"):
        doubles.append(log, value)
    doubles.settle()
    doubles.advance_without_syncing(1000)
    assert log.active.copied == log.active.size
    left = left_of(doubles)
    assert left.findings == []
    found = [
        (record.offset, record.value)
        for _, whole in batches_of(ReadOnlyFileSystem(doubles.files), left.logs[log.id])
        for record in records(whole)
    ]
    assert found == [(0, b"a"), (1, b"d"), (2, b"e")]


def test_pages_that_the_disk_does_not_give_are_damage() -> None:
    doubles = StoreOnDoubles(SMALL)
    log = doubles.log(0)
    for number in range(6):
        doubles.append(log, b"%d" % number * 3000)
        doubles.settle()
    assert doubles.stop() is None
    for wal in [path for path in doubles.files.paths() if path.startswith("wal/")]:
        doubles.files.unlink(wal)  # it could fill what is lost, and is not needed
    path = f"{log.directory}/{0:020}.log"

    def interfere(call: str, at: str, size: int) -> int:
        if (call, at) == ("read", path) and size >= 4096:
            raise OSError(errno.EIO, "Input/output error")
        return size

    doubles.files.interfere = interfere
    _, (new,), _ = rebuilt(doubles)
    assert sum(last - first + 1 for first, last in new.lost) >= 1


# -- parts ------------------------------------------------------------------------------------------


def test_history_keeps_what_was_ordered_last() -> None:
    history = SalvagedHistory([OffsetRun(0, 10, 1, "segment", 0, 100), OffsetRun(10, 20, 1, "segment", 100, 200)])
    assert not history.append(OffsetRun(5, 6, 1, "wal", 0, 10))
    assert not history.append(OffsetRun(25, 26, 0, "wal", 0, 10))
    assert history.append(OffsetRun(15, 18, 2, "wal", 0, 10))
    assert [(run.first, run.next, run.epoch) for run in history] == [(0, 10, 1), (10, 15, 1), (15, 18, 2)]
    assert history.cut(12, lambda run, _: run.first) == 10
    assert [(run.first, run.next) for run in history] == [(0, 10)]
    assert history.append(OffsetRun(13, 15, 2, "wal", 20, 30))
    assert history.fill(OffsetRun(10, 12, 1, "wal", 30, 40))
    assert not history.fill(OffsetRun(12, 13, 3, "wal", 30, 40))
    assert not history.fill(OffsetRun(12, 14, 2, "wal", 30, 40))
    assert history.fill(OffsetRun(15, 16, 2, "wal", 40, 50))
    assert [(run.first, run.next) for run in history] == [(0, 10), (10, 12), (13, 15), (15, 16)]
    assert history.end_offset == 16


def test_gaps_of_compaction_are_no_loss_but_where_damage_is() -> None:
    gaps = SalvageGaps(3, cleaned_offset=20, suspect=[(8, 9)])
    for base, following in ((5, 7), (10, 11), (15, 21), (25, 26)):
        gaps.add(base, following)
    gaps.reach(30)
    assert gaps.lost == [(7, 9), (21, 24), (26, 29)]


_ANY = ExpectedBatches(0)


def segment_of(*batches: bytearray) -> tuple[MemoryFileSystem, list[int]]:
    files, positions, offset = MemoryFileSystem(), list[int](), 0
    for batch in batches:
        stamp(batch, offset, 1)
        offset = header(batch).next_offset
        positions.append(sum(map(len, batches[: len(positions)])))
    files.open("segment", create=True).write([b"".join(batches)], 0)
    return files, positions


def sifted(files: MemoryFileSystem, expected: ExpectedBatches = _ANY) -> list[int | tuple[int, int]]:
    file = files.open("segment")
    out: list[int | tuple[int, int]] = []
    for item in sift(file, file.size(), expected, sound_entries(b"")):
        match item:
            case FoundBatch():
                out.append(item.header.base_offset)
            case DamagedBytes():
                out.append((item.start, item.end))
    return out


def test_a_batch_in_a_damaged_batch_is_not_taken_for_one() -> None:
    inner = encode([BatchInput(0, None, b"inner")])
    stamp(inner, 2, 1)
    outer = encode([BatchInput(0, None, bytes(inner) + b"x" * 50), BatchInput(0, None, b"y")])
    files, positions = segment_of(encode([BatchInput(0, None, b"0")]), outer, encode([BatchInput(0, None, b"3")]))
    # Its length, too: nothing says where the next begins.
    files.corrupt("segment", positions[1] + 9, 0x10)
    files.corrupt("segment", positions[1] + 30)
    assert sifted(files) == [0, (positions[1], positions[2]), 3]


def test_two_damaged_batches_in_a_row_leave_those_around() -> None:
    files, positions = segment_of(*(encode([BatchInput(0, None, b"%d" % number)]) for number in range(6)))
    for number in (2, 3):
        files.corrupt("segment", positions[number] + 62)
    assert sifted(files) == [0, 1, (positions[2], positions[4]), 4, 5]


def test_a_batch_that_another_leader_ordered_is_not_believed() -> None:
    files, positions = segment_of(*(encode([BatchInput(0, None, b"%d" % number)]) for number in range(5)))
    size = files.open("segment").size()
    assert sifted(files, ExpectedBatches(0, epoch_at=lambda offset: 1 if offset < 2 else -1)) == [0, 1, 2, 3, 4]
    assert sifted(files, ExpectedBatches(0, epoch_at=lambda offset: 1 if offset < 2 else 2)) == [
        0,
        1,
        (positions[2], size),
    ]
    files.corrupt("segment", positions[4] + 15, 6)  # its epoch, which its CRC does not cover
    assert sifted(files) == [0, 1, 2, 3, 4]
    assert sifted(files, ExpectedBatches(0, epoch_at=lambda _: 1)) == [0, 1, 2, 3, (positions[4], size)]


def test_what_lies_beyond_the_limits_is_not_believed() -> None:
    files, positions = segment_of(*(encode([BatchInput(0, None, b"%d" % number)]) for number in range(3)))
    size = files.open("segment").size()
    assert sifted(files, ExpectedBatches(0, limit_offset=2)) == [0, 1, (positions[2], size)]
    assert sifted(files, ExpectedBatches(0, newest_epoch=0)) == [(0, size)]
