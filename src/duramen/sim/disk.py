"""The FileSystem port in memory: what was not synced can be lost, the last write torn, and any call made to fail."""

import errno
import os
import random
from collections.abc import Callable, Sequence
from typing import Final

from duramen.base.ports import Buffer

__all__ = ["Crashed", "Interference", "MemoryFile", "MemoryFileSystem"]

PAGE_BYTES: Final = 4096


class Crashed(BaseException):
    """The machine lost its power in the middle of a call. No code under test may catch it."""


class _Inode:
    """A file's bytes as the operating system shows them, and as the disk has them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.disk = bytearray()
        self.dirty: set[int] = set()  # pages that differ from the disk's

    def write(self, data: bytes, position: int) -> None:
        end = position + len(data)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
        self.data[position:end] = data
        self.dirty.update(range(position // PAGE_BYTES, (end + PAGE_BYTES - 1) // PAGE_BYTES))

    def resize(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.dirty.add(size // PAGE_BYTES)

    def sync(self) -> None:
        self.disk[:] = self.data
        self.dirty.clear()

    def drop(self) -> None:
        """Unsynced pages are given up: they read as the disk has them, and as zeros where it has nothing."""
        for page in self.dirty:
            start = page * PAGE_BYTES
            size = len(self.data[start : start + PAGE_BYTES])
            self.data[start : start + size] = self.disk[start : start + size].ljust(size, b"\0")
        self.dirty.clear()

    def crash(self, keep: Callable[[int], bool]) -> None:
        """Only synced pages survive, and of the others those that `keep` says."""
        survived = bytearray(self.disk)
        for page in sorted(self.dirty):
            if keep(page):
                start = page * PAGE_BYTES
                piece = self.data[start : start + PAGE_BYTES]
                if len(survived) < start:
                    survived.extend(bytes(start - len(survived)))
                survived[start : start + len(piece)] = piece
        self.data, self.disk = survived, bytearray(survived)
        self.dirty.clear()


class MemoryFile:
    """An open file of a `MemoryFileSystem`."""

    def __init__(self, system: "MemoryFileSystem", inode: _Inode, path: str, *, read_only: bool) -> None:
        self._system = system
        self._inode = inode
        self._path = path
        self._read_only = read_only

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        if self._read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        data = b"".join(buffers)
        allowed = self._system.called("write", self._path, len(data))
        grown = max(0, position + len(data) - len(self._inode.data))
        if grown > self._system.free_bytes:
            allowed = min(allowed, len(data) - grown + self._system.free_bytes)
            if allowed <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._system.free_bytes -= max(0, position + allowed - len(self._inode.data))
        self._inode.write(data[:allowed], position)
        self._system.after("write", self._path)
        return allowed

    def read_cached(self, position: int, size: int) -> Buffer | None:
        if self._system.cold:
            return None
        data = bytes(self._inode.data[position : position + size])
        return data if len(data) == size else None

    def read(self, position: int, size: int) -> Buffer:
        self._system.called("read", self._path, size)
        return bytes(self._inode.data[position : position + size])

    def sync(self) -> None:
        self._system.called("sync", self._path, 0)
        self._inode.sync()
        self._system.after("sync", self._path)

    def truncate(self, size: int) -> None:
        self._system.called("truncate", self._path, size)
        self._inode.resize(size)

    def allocate(self, size: int) -> None:
        self._system.called("allocate", self._path, size)
        grown = max(0, size - len(self._inode.data))
        if grown > self._system.free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._system.free_bytes -= grown
        if size > len(self._inode.data):
            self._inode.resize(size)

    def size(self) -> int:
        return len(self._inode.data)

    def close(self) -> None:
        return None


class _MemoryLock:
    def __init__(self, system: "MemoryFileSystem", path: str) -> None:
        self._system = system
        self._path = path

    def release(self) -> None:
        self._system.locks.discard(self._path)


Interference = Callable[[str, str, int], int]
"""Shown (call, path, size) before a call: returns how many bytes of a write happen, or raises what the call raises."""


class MemoryFileSystem:
    """A directory tree in memory.

    `calls` counts the calls that reach the disk; `crash_at` raises `Crashed` in the call of that number, after it
    took effect. `interfere` may fail calls. `cold` makes every cached read miss.
    """

    def __init__(self) -> None:
        self._files: dict[str, _Inode] = {}
        self._disk_files: dict[str, _Inode] = {}
        self._directories: set[str] = {""}
        self._disk_directories: set[str] = {""}
        self.locks: set[str] = set()
        self.free_bytes = 1 << 40
        self.cold = False
        self.calls = 0
        self.crash_at: int | None = None
        self.interfere: Interference | None = None

    def called(self, call: str, path: str, size: int) -> int:
        """Account for a call before it takes effect; returns how much of a write may happen."""
        return self.interfere(call, path, size) if self.interfere is not None else size

    def after(self, call: str, path: str) -> None:
        """Account for a call after it took effect."""
        self.calls += 1
        if self.crash_at is not None and self.calls >= self.crash_at:
            raise Crashed(f"{call} {path}")

    # -- the port -----------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        inode = self._files.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if path.rpartition("/")[0] not in self._directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.called("create", path, 0)
            inode = self._files[path] = _Inode()
            self.after("create", path)
        return MemoryFile(self, inode, path, read_only=read_only)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def names(self, path: str) -> list[str]:
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        prefix = f"{path}/" if path else ""
        names = {
            name.removeprefix(prefix).partition("/")[0]
            for name in (*self._files, *self._directories)
            if name.startswith(prefix) and name != path
        }
        return sorted(names)

    def make_directory(self, path: str) -> None:
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            self._directories.add("/".join(parts[:count]))

    def rename(self, old: str, new: str) -> None:
        self.called("rename", old, 0)
        if old not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self._files[new] = self._files.pop(old)
        self.after("rename", new)

    def unlink(self, path: str) -> None:
        if path in self._files:
            self.called("unlink", path, 0)
            del self._files[path]
            self.after("unlink", path)

    def remove_directory(self, path: str) -> None:
        for name in [name for name in self._files if name.startswith(f"{path}/")]:
            self.unlink(name)
        self._directories = {name for name in self._directories if name != path and not name.startswith(f"{path}/")}

    def sync_directory(self, path: str) -> None:
        self.called("sync_directory", path, 0)
        prefix = f"{path}/" if path else ""

        def inside(name: str) -> bool:
            return name.startswith(prefix) and "/" not in name.removeprefix(prefix) and name != path

        for name in [name for name in self._disk_files if inside(name) and name not in self._files]:
            del self._disk_files[name]
        self._disk_files.update({name: inode for name, inode in self._files.items() if inside(name)})
        self._disk_directories = {name for name in self._disk_directories if not inside(name)}
        self._disk_directories |= {name for name in self._directories if inside(name)}
        self.after("sync_directory", path)

    def lock(self, path: str) -> _MemoryLock | None:
        if path in self.locks:
            return None
        self.locks.add(path)
        return _MemoryLock(self, path)

    # -- faults -------------------------------------------------------------------------------------

    def crash(self, seed: random.Random | None = None) -> None:
        """Lose the power: of what was not synced nothing survives, or what `seed` draws, page by page, name by name."""
        self.crash_at = None
        self.interfere = None
        self.locks.clear()
        names = set(self._files) | set(self._disk_files)
        survived: dict[str, _Inode] = {}
        for name in sorted(names):
            now, synced = self._files.get(name), self._disk_files.get(name)
            inode = now if seed is not None and now is not synced and seed.random() < 0.5 else synced
            if inode is not None:
                survived[name] = inode
        directories = set(self._disk_directories)
        for name in survived:
            parts = name.split("/")
            directories |= {"/".join(parts[:count]) for count in range(1, len(parts))}
        for inode in {id(inode): inode for inode in (*self._files.values(), *self._disk_files.values())}.values():
            inode.crash(lambda _: seed is not None and seed.random() < 0.5)
        self._files, self._disk_files = survived, dict(survived)
        self._directories, self._disk_directories = directories, set(directories)

    def drop(self, path: str) -> None:
        """What an operating system may do when a sync fails: give up a file's unsynced pages and call them clean."""
        if path in self._files:
            self._files[path].drop()

    def corrupt(self, path: str, position: int, flip: int = 1) -> None:
        """Flip bits of a byte, in memory and on disk."""
        inode = self._files[path]
        for content in (inode.data, inode.disk):
            if position < len(content):
                content[position] ^= flip

    def paths(self) -> list[str]:
        """Every file there is."""
        return sorted(self._files)
