"""The FileSystem port on a real directory: Linux, and macOS for development.

macOS lacks preadv2(RWF_NOWAIT), fdatasync, posix_fallocate and posix_fadvise. There every read uses a thread, files are
extended instead of preallocated, the page cache is not trimmed, and a sync is fcntl(F_FULLFSYNC); see fcntl(2) and
fsync(2).
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Final

from duramen.base.ports import Buffer

__all__ = ["HostFile", "HostFileSystem", "HostLock"]

_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_MAX_BUFFERS: Final = 1000  # IOV_MAX is 1024
_datasync = getattr(os, "fdatasync", os.fsync)
_full_sync: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's cache
_CANNOT: Final = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY)


def _sync(fd: int, sync: Callable[[int], None]) -> None:
    """Make what was written durable, by `sync` where there is nothing stronger."""
    if _full_sync is None:
        sync(fd)
        return
    try:
        fcntl.fcntl(fd, _full_sync)
    except OSError as error:
        # Network and foreign file systems do not have it.
        if error.errno not in _CANNOT:
            raise
        os.fsync(fd)


def _unknown() -> bool:
    return False


class HostFile:
    """A file descriptor; closed with the object."""

    __slots__ = ("_fd", "_reads_ahead_off")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._reads_ahead_off = False

    def __del__(self) -> None:
        self.close()

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        if len(buffers) == 1:
            return os.pwrite(self._fd, buffers[0], position)
        return os.pwritev(self._fd, buffers[:_MAX_BUFFERS], position)

    def read_cached(self, position: int, size: int) -> Buffer | None:
        if not _NOWAIT:
            return None
        self._disable_read_ahead()
        buffer = bytearray(size)
        try:
            count = os.preadv(self._fd, [buffer], position, _NOWAIT)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS):
                return None
            raise
        # Short: the rest is not in memory, or the file ends there; a blocking read tells.
        return buffer if count == size else None

    def read(self, position: int, size: int) -> Buffer:
        data = os.pread(self._fd, size, position)
        if len(data) in (0, size):
            return data
        parts = [data]
        while (got := sum(map(len, parts))) < size and (data := os.pread(self._fd, size - got, position + got)):
            parts.append(data)
        return b"".join(parts)

    def read_ahead(self, position: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            self._disable_read_ahead()
            os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_WILLNEED)

    def _disable_read_ahead(self) -> None:
        """Else the system reads as far ahead as the disk's settings say, 8 MiB at times, and syncs wait behind it."""
        if not self._reads_ahead_off and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
            self._reads_ahead_off = True

    def forget(self, position: int, size: int) -> None:
        # Pages that are not on disk yet stay: posix_fadvise(2).
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_DONTNEED)

    def write_back(self, position: int, size: int) -> None:
        # Linux begins to write what it is to let go of and cannot yet; sync_file_range(2) is not to be had in Python.
        self.forget(position, size)

    def sync(self) -> None:
        _sync(self._fd, _datasync)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, size)
        elif size > self.size():
            os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class HostLock:
    """Locked file descriptors; the lock goes with the process."""

    def __init__(self, fds: Sequence[int]) -> None:
        self._fds = fds

    def release(self) -> None:
        for fd in self._fds:
            os.close(fd)


class HostFileSystem:
    """Files below a directory."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._quiet: Callable[[], bool] = _unknown

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> HostFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR | (os.O_CREAT if create else 0)
        return HostFile(os.open(self._path(path), flags | os.O_CLOEXEC, 0o644))

    def exists(self, path: str) -> bool:
        return os.access(f"{self._root}/{path}", os.F_OK)

    def in_place(self, path: str) -> bool:
        return self._quiet() or self.exists(path)

    def rely_on(self, quiet: Callable[[], bool]) -> None:
        """`quiet` tells whether nothing below or above the root was moved or removed since its last call."""
        self._quiet = quiet

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(self._path(path)))

    def make_directory(self, path: str) -> None:
        if not path:
            os.makedirs(self._root, exist_ok=True)
            return
        # Never the root: one that was moved away or deleted under a running node is not to be there twice.
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._path("/".join(parts[:count])))

    def rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))

    def unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(path))

    def remove_directory(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._path(path))

    def sync_directory(self, path: str) -> None:
        fd = os.open(self._path(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync(fd, os.fsync)
        finally:
            os.close(fd)

    def lock(self, path: str) -> HostLock | None:
        # The directory is locked too: a lock file can be removed under whoever holds it, and made anew by another.
        held: list[int] = []
        full = self._path(path)
        for name, flags in ((full, os.O_RDWR | os.O_CREAT), (os.path.dirname(full), os.O_RDONLY | os.O_DIRECTORY)):
            held.append(os.open(name, flags | os.O_CLOEXEC, 0o644))
            try:
                fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                HostLock(held).release()
                return None
            except OSError:
                if name == full:
                    HostLock(held).release()
                    raise
        return HostLock(held)
