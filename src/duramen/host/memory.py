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
    """The process's resident memory (proc(5), statm); None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def return_large_blocks() -> None:
    """Give blocks of 128 KiB and more back to the system when they are freed (mallopt(3)); only glibc has that.

    Left alone, glibc raises that bound as it goes and keeps large blocks for the next ones: faster, because a fresh
    block costs page faults, but what lies between small blocks stays resident.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
