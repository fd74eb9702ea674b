"""Appends that wait for room in the write-ahead log always get it, with nobody's help but the clock's."""

import errno
import os
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ids import new_stream_id
from duramen.base.metrics import Metrics
from duramen.base.ports import Lane
from duramen.codec.batch import BatchInput, check, encode
from duramen.sim.machine.clock import ManualClock, ManualWorker, SeededRandomness
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.storage.directory import open_directory
from duramen.storage.log.log import LogConfig, LogKey
from duramen.storage.recovery.recovery import recover
from duramen.storage.segment.handles import Handles
from duramen.storage.store import Store, StoreLimits
from tests.examples import examples

_FILE_BYTES: Final = 100_000
_APPENDS: Final = 60


def open_store(
    files: MemoryFileSystem, worker: ManualWorker, clock: ManualClock, deadlines: Deadlines,
    randomness: SeededRandomness,
) -> Store:  # fmt: skip
    """A storage with a small write-ahead log."""
    directory = open_directory(files, randomness, "memory")
    handles = Handles(files, 100)
    return Store(
        files, worker, clock, deadlines, Metrics(), directory, recover(files, directory.id, handles, print), handles,
        node_id=1,
        limits=StoreLimits(
            wal_file_bytes=_FILE_BYTES, wal_max_bytes=8 * _FILE_BYTES, pending_bytes=1 << 20, copy_bytes=10_000
        ),
    )  # fmt: skip


def test_a_start_that_fails_leaves_nothing_that_fails_later() -> None:
    """Its checkpoint finds no space while the next file of the write-ahead log is being made."""
    files, worker = MemoryFileSystem(), ManualWorker()
    logging = False

    def interfere(call: str, path: str, size: int) -> int:
        nonlocal logging
        logging = logging or path.startswith("wal/")
        if logging and (call, path) == ("write", "checkpoint.new"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size

    files.interfere = interfere
    with pytest.raises(OSError, match="No space left"):
        open_store(files, worker, ManualClock(), Deadlines(), SeededRandomness())
    worker.settle()


@pytest.mark.parametrize("next_fails", [False, True])
def test_a_write_ahead_log_that_does_not_start_leaves_nothing_that_fails_later(*, next_fails: bool) -> None:
    """Its first file cannot be synced while the next one is being made, which comes to nothing too, or does not."""
    files, worker = MemoryFileSystem(), ManualWorker()
    syncs = 0

    def interfere(call: str, path: str, size: int) -> int:
        nonlocal syncs
        if call == "sync" and path.startswith("wal/"):
            syncs += 1
            if syncs == 2 or (syncs > 2 and next_fails):  # the first is of a file that has just been made
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size

    files.interfere = interfere
    with pytest.raises(OSError, match="Input/output error"):
        open_store(files, worker, ManualClock(), Deadlines(), SeededRandomness())
    worker.settle()
    assert syncs > 2


@given(st.randoms(use_true_random=False), st.integers(5_000, 150_000))
@settings(max_examples=examples(50))
def test_whoever_waits_for_the_write_ahead_log_gets_in(random: Random, size: int) -> None:
    files, worker, clock, deadlines = MemoryFileSystem(), ManualWorker(), ManualClock(), Deadlines()
    randomness = SeededRandomness()
    store = open_store(files, worker, clock, deadlines, randomness)
    log = store.ensure(LogKey(new_stream_id(randomness.token(16)), 0), LogConfig())
    ended: list[DuramenError | None] = []
    lanes: list[Lane] = ["sync", "disk", "read"]
    taken = 0
    while taken < _APPENDS:
        if random.random() < 0.5:
            batch = encode([BatchInput(1, None, bytes(size))])
            store.append(log, batch, check(batch), 1, lambda _, error: ended.append(error))
            taken += 1
        elif random.random() < 0.3:
            worker.run_soon()
        else:
            worker.step(random.choice(lanes))
    for _ in range(10):
        worker.settle()
        clock.advance(1000)
        deadlines.fire(clock.monotonic_ms())
    assert ended == [None] * _APPENDS
