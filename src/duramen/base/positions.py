"""Positions in a log as users write them: `start`, `end`, an offset, N before the end, or a time. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from duramen.base.units import parse_ms

__all__ = ["POSITION_FORMS", "At", "Last", "Position", "Since", "parse_position"]

POSITION_FORMS: Final = "start|end|N|-N|@TIME"

_INT64_MAX: Final = (1 << 63) - 1
_DATE: Final = re.compile(r"[12][0-9]{3}(0[1-9]|1[0-2])[0-3][0-9]")  # 20260130, of 1000 to 2999
_NAMES: Final = {"start": "start", "earliest": "start", "end": "end", "latest": "end"}
_EXPECTED: Final = (
    "it must be start, end, an offset N, -N for the last N records, or @TIME: ISO 8601, milliseconds since 1970, or a"
    " time ago such as @-30s"
)


@dataclass(frozen=True, slots=True)
class At:
    """At this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """The first of this number of records before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class Since:
    """The first record whose timestamp is at least this, in ms since 1970; the end if there is none."""

    timestamp_ms: int


Position = Literal["start", "end"] | At | Last | Since


def parse_position(text: str, now_ms: int) -> Position:
    """The position in `text`; `now_ms` is the time since 1970 for relative times.

    Raises ValueError with the valid forms.
    """
    if text in _NAMES:
        return "end" if _NAMES[text] == "end" else "start"
    if text.startswith("@"):
        return Since(_timestamp_ms(text, now_ms))
    if re.fullmatch(r"-?[0-9]{1,19}", text) and abs(int(text)) <= _INT64_MAX:
        return Last(-int(text)) if text.startswith("-") else At(int(text))
    raise ValueError(f"{text[:40]!r} is not a position in a log; {_EXPECTED}")


def _timestamp_ms(text: str, now_ms: int) -> int:
    when = text[1:]
    try:
        if when.startswith("-") and not when.startswith("--"):
            timestamp_ms = now_ms - parse_ms(when[1:])
        elif re.fullmatch(r"[0-9]{1,19}", when) and not _DATE.fullmatch(when):
            timestamp_ms = int(when)
        else:
            timestamp_ms = _iso_8601_ms(when)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is no time; {_EXPECTED}") from None
    if not 0 <= timestamp_ms <= _INT64_MAX:
        raise ValueError(f"{text[:40]!r} is no time since 1970; {_EXPECTED}")
    return timestamp_ms


def _iso_8601_ms(text: str) -> int:
    """A time without a zone is UTC."""
    parsed = datetime.fromisoformat(text)
    aware = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
