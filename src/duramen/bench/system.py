"""System figures of a node: memory, open files, CPU time, bytes written, page cache. Linux."""

import ctypes
import mmap
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import psutil

from duramen.base.errors import ServerUnreachable
from duramen.base.units import MIB

__all__ = [
    "MemoryWatch",
    "Use",
    "cached_bytes",
    "cpu_s",
    "drop_cached",
    "family_cpu_s",
    "family_mib",
    "leave_processor",
    "use",
    "written_bytes",
]


_LEAST: Final = 19
_SECTORS_WRITTEN: Final = 6  # the field's place in Linux' Documentation/block/stat.rst
_SECTOR_BYTES: Final = 512
_SAMPLE_S: Final = 0.1


class Use(NamedTuple):
    """Resident memory in MiB, and open descriptors."""

    resident_mib: float
    descriptors: int


def use(pid: int) -> Use:
    """What the process holds now."""
    return Use(psutil.Process(pid).memory_info().rss / MIB, len(list(Path(f"/proc/{pid}/fd").iterdir())))


class MemoryWatch:
    """Looks at the memory of a process, which may be restarted, again and again while it is entered."""

    def __init__(self, pid: Callable[[], int]) -> None:
        self.largest_mib = 0.0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._see, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _see(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            try:
                resident_mib = psutil.Process(self._pid()).memory_info().rss / MIB
            except (psutil.Error, ServerUnreachable):
                continue  # it is restarted
            self.largest_mib = max(self.largest_mib, resident_mib)


def cpu_s(pid: int) -> float:
    """Seconds of a processor that the process took so far, user and system."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def family_mib(pid: int) -> float:
    """Memory of a process and of those that it has started, in MiB: what they share is counted once (PSS)."""
    return sum(_of_family(pid, lambda one: one.memory_full_info().pss)) / MIB


def family_cpu_s(pid: int) -> float:
    """Seconds of a processor that a process, those that it has started, and those of them that ended took so far."""
    own = psutil.Process(pid).cpu_times()
    return own.children_user + own.children_system + sum(_of_family(pid, lambda one: sum(one.cpu_times()[:2])))


def _of_family(pid: int, figure: Callable[[psutil.Process], float]) -> list[float]:
    process = psutil.Process(pid)
    found = [figure(process)]
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found.append(figure(child))
    return found


def written_bytes(directory: Path) -> int | None:
    """Bytes written so far to the disk that a directory lies on, by everybody; None where the system does not say.

    What is on its way is written first. `write_bytes` of a process (proc(5), io) says something else: there a small
    write counts with all that the page cache keeps as one piece with it, a MiB and more.
    """
    os.sync()
    device = directory.stat().st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text(encoding="ascii").split()
    except OSError:
        return None
    return int(fields[_SECTORS_WRITTEN]) * _SECTOR_BYTES


def drop_cached(path: Path) -> None:
    """Have the page cache forget a file, whose bytes are made to lie on the disk first."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def cached_bytes(path: Path) -> int:
    """How much of a file is in the page cache (mincore(2))."""
    size = path.stat().st_size
    if not size:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong,
    )  # fmt: skip
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    file = os.open(path, os.O_RDONLY)
    try:
        place = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    finally:
        os.close(file)
    if place in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap failed")
    try:
        pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        if libc.mincore(place, size, pages) != 0:
            raise OSError(ctypes.get_errno(), "mincore failed")
    finally:
        libc.munmap(place, size)
    return sum(page & 1 for page in pages.raw) * mmap.PAGESIZE


def leave_processor(thread: int) -> None:
    """Have the thread, 0 for this one, run only where no other wants to, as far as the system can do that."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.setpriority(os.PRIO_PROCESS, thread, _LEAST)
