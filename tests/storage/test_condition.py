"""A storage that takes no writes says so, and why; what the metadata log appends waits for room on a full disk."""

import errno
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, StorageFailed, StorageFull
from duramen.base.ids import new_stream_id
from duramen.codec.batch import BatchInput, check, encode
from duramen.sim.machine.clock import ManualClock, ManualWorker, SeededRandomness
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.storage.log.log import Log, LogConfig, LogKey
from tests.storage.test_store_room import open_store

_SIZE: Final = 30_000
_MANY: Final = 12


class Machine:
    """A storage on a disk in memory, and what it says of itself."""

    def __init__(self) -> None:
        self.files, self.worker, self.clock, self.deadlines = (
            MemoryFileSystem(),
            ManualWorker(),
            ManualClock(),
            Deadlines(),
        )
        randomness = SeededRandomness()
        self.store = open_store(self.files, self.worker, self.clock, self.deadlines, randomness)
        self.said: list[DuramenError | None] = []
        self.store.condition.watch(self.said.append)
        self.log = self.store.ensure(LogKey(new_stream_id(randomness.token(16)), 0), LogConfig())
        self.other = self.store.ensure(LogKey(new_stream_id(randomness.token(16)), 0), LogConfig())

    def append(self, log: Log, *, patient: bool = False) -> list[DuramenError | None]:
        """Append a batch; what comes of it, once something has."""
        batch, ended = encode([BatchInput(1, None, bytes(_SIZE))]), list[DuramenError | None]()
        self.store.append(log, batch, check(batch), 1, lambda _, error: ended.append(error), patient=patient)
        return ended

    def go_on(self, seconds: int = 10) -> None:
        """So much time goes by."""
        for _ in range(seconds):
            self.worker.settle()
            self.clock.advance(1000)
            self.deadlines.fire(self.clock.monotonic_ms())
        self.worker.settle()


def _types(errors: list[DuramenError | None]) -> list[type]:
    return [type(error) for error in errors]


def test_a_full_disk_is_said_once_and_so_is_that_there_is_room_again() -> None:
    machine = Machine()
    machine.files.free_bytes, taken = 0, machine.files.free_bytes
    ended = [machine.append(machine.log) for _ in range(_MANY)]
    waits = machine.append(machine.other, patient=True)
    behind = machine.append(machine.log)
    machine.go_on()
    assert StorageFull in [type(error) for one in ended for error in one]
    assert _types(behind) == [StorageFull]
    assert waits in ([], [None])  # never refused, whether there was room for it
    assert _types(machine.said) == [StorageFull]
    machine.files.free_bytes += taken
    machine.go_on()
    assert waits == [None]
    assert machine.append(machine.log) == []
    machine.go_on()
    assert _types(machine.said) == [StorageFull, type(None)]
    assert machine.store.condition.problem is None


def test_a_failed_sync_is_said_at_once_and_for_good() -> None:
    machine = Machine()

    def fail(call: str, _: str, size: int) -> int:
        if call == "sync":
            raise OSError(errno.EIO, "the disk")
        return size

    machine.files.interfere = fail
    ended = machine.append(machine.log)
    machine.go_on()
    machine.files.interfere = None
    machine.go_on()
    assert _types(ended) == [StorageFailed]
    assert _types(machine.said) == [StorageFailed]
