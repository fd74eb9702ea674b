"""Reads a partition's committed and locally synced records in pieces and applies them to a state."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from duramen.base.deadlines import Alarm, Deadlines
from duramen.base.errors import DuramenError, LogDamaged, StorageFailed
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.codec.batch import batches
from duramen.storage.log.log import Log
from duramen.storage.scan import OnDamage, read_slice
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import Store

__all__ = ["Applier", "Retry", "ShardState"]

_PIECE_BYTES: Final = 256 << 10
_FIRST_RETRY_MS: Final = 50
_LAST_RETRY_MS: Final = 5_000
_TRIES: Final = 5
Done = Callable[[DuramenError | None], None]


class ShardState(Protocol):
    """A state and its position."""

    @property
    def available(self) -> bool:
        """Whether the state can be used now; the component that makes it available calls `Applier.again`."""

    def position(self, log: Log) -> int:
        """The first offset that is not applied."""

    def apply(self, log: Log, found: list[bytes], next_offset: int, done: Done) -> None:
        """Apply whole batches, which may start before the position and have all records below `next_offset`."""


class Retry:
    """Retries until success, with growing delays."""

    def __init__(self, clock: Clock, deadlines: Deadlines, again: Callable[[], None]) -> None:
        self._clock = clock
        self._alarm = Alarm(deadlines, self._due)
        self._again = again
        self._failures = 0
        self._due_ms: int | None = None
        self._error: DuramenError | None = None

    @property
    def waits(self) -> bool:
        """Whether it has failed and the next try is not due."""
        return self._due_ms is not None

    @property
    def error(self) -> DuramenError | None:
        """The error, once it has persisted for some time."""
        return self._error if self._failures >= _TRIES else None

    @property
    def last(self) -> DuramenError | None:
        """The error of the last try."""
        return self._error

    def failed(self, error: DuramenError) -> None:
        """Schedule the next try."""
        self._error = error
        self._failures += 1
        # After some failures the delay is the longest one.
        delay_ms = min(_FIRST_RETRY_MS << min(self._failures, 10), _LAST_RETRY_MS)
        self._due_ms = self._clock.monotonic_ms() + delay_ms
        self._alarm.move(self._due_ms)

    def went_well(self) -> None:
        """Reset the delay."""
        self._failures, self._error = 0, None

    def end(self) -> None:
        """Cancel the next try."""
        self._due_ms = None
        self._alarm.move(None)

    def _due(self) -> None:
        if self._due_ms is None:
            return
        if self._clock.monotonic_ms() < self._due_ms:
            self._alarm.move(self._due_ms)
            return
        self._due_ms = None
        self._again()


class Applier:
    """Applies newly committed records to `state`. `advanced` is called after progress or a failure.

    Failures are retried; `retry.error` has one that persists. With `lost`, damaged records of the log do not stop it:
    `lost` receives them, and the records after them are applied.
    """

    def __init__(
        self, store: Store, partition: Partition, state: ShardState, clock: Clock, deadlines: Deadlines,
        advanced: Callable[[], None], lost: OnDamage | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._partition = partition
        self._state = state
        self._advanced = advanced
        self._lost = lost
        self._piece_bytes = _PIECE_BYTES  # one batch at a time around damage, so that no intact record is lost with it
        self._steps: tuple[Iterator[None], Done] | None = None
        self._busy = False
        self._over = False
        self.retry = Retry(clock, deadlines, self.again)
        partition.waiting[self._wake] = None
        self._wake(partition)

    def end(self) -> None:
        """Stop applying."""
        self._over = True
        self.retry.end()
        self._partition.waiting.pop(self._wake, None)

    def again(self) -> None:
        """The state was replaced: continue at its position."""
        self._wake(self._partition)

    @property
    def takes_steps(self) -> bool:
        """Whether nothing may be applied now."""
        return self._steps is not None

    def take_steps(self, steps: Iterator[None], done: Done) -> None:
        """Run steps, and apply nothing before they end. Steps of an earlier call are dropped."""
        self._steps = steps, done
        self._wake(self._partition)

    def _wake(self, _: Partition) -> None:
        if not self._busy and not self._over:
            self._busy = True
            self._store.soon(self._look)

    def _look(self) -> None:
        self._busy = False
        if self._over or self.retry.waits:
            return
        if self._steps is not None:
            self._step(self._steps)
            return
        if not self._state.available:
            return
        log = self._partition.log
        end_offset = self._partition.committed_offset()
        position = self._state.position(log)
        if position < log.start_offset:
            self._advanced()  # the owner of the state fetches the records that the log no longer has
        if not log.start_offset <= position < end_offset:
            return
        self._busy = True
        try:
            plan = log.plan_read(position, self._piece_bytes)
        except DuramenError as error:
            self._unread(log, position, end_offset, error)
            return
        if isinstance(plan, Blocked):
            self._store.unblock(plan, self._unblocked)
        elif plan is not None:
            read_slice(self._store, plan, partial(self._read, log, position, end_offset))
        elif self._lost is not None:
            self._state.apply(log, [], end_offset, self._applied)  # the rest of the log cannot be read
        else:
            self._busy = False

    def _step(self, wanted: tuple[Iterator[None], Done]) -> None:
        self._busy = True
        steps, done = wanted
        failed: DuramenError | None = None
        try:
            next(steps)
        except StopIteration:
            self.retry.went_well()
        except DuramenError as error:
            failed = error
        else:
            self._store.soon(self._look)
            return
        if self._steps is wanted:
            self._steps = None
        done(failed)
        if failed is not None:
            self._failed(failed)
        else:
            self._advanced()
            self._store.soon(self._look)

    def _unblocked(self, error: BaseException | None) -> None:
        if error is None:
            self._look()
        else:
            self._failed(error)

    def _read(self, log: Log, position: int, end_offset: int, data: bytes | DuramenError | OSError) -> None:
        if not isinstance(data, bytes):
            self._unread(log, position, end_offset, data)
            return
        self._piece_bytes = min(2 * self._piece_bytes, _PIECE_BYTES)
        found, next_offset = [], position
        for at, head in batches(data):
            if head.next_offset > end_offset:
                break
            if head.next_offset > position:
                next_offset = head.next_offset
                found.append(data[at : at + head.size])
        if next_offset == position or self._over or self._partition.log is not log:
            self._busy = False
        elif self._steps is not None or not self._state.available or self._state.position(log) != position:
            self._look()
        else:
            self._state.apply(log, found, next_offset, self._applied)

    # -- round damage -------------------------------------------------------------------------------

    def _unread(self, log: Log, position: int, end_offset: int, error: DuramenError | OSError) -> None:
        if self._lost is None or not isinstance(error, LogDamaged):
            self._failed(error)
        elif self._piece_bytes > 1:
            self._piece_bytes = 1
            self._store.soon(self._look)
        else:
            self._skip(log, position, end_offset, error)

    def _skip(self, log: Log, position: int, end_offset: int, error: LogDamaged) -> None:
        plan = log.plan_skip(position)
        if isinstance(plan, Blocked):
            self._store.unblock(plan, self._unblocked)
            return
        next_offset = min(plan, end_offset)
        stands = self._partition.log is log and self._state.available and self._state.position(log) == position
        if self._over or self._lost is None or not stands or self._steps is not None:
            self._look()
            return
        self._lost(position, next_offset - 1, error)
        self._state.apply(log, [], next_offset, self._applied)

    def _applied(self, error: DuramenError | None) -> None:
        if error is not None:
            self._failed(error)
            return
        self.retry.went_well()
        if not self._over:
            self._advanced()
        self._store.soon(self._look)

    def _failed(self, error: BaseException) -> None:
        self._busy = False
        if not self._over:
            self.retry.failed(
                error if isinstance(error, DuramenError) else StorageFailed(f"reading failed: {error}")
            )  # fmt: skip
            self._advanced()
