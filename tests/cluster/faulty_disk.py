"""A file system that fails as a broken, a full or an exhausted machine does, as long as it is told to."""

import errno
import os
from collections.abc import Callable, Sequence
from typing import Final

from duramen.base.ports import Buffer, File, FileSystem, Lock

__all__ = ["BROKEN", "FULL", "NO_DESCRIPTORS", "FaultyFiles"]

BROKEN: Final = "EIO"
"""Every sync fails."""
FULL: Final = "ENOSPC"
"""Nothing grows, and nothing is made."""
NO_DESCRIPTORS: Final = "EMFILE"
"""No file can be opened."""


def _error(name: str) -> OSError:
    code: int = getattr(errno, name)
    return OSError(code, os.strerror(code))


class _FaultyFile:
    """A file of it."""

    def __init__(self, file: File, fault: Callable[[], str]) -> None:
        self._file = file
        self._fault = fault

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        if self._fault() == FULL and position + sum(map(len, buffers)) > self._file.size():
            raise _error(FULL)
        return self._file.write(buffers, position)

    def read_cached(self, position: int, size: int) -> Buffer | None:
        return self._file.read_cached(position, size)

    def read(self, position: int, size: int) -> Buffer:
        return self._file.read(position, size)

    def read_ahead(self, position: int, size: int) -> None:
        self._file.read_ahead(position, size)

    def forget(self, position: int, size: int) -> None:
        self._file.forget(position, size)

    def write_back(self, position: int, size: int) -> None:
        self._file.write_back(position, size)

    def sync(self) -> None:
        if self._fault() == BROKEN:
            raise _error(BROKEN)
        self._file.sync()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        if self._fault() == FULL:
            raise _error(FULL)
        self._file.allocate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class FaultyFiles:
    """The FileSystem port over another; `fault` says how it fails now, empty where it does not."""

    def __init__(self, files: FileSystem, fault: Callable[[], str]) -> None:
        self._files = files
        self._fault = fault

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        fault = self._fault()
        if fault == NO_DESCRIPTORS or (fault == FULL and create and not self._files.exists(path)):
            raise _error(fault)
        return _FaultyFile(self._files.open(path, create=create, read_only=read_only), self._fault)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def in_place(self, path: str) -> bool:
        return self._files.in_place(path)

    def names(self, path: str) -> list[str]:
        return self._files.names(path)

    def make_directory(self, path: str) -> None:
        if self._fault() == FULL and not self._files.exists(path):
            raise _error(FULL)
        self._files.make_directory(path)

    def rename(self, old: str, new: str) -> None:
        self._files.rename(old, new)

    def unlink(self, path: str) -> None:
        self._files.unlink(path)

    def remove_directory(self, path: str) -> None:
        self._files.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        if self._fault() == BROKEN:
            raise _error(BROKEN)
        self._files.sync_directory(path)

    def lock(self, path: str) -> Lock | None:
        return self._files.lock(path)
