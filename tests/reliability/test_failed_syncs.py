"""Syncs that fail: of the write-ahead log they end writing until a restart, of a segment they cost nothing."""

import errno
import random

import pytest
from tests.reliability.support import LOGS, FailingCalls, busy, come_back, keeps_the_promise

from duramen.base.errors import DirectoryUnusable, StorageFailed
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles, expected_values
from duramen.storage.log.log import LogConfig
from duramen.storage.store import StoreLimits

_CODES = {
    "EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT, "EROFS": errno.EROFS, "ENOMEM": errno.ENOMEM,
}  # fmt: skip


_ROOMY = StoreLimits(wal_file_bytes=1 << 20, wal_max_bytes=8 << 20, pending_bytes=1 << 20, copy_bytes=64 << 10)


def _syncs_of_the_wal() -> int:
    """In one file of it, which is there from the start: those of files in the making fail for another reason."""
    doubles = StoreOnDoubles(_ROOMY)
    doubles.settle()
    counting = FailingCalls(doubles, {"sync"}, ["wal/"], errno.EIO, times=0)
    busy(doubles, [], 3)
    return counting.seen


def _nothing_is_written_any_more(doubles: StoreOnDoubles) -> None:
    """Whatever is asked for and however long one waits."""
    content = [doubles.values(doubles.log(number)) for number in range(LOGS)]
    ends = [(log.start_offset, log.high_watermark) for log in map(doubles.log, range(LOGS))]
    for _ in range(3):
        for number in (*range(LOGS), LOGS + 1):
            append = doubles.append(doubles.log(number), b"after the failure")
            doubles.settle()
            assert isinstance(append.error, StorageFailed)
            assert "no writes until it is restarted" in str(append.error)
        doubles.advance(61_000)
    assert [doubles.values(doubles.log(number)) for number in range(LOGS)] == content, "reads go on"
    assert [(log.start_offset, log.high_watermark) for log in map(doubles.log, range(LOGS))] == ends


@pytest.mark.variants(len(_CODES))
@pytest.mark.parametrize("code", _CODES)
@pytest.mark.parametrize("survives", ["nothing unsynced", "every write"])
def test_a_sync_of_the_wal_fails_once(code: str, survives: str) -> None:
    for at in range(_syncs_of_the_wal()):
        doubles = StoreOnDoubles(_ROOMY)
        doubles.settle()
        failing = FailingCalls(doubles, {"sync"}, ["wal/"], _CODES[code], first=at, times=1)
        appends: list[AppendOutcome] = []
        busy(doubles, appends, 3)
        assert failing.failed == 1
        assert doubles.metrics.counter("duramen_storage_failed").value == 1
        answered = sum(append.decided for append in appends)
        assert answered == len(appends), "whoever waits is told"
        _nothing_is_written_any_more(doubles)
        acknowledged = [append.acknowledged for append in appends]
        assert acknowledged == sorted(acknowledged, reverse=True), "something was acknowledged after the failure"
        doubles.files.interfere = None
        come_back(doubles, survives, at)
        keeps_the_promise(doubles, appends)
        again = [doubles.append(doubles.log(number), b"again") for number in range(LOGS)]
        doubles.settle()
        assert all(append.acknowledged for append in again)


def test_a_write_to_the_wal_fails_once() -> None:
    for at in range(0, 40, 3):
        doubles = StoreOnDoubles()
        failing = FailingCalls(doubles, {"write"}, ["wal/"], errno.EIO, first=at, times=1)
        appends: list[AppendOutcome] = []
        busy(doubles, appends, 4)
        if not failing.failed:
            continue
        doubles.files.interfere = None
        if doubles.metrics.counter("duramen_storage_failed").value:
            _nothing_is_written_any_more(doubles)
        come_back(doubles, "every write", at)
        keeps_the_promise(doubles, appends)


def test_a_sync_of_a_segment_fails_at_any_time_and_nothing_is_lost() -> None:
    doubles = StoreOnDoubles()
    counting = FailingCalls(doubles, {"sync"}, ["logs/"], errno.EIO, times=0)
    busy(doubles, [], 5)
    doubles.advance(61_000)
    assert counting.seen > 10
    for at in range(counting.seen):
        for survives in ("nothing unsynced", "some pages", "every write"):
            doubles = StoreOnDoubles()
            failing = FailingCalls(doubles, {"sync"}, ["logs/"], errno.EIO, first=at, times=1)
            appends: list[AppendOutcome] = []
            busy(doubles, appends, 5)
            doubles.advance(61_000)
            assert failing.failed == 1
            assert all(append.acknowledged for append in appends), "the WAL has them"
            assert doubles.metrics.counter("duramen_segments_rewritten_total").value == 1
            come_back(doubles, survives, at)
            assert doubles.findings == []
            keeps_the_promise(doubles, appends)


def test_durability_os_after_a_failed_sync_of_its_segment_a_log_takes_no_writes_until_restart() -> None:
    config = LogConfig(durability="os", segment_bytes=2000)
    doubles = StoreOnDoubles()
    appends = [doubles.append(doubles.log(number % 2, config), b"%d" % number * 100) for number in range(20)]
    doubles.settle()
    bad = doubles.log(0)
    FailingCalls(doubles, {"sync"}, [f"{bad.directory}/"], errno.EIO, times=1)
    doubles.advance(61_000)
    refused, taken = doubles.append(bad, b"no"), doubles.append(doubles.log(1), b"yes")
    doubles.settle()
    assert isinstance(refused.error, StorageFailed)
    assert taken.acknowledged
    doubles.files.interfere = None
    doubles.kill()
    found = doubles.values(doubles.log(0, config))
    assert found == expected_values(appends[0::2])[: len(found)]
    assert doubles.values(doubles.log(1, config)) == [*expected_values(appends[1::2]), b"yes"]
    again = doubles.append(doubles.log(0, config), b"again")
    doubles.settle()
    assert again.base_offset == len(found)


_CHANGES = {"write", "sync", "create", "rename", "unlink", "sync_directory", "truncate", "allocate", "make_directory"}


@pytest.mark.parametrize("at", [0, 7, 30, 60])
def test_the_disk_becomes_read_only_in_the_middle(at: int) -> None:
    doubles = StoreOnDoubles()
    FailingCalls(doubles, _CHANGES, [""], errno.EROFS, first=at)
    appends: list[AppendOutcome] = []
    busy(doubles, appends, 6)
    assert not all(append.acknowledged for append in appends)
    _nothing_is_written_any_more(doubles)
    before = {path: bytes(doubles.files.open(path).read(0, 1 << 22)) for path in doubles.files.paths()}
    FailingCalls(doubles, _CHANGES, [""], errno.EROFS)
    with pytest.raises((OSError, DirectoryUnusable)):
        doubles.kill()  # a start changes things: it is refused, and nothing is reset to zero
    assert {path: bytes(doubles.files.open(path).read(0, 1 << 22)) for path in doubles.files.paths()} == before
    doubles.files.interfere = None
    doubles.kill()
    keeps_the_promise(doubles, appends)


def test_syncs_fail_at_random_over_many_lives() -> None:
    for seed in range(25):
        chance = random.Random(seed)
        doubles = StoreOnDoubles()
        content: list[list[bytes]] = [[] for _ in range(LOGS)]
        for life in range(4):
            FailingCalls(
                doubles, {"sync"}, chance.choice((["wal/"], ["logs/"], [""])), errno.EIO,
                first=chance.randrange(30), times=1,
            )  # fmt: skip
            appends: list[AppendOutcome] = []
            busy(doubles, appends, seed * 10 + life, batches=30)
            doubles.files.interfere = None
            doubles.crash(random.Random(seed))
            for number in range(LOGS):
                found = doubles.values(doubles.log(number))
                acknowledged = [append for append in appends[number::LOGS] if append.acknowledged]
                least = content[number] + expected_values(acknowledged)
                assert found[: len(least)] == least
                content[number] = found
