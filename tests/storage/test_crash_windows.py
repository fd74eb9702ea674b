"""Crashes in windows that are open for a moment only: in a node's first start, and while it stops."""

import random

import pytest

from duramen.sim.disk import Crashed, MemoryFileSystem
from duramen.sim.store import StoreOnDoubles, expected_values


def first_start(crash_at: int) -> MemoryFileSystem | None:
    """A disk on which the first start ended in the call of that number; None where it has fewer."""
    files = MemoryFileSystem()
    files.crash_at = crash_at
    try:
        StoreOnDoubles(files=files)
    except Crashed:
        return files
    return None


@pytest.mark.parametrize("survives", ["nothing unsynced", "a part", "every write"])
def test_a_crash_in_every_call_of_the_first_start(survives: str) -> None:
    call = 1
    while (files := first_start(call)) is not None:
        files.crash_at = None
        if survives == "every write":
            files.locks.clear()
        else:
            files.crash(random.Random(call) if survives == "a part" else None)
        doubles = StoreOnDoubles(files=files)
        append = doubles.append(doubles.log(), b"first")
        doubles.settle()
        assert append.acknowledged
        call += 1
    assert call > 15


def test_a_crash_in_a_stop_that_came_during_a_checkpoint() -> None:
    disk_jobs = 0
    stopped: list[OSError | None] = []
    while not stopped:
        doubles = StoreOnDoubles()
        appends = [doubles.append(doubles.log(), b"copied")]
        doubles.settle()
        doubles.clock.advance(60_000)
        doubles.deadlines.fire(doubles.clock.monotonic_ms())
        for value in (b"covered by the checkpoint", b"not covered"):
            appends.append(doubles.append(doubles.log(), value))
            doubles.worker.run_soon()
            doubles.worker.step("sync")
            if value == b"covered by the checkpoint":
                doubles.worker.step("disk")  # the copy; now the checkpoint begins
        assert all(append.acknowledged for append in appends)
        stopped.clear()
        doubles.store.stop(stopped.append)
        doubles.worker.run_soon()
        for _ in range(disk_jobs):
            doubles.worker.step("disk")
        doubles.crash()
        assert doubles.values(doubles.log()) == expected_values(appends)
        disk_jobs += 1
    assert disk_jobs > 3
