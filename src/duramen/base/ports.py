"""The ports that the layers from storage to broker need: files, workers, clocks, randomness, views.

`host` implements them with the real thing, `duramen.sim` in memory. Both pass tests/ports, which has one conformance
suite per port.

Calls marked *plain* cannot block for long and run in the caller's thread. Calls marked *blocking* may wait for a disk:
storage makes them only inside a job that it hands to a `Worker`, whose completion comes back as an event on the
caller's side. The `Worker` may run a short job at once. A job touches nothing but files and its arguments.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeVar

__all__ = [
    "Buffer",
    "Clock",
    "File",
    "FileSystem",
    "Lane",
    "Lock",
    "Randomness",
    "StateRows",
    "StateStore",
    "ViewStore",
    "Worker",
]

Buffer = bytes | bytearray | memoryview

Lane = Literal["sync", "disk", "rows", "read"]
"""Jobs of one lane run one after another; only those of `read` in any order, several at once.

`rows` are of what is derived from logs: who waits for it does not wait for segments to be copied and synced.
"""

T = TypeVar("T")


class File(Protocol):
    """An open file. Errors of the disk are OSError with errno set. Closed when nothing refers to it any more."""

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Plain: write at `position` (bytes) as one call; the number of bytes written may be short."""

    def read_cached(self, position: int, size: int) -> Buffer | None:
        """Plain: the bytes at `position` if memory has all of them, otherwise None.

        Short only at the end of the file.
        """

    def read(self, position: int, size: int) -> Buffer:
        """Blocking: the bytes at `position`; short only at the end of the file."""

    def read_ahead(self, position: int, size: int) -> None:
        """Start to read these bytes from disk; a hint. Later reads of this file read nothing else ahead."""

    def forget(self, position: int, size: int) -> None:
        """Plain: memory need not keep these bytes for reading them again; a hint. Nothing is lost."""

    def write_back(self, position: int, size: int) -> None:
        """Plain: begin to bring these bytes to the disk; a hint. None of them is sure to be there before `sync`."""

    def sync(self) -> None:
        """Blocking: everything written before this call, and the size, is on disk when it returns (fdatasync)."""

    def truncate(self, size: int) -> None:
        """Blocking: cut or extend with zeros."""

    def allocate(self, size: int) -> None:
        """Blocking: give the file `size` bytes that a later write cannot run out of space for."""

    def size(self) -> int:
        """Plain: bytes."""

    def close(self) -> None:
        """Plain: give the file back now."""


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Let others have it."""


class FileSystem(Protocol):
    """A directory tree. Paths are relative to its root, with `/` between their parts."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Plain: open for reading and writing. FileNotFoundError if it is absent and not to be created."""

    def exists(self, path: str) -> bool:
        """Plain: whether a file or directory exists."""

    def in_place(self, path: str) -> bool:
        """Plain, from any thread: whether a file that was open before still exists at its path.

        May rely on reports of the system instead of looking: moves and removals before the present event are noticed.
        """

    def names(self, path: str) -> list[str]:
        """Blocking: names in a directory, sorted; FileNotFoundError if it does not exist."""

    def make_directory(self, path: str) -> None:
        """Plain: create it and its parents; nothing if it exists."""

    def rename(self, old: str, new: str) -> None:
        """Blocking: in one step; replaces `new`."""

    def unlink(self, path: str) -> None:
        """Blocking: remove a file; open handles stay readable. Nothing if it is absent."""

    def remove_directory(self, path: str) -> None:
        """Blocking: remove it with everything in it; nothing if it is absent."""

    def sync_directory(self, path: str) -> None:
        """Blocking: names made, renamed and removed in it before this call are on disk when it returns."""

    def lock(self, path: str) -> Lock | None:
        """Plain: take the lock file `path`, making it; None where another process holds it."""


class Worker(Protocol):
    """Runs blocking work elsewhere, and plain work a little later."""

    def soon(self, action: Callable[[], None]) -> None:
        """Run `action` on the caller's side once the present event has been handled."""

    def submit(
        self, lane: Lane, job: Callable[[], T], done: Callable[[T | BaseException], None], *, brief: bool = False
    ) -> None:
        """Run `job` in `lane`; then, on the caller's side and never inside this call, `done(result or exception)`.

        `brief`: the job is known to be short and its lane is empty, so it may run inside this call, and `done` too. It
        raises nothing but OSError.
        """

    def hurry(self, *, crowded: bool) -> None:
        """Whether many callers wait for jobs, so that completing one is worth more than the caller's next step."""


class Clock(Protocol):
    """Time, as whole milliseconds and as fine seconds for measuring."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC; may jump."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some start; never goes back."""

    def seconds(self) -> float:
        """Seconds since the start of `monotonic_ms` with the finest resolution there is; never goes back."""

    def pause(self, duration_s: float) -> None:
        """Blocking: wait for about this time; for jobs of a `Worker`."""


class Randomness(Protocol):
    """Unpredictable bytes; from a seed in tests."""

    def token(self, size: int) -> bytes:
        """`size` random bytes."""


class StateRows(Protocol):
    """Rows to be read."""

    def get(self, key: bytes) -> bytes | None:
        """Plain: the value of `key`. Raises StateDamaged if it is damaged, StorageFailed if it cannot be read now."""

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Plain: the values of `keys`, in their order. Raises as `get`."""

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Plain: entries with `first <= key < end` in order. Raises as `get`."""

    def ceiling(self, key: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Plain: the first entry at or behind `key`, before `end`. Raises as `scan`."""
        return next(self.scan(key, end), None)

    def ceilings(self, keys: Sequence[bytes], end: bytes) -> Sequence[tuple[bytes, bytes] | None]:
        """Plain: `ceiling` of each key. Raises as `scan`."""
        return [self.ceiling(key, end) for key in keys]


class ViewStore(StateRows, Protocol):
    """An ordered map of bytes to bytes on disk that is written in atomic batches.

    After a crash the map is as it was after *some* earlier batch, at or after the last flush: batches are never
    torn and never reordered. So a position written in each batch tells which of them survived. Blocking methods raise
    as `get`.
    """

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Plain: entries with `first <= key < end` in order, as they were at this call.

        Reads nothing outside the range: it takes no longer where neighbours were deleted. Once the store is closed or
        has other rows, the next entry is StorageFailed.
        """

    def version(self) -> object:
        """Plain: differs after each batch that is not empty. Reads between two equal ones saw the same entries."""

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        """Blocking: apply the puts, then the deletes, atomically; reads see them at once."""

    def flush(self) -> None:
        """Blocking: everything written before this call survives a crash."""

    def close(self) -> None:
        """Blocking: flush and give it back."""


class StateStore(ViewStore, Protocol):
    """A ViewStore for rows that exist nowhere else: it keeps named checkpoints of all of them.

    It deletes no damaged rows: it sets them aside, the first and the newest ones of them.
    """

    problem: str
    """The damage because of which the rows can only be read, as far as they can be, until others replace them."""

    def make_checkpoint(self, name: str) -> None:
        """Blocking: keep the rows as they are now, flushed, under a new name; on disk when this returns."""

    def checkpoints(self) -> list[str]:
        """Blocking: the names of the checkpoints that there are, sorted."""

    def open_checkpoint(self, name: str) -> ViewStore:
        """Blocking: the rows of a checkpoint, read-only. Raises StateDamaged if there are none that can be read."""

    def remove_checkpoint(self, name: str) -> None:
        """Blocking: remove a checkpoint that is not open; nothing if it is absent."""

    def reopen(self) -> None:
        """Blocking: close it and open it again, as after a crash."""

    def restore(self, name: str) -> str:
        """Blocking: set the rows aside and use those of a checkpoint; returns where the former ones are."""

    def replace(self, rows: Iterable[tuple[bytes, bytes]]) -> str:
        """Blocking: like `restore`, with these rows, which may be read from this store."""

    def set_aside(self, name: str) -> str:
        """Blocking: set a checkpoint aside; returns where it is, or an empty text if there is none of this name."""
