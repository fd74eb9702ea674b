"""What a process holds, as Linux tells it."""

from pathlib import Path

__all__ = ["peak_bytes", "resident_bytes"]


def resident_bytes(pid: int) -> int:
    """The memory that a process holds resident now."""
    return _status(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """The most memory that a process has ever held resident."""
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"there is no {name}")
