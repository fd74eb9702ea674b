"""Too many open files, anywhere: what needs one is refused with that reason; it passes, and nothing is lost."""

import errno
import os

import pytest
from tests.reliability.support import LOGS, busy, keeps_the_promise

from duramen.base.errors import DuramenError, StorageFailed
from duramen.sim.machine.disk import MemoryFile, MemoryFileSystem
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles
from duramen.storage.log.log import LogConfig


class _FewFiles(MemoryFileSystem):
    """Opens no file while it is `exhausted`, from the call of that number on."""

    def __init__(self) -> None:
        super().__init__()
        self.exhausted = False
        self.opened = 0
        self.first = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        self.opened += 1
        if self.exhausted and self.opened > self.first:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, create=create, read_only=read_only)


def test_no_file_can_be_opened_for_reading() -> None:
    files = _FewFiles()
    doubles = StoreOnDoubles(files=files)
    appends: list[AppendOutcome] = []
    busy(doubles, appends, 1)
    doubles.restart()
    files.exhausted = True
    for number in range(LOGS):
        with pytest.raises(StorageFailed, match="Too many open files"):
            doubles.values(doubles.log(number))
    files.exhausted = False
    keeps_the_promise(doubles, appends)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_no_file_can_be_opened_for_writing(durability: str) -> None:
    config = LogConfig(durability=durability, segment_bytes=4000)
    for first in range(30):
        files = _FewFiles()
        doubles = StoreOnDoubles(files=files)
        appends: list[AppendOutcome] = []
        busy(doubles, appends, 2, batches=15, config=config)
        files.exhausted, files.first = True, files.opened + first
        for number in range(300):
            appends.append(doubles.append(doubles.log(number % LOGS, config), bytes([number % 256]) * 1500))
            if number % 20 == 0:
                doubles.advance(1000)
        doubles.settle()
        doubles.advance(61_000)
        assert all(append.decided for append in appends)
        refused: list[DuramenError] = [append.error for append in appends if append.error is not None]
        assert refused
        assert all("oo many open files" in str(error) for error in refused)
        files.exhausted = False
        for _ in range(10):
            doubles.advance(1500)
        again = [doubles.append(doubles.log(number), b"again") for number in range(LOGS)]
        doubles.settle()
        assert all(append.acknowledged for append in again), "it passes without a restart"
        appends += again
        keeps_the_promise(doubles, appends)
        doubles.kill()
        assert doubles.findings == []
        keeps_the_promise(doubles, appends)
