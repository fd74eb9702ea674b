"""The FileSystem port in memory: unsynced data may be lost, the last write torn, and any call may fail.

After a power loss, as with ext4 and XFS: each file has an arbitrary subset of its unsynced pages, and a size between
the synced one and the last; each directory has an arbitrary subset of the creations, renames and removals since its
sync, a rename as one step. There is no order between them.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from duramen.base.ports import Buffer
from duramen.sim.machine.inode import PAGE_BYTES, Inode

__all__ = ["PAGE_BYTES", "Crashed", "Interference", "MemoryFile", "MemoryFileSystem"]

_SHARES: Final = (0.0, 0.2, 0.5, 0.8, 1.0)  # of what was not synced, how much a power cut leaves


class Crashed(BaseException):
    """The machine lost its power in the middle of a call. No code under test may catch it."""


class _NameChange(NamedTuple):
    """What was done to a directory and is not synced."""

    kind: Literal["file", "no file", "directory", "no directory"]
    path: str
    inode: Inode | None = None
    instead_of: str = ""  # the old name of a rename


class MemoryFile:
    """An open file of a `MemoryFileSystem`."""

    def __init__(self, system: "MemoryFileSystem", inode: Inode, path: str, *, read_only: bool) -> None:
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
                raise self._system.full("write", self._path)
        self._system.free_bytes -= max(0, position + allowed - len(self._inode.data))
        self._inode.write(data[:allowed], position)
        self._system.last_write = (self._inode, position, position + allowed)
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

    def read_ahead(self, position: int, size: int) -> None:
        pass

    def forget(self, position: int, size: int) -> None:
        pass

    def write_back(self, position: int, size: int) -> None:
        pass

    def sync(self) -> None:
        try:
            self._system.called("sync", self._path, 0)
        except OSError:
            if self._system.failed_sync == "drop":
                self._inode.drop()
            elif self._system.failed_sync == "forget":
                self._inode.forget()
            raise
        self._inode.sync()
        self._system.after("sync", self._path)

    def truncate(self, size: int) -> None:
        self._system.called("truncate", self._path, size)
        self._inode.resize(size)
        self._system.after("truncate", self._path)

    def allocate(self, size: int) -> None:
        self._system.called("allocate", self._path, size)
        grown = max(0, size - len(self._inode.data))
        if grown > self._system.free_bytes:
            raise self._system.full("allocate", self._path)
        self._system.free_bytes -= grown
        if size > len(self._inode.data):
            self._inode.resize(size)
        self._system.after("allocate", self._path)

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
    took effect. `interfere` may fail calls, `happened` is told of each that took effect, `found_full` of those that
    found no space. `cold` makes every cached read miss. `failed_sync` says what becomes of the pages that a failed sync
    was to write.
    """

    def __init__(self) -> None:
        self._files: dict[str, Inode] = {}
        self._disk_files: dict[str, Inode] = {}
        self._directories: set[str] = {""}
        self._disk_directories: set[str] = {""}
        self._changes: dict[str, list[_NameChange]] = {}  # by directory
        self.locks: set[str] = set()
        self.free_bytes = 1 << 40
        self.cold = False
        self.calls = 0
        self.crash_at: int | None = None
        self.interfere: Interference | None = None
        self.happened: Callable[[str, str], None] | None = None
        self.found_full: Callable[[str, str], None] | None = None
        self.failed_sync: Literal["keep", "drop", "forget"] = "keep"
        self.last_write: tuple[Inode, int, int] | None = None

    def called(self, call: str, path: str, size: int) -> int:
        """Account for a call before it takes effect; returns how much of a write may happen."""
        return self.interfere(call, path, size) if self.interfere is not None else size

    def after(self, call: str, path: str) -> None:
        """Account for a call after it took effect."""
        self.calls += 1
        if self.crash_at is not None and self.calls >= self.crash_at:
            raise Crashed(f"{call} {path}")
        if self.happened is not None:
            self.happened(call, path)

    def full(self, call: str, path: str) -> OSError:
        """What a call raises that needs more space than there is."""
        if self.found_full is not None:
            self.found_full(call, path)
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _changed(self, change: _NameChange) -> None:
        self._changes.setdefault(change.path.rpartition("/")[0], []).append(change)

    # -- the port -----------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        inode = self._files.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if path.rpartition("/")[0] not in self._directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.called("create", path, 0)
            inode = self._files.get(path)  # another may have made it while this call waited
            if inode is None:
                inode = self._files[path] = Inode()
                self._changed(_NameChange("file", path, inode))
            self.after("create", path)
        return MemoryFile(self, inode, path, read_only=read_only)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def in_place(self, path: str) -> bool:
        return self.exists(path)

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
            name = "/".join(parts[:count])
            if name not in self._directories:
                self.called("make_directory", name, 0)
                self._directories.add(name)
                self._changed(_NameChange("directory", name))
                self.after("make_directory", name)

    def rename(self, old: str, new: str) -> None:
        self.called("rename", old, 0)
        if old not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        inode = self._files[new] = self._files.pop(old)
        self._changed(_NameChange("file", new, inode, old))
        self.after("rename", new)

    def unlink(self, path: str) -> None:
        if path in self._files:
            self.called("unlink", path, 0)
            inode = self._files.pop(path, None)
            if inode is not None:
                self._changed(_NameChange("no file", path))
                self.free_bytes += len(inode.data)
            self.after("unlink", path)

    def remove_directory(self, path: str) -> None:
        for name in [name for name in self._files if name.startswith(f"{path}/")]:
            self.unlink(name)
        gone = sorted(name for name in self._directories if name == path or name.startswith(f"{path}/"))
        for name in reversed(gone):
            self._directories.discard(name)
            self._changed(_NameChange("no directory", name))

    def sync_directory(self, path: str) -> None:
        self.called("sync_directory", path, 0)
        for change in self._changes.pop(path, ()):
            self._apply(change)
        self.after("sync_directory", path)

    def _apply(self, change: _NameChange) -> None:
        if change.kind == "directory":
            self._disk_directories.add(change.path)
        elif change.kind == "no directory":
            self._disk_directories.discard(change.path)
        elif change.inode is None:
            self._disk_files.pop(change.path, None)
        else:
            self._disk_files.pop(change.instead_of, None)
            self._disk_files[change.path] = change.inode

    def lock(self, path: str) -> _MemoryLock | None:
        if path in self.locks:
            return None
        self.locks.add(path)
        return _MemoryLock(self, path)

    # -- faults -------------------------------------------------------------------------------------

    def crash(self, seed: random.Random | None = None) -> None:
        """Lose the power: of what was not synced nothing survives, or what `seed` draws, page by page, name by name."""
        self.end_process()
        names_share, pages_share, torn = 0.0, 0.0, None
        if seed is not None:
            names_share, pages_share = seed.choice(_SHARES), seed.choice(_SHARES)
            torn = self.last_write if seed.random() < 0.5 else None
        inodes = {id(inode): inode for inode in self._files.values()}
        for inode in self._disk_files.values():
            inodes.setdefault(id(inode), inode)
        for inode in inodes.values():
            inode.crash(seed, pages_share, torn[1:] if torn is not None and torn[0] is inode else None)
        for changes in self._changes.values():
            for change in changes:
                if seed is not None and seed.random() < names_share:
                    self._apply(change)
        self._changes.clear()
        self._prune()
        self._files, self._directories = dict(self._disk_files), set(self._disk_directories)
        self.last_write = None

    def _prune(self) -> None:
        """What lies in a directory whose own name did not survive is not found any more."""
        for name in sorted(self._disk_directories):
            if name and name.rpartition("/")[0] not in self._disk_directories:
                self._disk_directories.discard(name)
        for path in [path for path in self._disk_files if path.rpartition("/")[0] not in self._disk_directories]:
            del self._disk_files[path]

    def end_process(self) -> None:
        """The process is killed: its locks go, what it wrote stays."""
        self.crash_at = None
        self.interfere = None
        self.happened = None
        self.found_full = None
        self.locks.clear()

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

    def content(self, path: str) -> bytes:
        """A file's bytes, without a call that counts."""
        return bytes(self._files[path].data)

    def identity(self, path: str) -> object:
        """Tells a file from those that had its name before."""
        return self._files[path]

    def replace(self, path: str, content: bytes) -> None:
        """Give a file other bytes, in memory and on disk: cut, or as they were some time ago."""
        inode = self._files[path]
        inode.data, inode.disk = bytearray(content), bytearray(content)
        inode.dirty.clear()

    def lose(self, path: str) -> None:
        """A file is not there any more, in memory or on disk."""
        self._files.pop(path, None)
        self._disk_files.pop(path, None)
        changes = self._changes.get(path.rpartition("/")[0], [])
        changes[:] = [change for change in changes if change.path != path]

    def paths(self) -> list[str]:
        """Every file there is."""
        return sorted(self._files)
