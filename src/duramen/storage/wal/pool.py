"""The free files of the write-ahead log: created ahead of need, within a limit, and recycled.

A job creates a file and writes all its blocks, so that a later sync has only data to write. If the disk has no room,
this fails here, before anything is acknowledged.
"""

from collections.abc import Callable, Iterable
from typing import Final

from duramen.base.errors import DuramenError, StorageFull
from duramen.base.ports import File, FileSystem, Worker
from duramen.storage.io import is_full, is_passing, write_all

__all__ = ["WAL_DIRECTORY", "WalFile", "WalPool", "wal_path"]

WAL_DIRECTORY: Final = "wal"

_ZEROS: Final = bytes(1024 * 1024)
_FIRST_ZEROED_BYTES: Final = 8 * 1024 * 1024


def wal_path(slot: int) -> str:
    """The path of a WAL file; a slot keeps its name through every generation."""
    return f"{WAL_DIRECTORY}/{slot:06d}.wal"


class WalFile:
    """A file of the write-ahead log, of `capacity` bytes; `end` is the end of its frames in this generation."""

    __slots__ = ("capacity", "end", "file", "generation", "slot")

    def __init__(self, slot: int, file: File, capacity: int) -> None:
        self.slot = slot
        self.file = file
        self.capacity = capacity
        self.generation = 0
        self.end = 0


class WalPool:
    """Hands out files and takes them back; files in use count towards the limit too."""

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        *,
        file_bytes: int,
        max_bytes: int,
        on_room: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """`on_room` is called when a file may be available; `on_failure` when none will ever be."""
        self.file_bytes = file_bytes
        self.max_bytes = max_bytes
        self.full: DuramenError | None = None
        self.preparing = False
        self._files = files
        self._worker = worker
        self._on_room = on_room
        self._on_failure = on_failure
        self._free: list[WalFile] = []
        self._slots = 0
        self._total_bytes = 0
        self._closed = False
        self._abandoned = False

    def start(self, existing: Iterable[tuple[int, File, int]]) -> None:
        """Start with the existing files, as (slot, file, capacity), and at least one.

        Files beyond the limit are removed: it was larger before. So are smaller files: a crash has left them
        incomplete, or the configured size was smaller. Blocking. Raises OSError.
        """
        for slot, file, capacity in existing:
            if capacity < self.file_bytes or self._total_bytes + capacity > self.max_bytes:
                file.close()
                self._files.unlink(wal_path(slot))
            else:
                self._add(WalFile(slot, file, capacity))
        if not self._free:
            self._add(self._make(self._slots, self.file_bytes, _FIRST_ZEROED_BYTES))
        else:
            # A killed process may have created one whose name is not durable.
            self._files.sync_directory(WAL_DIRECTORY)

    def close(self) -> None:
        """Create no more files."""
        self._closed = True

    def abandon(self) -> None:
        """The start has failed: ignore files that are being created."""
        self._closed = self._abandoned = True

    def has(self, need: int) -> bool:
        """Whether a file of at least `need` bytes is free."""
        return any(file.capacity >= need for file in self._free)

    def take(self, need: int) -> WalFile:
        """The next free file of at least `need` bytes, which must exist."""
        file = next(file for file in self._free if file.capacity >= need)
        self._free.remove(file)
        return file

    def give_back(self, file: WalFile) -> None:
        """The file is no longer needed."""
        self._free.append(file)

    def free_bytes(self) -> int:
        """Bytes of the free files, and of those that may still be created."""
        return sum(file.capacity for file in self._free) + max(0, self.max_bytes - self._total_bytes)

    def retry(self) -> None:
        """Check whether there is space again."""
        if self.full is not None and not self.preparing:
            self.prepare(self.file_bytes)
            if not self.preparing:
                self.full = None  # no file is needed any more
                self._on_room()

    def prepare(self, need: int) -> None:
        """Create a free file of at least `need` bytes ahead of need, within the limit."""
        size = max(need, self.file_bytes)
        if self.preparing or self._closed or self.has(size):
            return
        if self._total_bytes - sum(file.capacity for file in self._free) + size > self.max_bytes:
            return
        too_small: list[WalFile] = []
        while self._total_bytes + size > self.max_bytes:
            too_small.append(self._free.pop())
            self._total_bytes -= too_small[-1].capacity
        self.preparing = True
        slot = self._slots

        def job() -> WalFile:
            for file in too_small:
                self._files.unlink(wal_path(file.slot))
            return self._make(slot, size, size)

        self._worker.submit("read", job, self._prepared)

    def _prepared(self, result: WalFile | BaseException) -> None:
        self.preparing = False
        if self._abandoned:
            if isinstance(result, WalFile):
                result.file.close()
            return
        if isinstance(result, WalFile):
            self._add(result)
            self.full = None
        elif isinstance(result, OSError) and is_full(result):
            self.full = StorageFull("the disk is full: the write-ahead log cannot grow")
        elif isinstance(result, OSError) and is_passing(result):
            self.full = StorageFull(f"the write-ahead log cannot grow: {result.strerror}")
        else:
            self._on_failure(f"making a file of the write-ahead log failed ({result})")
            return
        self._on_room()

    def _add(self, file: WalFile) -> None:
        self._free.append(file)
        self._slots = max(self._slots, file.slot + 1)
        self._total_bytes += file.capacity

    def _make(self, slot: int, size: int, zeroed_bytes: int) -> WalFile:
        # Written blocks sync in 60 % of the time of merely allocated ones.
        path = wal_path(slot)
        try:
            file = self._files.open(path, create=True)
            file.allocate(size)
            for start in range(0, min(size, zeroed_bytes), len(_ZEROS)):
                write_all(file, [_ZEROS[: min(len(_ZEROS), size - start)]], start)
                if start:
                    file.sync()  # in small steps: syncs of others wait behind each
            file.sync()
            # Written in steps of a MiB, it is cached in folios of that size, and each write scans a whole one.
            file.forget(0, size)
            self._files.sync_directory(WAL_DIRECTORY)
        except OSError:
            self._files.unlink(path)
            raise
        return WalFile(slot, file, size)
