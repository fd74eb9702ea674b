"""Sizes and durations as users write them: `1GiB`, `64 KiB`, `7d`, `500ms`. Pure functions on text and numbers."""

import re
from datetime import UTC, datetime

__all__ = ["KIB", "MIB", "format_bytes", "format_ms", "moment", "parse_bytes", "parse_minutes", "parse_ms"]

KIB = 1024
MIB = 1024 * KIB

_BYTES = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1000,
    "m": 1000**2,
    "mb": 1000**2,
    "g": 1000**3,
    "gb": 1000**3,
    "t": 1000**4,
    "tb": 1000**4,
    "kib": KIB,
    "mib": MIB,
    "gib": 1024 * MIB,
    "tib": 1024 * 1024 * MIB,
}
_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_THREE_DIGITS = 999.5  # from here on a number is rounded to 1000
# Bounded: a float holds 100 digits times the largest factor.
_NUMBER = re.compile(r"\s*(-?[0-9]{1,100}(?:\.[0-9]{1,100})?)\s*([A-Za-z]*)\s*")


def _parse(text: str, factors: dict[str, int], example: str) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in factors:
        raise ValueError(f"expected {example}")
    number, factor = match[1], factors[match[2].lower()]
    if "." not in number:
        return int(number) * factor
    if factor == 1 and float(number) % 1:
        raise ValueError(f"expected {example}")
    return round(float(number) * factor)


def parse_bytes(text: str) -> int:
    """Bytes in `text`: a whole number, or a number with KiB, MiB, GiB, TiB (1024) or kB, MB, GB, TB (1000).

    Raises ValueError with the valid forms.
    """
    return _parse(text, _BYTES, "a number of bytes, for example 1048576 or 1MiB")


def parse_ms(text: str) -> int:
    """Milliseconds in `text`: a whole number, or a number with ms, s, m, h, d or w.

    Raises ValueError with the valid forms.
    """
    return _parse(text, _MS, "a number of milliseconds, for example 500, 30s or 7d")


def parse_minutes(text: str) -> int:
    """Minutes in `text`: a whole number, or a number with ms, s, m, h, d or w that makes whole minutes.

    Raises ValueError with the valid forms.
    """
    match = _NUMBER.fullmatch(text)
    if match is not None and not match[2] and "." not in match[1]:
        return int(match[1])
    minutes, rest_ms = divmod(parse_ms(text), _MS["m"])
    if rest_ms:
        raise ValueError("expected whole minutes, for example 10080 or 7d")
    return minutes


def _digits(number: float) -> str:
    """Three of them, or all that a whole number has: never `1e+03`."""
    return f"{number:.3g}" if abs(number) < _THREE_DIGITS else f"{number:.0f}"


def format_bytes(count: int) -> str:
    """`count` bytes for people, with three digits at most: `1.5 MiB`."""
    if abs(count) < KIB:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if abs(size) < _THREE_DIGITS or unit == "TiB":
            break
    return f"{_digits(size)} {unit}"


def format_ms(duration_ms: float) -> str:
    """A duration for people: `0.21 ms`, `12.5 s`, `3 d`."""
    for unit, factor in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if abs(duration_ms) >= factor:
            return f"{_digits(duration_ms / factor)} {unit}"
    return f"{_digits(duration_ms)} ms"


def moment(time_ms: int) -> str:
    """A time for people: 2026-11-22T14:03:11Z."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):
        return f"{time_ms} ms"
