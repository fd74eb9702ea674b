"""Looking through a whole directory: sound whatever a crash left, and every damaged file named."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.sim.machine.store import SMALL, StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.recovery.recovery import wal_salt
from duramen.storage.recovery.verification import DamageFinding, verify, verify_segment
from duramen.storage.recovery.wal_files import scan_wal, wal_slots
from duramen.storage.wal.wal import wal_path


def looked_at(doubles: StoreOnDoubles) -> list[DamageFinding]:
    """What is found in the directory; no byte is announced that is not looked at."""
    expected: list[int] = []
    seen: list[int] = []
    found = verify(doubles.files, doubles.directory.id, expect=expected.append, advance=seen.append)
    assert sum(expected) == sum(seen) == found.checked_bytes
    return found.findings


def filled(count: int = 200) -> tuple[StoreOnDoubles, Log]:
    """Two logs in several segments, after a checkpoint, with some batches in the write-ahead log alone."""
    doubles = StoreOnDoubles(SMALL)
    log, other = doubles.log(0), doubles.log(1)
    for number in range(count):
        doubles.append(log, bytes([number]) * 1000)
        doubles.append(other, b"other")
        doubles.settle()
    doubles.restart()
    log = doubles.log(0)
    for number in range(20):
        doubles.append(log, bytes([number]) * 1000)
    doubles.settle()
    return doubles, log


@given(st.integers(0, 1 << 30), st.sampled_from(["stop", "kill", "crash", "torn"]))
@settings(deadline=None, max_examples=examples(40))
def test_what_a_stop_or_a_crash_leaves_is_sound(seed: int, how: str) -> None:
    chance = random.Random(seed)
    doubles = StoreOnDoubles(SMALL)
    logs = [doubles.log(number, LogConfig(segment_bytes=8000, retention_bytes=30_000)) for number in range(3)]
    for _ in range(chance.randrange(150)):
        doubles.append(chance.choice(logs), chance.randbytes(chance.randrange(2000)))
        if chance.random() < 0.3:
            doubles.advance(chance.randrange(30_000))
        if chance.random() < 0.05:
            doubles.store.enforce_retention(doubles.clock.wall_ms())
    if how == "stop":
        doubles.stop()
    elif how in ("crash", "torn"):
        doubles.files.crash(chance if how == "torn" else None)
    assert looked_at(doubles) == []


def test_every_segment_is_looked_at() -> None:
    doubles, log = filled()
    found = verify(doubles.files, doubles.directory.id, expect=lambda _: None, advance=lambda _: None)
    assert (found.logs, found.findings) == (2, [])
    assert found.segments > 4
    assert log.segments[0].size < found.checked_bytes


@pytest.mark.parametrize("place", [3, 10, 14, 16, 18, 500])
@pytest.mark.parametrize("which", [0, -2])
def test_a_changed_byte_is_named_with_file_bytes_and_offsets(place: int, which: int) -> None:
    doubles, log = filled()
    doubles.stop()
    segment = log.segments[which]
    doubles.files.corrupt(segment.path + ".log", 5 * 1070 + place)
    (found,) = looked_at(doubles)
    first = segment.base_offset + 5
    assert (found.file, found.start, found.end) == (segment.path + ".log", 5350, 6420)
    assert (found.first_offset, found.last_offset) == (first, first)
    assert str(found).startswith(f"{segment.path}.log: bytes 5350 to 6420 (offsets {first} to {first}) are damaged: ")


def test_other_files_that_are_damaged_are_named() -> None:
    doubles, log = filled()
    doubles.stop()
    first, second, third = (segment.path for segment in log.segments[:3])
    doubles.files.unlink(first + ".log")
    doubles.files.corrupt(second + ".index", 60)
    doubles.files.open(third + ".log").truncate(3000)
    found = looked_at(doubles)
    causes = {finding.file: finding.cause for finding in found}
    assert causes == {f"{first}.log": "missing-file", f"{second}.index": "index", f"{third}.log": "cut-short"}
    assert found[0].last_offset == log.segments[1].base_offset - 1


def test_a_damaged_checkpoint_is_named_and_the_other_one_used() -> None:
    doubles, log = filled()
    doubles.stop()
    newest = max(path for path in doubles.files.paths() if path.startswith("checkpoint-"))
    doubles.files.corrupt(newest, 40)
    assert [(finding.file, finding.cause) for finding in looked_at(doubles)] == [(newest, "checkpoint")]
    doubles.files.corrupt(log.segments[0].path + ".log", 600)
    assert len(looked_at(doubles)) == 2
    for path in doubles.files.paths():
        if path.startswith("checkpoint-"):
            doubles.files.unlink(path)
    causes = [finding.cause for finding in looked_at(doubles)]
    assert causes == ["checkpoint", "batch-crc"]


def test_a_frame_that_a_later_one_vouches_for_is_damage_and_a_torn_tail_is_none() -> None:
    doubles, _ = filled()
    doubles.files.locks.clear()
    (used,) = scan_wal(wal_slots(doubles.files), doubles.recovered.wal_generation << 32, wal_salt(doubles.directory.id))
    path, end = wal_path(used.slot), used.scan.end
    doubles.files.corrupt(path, end - 10)
    assert looked_at(doubles) == []
    doubles.files.corrupt(path, end - 10)
    doubles.append(doubles.log(0), b"vouches")
    doubles.settle()
    doubles.append(doubles.log(0), b"for all before")
    doubles.settle()
    doubles.files.corrupt(path, end - 10)
    (found,) = looked_at(doubles)
    assert (found.file, found.cause) == (path, "wal-frame")
    assert found.start < end - 10 < found.end


def test_what_was_deleted_after_the_checkpoint_is_not_missed() -> None:
    doubles, log = filled()
    doubles.store.delete(log)
    doubles.settle()
    doubles.files.locks.clear()
    assert looked_at(doubles) == []


def test_a_segment_alone_is_looked_at_without_a_checkpoint() -> None:
    doubles, log = filled()
    doubles.stop()
    segment = log.segments[1]
    for damaged in (False, True):
        if damaged:
            doubles.files.corrupt(segment.path + ".log", 5 * 1070 + 500)
        found = verify_segment(doubles.files, segment.path, expect=lambda _: None, advance=lambda _: None)
        assert [(one.start, one.first_offset) for one in found.findings] == (
            [(5350, segment.base_offset + 5)] if damaged else []
        )


def test_one_segment_of_a_directory() -> None:
    doubles, log = filled()
    doubles.stop()
    for segment in log.segments[:2]:
        doubles.files.corrupt(segment.path + ".log", 500)
    only = log.segments[1].path + ".log"
    found = verify(doubles.files, doubles.directory.id, expect=lambda _: None, advance=lambda _: None, only=only)
    assert (found.segments, [one.file for one in found.findings]) == (1, [only])
