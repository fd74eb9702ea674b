"""A node on a simulated slow disk: `python -m duramen.bench.slow_node DISK serve --data-dir DIRECTORY`.

Measures the effect of a slow disk on a machine with a fast one. Every sync of a file or a directory takes the given
milliseconds and does nothing else. DISK is those milliseconds, or MS:STALL:EVERY for a disk that stalls: once in EVERY
seconds a sync takes STALL seconds. Settings come from the environment, as for `duramen serve`.
"""

import gc
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.ports import Buffer, File, FileSystem, Lock
from duramen.base.settings import Settings
from duramen.node.run import run

__all__ = ["SlowDisk", "SlowFiles", "program"]


class _SlowFile:
    """A file of a slow disk."""

    def __init__(self, file: File, delay_s: Callable[[], float]) -> None:
        self._file = file
        self._delay_s = delay_s

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
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
        time.sleep(self._delay_s())

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class SlowFiles:
    """The FileSystem port over another; each sync takes as many seconds as `delay_s` says, and nothing is synced."""

    def __init__(self, files: FileSystem, delay_s: Callable[[], float]) -> None:
        self._files = files
        self._delay_s = delay_s

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        return _SlowFile(self._files.open(path, create=create, read_only=read_only), self._delay_s)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def in_place(self, path: str) -> bool:
        return self._files.in_place(path)

    def names(self, path: str) -> list[str]:
        return self._files.names(path)

    def make_directory(self, path: str) -> None:
        self._files.make_directory(path)

    def rename(self, old: str, new: str) -> None:
        self._files.rename(old, new)

    def unlink(self, path: str) -> None:
        self._files.unlink(path)

    def remove_directory(self, path: str) -> None:
        self._files.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        del path
        time.sleep(self._delay_s())

    def lock(self, path: str) -> Lock | None:
        return self._files.lock(path)


class SlowDisk(NamedTuple):
    """What its syncs take; `stall_s` seconds once in `every_s` seconds."""

    delay_ms: float
    stall_s: float = 0.0
    every_s: float = math.inf


def program(disk: SlowDisk) -> list[str]:
    """What Python has to run for such a node."""
    return ["-m", "duramen.bench.slow_node", ":".join(map(str, disk))]


class _Delays:
    """What the next sync takes, in seconds. Jobs of several threads may ask."""

    def __init__(self, disk: SlowDisk) -> None:
        self._disk = disk
        self._stalls_s = time.monotonic() + disk.every_s

    def __call__(self) -> float:
        if time.monotonic() < self._stalls_s:
            return self._disk.delay_ms / 1000
        self._stalls_s = time.monotonic() + self._disk.every_s
        return self._disk.stall_s


def _main(disk: SlowDisk, data_dir: str) -> int:
    gc.disable()  # as `duramen serve` does
    settings = Settings(BROKER, options={"data.dir": data_dir}, environment=os.environ)
    delays = _Delays(disk)
    return run(settings, print, through=lambda files: SlowFiles(files, delays))


if __name__ == "__main__":
    sys.exit(_main(SlowDisk(*map(float, sys.argv[1].split(":"))), sys.argv[-1]))
