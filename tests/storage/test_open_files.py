"""How many files are open at once does not grow with the number of logs that are written."""

import contextlib
import os
import uuid
from pathlib import Path

import pytest

from duramen.base.deadlines import Deadlines
from duramen.base.metrics import Metrics
from duramen.codec.batch import BatchInput, check, encode
from duramen.host.files import HostFile, HostFileSystem
from duramen.sim.machine.clock import ManualClock, ManualWorker, SeededRandomness
from duramen.storage.directory import open_directory
from duramen.storage.log.log import Log, LogConfig, LogKey
from duramen.storage.recovery.recovery import recover
from duramen.storage.segment.handles import Handles
from duramen.storage.store import Store, StoreLimits

DESCRIPTORS = Path("/proc/self/fd")
LOGS = 200
SEGMENTS_LEFT_OPEN = 16


def open_below(directory: str) -> int:
    """How many descriptors this process has of files there: threads of other tests may open and close their own."""
    found = 0
    for one in os.listdir(DESCRIPTORS):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            found += os.readlink(DESCRIPTORS / one).startswith(directory)
    return found


class Counting(HostFileSystem):
    """Notes the most descriptors there were."""

    most = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> HostFile:
        file = super().open(path, create=create, read_only=read_only)
        self.most = max(self.most, open_below(self._root))
        return file


def append_to(store: Store, logs: list[Log]) -> None:
    for log in logs:
        batch = encode([BatchInput(1, None, b"value")])
        store.append(log, batch, check(batch), store.node_epoch, None)


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="descriptors are counted in /proc")
def test_many_logs_are_copied_synced_and_checkpointed_with_few_files_open(tmp_path: Path) -> None:
    files, worker, clock = Counting(str(tmp_path)), ManualWorker(), ManualClock()
    directory = open_directory(files, SeededRandomness(), str(tmp_path))
    handles = Handles(files, SEGMENTS_LEFT_OPEN)
    recovered = recover(files, directory.id, handles, pytest.fail)
    store = Store(
        files, worker, clock, Deadlines(), Metrics(), directory, recovered, handles, node_id=1,
        limits=StoreLimits(wal_file_bytes=1 << 20, wal_max_bytes=8 << 20),
    )  # fmt: skip
    stream = uuid.UUID(int=0xD0)
    logs = [store.ensure(LogKey(stream, number), LogConfig()) for number in range(LOGS)]
    before = open_below(str(tmp_path))
    ended: list[OSError | None] = []
    for _ in range(2):  # the second time the files are there already
        append_to(store, logs)
        worker.settle()
        clock.advance(1000)
    append_to(store, logs)
    store.stop(ended.append)
    worker.settle()
    assert ended == [None]
    assert all(log.active.synced == log.active.size for log in logs)
    assert files.most - before < 3 * LOGS // 4
    assert open_below(str(tmp_path)) - before <= 2 * SEGMENTS_LEFT_OPEN + 1
