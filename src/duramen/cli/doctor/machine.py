"""Checks of the machine: disk, files, clock."""

import ctypes
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.units import format_bytes
from duramen.cli.doctor.findings import DoctorFinding

__all__ = ["clock", "disk", "open_files", "space"]

_FEW_FILES: Final = 4096
_SYNCS: Final = 20
_SYNC_S: Final = 1.0
_SYNC_BYTES: Final = 4096
_SLOW_SYNC_MS: Final = 20.0
_USUAL: Final = (
    (0.1, "as fast as an NVMe disk with power-loss protection, or a disk that does not wait for its medium"),
    (0.5, "faster than most SSDs"),
    (5.0, "usual for a consumer's SSD"),
    (_SLOW_SYNC_MS, "usual for a spinning disk or a cloud volume"),
)
_IN_MEMORY: Final = ("tmpfs", "ramfs")
_ON_A_NETWORK: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")
_MOUNTS: Final = Path("/proc/self/mounts")
_TIMEX_BYTES: Final = 512  # more than a struct timex has anywhere
_TIME_ERROR: Final = 5  # adjtimex(2): the clock is not synchronized


def open_files() -> DoctorFinding:
    """Check the limit of open files."""
    if sys.platform == "win32":
        return DoctorFinding("open files", "ok", "not limited")
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < _FEW_FILES
    advice = f"every connection and every open segment needs one: ulimit -n {_FEW_FILES} or more" if few else ""
    names = ["unlimited" if limit == resource.RLIM_INFINITY else str(limit) for limit in (soft, hard)]
    return DoctorFinding("open files", "note" if few else "ok", f"{names[0]}, can be raised to {names[1]}", advice)


def _existing(path: Path) -> Path:
    place = path.absolute()
    while not place.is_dir():
        place = place.parent
    return place


def disk(data_dir: Path) -> DoctorFinding:
    """Measure a small synced write in the data directory or its closest parent."""
    place = _existing(data_dir)
    try:
        took_ms = _syncs_ms(place)
    except OSError as error:
        advice = "give another directory with --data-dir, or make this one writable"
        return DoctorFinding("disk", "missing", f"{place} cannot be written: {error.strerror}", advice)
    middle_ms = median(took_ms)
    usual = next((words for bound_ms, words in _USUAL if middle_ms < bound_ms), "slow")
    kind = _file_system(place)
    found = f"{middle_ms:.2f} ms to write and sync 4 KiB (median of {len(took_ms)}) in {place}"
    found += f", which is {kind}: {usual}" if kind else f": {usual}"
    if kind in _IN_MEMORY:
        return DoctorFinding(
            "disk", "note", found, "that is memory, not a disk: set --data-dir to a directory that survives a reboot"
        )
    if kind in _ON_A_NETWORK:
        return DoctorFinding(
            "disk", "note", found, "that is a network file system: its server decides what a sync guarantees"
        )
    if middle_ms >= _SLOW_SYNC_MS:
        advice = "acknowledgements with durability=sync wait for this: use a faster disk, or durability=os where it may"
        return DoctorFinding("disk", "note", found, advice)
    return DoctorFinding("disk", "ok", found)


def _syncs_ms(place: Path) -> list[float]:
    took_ms: list[float] = []
    with tempfile.TemporaryFile(dir=place) as file:
        end_s = time.perf_counter() + _SYNC_S
        while len(took_ms) < _SYNCS and time.perf_counter() < end_s:
            began_s = time.perf_counter()
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            os.write(file.fileno(), bytes(_SYNC_BYTES))
            os.fsync(file.fileno())
            took_ms.append(1000 * (time.perf_counter() - began_s))
    return took_ms


def _file_system(place: Path) -> str:
    """The kind of file system that a directory is on; empty where it cannot be told."""
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    resolved = place.resolve()
    for fields in (line.split() for line in lines):
        if len(fields) > 2 and len(fields[1]) >= len(best) and resolved.is_relative_to(_unescaped(fields[1])):
            best, kind = fields[1], fields[2]
    return kind


def _unescaped(mount: str) -> str:
    """A path as proc(5) writes it: blanks and backslashes are octal."""
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        mount = mount.replace(octal, character)
    return mount


def space(data_dir: Path) -> DoctorFinding:
    """Check the free space of the disk."""
    place = _existing(data_dir)
    usage = shutil.disk_usage(place)
    default = BROKER["wal.max.bytes"].default
    needed = int(default) if isinstance(default, int) else 0
    found = f"{format_bytes(usage.free)} free of {format_bytes(usage.total)} at {place}"
    if usage.free < 2 * needed:
        advice = (
            f"the write-ahead log alone may take {format_bytes(needed)}: free space, or limit it:"
            " --wal-max-bytes 256MiB"
        )
        return DoctorFinding("disk space", "note", found, advice)
    return DoctorFinding("disk space", "ok", found)


def clock() -> DoctorFinding:
    """Whether the clock is kept right, as the kernel of Linux knows (adjtimex(2))."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state = _adjtimex() if sys.platform == "linux" else None
    if state is None:
        return DoctorFinding(
            "clock", "note", f"{now}; cannot tell whether it is synchronised", "compare it with another clock"
        )
    if state == _TIME_ERROR:
        advice = "timestamps and retention depend on it: run chrony or systemd-timesyncd, here or on the host"
        return DoctorFinding("clock", "note", f"{now}, not synchronised according to the kernel", advice)
    return DoctorFinding("clock", "ok", f"{now}, synchronised")


def _adjtimex() -> int | None:
    """The state of the clock, from 0 to 5; None where the kernel does not say."""
    try:
        ask = ctypes.CDLL(None, use_errno=True).adjtimex
        state = int(ask(ctypes.create_string_buffer(_TIMEX_BYTES)))  # all zero: `modes` says that nothing is set
    except (OSError, AttributeError):
        return None
    return state if state >= 0 else None
