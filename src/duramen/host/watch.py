"""Reports that a directory, a directory above it, or an entry of it was moved or removed: inotify(7).

Other systems, and directories that may not be read, have no watch. Nothing reports that another file system was
mounted over the directory, or that another machine changed a network file system.
"""

import asyncio
import ctypes
import os
import sys
import time
from typing import Final

__all__ = ["PathWatch"]

_MOVED_FROM: Final = 0x40
_DELETED: Final = 0x200
_SELF_DELETED: Final = 0x400
_SELF_MOVED: Final = 0x800
_ONLY_DIRECTORIES: Final = 0x01000000
_SELF: Final = _SELF_MOVED | _SELF_DELETED | _ONLY_DIRECTORIES
_EVENTS_BYTES: Final = 64 * 1024
_LOOK_S: Final = 1.0


class PathWatch:
    """A watch of a directory. The event loop reads an event before it handles requests that were sent after it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: str) -> None:
        """Raises OSError if there is no watch."""
        self._loop = loop
        self._disturbed = False
        self._look_s = 0.0
        self._fd = _watch(directory)
        loop.add_reader(self._fd, self._read)

    def quiet(self) -> bool:
        """Whether nothing has happened since the last call; false once a second, for what is not reported.

        Any thread may call it.
        """
        now_s = time.monotonic()
        if self._disturbed or now_s >= self._look_s:
            self._disturbed = False
            self._look_s = now_s + _LOOK_S
            return False
        return True

    def _read(self) -> None:
        self._disturbed = True
        os.read(self._fd, _EVENTS_BYTES)

    def close(self) -> None:
        """End the watch."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


def _watch(directory: str) -> int:
    if sys.platform != "linux":
        raise OSError("there is no inotify")
    system = ctypes.CDLL(None, use_errno=True)
    fd: int = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1 failed")
    path, events = os.path.realpath(directory), _SELF | _MOVED_FROM | _DELETED
    while path != os.path.dirname(path):
        if system.inotify_add_watch(fd, os.fsencode(path), events) < 0:
            error = ctypes.get_errno()
            os.close(fd)
            raise OSError(error, f"inotify_add_watch failed for {path}")
        path, events = os.path.dirname(path), _SELF
    return fd
