"""file.delete.delay.ms: the files of what was let go stay for a while, are nobody's, and go whatever happens."""

import random

import pytest

from duramen.base.errors import DuramenError
from duramen.sim.machine.disk import Crashed
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import LogConfig

DELAY_MS = 5000
CONFIG = LogConfig(segment_bytes=5000, retention_records=10, file_delete_delay_ms=DELAY_MS)


def filled(config: LogConfig = CONFIG) -> StoreOnDoubles:
    doubles = StoreOnDoubles()
    for number in range(40):
        doubles.append(doubles.log(0, config), b"%02d" % number * 400)
        doubles.settle()
    doubles.advance(61_000)
    return doubles


def let_go(doubles: StoreOnDoubles) -> list[str]:
    """Let go what retention says; the names of the files that had it, without their ending, are returned."""
    log = doubles.log()
    before = [segment.path.rpartition("/")[2] for segment in log.segments]
    doubles.store.enforce_retention(doubles.clock.wall_ms())
    doubles.settle()
    left = {segment.path.rpartition("/")[2] for segment in log.segments}
    gone = [name for name in before if name not in left]
    assert len(gone) > 1
    return gone


def names(doubles: StoreOnDoubles) -> list[str]:
    return sorted(doubles.files.names(doubles.log().directory))


def aside(doubles: StoreOnDoubles) -> list[str]:
    return [name for name in names(doubles) if name.endswith(".deleted")]


def test_the_files_of_segments_stay_under_another_name_for_as_long_as_it_says() -> None:
    doubles = filled()
    gone = let_go(doubles)
    start = doubles.log().start_offset
    assert start > 0
    assert aside(doubles) == sorted(f"{name}.{kind}.deleted" for name in gone for kind in ("log", "index"))
    assert not {f"{name}.log" for name in gone} & set(names(doubles))
    doubles.advance(DELAY_MS - 1)
    assert aside(doubles)
    doubles.advance(1)
    assert not aside(doubles)
    assert [record.offset for record in doubles.read(doubles.log())] == list(range(start, 40))


def test_without_a_delay_they_go_at_once() -> None:
    doubles = filled(CONFIG._replace(file_delete_delay_ms=0))
    gone = let_go(doubles)
    assert not any(name.startswith(tuple(gone)) for name in names(doubles))


@pytest.mark.parametrize("how", ["kill", "crash", "restart"])
def test_no_start_finds_them(how: str) -> None:
    doubles = filled()
    let_go(doubles)
    start = doubles.log().start_offset
    getattr(doubles, how)()
    doubles.settle()
    assert doubles.findings == []
    assert doubles.log().start_offset == start
    assert not aside(doubles)
    assert [record.offset for record in doubles.read(doubles.log())] == list(range(start, 40))


def test_of_a_deleted_log_the_directory_stays() -> None:
    for kill in (False, True):
        doubles = filled()
        log = doubles.log()
        done: list[DuramenError | None] = []
        doubles.store.delete(log, done.append)
        doubles.settle()
        assert done == [None], "the deletion itself does not wait"
        assert doubles.files.names(log.directory)
        if kill:
            doubles.kill()
        else:
            doubles.advance(DELAY_MS)
        assert not doubles.files.exists(log.directory)
        assert not doubles.log().end_offset


def test_a_start_without_checkpoints_does_not_bring_back_what_was_let_go() -> None:
    doubles = filled()
    let_go(doubles)
    start = doubles.log().start_offset
    doubles.restart()
    for number in range(40, 80):
        doubles.append(doubles.log(0, CONFIG), b"%02d" % number * 400)
        doubles.settle()
    doubles.advance(61_000)
    let_go(doubles)
    assert aside(doubles)
    start = doubles.log().start_offset
    doubles.files.locks.clear()
    for name in doubles.files.names(""):
        if name.startswith("checkpoint-"):
            doubles.files.unlink(name)
    doubles.boot()
    assert doubles.log().start_offset == start
    assert [record.offset for record in doubles.read(doubles.log())] == list(range(start, 80))


def test_a_crash_in_any_call() -> None:
    for calls in range(1, 300):
        doubles = filled()
        doubles.files.crash_at = doubles.files.calls + calls
        try:
            doubles.store.enforce_retention(doubles.clock.wall_ms())
            doubles.settle()
            doubles.advance(DELAY_MS)
        except Crashed:
            doubles.files.crash_at = None
        else:
            assert calls > 5
            return
        doubles.crash(random.Random(calls))
        assert doubles.findings == []
        log = doubles.log(0)
        read = [record.offset for record in doubles.read(log)]
        assert read == list(range(log.start_offset, 40))
        assert not aside(doubles)
    raise AssertionError("it never ended")
