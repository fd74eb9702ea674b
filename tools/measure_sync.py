"""Measure what the write-ahead log is built on: one write and sync to files of several kinds, and many files' syncs.

    python tools/measure_sync.py [DIRECTORY]

Prints p50 and p99 in ms of a 4 KiB write with its fdatasync, interleaved so that a noisy machine is noisy for all; and
how many 1 KiB batches a second reach disk when they are spread over 1,000 files, with a sync per file and as one
write-ahead log, 100 batches a request.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROUNDS: Final = 400
BLOCK: Final = bytes(4096)
FILES: Final = 1000
BATCHES: Final = 100
REQUESTS: Final = 10


def timed_write(fd: int, position: int) -> float:
    """Seconds of one write with its sync."""
    started = time.perf_counter()
    os.pwrite(fd, BLOCK, position)
    os.fdatasync(fd)
    return time.perf_counter() - started


def kinds(directory: Path) -> dict[str, int]:
    """A file of each kind, by name."""
    names = ("plain append", "preallocated", "written before")
    files = {name: os.open(directory / name, os.O_RDWR | os.O_CREAT) for name in names}
    size = len(BLOCK) * ROUNDS
    for name in names[1:]:
        os.posix_fallocate(files[name], 0, size)
    os.pwrite(files["written before"], bytes(size), 0)
    for fd in files.values():
        os.fsync(fd)
    return files


def measure_kinds(directory: Path) -> None:
    """One writer, three kinds of file."""
    files = kinds(directory)
    times: dict[str, list[float]] = {name: [] for name in files}
    for number in range(ROUNDS):
        for name, fd in files.items():
            times[name].append(timed_write(fd, number * len(BLOCK)) * 1000)
    for name, found in times.items():
        found.sort()
        print(f"{name:16}  p50 {found[len(found) // 2]:.3f} ms   p99 {found[len(found) * 99 // 100]:.3f} ms")


def measure_many(directory: Path) -> None:
    """1,000 partitions: a sync per file against one log for all."""
    batch = bytes(1024)
    files = [os.open(directory / f"{number}.log", os.O_RDWR | os.O_CREAT) for number in range(FILES)]
    wal = os.open(directory / "wal", os.O_RDWR | os.O_CREAT)
    os.pwrite(wal, bytes(len(batch) * BATCHES * REQUESTS), 0)
    os.fsync(wal)
    started = time.perf_counter()
    for request in range(REQUESTS):
        touched = [files[(request * BATCHES + number) % FILES] for number in range(BATCHES)]
        for fd in touched:
            os.write(fd, batch)
        for fd in touched:
            os.fdatasync(fd)
    per_file = BATCHES * REQUESTS / (time.perf_counter() - started)
    started = time.perf_counter()
    for request in range(REQUESTS):
        os.pwritev(wal, [batch] * BATCHES, request * BATCHES * len(batch))
        os.fdatasync(wal)
    shared = BATCHES * REQUESTS / (time.perf_counter() - started)
    print(f"1,000 partitions   a sync per file {per_file:,.0f} batches/s   one log for all {shared:,.0f} batches/s")


def main() -> None:
    """Measure in a temporary directory below the one that was named."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else ".") as name:
        measure_kinds(Path(name))
        measure_many(Path(name))


if __name__ == "__main__":
    main()
