"""The free files of the write-ahead log: created ahead of need, within a bound, and recycled.

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
    """A file of the write-ahead log, of `capacity` bytes; `end` is where its frames end in this generation."""

    __slots__ = ("capacity", "end", "file", "generation", "slot")

    def __init__(self, slot: int, file: File, capacity: int) -> None:
        self.slot = slot
        self.file = file
        self.capacity = capacity
        self.generation = 0
        self.end = 0


class WalPool:
    """Hands out files and takes them back; those that are handed out count towards the bound too."""

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
        """`on_room` is called when there may be a file that was not there; `on_failure` when none will ever come."""
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
        """Begin with the files there are, as (slot, file, capacity), and at least with one.

        Those that the bound has no room for go: it was larger before. So do those smaller than a file is made: a crash
        has left them half made, or files were smaller before. Blocking. Raises OSError.
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
            # One may have been made by a process that was killed before its name was on disk.
            self._files.sync_directory(WAL_DIRECTORY)

    def close(self) -> None:
        """No file is made any more."""
        self._closed = True

    def abandon(self) -> None:
        """The start has failed: nobody is there to be told of a file that is being made."""
        self._closed = self._abandoned = True

    def has(self, need: int) -> bool:
        """Whether a file of at least `need` bytes is free."""
        return any(file.capacity >= need for file in self._free)

    def take(self, need: int) -> WalFile:
        """The next free file of at least `need` bytes: there is one."""
        file = next(file for file in self._free if file.capacity >= need)
        self._free.remove(file)
        return file

    def give_back(self, file: WalFile) -> None:
        """Nothing in the file is needed any more."""
        self._free.append(file)

    def free_bytes(self) -> int:
        """Bytes of the files that are free, and of those that may still be made."""
        return sum(file.capacity for file in self._free) + max(0, self.max_bytes - self._total_bytes)

    def retry(self) -> None:
        """There may be space again: find out."""
        if self.full is not None and not self.preparing:
            self.prepare(self.file_bytes)
            if not self.preparing:
                self.full = None  # none has to be made any more
                self._on_room()

    def prepare(self, need: int) -> None:
        """Have a free file of at least `need` bytes made ahead of need, within the bound."""
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
        # A block that was written before syncs in 60 % of the time that a merely allocated one takes.
        path = wal_path(slot)
        try:
            file = self._files.open(path, create=True)
            file.allocate(size)
            for start in range(0, min(size, zeroed_bytes), len(_ZEROS)):
                write_all(file, [_ZEROS[: min(len(_ZEROS), size - start)]], start)
                if start:
                    file.sync()  # bit by bit: syncs of others wait behind what the disk gets at a time
            file.sync()
            # Written a MiB at a time it lies in memory in folios of that size, and each write looks at all of one.
            file.forget(0, size)
            self._files.sync_directory(WAL_DIRECTORY)
        except OSError:
            self._files.unlink(path)
            raise
        return WalFile(slot, file, size)
