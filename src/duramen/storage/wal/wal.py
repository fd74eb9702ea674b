"""The node's write-ahead log: the batches of all logs one after another in preallocated, recycled files.

Frames are staged in memory, written together, and made durable by one sync at a time in the worker's `sync` lane.
Completions for WAL positions run in the order of positions. Invariants:

- a frame counts as synced only if it was written before the sync that covers it *began* (late capture);
- one sync is in progress at a time; if one append waits alone, syncs are short on average and the last one is not
  recent, the worker may run it at once (`brief`), which saves two thread wake-ups;
- a failed write or sync ends all writing until restart; it is never retried;
- a file is recycled only after `release` has said that nothing needs it.
"""

import errno
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from duramen.base.errors import DuramenError, StorageFailed
from duramen.base.metrics import Metrics
from duramen.base.ports import Buffer, Clock, File, FileSystem, Worker
from duramen.storage.io import write_all
from duramen.storage.wal.frames import FRAME_HEADER_BYTES, FrameType, encode, encode_all, position
from duramen.storage.wal.pool import WAL_DIRECTORY, WalFile, WalPool, wal_path

__all__ = ["FILE_PAYLOAD_BYTES", "WAL_DIRECTORY", "HeldFile", "Syncable", "Synced", "Wal", "wal_path"]

FILE_PAYLOAD_BYTES: Final = 16 + 4 + 8

_PAGE_BYTES: Final = 4096
_ZEROS: Final = memoryview(bytes(_PAGE_BYTES))

_LONG_S: Final = 0.002  # of a sync: beyond it, fewer syncs are worth more than earlier ones
_SHORT_S: Final = 0.0005  # of a sync: below it, there is too little to do meanwhile to start early
_TRUSTED: Final = 100  # syncs after a start until their usual length is known
_LONGER_S: Final = (_SHORT_S, 0.005, 0.05)
_RESTS: Final = (1, 10, 50, 500)
"""After a sync, the multiple of its length without an immediate sync; the first for those below `_LONGER_S[0]`."""
_CROWD: Final = 8
_LOOK_S: Final = 0.1
_PAUSE_SHARE: Final = 0.1


class Syncable(Protocol):
    """A log in the view of the WAL."""

    def synced_to(self, end_offset: int) -> None:
        """Everything below `end_offset` is durable now."""

    def notify(self) -> None:
        """Called once after one or more `synced_to`: readers may continue."""


_Waiting = tuple[int, Syncable | None, int, Callable[..., None] | None, int | None, int]
"""A position, a log to advance up to an offset, a callback (with the error, and perhaps a base offset before it), and
the number of its waiters."""


class Synced(NamedTuple):
    """The result of a sync: everything up to the WAL position `until` is durable; `again`: the next one is running."""

    until: int
    seconds: float
    again: bool


class HeldFile(NamedTuple):
    """A readable part of the WAL: frames of `file` from the place `start` to the place `end`."""

    file: File
    generation: int
    start: int
    end: int
    salt: int


def _rest_of_page(end: int, capacity: int) -> Buffer:
    """Zeros: to write a part of an uncached page, the system would have to read it from the disk first."""
    return _ZEROS[: min(-end % _PAGE_BYTES, capacity - end)]


class Wal:
    """Appends, syncs, waits and recycles. One thread calls everything except the submitted jobs."""

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        clock: Clock,
        metrics: Metrics,
        *,
        directory_id: bytes,
        salt: int,
        file_bytes: int,
        max_bytes: int,
        on_room: Callable[[], None],
    ) -> None:
        """`salt` seeds the frames' CRCs; `on_room` is called when the result of `room` may have changed."""
        self._files = files
        self._worker = worker
        self._clock = clock
        self._directory_id = directory_id
        self._salt = salt
        self._on_room = on_room

        self._pool = WalPool(
            files, worker, file_bytes=file_bytes, max_bytes=max_bytes, on_room=on_room, on_failure=self._fail
        )
        self._used: deque[WalFile] = deque()
        self._generation = 0

        self._staged: list[Buffer] = []
        self._staged_bytes = 0
        self._staged_place = 0
        self._waiting: deque[_Waiting] = deque()
        self._waiting_count = 0
        self._releasing = False  # the callbacks of a sync are running, or those of its readers
        self._afterwards: list[Callable[[], None]] = []

        # Read by the sync job in its own thread: each is replaced as a whole, `_dirty` before `_written`.
        self._written = 0
        self._dirty: tuple[WalFile, ...] = ()
        self._syncing = False
        self._covered = 0  # the sync job's own: the end of the last one
        self.largest_bytes: Final = self._pool.max_bytes // 2 - 4 * FRAME_HEADER_BYTES - FILE_PAYLOAD_BYTES
        """The largest frame payload that can ever be staged: there is room for its own file besides the one in use."""
        self._usual_s = 0.0
        self._known_syncs = 0
        self._brief_from_s = 0.0
        self._pause_s = 0.0
        self._look_s = 0.0
        self._crowded = False
        self.synced = 0
        self.failed: DuramenError | None = None
        self.on_failure: Callable[[DuramenError], None] = lambda _: None

        self._sync_seconds = metrics.histogram("duramen_wal_sync_seconds")
        self._write_bytes = metrics.histogram("duramen_wal_write_bytes")
        self._bytes = metrics.counter("duramen_wal_bytes")
        self._failed_gauge = metrics.counter("duramen_storage_failed")

    # -- life ---------------------------------------------------------------------------------------

    def start(self, existing: list[tuple[int, File, int]], generation: int) -> None:
        """Start with the existing WAL files, as (slot, file, capacity), all of them free, in `generation`.

        Blocking: for the start of a node, before requests are served. Raises OSError.
        """
        self._generation = generation - 1
        self._pool.start(existing)
        try:
            self._open_next(0)
            # Durable before requests are served: if a later start finds no file of this generation, one was lost.
            self._put()
            self._used[-1].file.sync()
        except OSError:
            self._pool.abandon()
            raise
        self._dirty = ()
        self.synced = self._covered = self._written

    @property
    def end(self) -> int:
        """The WAL position after everything staged."""
        return position(self._generation, self._staged_place)

    @property
    def idle(self) -> bool:
        """Whether everything staged is synced."""
        return self.synced == self.end

    @property
    def generation(self) -> int:
        """The generation of the file in use."""
        return self._generation

    # -- appending ----------------------------------------------------------------------------------

    def room(self, size: int) -> bool:
        """Whether frames of `size` bytes (headers included) can be staged now; if not, `on_room` tells when to retry.

        It also requests a new file in time.
        """
        current = self._used[-1]
        if self._staged_place + size <= current.capacity:
            return True
        need = size + FRAME_HEADER_BYTES + FILE_PAYLOAD_BYTES
        if self._pool.has(need):
            return True
        if self._pool.full is None:  # else `retry` checks for space
            self._pool.prepare(need)
        return False

    @property
    def preparing(self) -> bool:
        """Whether a file is being created."""
        return self._pool.preparing

    @property
    def full(self) -> DuramenError | None:
        """The reason why no file can be created, if the disk is full."""
        return self._pool.full

    def keep_together(self, size: int) -> None:
        """Put the frames of `size` bytes in all (headers included) that are staged next into one file and one write.

        So one sync covers all of them or none. `room` must have been true.
        """
        if self._staged_place + size > self._used[-1].capacity:
            self._write()
            self._open_next(size)

    def stage(self, type_: FrameType, log_id: int, payload: Buffer) -> int:
        """Stage a frame after the last one; returns the WAL position after it. `room` must have been true."""
        size = FRAME_HEADER_BYTES + len(payload)
        if self._staged_place + size > self._used[-1].capacity:
            self._write()
            self._open_next(size)
        place = self._staged_place
        self._staged += (
            encode(type_, log_id, payload, self._generation, place, self.synced, self._salt),
            payload,
        )
        self._staged_bytes += size
        self._staged_place = end = place + size
        return self._generation << 32 | end

    def fits(self, size: int, count: int) -> bool:
        """Whether `count` frames with payloads of `size` bytes in all fit into the file in use."""
        return self._staged_place + size + FRAME_HEADER_BYTES * count <= self._used[-1].capacity

    def stage_all(self, type_: FrameType, log_id: int, payloads: Sequence[Buffer]) -> int:
        """Like `stage` for each payload; `fits` must have been true."""
        generation, place = self._generation, self._staged_place
        frames, end = encode_all(type_, log_id, payloads, generation, place, self.synced, self._salt)
        self._staged += frames
        self._staged_bytes += end - place
        self._staged_place = end
        return generation << 32 | end

    def _open_next(self, need: int) -> None:
        need += FRAME_HEADER_BYTES + FILE_PAYLOAD_BYTES
        previous_end = self.end
        file = self._pool.take(need)
        self._generation += 1
        file.generation = self._generation
        file.end = 0
        self._used.append(file)
        self._bytes.value += file.capacity
        self._staged_place = 0
        payload = self._directory_id + (1).to_bytes(4, "big") + previous_end.to_bytes(8, "big")
        self.stage(FrameType.FILE, 0, payload)
        self._pool.prepare(self._pool.file_bytes)  # the next one, ahead of need

    def wait(
        self,
        until: int,
        done: Callable[[DuramenError | None], None] | None,
        log: Syncable | None = None,
        end_offset: int = 0,
        count: int = 1,
    ) -> None:
        """When everything up to the WAL position `until` is synced, advance `log`, then call `done(None)`.

        `until` is never before that of an earlier call. On failure `done` gets the error. It serves `count` waiters.
        """
        if done is not None and (self.failed is not None or until <= self.synced):
            failed = self.failed
            self._worker.soon(lambda: done(failed))
            return
        self._waiting.append((until, log, end_offset, done, None, count))
        self._waiting_count += count

    def wait_appended(
        self,
        until: int,
        done: Callable[[int, DuramenError | None], None] | None,
        base_offset: int,
        log: Syncable | None = None,
        end_offset: int = 0,
    ) -> None:
        """Like `wait`, for a batch: then call `done(base_offset, None)`, or `done(-1, error)`."""
        if done is not None and (self.failed is not None or until <= self.synced):
            self._worker.soon(partial(done, base_offset if self.failed is None else -1, self.failed))
            return
        self._waiting.append((until, log, end_offset, done, base_offset, 1))
        self._waiting_count += 1

    def flush(self) -> None:
        """Write the staged frames, and start their sync."""
        if self._staged:
            self._write()
        if not self._syncing and self._written > self.synced and self.failed is None:
            self._syncing = True
            crowd = self._waiting_count > 1 and self._usual_s > _LONG_S
            self._pause_s = self._usual_s * _PAUSE_SHARE if crowd else 0.0
            self._worker.submit("sync", self._sync_job, self._sync_done, brief=self._is_brief())

    def _is_brief(self) -> bool:
        """Whether one append waits alone for a usually short sync, and the last sync was not too recent."""
        return (
            self._waiting_count == 1
            and self._usual_s < _LONG_S
            and self._known_syncs >= _TRUSTED
            and self._clock.seconds() >= self._brief_from_s
        )

    @property
    def crowded(self) -> bool:
        """Whether many appends wait for a slow disk: see `flush_early`."""
        return self._crowded

    def flush_early(self) -> None:
        """Between requests of one turn: if many appends wait for a slow disk, keep it busy.

        The next sync covers the frames written by then, even while the other requests are still being handled.
        """
        if self._crowded and len(self._staged) >= _CROWD:
            if self._syncing:
                self._write()
            else:
                self.flush()

    def _write(self) -> None:
        if self.failed is not None:
            self._staged.clear()
            return
        try:
            self._put()
        except OSError as error:
            self._fail(f"writing the write-ahead log failed ({error.strerror or error})")

    def _put(self) -> None:
        current = self._used[-1]
        if not self._dirty or self._dirty[-1] is not current:
            self._dirty = (*self._dirty, current)
        write_all(current.file, [*self._staged, _rest_of_page(self._staged_place, current.capacity)], current.end)
        self._write_bytes.observe(self._staged_bytes)
        current.end += self._staged_bytes
        self._staged = []
        self._staged_bytes = 0
        self._written = position(self._generation, current.end)

    # -- syncing ------------------------------------------------------------------------------------

    def _sync_job(self) -> Synced:
        if self._pause_s:
            # Clients answered by the last sync send again at once: without this wait they split into two alternating
            # groups.
            self._clock.pause(self._pause_s)
        # Late capture: frames written during the sync are not covered by it.
        captured = self._written
        started = self._clock.seconds()
        look = started >= self._look_s
        for file in self._dirty:
            if file.generation < self._covered >> 32:
                continue  # the last sync covered all of it: it may be reused by now
            file.file.sync()
            if look and not self._files.in_place(wal_path(file.slot)):
                raise OSError(errno.ENOENT, f"{wal_path(file.slot)} is gone: was the data directory moved or deleted?")
        ended = self._clock.seconds()
        seconds = ended - started
        self._covered = captured
        again = self._written > captured and seconds < _LONG_S and self.failed is None
        if again:
            # Here and not in `_sync_done`: the callbacks of this sync run during the next one.
            self._pause_s = 0.0
            # Syncs in a row check only now and then whether the files' names are durable.
            self._look_s = ended + _LOOK_S if look else self._look_s
            self._worker.submit("sync", self._sync_job, self._sync_done)
        else:
            self._look_s = 0.0
        return Synced(captured, seconds, again)

    def _sync_done(self, result: Synced | BaseException) -> None:
        self._syncing = isinstance(result, Synced) and result.again
        if self.failed is not None:
            return
        if isinstance(result, BaseException):
            self._fail(f"syncing the write-ahead log failed ({result})")
            return
        captured, seconds, _ = result
        self.synced = captured
        if self._dirty[0].generation < captured >> 32:
            self._dirty = tuple(file for file in self._dirty if file.generation >= captured >> 32)
        self._rate(seconds)
        if self._written > captured or self._staged:
            self.flush()
        self._release_waiting(None)
        self._sync_seconds.observe(seconds)

    def _rate(self, seconds: float) -> None:
        """Record the duration of a sync: it determines when the next one may run at once, and how early to start."""
        # At a low rate syncs start with cold caches and take several times as long as in a row: there is time for them.
        rest_s = seconds * _RESTS[bisect_right(_LONGER_S, seconds)]
        self._usual_s += (seconds - self._usual_s) / 8
        self._known_syncs += 1
        self._brief_from_s = max(self._brief_from_s, self._clock.seconds() + rest_s)
        crowded = self._waiting_count > _CROWD and _SHORT_S < self._usual_s < _LONG_S
        if crowded != self._crowded:
            self._crowded = crowded
            self._worker.hurry(crowded=crowded)

    def _release_waiting(self, error: DuramenError | None) -> None:
        waiting, synced = self._waiting, self.synced
        touched: dict[Syncable, None] = {}  # not a set: its order must be deterministic
        self._releasing = True
        try:
            while waiting and (error is not None or waiting[0][0] <= synced):
                _, log, end_offset, done, base_offset, count = waiting.popleft()
                self._waiting_count -= count
                if log is not None and error is None:
                    log.synced_to(end_offset)
                    touched[log] = None
                if done is None:
                    continue
                if base_offset is None:
                    done(error)
                else:
                    done(base_offset if error is None else -1, error)
        finally:
            self._releasing = False
        if self._afterwards:
            self._do_afterwards()
        if touched:
            self._notify(touched)

    def _notify(self, logs: Iterable[Syncable]) -> None:
        self._releasing = True
        try:
            for log in logs:
                log.notify()
        finally:
            self._releasing = False
        if self._afterwards:
            self._do_afterwards()

    def after_release(self, action: Callable[[], None]) -> None:
        """Run `action` soon: during the completions of a sync, or while readers are notified, after all of them."""
        if not self._afterwards and not self._releasing:
            self._worker.soon(self._do_afterwards)
        self._afterwards.append(action)

    def _do_afterwards(self) -> None:
        afterwards, self._afterwards = self._afterwards, []
        for action in afterwards:
            action()

    def _fail(self, message: str) -> None:
        self.failed = StorageFailed(f"{message}: this node accepts no writes until it is restarted")
        self._failed_gauge.value = 1
        self._pool.close()
        self.on_failure(self.failed)
        self._staged.clear()
        self._release_waiting(self.failed)
        self._on_room()

    # -- files --------------------------------------------------------------------------------------

    def release(self, until: int) -> None:
        """Frames before the WAL position `until` are no longer needed: recycle the files that end before it."""
        while len(self._used) > 1 and self._used[0].generation < until >> 32 and self._used[0] not in self._dirty:
            file = self._used.popleft()
            self._pool.give_back(file)
            self._bytes.value -= file.capacity
        self._on_room()

    def oldest(self) -> int:
        """The oldest WAL position that is kept."""
        return position(self._used[0].generation, 0)

    def held(self, since: int) -> list[HeldFile]:
        """The written frames since the WAL position `since`, which is not released; staged frames are written first."""
        self.flush()
        return [
            HeldFile(
                file.file,
                file.generation,
                since & 0xFFFFFFFF if file.generation == since >> 32 else 0,
                file.end,
                self._salt,
            )
            for file in self._used
            if file.generation >= since >> 32
        ]

    @property
    def releasable(self) -> bool:
        """Whether there are files that `release` could recycle."""
        return len(self._used) > 1

    def free_bytes(self) -> int:
        """The number of bytes that can be staged before a file has to be released."""
        return self._used[-1].capacity - self._staged_place + self._pool.free_bytes()

    def retry(self) -> None:
        """Check whether there is space again."""
        self._pool.retry()
