"""A read-only FileSystem port over another one: for reading a directory that may be damaged.

Unreadable bytes are returned as zeros, which no CRC accepts.
"""

import errno
from typing import Final

from duramen.base.ports import Buffer, File, FileSystem, Lock

__all__ = ["ReadOnlyFileSystem"]

_PAGE_BYTES: Final = 4096


def _refused() -> OSError:
    return OSError(errno.EROFS, "nothing is written here")


class _ReadOnlyFile:
    def __init__(self, file: File) -> None:
        self._file = file

    def write(self, *_: object, **__: object) -> int:
        raise _refused()

    def read_cached(self, position: int, size: int) -> Buffer | None:
        return self._file.read_cached(position, size)

    def read(self, position: int, size: int) -> Buffer:
        try:
            return self._file.read(position, size)
        except OSError:
            end = min(position + size, self._file.size())
            return b"".join(self._page(start, end) for start in range(position, end, _PAGE_BYTES))

    def _page(self, start: int, end: int) -> bytes:
        length = min(_PAGE_BYTES, end - start)
        try:
            return bytes(self._file.read(start, length))
        except OSError:
            return bytes(length)

    def sync(self) -> None:
        raise _refused()

    def truncate(self, *_: object, **__: object) -> None:
        raise _refused()

    def allocate(self, *_: object, **__: object) -> None:
        raise _refused()

    def read_ahead(self, position: int, size: int) -> None:
        self._file.read_ahead(position, size)

    def forget(self, position: int, size: int) -> None:
        self._file.forget(position, size)

    def write_back(self, *_: object) -> None:
        raise _refused()

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class ReadOnlyFileSystem:
    """Passes reads through; a missing directory has no names; everything else raises OSError."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def open(self, path: str, *, create: bool = False, **_: object) -> File:
        if create and not self._files.exists(path):
            raise _refused()
        return _ReadOnlyFile(self._files.open(path, read_only=True))

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def in_place(self, path: str) -> bool:
        return self._files.in_place(path)

    def names(self, path: str) -> list[str]:
        try:
            return self._files.names(path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_directory(self, *_: object, **__: object) -> None:
        raise _refused()

    def rename(self, *_: object, **__: object) -> None:
        raise _refused()

    def unlink(self, *_: object, **__: object) -> None:
        raise _refused()

    def remove_directory(self, *_: object, **__: object) -> None:
        raise _refused()

    def sync_directory(self, *_: object, **__: object) -> None:
        raise _refused()

    def lock(self, *_: object, **__: object) -> Lock | None:
        raise _refused()
