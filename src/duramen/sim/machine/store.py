"""A store on test doubles: a disk in memory, jobs and time driven by hand, crashes and restarts on demand."""

import random
import uuid
from collections.abc import Iterable
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.metrics import Metrics
from duramen.codec.batch import BatchInput, DecodedRecord, batches, check, encode, records
from duramen.sim.machine.clock import ManualClock, ManualWorker, SeededRandomness
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.storage.directory import DataDirectory, open_directory
from duramen.storage.log.log import Log, LogConfig, LogKey
from duramen.storage.recovery.recovery import Recovered, recover
from duramen.storage.scan import read_slice
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.reader import Blocked, Slice
from duramen.storage.store import Store, StoreLimits

__all__ = ["SMALL", "AppendOutcome", "StoreOnDoubles"]

SMALL: Final = StoreLimits(
    wal_file_bytes=64 << 10, wal_max_bytes=1 << 20, pending_bytes=256 << 10, copy_bytes=16 << 10, copy_interval_ms=1000
)
"""Bounds at which rolls, copies and checkpoints happen every few batches."""


class AppendOutcome:
    """The outcome of an append: `base_offset` or `error` once it is decided."""

    def __init__(self, values: tuple[bytes, ...]) -> None:
        self.values = values
        self.base_offset: int | None = None
        self.error: DuramenError | None = None

    def done(self, base_offset: int, error: DuramenError | None) -> None:
        """The store's callback; ValueError where it is called twice."""
        if self.decided:
            raise ValueError("an append was answered twice")
        self.base_offset, self.error = base_offset, error

    @property
    def decided(self) -> bool:
        """Whether it was answered."""
        return self.base_offset is not None

    @property
    def acknowledged(self) -> bool:
        """Whether it was answered without an error."""
        return self.decided and self.error is None


class StoreOnDoubles:
    """The store and its environment. `findings` is the report of the last recovery."""

    def __init__(self, limits: StoreLimits = SMALL, files: MemoryFileSystem | None = None) -> None:
        self.limits = limits
        self.files = files if files is not None else MemoryFileSystem()
        self.clock = ManualClock()
        self.findings: list[str] = []
        self.boot()

    def boot(self) -> None:
        """Start on the directory as it is."""
        self.worker = ManualWorker()
        self.deadlines = Deadlines()
        self.metrics = Metrics()
        self.findings = []
        self.directory: DataDirectory = open_directory(self.files, SeededRandomness(7), "the disk in memory")
        handles = Handles(self.files, 16)
        self.recovered: Recovered = recover(self.files, self.directory.id, handles, self.findings.append)
        self.store = Store(
            self.files, self.worker, self.clock, self.deadlines, self.metrics, self.directory, self.recovered, handles,
            node_id=1, limits=self.limits,
        )  # fmt: skip

    def crash(self, seed: random.Random | None = None) -> None:
        """Lose the power, keeping nothing unsynced or as `seed` draws, and start again."""
        self.files.crash(seed)
        self.boot()

    def kill(self) -> None:
        """End the process as kill -9 does: the operating system keeps every write; start again."""
        self.files.locks.clear()
        self.boot()

    def stop(self) -> OSError | None:
        """Stop cleanly; returns the store's result."""
        outcome: list[OSError | None] = []
        self.store.stop(outcome.append)
        self.worker.settle()
        self.directory.lock.release()
        return outcome[0]

    def restart(self) -> None:
        """Stop in good order and start again. Raises OSError where stopping failed."""
        error = self.stop()
        if error is not None:
            raise error
        self.boot()

    def settle(self) -> None:
        """Run every job there is."""
        self.worker.settle()

    def advance(self, duration_ms: int) -> None:
        """Let time pass and run everything that is due."""
        self.clock.advance(duration_ms)
        self.deadlines.fire(self.clock.monotonic_ms())
        self.settle()

    @property
    def backlogged(self) -> bool:
        """Whether appends wait."""
        return self.metrics.counter("duramen_append_waiting").value > 0

    def advance_without_syncing(self, duration_ms: int) -> None:
        """Let time pass and run everything that is due, while the sync thread does not run."""
        self.worker.run_soon()
        self.clock.advance(duration_ms)
        self.deadlines.fire(self.clock.monotonic_ms())
        while self.worker.step("disk") or self.worker.step("read"):
            pass

    # -- logs ---------------------------------------------------------------------------------------

    def log(self, number: int = 0, config: LogConfig | None = None) -> Log:
        """Partition `number` of one stream; made where it is not there."""
        key = LogKey(uuid.UUID(int=0xD0), number)
        known = self.store.log(key)
        if known is not None and config is None:
            return known
        return self.store.ensure(key, config if config is not None else LogConfig(segment_bytes=64 << 10))

    def append(
        self, log: Log, *values: bytes, timestamp: int | None = None, producer: tuple[int, int, int] | None = None
    ) -> AppendOutcome:
        """Append one batch with these values; `producer` is (id, epoch, first sequence)."""
        at = self.clock.wall_ms() if timestamp is None else timestamp
        producer_id, epoch, sequence = producer if producer is not None else (-1, -1, -1)
        batch = encode(
            (BatchInput(at, None, value) for value in values),
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
        )  # fmt: skip
        appended = AppendOutcome(values)
        self.store.append(log, batch, check(batch), self.store.node_epoch, appended.done)
        return appended

    def read(self, log: Log, offset: int | None = None, max_bytes: int = 100_000) -> list[DecodedRecord]:
        """Every record from `offset` (the log start) to the high watermark. Raises the errors of reads."""
        at = log.start_offset if offset is None else offset
        found: list[DecodedRecord] = []
        while at < log.high_watermark:
            slice_ = self.plan(log, at, max_bytes)
            if slice_ is None:
                raise AssertionError(f"offset {at} is below the high watermark {log.high_watermark} and cannot be read")
            for position, header in batches(data := self.bytes_of(slice_)):
                found += [
                    record
                    for record in records(memoryview(data)[position : position + header.size])
                    if record.offset >= at
                ]
                at = header.next_offset
        return found

    def plan(self, log: Log, offset: int, max_bytes: int) -> Slice | None:
        """`Log.plan_read`, with its waits."""
        while True:
            plan = log.plan_read(offset, max_bytes)
            if not isinstance(plan, Blocked):
                return plan
            self.store.unblock(plan, _raise)
            self._run_reads()

    def bytes_of(self, slice_: Slice) -> bytes:
        """The slice's bytes. Raises DuramenError or OSError where they cannot be read."""
        outcome: list[bytes | DuramenError | OSError] = []
        read_slice(self.store, slice_, outcome.append)
        self._run_reads()
        if not isinstance(outcome[0], bytes):
            raise outcome[0]
        return outcome[0]

    def _run_reads(self) -> None:
        # Nothing else: reads must not move the synced end.
        while self.worker.step("read"):
            pass

    def values(self, log: Log, offset: int | None = None) -> list[bytes]:
        """The values of `read`."""
        return [record.value or b"" for record in self.read(log, offset)]


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error


def expected_values(appends: Iterable[AppendOutcome]) -> list[bytes]:
    """The content of a log after these appends, all acknowledged, by offset."""
    by_offset = sorted((append.base_offset or 0, append.values) for append in appends)
    return [value for _, values in by_offset for value in values]
