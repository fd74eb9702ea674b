"""A whole broker on test doubles: nothing happens except what a test triggers, and time stands still.

No event loop, thread, file or system clock. `settle` runs waiting work, `advance` advances the time and fires
deadlines; a test that needs control between two steps uses `worker` and `clock` directly.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.deadlines import Deadlines
from duramen.base.metrics import Metrics
from duramen.base.settings import Settings
from duramen.broker.fetch import Fetcher, FetchResult, PartitionFetch
from duramen.broker.streams import Stream
from duramen.broker.views.parts import ViewLimits
from duramen.codec.batch import BatchInput, DecodedRecord, batches, encode, records
from duramen.controller.admin.cluster import AdministeredMembership
from duramen.coordinators.runtime.shard import ShardKind
from duramen.metadata.decisions import Definition
from duramen.service.assembly import Ports
from duramen.service.broker import Broker
from duramen.sim.machine.clock import ManualClock, ManualWorker, SeededRandomness
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.sim.machine.views import MemoryStateStore
from duramen.storage.directory import DataDirectory, open_directory
from duramen.storage.recovery.recovery import recover
from duramen.storage.scan import read_slice
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.reader import Slice
from duramen.storage.store import Store, StoreLimits

__all__ = ["CallbackResult", "ManualBroker"]

T = TypeVar("T")

_LIMITS = StoreLimits(
    wal_file_bytes=1 << 20, wal_max_bytes=8 << 20, pending_bytes=4 << 20, copy_bytes=1 << 20, copy_interval_ms=1000
)
_OPEN_SEGMENTS = 64
_VIEW_LIMITS = ViewLimits(pause_ms=0)  # decided commands are applied


class CallbackResult(Generic[T]):
    """The arguments of a callback; a second call is an error that fails the test."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *values: Any) -> None:
        if self.calls:
            raise AssertionError(f"answered {self.calls[0]} and then {values}")
        self.calls.append(values)

    @property
    def there(self) -> bool:
        """Whether the answer has come."""
        return bool(self.calls)

    @property
    def value(self) -> T:
        """The one value, or the first of several; raises the error where there is one among them."""
        error = self.error
        if error is not None:
            raise error
        value: T = self.calls[0][0]
        return value

    @property
    def error(self) -> BaseException | None:
        """The error among the values, if there is one."""
        if not self.calls:
            raise AssertionError("there is no answer yet")
        return next((value for value in self.calls[0] if isinstance(value, BaseException)), None)


class ManualBroker:
    """A broker with its ports in a test's hand. `settings` by dotted names, over the catalogue's defaults."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        seed: int = 0,
        limits: StoreLimits = _LIMITS,
        membership: Callable[["ManualBroker"], AdministeredMembership] | None = None,
        kinds: Sequence[ShardKind[Any]] = (),
        view_limits: ViewLimits = _VIEW_LIMITS,
    ) -> None:
        """Without a `standing`, asked for at each start, the node is alone. `kinds` of coordinators run on it."""
        self._membership = membership
        self._kinds = kinds
        self.settings = Settings(BROKER, options={"group.initial.rebalance.delay.ms": 0, **(settings or {})})
        self.files = MemoryFileSystem()
        self.rows = MemoryStateStore()
        self.clock = ManualClock()
        self.randomness = SeededRandomness(seed)
        self.reports: list[str] = []
        self._limits = limits
        self.view_limits = view_limits
        self.start()

    def start(self) -> None:
        """Open the directory as a node does, and load its content."""
        self.worker = ManualWorker()
        self.deadlines = Deadlines()
        self.metrics = Metrics()
        directory = open_directory(self.files, self.randomness, "memory")
        self.store = self._open_store(directory)
        ports = Ports(self.worker, self.clock, self.randomness, lambda: self.rows)
        self.broker = Broker(
            ports, self.deadlines, self.store, self.settings, self.metrics,
            directory_id=str(directory.id), report=self.reports.append,
            membership=None if self._membership is None else self._membership(self), kinds=self._kinds,
            view_limits=self.view_limits,
        )  # fmt: skip
        started: CallbackResult[None] = CallbackResult()
        self.broker.start(started)
        self.settle()
        if started.value is not None:
            raise AssertionError(started.value)

    def _open_store(self, directory: DataDirectory) -> Store:
        handles = Handles(self.files, _OPEN_SEGMENTS)
        recovered = recover(self.files, directory.id, handles, self.reports.append)
        return Store(
            self.files, self.worker, self.clock, self.deadlines, self.metrics, directory, recovered, handles,
            node_id=self.settings.integer("node.id"), limits=self._limits,
        )  # fmt: skip

    def stop(self) -> None:
        """Stop it cleanly."""
        stopped: CallbackResult[None] = CallbackResult()
        self.broker.stop(stopped)
        self.settle()
        if stopped.error is not None:
            raise stopped.error
        self.files.locks.clear()

    def restart(self) -> None:
        """Stop it cleanly and start it again."""
        self.stop()
        self.start()

    def crash(self, seed: int | None = None) -> None:
        """Cut the power and start again: unsynced bytes are lost, or survive as `seed` draws."""
        self.files.crash(None if seed is None else random.Random(seed))
        self.rows.crash(random.Random(seed))
        self.start()

    # -- time ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Run every job and its consequences until no job is left."""
        self.worker.settle()

    def advance(self, duration_ms: int) -> None:
        """Let time pass, run everything that is due at its time, and settle each time."""
        until_ms = self.clock.monotonic_ms() + duration_ms
        self.settle()
        while (next_ms := self.broker.next_deadline_ms()) is not None and next_ms <= until_ms:
            self.clock.advance(max(0, next_ms - self.clock.monotonic_ms()))
            self.broker.fire()
            self.settle()
        self.clock.advance(until_ms - self.clock.monotonic_ms())

    # -- records ------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, **config: object) -> Stream:
        """A stream, once its creation is durable; config names with `_` for `.`. Raises DuramenError."""
        texts = {key.replace("_", "."): str(value) for key, value in config.items()}
        created: CallbackResult[None] = CallbackResult()
        self.broker.create_stream(Definition(name, partitions, texts), created)
        self.settle()
        if created.error is not None:
            raise created.error
        return self.broker.streams.get(name)

    def delete(self, name: str) -> None:
        """Delete a stream, durably. Raises DuramenError."""
        deleted: CallbackResult[None] = CallbackResult()
        self.broker.delete_stream(name, deleted)
        self.settle()
        if deleted.error is not None:
            raise deleted.error

    def produce(self, name: str, *values: bytes, partition: int = 0, **batch: Any) -> CallbackResult[int]:
        """Append values as one batch; nothing is written or synced yet. The answer is the base offset."""
        now_ms = self.clock.wall_ms()
        encoded = encode((BatchInput(now_ms, None, value) for value in values), **batch)
        answer: CallbackResult[int] = CallbackResult()
        self.broker.streams.get(name).partition(partition).append(encoded, answer)
        return answer

    def fetch(
        self, *wanted: tuple[str, int, int], min_bytes: int = 1, max_bytes: int = 1 << 20, max_wait_ms: int = 0,
        partition_bytes: int = 1 << 20,
    ) -> tuple[CallbackResult[list[FetchResult]], Fetcher]:  # fmt: skip
        """Fetch from (stream, partition, offset); the response, its time, and the fetch itself."""
        answer: CallbackResult[list[FetchResult]] = CallbackResult()
        sources = [
            PartitionFetch(self.broker.streams.get(name).partition(index), offset, partition_bytes)
            for name, index, offset in wanted
        ]
        fetcher = self.broker.fetches.fetch(
            sources, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, done=answer
        )
        return answer, fetcher

    def read(self, slice_: Slice | None) -> list[DecodedRecord]:
        """The records of a fetched slice."""
        if slice_ is None:
            return []
        answer: CallbackResult[bytes] = CallbackResult()
        read_slice(self.store, slice_, answer)
        self.settle()
        data = answer.value
        whole = [data[position : position + found.size] for position, found in batches(data)]
        return [record for batch in whole for record in records(batch)]

    def values(self, name: str, partition: int = 0, offset: int = 0) -> list[bytes | None]:
        """Every value that a consumer sees from `offset` on."""
        values: list[bytes | None] = []
        while True:
            answer, _ = self.fetch((name, partition, offset))
            self.settle()
            found = answer.value[0].slice
            if found is None:
                return values
            values += [record.value for record in self.read(found) if record.offset >= offset]
            offset = found.next_offset
