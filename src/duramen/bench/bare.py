"""The baseline: the same writes to a file of its own, with or without an fdatasync after each. T is one such write."""

import os
import tempfile
import time
from pathlib import Path
from typing import Final

from duramen.bench.load.open_loop import wait_until_ns
from duramen.bench.load.schedule import Schedule

__all__ = ["pace_writes", "write_throughput"]

_LEAD_NS: Final = 20_000_000
_NS: Final = 1_000_000_000


def pace_writes(directory: Path, write_bytes: int, warm: Schedule, schedule: Schedule, *, sync: bool) -> list[int]:
    """Latencies in µs of appending `write_bytes` to a file at a fixed rate, counted from when each was due."""
    data = os.urandom(write_bytes)
    took_us: list[int] = []
    with tempfile.TemporaryFile(dir=directory) as file:
        descriptor = file.fileno()
        for part in (warm, schedule):
            took_us = []
            start_ns = time.monotonic_ns() + _LEAD_NS
            for index in range(part.messages):
                due_ns = start_ns + part.due_ns(index)
                wait_until_ns(due_ns)
                os.write(descriptor, data)
                if sync:
                    os.fdatasync(descriptor)
                took_us.append((time.monotonic_ns() - due_ns) // 1000)
    return took_us


def write_throughput(directory: Path, write_bytes: int, count: int, *, sync: bool) -> float:
    """Seconds that `count` appends of `write_bytes` take one after another."""
    data = os.urandom(write_bytes)
    with tempfile.TemporaryFile(dir=directory) as file:
        descriptor = file.fileno()
        began_ns = time.monotonic_ns()
        for _ in range(count):
            os.write(descriptor, data)
            if sync:
                os.fdatasync(descriptor)
        return (time.monotonic_ns() - began_ns) / _NS
