"""A cut on a disk that is full waits for room; logs take writes again once a shortage is over."""

import errno
import os
from typing import Final

import pytest

from duramen.base.errors import DuramenError, StorageFull
from duramen.codec.batch import BatchInput, check, encode
from duramen.sim.machine.disk import MemoryFile, MemoryFileSystem
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig

NEEDS_SPACE: Final = ("write", "allocate", "create", "rename", "make_directory", "truncate")


class Disk:
    """Calls but those to the write-ahead log fail from the `since`-th on, until there is room."""

    def __init__(self, store: StoreOnDoubles, since: int, number: int = errno.ENOSPC) -> None:
        self.failed = 0
        self._number = number
        self._left = since
        store.files.interfere = self._interfere

    def _interfere(self, call: str, path: str, size: int) -> int:
        if call in NEEDS_SPACE and not path.startswith("wal/"):
            self._left -= 1
            if self._left < 0:
                self.failed += 1
                raise OSError(self._number, os.strerror(self._number))
        return size


def _filled(store: StoreOnDoubles, durability: str) -> Log:
    log = store.log(0, LogConfig(durability=durability, segment_bytes=2_000))
    for number in range(10):
        store.append(log, b"%d" % number * 600)
    store.settle()
    return log


def _values(*numbers: int) -> list[bytes]:
    return [b"%d" % number * 600 for number in numbers]


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_cut_that_finds_no_space_is_made_once_there_is_room(durability: str) -> None:
    for since in range(100):
        store = StoreOnDoubles()
        log = _filled(store, durability)
        disk, cut = Disk(store, since), list[DuramenError | None]()
        store.store.truncate(log, 3, store.store.node_epoch, cut.append)
        store.advance(5_000)
        assert cut == [None] or (cut == [] and isinstance(store.store.condition.problem, StorageFull))
        store.files.interfere = None
        for _ in range(5):
            store.advance(1_000)
        assert cut == [None]
        appended = store.append(log, b"new")
        store.settle()
        assert appended.acknowledged
        store.kill()
        assert store.findings == []
        assert store.values(store.log()) == [*_values(0, 1, 2), b"new"]
        if not disk.failed:
            return
    raise AssertionError("the cut makes calls without end")


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_store_stops_though_a_cut_waits_for_room_and_the_next_start_makes_it_or_does_not(durability: str) -> None:
    for since in range(100):
        store = StoreOnDoubles()
        log = _filled(store, durability)
        disk, cut = Disk(store, since), list[DuramenError | None]()
        store.store.truncate(log, 3, store.store.node_epoch, cut.append)
        store.settle()
        waits = cut == []
        error = store.stop()
        assert len(cut) == 1
        assert isinstance(cut[0], StorageFull) or not waits
        assert disk.failed or error is None
        store.files.interfere = None
        store.boot()
        assert store.findings == []
        assert store.values(store.log()) in (_values(*range(3)), _values(*range(10)))
        if not disk.failed:
            return
    raise AssertionError("the cut makes calls without end")


def test_appends_that_do_not_wait_for_room_are_refused_while_the_log_that_was_cut_cannot_go_on() -> None:
    store = StoreOnDoubles()
    log = _filled(store, "os")
    cut: list[DuramenError | None] = []
    store.store.truncate(log, 3, store.store.node_epoch, cut.append)
    store.settle()
    Disk(store, 0)
    refused = store.append(log, b"refused")
    store.settle()
    assert isinstance(refused.error, StorageFull)
    batch = encode([BatchInput(0, None, b"patient")])
    patient = AppendOutcome((b"patient",))
    store.store.append(log, batch, check(batch), store.store.node_epoch, patient.done, patient=True)
    store.advance(5_000)
    assert not patient.decided
    store.files.interfere = None
    store.advance(1_000)
    store.advance(1_000)
    assert patient.acknowledged
    store.kill()
    assert store.values(store.log()) == [*_values(0, 1, 2), b"patient"]


class FewFiles(MemoryFileSystem):
    """No file can be opened while others have them all."""

    short = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.short:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().open(path, create=create, read_only=read_only)


def test_durability_os_a_log_takes_writes_again_where_its_segment_could_not_be_opened_to_be_synced() -> None:
    files = FewFiles()
    store = StoreOnDoubles(files=files)
    logs = [store.log(number, LogConfig(durability="os")) for number in range(60)]
    for log in logs:  # more than stay open
        store.append(log, b"a")
    store.settle()
    files.short = True
    store.advance(61_000)  # a checkpoint
    files.short = False
    store.advance(1_000)
    appended = [store.append(log, b"b") for log in logs]
    store.settle()
    assert all(one.acknowledged for one in appended)
    assert store.store.condition.problem is None
