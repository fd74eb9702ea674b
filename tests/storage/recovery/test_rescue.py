"""A start without checkpoints, without the write-ahead log, or without both: what segments hold is served and kept."""

import random
import uuid

import pytest

from duramen.base.ids import METADATA_LOG_ID, METADATA_STREAM_ID
from duramen.codec.batch import header
from duramen.sim.machine.disk import Crashed
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles, expected_values
from duramen.storage.log.empty_log import hold_place
from duramen.storage.log.log import LogConfig, LogKey
from duramen.storage.recovery.recovery import wal_salt
from duramen.storage.wal.frames import find_generation

SMALL_SEGMENTS = LogConfig(segment_bytes=4000)


def written(durability: str = "sync") -> tuple[StoreOnDoubles, list[AppendOutcome]]:
    """Three logs of several segments in two epochs, the second not in any checkpoint, all of it copied."""
    config = SMALL_SEGMENTS._replace(durability=durability)
    doubles = StoreOnDoubles()
    appends = [doubles.append(doubles.log(number % 3, config), b"%d" % number * 40) for number in range(150)]
    doubles.settle()
    doubles.restart()
    appends += [doubles.append(doubles.log(number % 3, config), b"%d" % number * 40) for number in range(150, 300)]
    appends.append(doubles.append(doubles.log(3), b"a new log"))
    doubles.settle()
    doubles.advance(1000)
    assert all(append.acknowledged for append in appends)
    return doubles, appends


def lose(doubles: StoreOnDoubles, *prefixes: str) -> None:
    for path in doubles.files.paths():
        if path.startswith(prefixes):
            doubles.files.unlink(path)
    for directory in ("", "wal"):
        doubles.files.sync_directory(directory)


def kept_files(doubles: StoreOnDoubles) -> set[str]:
    return {path for path in doubles.files.paths() if path.startswith("logs/")}


def check(doubles: StoreOnDoubles, appends: list[AppendOutcome]) -> None:
    for number in range(3):
        assert doubles.values(doubles.log(number)) == expected_values(appends[number:300:3])
    assert doubles.values(doubles.log(3)) == [b"a new log"]


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("lost", ["checkpoints", "write-ahead log", "both"])
def test_what_was_copied_outlives_the_loss_of(lost: str, durability: str) -> None:
    doubles, appends = written(durability)
    epoch, next_log_id, files = doubles.store.node_epoch, doubles.store.next_log_id, kept_files(doubles)
    prefixes = {"checkpoints": ("checkpoint-",), "write-ahead log": ("wal/",), "both": ("checkpoint-", "wal/")}[lost]
    lose(doubles, *prefixes)
    doubles.kill()
    named = "write-ahead log" if lost == "write-ahead log" else "no checkpoint is there"
    assert any(named in finding for finding in doubles.findings)
    assert files <= kept_files(doubles)
    assert doubles.store.node_epoch > epoch
    assert doubles.store.next_log_id >= next_log_id
    check(doubles, appends)
    # The loss of power now: what was found is on disk, and it is found in the ordinary way.
    doubles.crash()
    assert doubles.findings == []
    assert files <= kept_files(doubles)
    check(doubles, appends)
    again = doubles.append(doubles.log(3), b"again")
    doubles.settle()
    assert again.base_offset == 1


def emptied(durability: str) -> StoreOnDoubles:
    """A log that has let go of the two records that it had."""
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(durability=durability))
    doubles.append(log, b"one", b"two")
    doubles.settle()
    doubles.advance(61_000)
    doubles.store.move_start(log, 2)
    return doubles


def goes_on_at(doubles: StoreOnDoubles, offset: int) -> None:
    log = doubles.log()
    assert (log.start_offset, log.end_offset, doubles.values(log)) == (offset, offset, [])
    again = doubles.append(log, b"again")
    doubles.settle()
    doubles.crash()
    assert again.base_offset == offset
    assert doubles.values(doubles.log()) == [b"again"]


@pytest.mark.parametrize("end", ["stop", "kill before the files go", "kill"])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_log_without_records_goes_on_where_it_ended_without_checkpoints(durability: str, end: str) -> None:
    doubles = emptied(durability)
    if end == "kill before the files go":
        doubles.store.flush()
        doubles.kill()
    else:
        doubles.settle()
        doubles.advance(1000)
    log = doubles.log()
    assert not doubles.files.exists(f"{log.directory}/00000000000000000000.log")
    doubles.kill()  # an ordinary recovery lets the files be
    doubles.stop() if end == "stop" else doubles.settle()
    lose(doubles, "checkpoint-", "wal/")
    doubles.boot() if end == "stop" else doubles.kill()
    assert any("no checkpoint is there" in finding for finding in doubles.findings)
    assert not any("stream is unknown" in finding for finding in doubles.findings)
    goes_on_at(doubles, 2)


@pytest.mark.parametrize("header", ["is on disk", "is lost"])
def test_a_log_whose_last_records_were_lost_with_the_power_goes_on_without_checkpoints(header: str) -> None:
    """Of the file that they were in the name is left, and what says whose it is, at the latest after the next start."""
    doubles = emptied("os")
    doubles.settle()
    doubles.advance(1000)
    last = doubles.log().active.path
    doubles.files.unlink(last + ".index")
    doubles.restart()
    doubles.append(doubles.log(), b"lost")
    doubles.settle()
    if header == "is on disk":
        hold_place(doubles.files, doubles.log(), doubles.log().active)
    else:
        doubles.files.sync_directory(doubles.log().directory)
    doubles.crash()
    assert doubles.files.open(last + ".index").size()
    assert doubles.files.open(last + ".log").size() == 0
    doubles.crash()
    doubles.stop()
    lose(doubles, "checkpoint-", "wal/")
    doubles.boot()
    goes_on_at(doubles, 2)


def test_a_log_cut_to_its_start_goes_on_there_without_checkpoints() -> None:
    doubles = emptied("sync")
    doubles.settle()
    log = doubles.log()
    doubles.append(log, b"three", b"four")
    doubles.settle()
    doubles.advance(61_000)
    doubles.store.truncate(log, 2, doubles.store.node_epoch, lambda _: None)
    doubles.settle()
    doubles.stop()
    lose(doubles, "checkpoint-", "wal/")
    doubles.boot()
    goes_on_at(doubles, 2)


def test_a_clean_stop_needs_no_write_ahead_log() -> None:
    doubles, appends = written()
    doubles.stop()
    lose(doubles, "wal/")
    doubles.boot()
    assert doubles.findings == []
    check(doubles, appends)


def test_directories_that_are_missing_are_made_again() -> None:
    doubles, _ = written()
    doubles.files.remove_directory("wal")
    doubles.files.remove_directory("logs")
    doubles.kill()
    assert any("write-ahead log" in finding for finding in doubles.findings)
    appended = doubles.append(doubles.log(0), b"goes on")
    doubles.settle()
    doubles.advance(1000)
    assert appended.acknowledged


def test_a_node_that_wrote_nothing_yet_has_lost_nothing() -> None:
    doubles = StoreOnDoubles()
    for _ in range(2):
        doubles.kill()
        assert doubles.findings == []
    lose(doubles, "checkpoint-", "wal/")
    doubles.kill()
    assert doubles.findings == []


@pytest.mark.parametrize("wal", ["wal is there", "wal is lost"])
def test_records_of_a_log_that_nobody_knows_stay_for_good(wal: str) -> None:
    doubles, _ = written()
    doubles.stop()
    doubles.boot()
    log = doubles.log(1)
    files = {path for path in kept_files(doubles) if path.startswith(f"{log.directory}/") and path.endswith(".log")}
    contents = {path: bytes(doubles.files.open(path).read(0, 1 << 20)) for path in files}
    epoch = max(header(content).leader_epoch for content in contents.values())
    for path in kept_files(doubles):
        if path.startswith(f"{log.directory}/") and path.endswith(".index"):
            doubles.files.unlink(path)
    lose(doubles, "checkpoint-", *(["wal/"] if wal == "wal is lost" else []))
    doubles.kill()
    if wal == "wal is lost":
        assert any(f"{log.directory}: the log's stream is unknown" in finding for finding in doubles.findings)
    assert doubles.store.node_epoch > epoch
    for restart in (doubles.kill, doubles.restart, doubles.crash):
        restart()
        doubles.append(doubles.log(7), b"life goes on")
        doubles.settle()
        doubles.advance(61_000)
    assert doubles.log(7).id > log.id
    for path, content in contents.items():
        assert bytes(doubles.files.open(path).read(0, 1 << 20)) == content


def test_the_metadata_log_is_known_by_its_id() -> None:
    doubles = StoreOnDoubles()
    key = LogKey(METADATA_STREAM_ID, 0)
    metadata = doubles.store.ensure(key, LogConfig())
    assert metadata.id == METADATA_LOG_ID
    doubles.append(metadata, b"event")
    doubles.append(doubles.log(), b"record")
    doubles.settle()
    doubles.advance(61_000)
    lose(doubles, "checkpoint-", "wal/", f"{metadata.directory}/00000000000000000000.index")
    doubles.kill()
    for _ in range(2):
        found = doubles.store.log(key)
        assert found is not None
        assert doubles.values(found) == [b"event"]
        assert doubles.values(doubles.log()) == [b"record"]
        # Its index says so again.
        lose(doubles, "checkpoint-", "wal/")
        doubles.kill()


def test_bytes_that_are_no_batch_stay_and_what_lies_around_them_is_served() -> None:
    doubles, appends = written()
    doubles.stop()
    log = doubles.log(1)
    values = expected_values(appends[1:300:3])
    second, last = log.segments[1], log.segments[-1]
    end_offset = log.end_offset
    contents = {}
    for segment in (second, last):
        path = segment.path + ".log"
        doubles.files.corrupt(path, 100)
        contents[path] = bytes(doubles.files.open(path).read(0, 1 << 20))
    lose(doubles, "checkpoint-", "wal/")
    doubles.boot()
    log = doubles.log(1)
    third = next(segment.base_offset for segment in log.segments if segment.base_offset > second.base_offset)
    assert doubles.values(log, third) == values[third : last.base_offset]
    assert (second.base_offset, third - 1) in log.damage
    assert log.end_offset == last.base_offset < end_offset
    appended = doubles.append(log, b"new")
    doubles.settle()
    doubles.advance(61_000)
    assert appended.base_offset == last.base_offset
    doubles.kill()
    assert doubles.values(doubles.log(1), third) == [*values[third : last.base_offset], b"new"]
    now = [bytes(doubles.files.open(path).read(0, 1 << 20)) for path in kept_files(doubles)]
    assert all(content in now for content in contents.values())


def test_a_log_whose_beginning_the_write_ahead_log_lost_is_found_in_its_segments() -> None:
    doubles = StoreOnDoubles()
    doubles.append(doubles.log(0), b"first")
    doubles.settle()
    created = doubles.store.wal_end & 0xFFFFFFFF
    late = doubles.store.ensure(LogKey(uuid.UUID(int=7), 0), LogConfig())
    doubles.append(late, b"in the segment")
    doubles.settle()
    doubles.advance(1000)
    doubles.append(late, b"in the write-ahead log")
    doubles.settle()
    doubles.files.corrupt("wal/000000.wal", created + 20)
    doubles.kill()
    assert any("damage in the write-ahead log" in finding for finding in doubles.findings)
    found = doubles.store.log(late.key)
    assert found is not None
    assert found.id == late.id
    assert doubles.values(found) == [b"in the segment", b"in the write-ahead log"]


def test_the_newest_file_of_the_write_ahead_log_alone_is_missed() -> None:
    doubles, appends = written()
    assert len([path for path in doubles.files.paths() if path.startswith("wal/")]) > 1
    for path in doubles.files.paths():
        if path.startswith("wal/"):
            head = doubles.files.open(path).read(0, 200)
            if find_generation(head, wal_salt(doubles.directory.id)) == doubles.store.wal_end >> 32:
                doubles.files.unlink(path)
    doubles.kill()
    assert any("write-ahead log" in finding for finding in doubles.findings)
    check(doubles, appends)


@pytest.mark.variants(1)
@pytest.mark.parametrize("prefixes", [("checkpoint-",), ("wal/",), ("checkpoint-", "wal/")])
def test_a_crash_in_every_call_of_a_rescue(prefixes: tuple[str, ...]) -> None:
    doubles, _ = written()
    lose(doubles, *prefixes)
    before = doubles.files.calls
    doubles.kill()
    for call in range(1, doubles.files.calls - before + 1):
        doubles, appends = written()
        files = kept_files(doubles)
        for path in files:
            doubles.files.open(path).sync()
        for directory in ("", "wal", "logs", *{path.rpartition("/")[0] for path in files}):
            doubles.files.sync_directory(directory)
        lose(doubles, *prefixes)
        doubles.files.crash_at = doubles.files.calls + call
        with pytest.raises(Crashed):
            doubles.kill()
        doubles.crash(random.Random(call) if call % 2 else None)
        check(doubles, appends)
        assert doubles.store.node_epoch > 2


def test_a_segment_file_made_again_outlives_a_loss_of_power() -> None:
    doubles, _ = written()
    doubles.stop()
    path = doubles.log(0).active.path + ".log"
    doubles.files.unlink(path)
    doubles.files.sync_directory(doubles.log(0).directory)
    doubles.boot()
    doubles.append(doubles.log(0), b"goes on")
    doubles.settle()
    doubles.advance(61_000)
    size = doubles.files.open(path).size()
    doubles.crash()
    assert doubles.files.open(path).size() == size


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_an_index_made_again_says_whose_log_it_is(durability: str) -> None:
    doubles = StoreOnDoubles()
    config = LogConfig(durability=durability)
    doubles.append(doubles.log(0, config), b"a")
    doubles.settle()
    doubles.stop()
    index = doubles.log(0, config).active.path + ".index"
    doubles.files.unlink(index)
    doubles.boot()
    doubles.append(doubles.log(0, config), b"b")
    doubles.settle()
    doubles.advance(1000)
    lose(doubles, "checkpoint-", "wal/")
    doubles.kill()
    assert doubles.values(doubles.log(0, config)) == [b"a", b"b"]


def test_durability_os_an_index_that_a_loss_of_power_has_emptied_says_whose_log_it_is_after_the_next_start() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(durability="os"))
    doubles.append(log, b"a")
    doubles.settle()
    doubles.files.replace(log.active.path + ".index", b"")
    doubles.kill()
    lose(doubles, "checkpoint-", "wal/")
    doubles.kill()
    assert doubles.values(doubles.log(0)) == [b"a"]


def test_a_kill_in_any_call_of_a_first_copy_leaves_a_log_that_is_known_without_checkpoints() -> None:
    for calls in range(1, 100):
        doubles = StoreOnDoubles()
        doubles.append(doubles.log(), b"let go")
        doubles.settle()
        doubles.store.delete_before(doubles.log(), 1, lambda _: None)
        doubles.advance(61_000)
        doubles.restart()
        doubles.restart()  # the write-ahead log knows nothing of the log's beginning any more
        append = doubles.append(doubles.log(), b"acknowledged")
        doubles.worker.run_soon()
        doubles.worker.step("sync")
        assert append.acknowledged
        doubles.clock.advance(6000)
        doubles.files.crash_at = doubles.files.calls + calls
        try:
            doubles.deadlines.fire(doubles.clock.monotonic_ms())
            doubles.settle()
        except Crashed:
            doubles.files.crash_at = None
        else:
            assert calls > 2
            return
        lose(doubles, "checkpoint-")
        doubles.kill()
        assert doubles.values(doubles.log()) == [b"acknowledged"]
    raise AssertionError("it never ended")
