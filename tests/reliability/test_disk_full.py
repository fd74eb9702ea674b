"""A disk that is full: writes are refused with a clear error, reads go on, and it all goes on when there is space."""

import errno

import pytest
from tests.reliability.support import LOGS, FailingCalls, come_back, keeps_the_promise

from duramen.base.errors import StorageFull
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles
from duramen.storage.log.log import LogConfig

_CONFIG = LogConfig(segment_bytes=12_000)
_CALLS = {
    "write": ({"write"}, ["logs/", "checkpoint"]),  # those of the WAL lie in files that are preallocated
    "create": ({"create", "make_directory"}, [""]),
    "rename": ({"rename"}, [""]),
    "allocate": ({"allocate"}, [""]),
}


def _work(doubles: StoreOnDoubles, appends: list[AppendOutcome], batches: int) -> None:
    for number in range(batches):
        appends.append(doubles.append(doubles.log(number % LOGS, _CONFIG), bytes([number % 256]) * 2500))
        if number % 4 == 0:
            doubles.settle()
        if number % 16 == 0:
            doubles.advance(1000)
    doubles.settle()
    doubles.advance(61_000)


def _goes_on(doubles: StoreOnDoubles, appends: list[AppendOutcome]) -> None:
    """There is space again: it recovers by itself, without a restart, and nothing is lost by a crash after that."""
    for _ in range(10):
        doubles.advance(1500)
    assert doubles.metrics.counter("duramen_storage_full").value == 0
    assert doubles.metrics.counter("duramen_storage_failed").value == 0
    for _ in range(LOGS):
        appends.append(doubles.append(doubles.log(len(appends) % LOGS), b"there is space again"))
    doubles.settle()
    assert all(append.acknowledged for append in appends[-LOGS:])


def _check(doubles: StoreOnDoubles, appends: list[AppendOutcome]) -> None:
    assert all(append.decided for append in appends), "whoever waits is told"
    for append in appends:
        if append.error is not None:
            assert isinstance(append.error, StorageFull)
            assert "disk is full" in str(append.error)
    keeps_the_promise(doubles, appends)


@pytest.mark.variants(len(_CALLS))
@pytest.mark.parametrize("kind", _CALLS)
@pytest.mark.parametrize("times", [1, None], ids=["once", "for a while"])
def test_the_disk_is_full_at_every(kind: str, times: int | None) -> None:
    calls, prefixes = _CALLS[kind]
    doubles = StoreOnDoubles()
    counting = FailingCalls(doubles, calls, prefixes, errno.ENOSPC, times=0)
    _work(doubles, [], 60)
    assert counting.seen >= 1
    refused = 0
    for at in range(counting.seen):
        doubles = StoreOnDoubles()
        failing = FailingCalls(doubles, calls, prefixes, errno.ENOSPC, first=at, times=times)
        appends: list[AppendOutcome] = []
        _work(doubles, appends, 60)
        assert failing.failed
        _work(doubles, appends, 600 if times is None and at % 5 == 0 else 0)
        _check(doubles, appends)
        refused += sum(append.error is not None for append in appends)
        failing.failing = False
        _goes_on(doubles, appends)
        come_back(doubles, ("nothing unsynced", "some pages", "every write")[at % 3], at)
        assert doubles.findings == []
        _check(doubles, appends)
    assert refused or times == 1


def test_the_disk_is_full_at_every_byte_that_is_left() -> None:
    refused = 0
    for free_bytes in (*range(0, 3000, 97), *range(3000, 300_000, 9001)):
        doubles = StoreOnDoubles()
        doubles.settle()
        doubles.files.free_bytes = free_bytes
        appends: list[AppendOutcome] = []
        _work(doubles, appends, 150)
        _check(doubles, appends)
        refused += sum(append.error is not None for append in appends)
        doubles.files.free_bytes = 1 << 40
        _goes_on(doubles, appends)
        doubles.crash()
        _check(doubles, appends)
    assert refused


def _told(doubles: StoreOnDoubles) -> list[str]:
    """What the store tells of a full disk from now on."""
    told: list[str] = []
    doubles.store.when_full(
        lambda error, waiting: told.append(f"{error}, {waiting} bytes wait"), lambda: told.append("room")
    )
    return told


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_full_disk_is_told_once_and_so_is_that_writes_go_on(durability: str) -> None:
    doubles = StoreOnDoubles()
    config = LogConfig(durability=durability, segment_bytes=12_000)
    doubles.settle()
    told = _told(doubles)
    for _ in range(2):
        doubles.files.free_bytes = 30_000
        appends = [doubles.append(doubles.log(number % LOGS, config), bytes(2500)) for number in range(400)]
        doubles.settle()
        assert any(append.error is not None for append in appends)
        for _ in range(10):
            appends.append(doubles.append(doubles.log(0, config), bytes(2500)))
            doubles.advance(3000)
        (full,) = told
        assert full.startswith("the disk is full: ")
        assert (durability == "os") == full.endswith(", 0 bytes wait")
        doubles.files.free_bytes = 1 << 40
        for _ in range(10):
            doubles.advance(1500)
            doubles.append(doubles.log(0, config), bytes(2500))
        assert told == [full, "room"]
        told.clear()


def test_an_almost_full_disk_that_takes_what_is_small_is_told_once() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(durability="os", segment_bytes=1 << 20))
    doubles.append(log, b"first")
    doubles.settle()
    told = _told(doubles)
    for _ in range(40):
        for size, taken in ((20_000, False), (100, True)):
            doubles.files.free_bytes = 1000 if taken else 0
            append = doubles.append(log, bytes(size))
            doubles.settle()
            assert append.acknowledged == taken
        doubles.advance(700)
    assert len(told) == 1


def test_what_is_written_into_the_wal_was_allocated_before() -> None:
    """Running out of space shows when a file of it is made, before anything is promised that would lie in it."""
    doubles = StoreOnDoubles()
    doubles.settle()
    sizes = {path: doubles.files.open(path).size() for path in doubles.files.paths() if path.startswith("wal/")}
    appends: list[AppendOutcome] = []
    allocated: set[str] = set(sizes)

    def interfere(call: str, path: str, size: int) -> int:
        if path.startswith("wal/") and call == "allocate":
            allocated.add(path)
        if path.startswith("wal/") and call == "write":
            assert path in allocated
            sizes[path] = max(sizes.get(path, 0), doubles.files.open(path).size())
        return size

    doubles.files.interfere = interfere
    _work(doubles, appends, 300)
    assert len(sizes) > 3
    for path, size in sizes.items():
        assert doubles.files.open(path).size() == size, "a write made the file longer"
    keeps_the_promise(doubles, appends)


def _started(doubles: StoreOnDoubles) -> OSError | None:
    try:
        doubles.kill()
    except OSError as error:
        return error
    return None


def test_a_full_disk_at_the_start_is_named_and_costs_nothing() -> None:
    doubles = StoreOnDoubles()
    appends: list[AppendOutcome] = []
    _work(doubles, appends, 60)
    for calls, prefixes in _CALLS.values():
        doubles.files.end_process()
        FailingCalls(doubles, calls, prefixes, errno.ENOSPC)
        outcome = _started(doubles)
        assert outcome is None or outcome.errno == errno.ENOSPC
        doubles.files.interfere = None
    doubles.kill()
    assert doubles.findings == []
    keeps_the_promise(doubles, appends)
