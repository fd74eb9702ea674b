"""Message sizes as text. Pure."""

from duramen.base.units import format_bytes

__all__ = ["size_name"]


def size_name(count: int) -> str:
    """`256 B`, `5 KiB`, `1 MB`: in the units in which the size is a whole number, if there are any."""
    if count >= 1_000_000 and count % 1_000_000 == 0:
        return f"{count // 1_000_000} MB"
    if count >= 1000 and count % 1000 == 0:
        return f"{count // 1000} kB"
    return format_bytes(count)
