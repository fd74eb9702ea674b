"""The memory of the process, and how the C library retains freed memory."""

import ctypes
import os
from pathlib import Path
from typing import Final

__all__ = ["resident_bytes", "return_large_blocks"]

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 128 * 1024
_TRIM_BYTES: Final = 4 * 1024 * 1024


def resident_bytes() -> int | None:
    """The process's resident memory (proc(5), statm); None if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def return_large_blocks() -> None:
    """Return blocks of 128 KiB and more to the system when they are freed (mallopt(3)); only in glibc.

    By default, glibc raises that bound as it runs and keeps large blocks for reuse: faster, because a fresh block costs
    page faults, but everything between small blocks stays resident.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
