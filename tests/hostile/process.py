"""What a process holds, as Linux tells it."""

from pathlib import Path

__all__ = ["resident_bytes"]


def resident_bytes(pid: int) -> int:
    """The memory that a process holds resident now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("there is no VmRSS")
