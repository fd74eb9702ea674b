"""Dates and instants from text, with the results of Spark's casts and `from_json`. Pure.

The grammar is that of Spark's SQL reference: `[+-]yyyy*[-[m]m[-[d]d]]`, for instants with
`[ T][h]h[:[m]m[:[s]s[.[fraction]][zone]]]` behind. Years may have more than four digits, so `datetime` is not enough.
"""

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Scalar", "days_from", "instants_from", "instants_from_seconds", "to_day", "to_instant"]

Scalar = Callable[[str], int]
"""Text to a number of days or microseconds since 1970. Raises ValueError."""

_SPACE: Final = "".join(map(chr, range(0x21))) + "\x7f"
_DATE: Final = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_DAYS: Final = re.compile(r"[+-]?\d{1,10}", re.ASCII)
_INSTANT: Final = re.compile(
    r"([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2})(?::(\d{1,2})"
    r"(?::(\d{1,2})(?:\.(\d*))?([^\d].*)?)?)?)?)?)?",
    re.ASCII | re.DOTALL,
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d\d)(?::(\d\d))?|(?<=\d\d)(\d\d)(\d\d)?)?", re.ASCII)
_ONE_DIGIT_HOUR: Final = re.compile(r"([+-])(\d):", re.ASCII)
_ONE_DIGIT_MINUTE: Final = re.compile(r"([+-]\d\d):(\d)$", re.ASCII)
_NO_REGION: Final = frozenset({"posix", "right", "posixrules", "localtime", "Factory"})
"""Files of the time zone database that are not regions in Java."""

_SHORT: Final = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""`java.time.ZoneId.SHORT_IDS`, by which Spark resolves names of three letters."""

_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
_EPOCH: Final = date(1970, 1, 1).toordinal()
_GREGORIAN: Final = -141_427
"""The first day, since 1970, of the Gregorian calendar in use; Spark counts earlier days in another calendar."""
_DAY_S: Final = 86_400
_SECOND_US: Final = 1_000_000
_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1

_COMMON: Final = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?"
_COMMON_ZONED: Final = _COMMON + r"(Z|[+-](0\d|1[0-7]):[0-5]\d)$"
_COMMON_LOCAL: Final = _COMMON + "$"
_TOO_FINE: Final = r"^(.{19}\.\d{6})\d+"
_COMMON_DATE: Final = r"^\d{4}-\d\d-\d\d$"


def to_day(text: str) -> int:
    """Days since 1970 of a DATE. Raises ValueError."""
    text = text.strip(_SPACE)
    found = _DATE.fullmatch(text)
    if found is not None:
        sign, year, month, day = found.groups()
        return _day(-int(year) if sign == "-" else int(year), int(month or 1), int(day or 1))
    # As in Spark: text that is not a date may be the number of days, as Spark 1.5 wrote it.
    if _DAYS.fullmatch(text) is None or not _GREGORIAN <= int(text) < 1 << 31:
        raise ValueError(text)
    return int(text)


def _day(year: int, month: int, day: int) -> int:
    """The Gregorian calendar repeats every 400 years, also beyond the range of `date`."""
    cycles, rest = divmod(year, _CYCLE_YEARS)
    return date(rest + _CYCLE_YEARS, month, day).toordinal() - _EPOCH + (cycles - 1) * _CYCLE_DAYS


@lru_cache(maxsize=16)
def to_instant(zone: str | None) -> Scalar:
    """A function that reads a TIMESTAMP as microseconds since 1970; text without a zone is in `zone`.

    Without `zone` it reads TIMESTAMP_NTZ, whose text must have none.
    """
    default = None if zone is None else _zone(zone)

    def read(text: str) -> int:
        found = _INSTANT.fullmatch(text.strip(_SPACE))
        if found is None:
            raise ValueError(text)
        sign, year, month, day, hour, minute, second, fraction, named = found.groups()
        y, m, d = -int(year) if sign == "-" else int(year), int(month or 1), int(day or 1)
        h, mi, s = int(hour or 0), int(minute or 0), int(second or 0)
        if h > 23 or mi > 59 or s > 59 or (named is not None and default is None):
            raise ValueError(text)
        local_s = _day(y, m, d) * _DAY_S + h * 3600 + mi * 60 + s
        zone = default if named is None else _zone(named.strip(_SPACE[:0x21]))
        if isinstance(zone, int):
            local_s -= zone
        elif zone is not None:
            local_s -= _offset_s(zone, y, m, d, h, mi, s)
        micros = local_s * _SECOND_US + int((fraction or "")[:6].ljust(6, "0"))
        if not _LEAST <= micros <= _MOST:
            raise ValueError(text)
        return micros

    return read


@lru_cache(maxsize=1024)
def _zone(name: str) -> int | tzinfo:
    """A time zone; seconds east of UTC if its offset is fixed. Raises ValueError."""
    name = _SHORT.get(name, name)
    if name in {"Z", "UTC", "GMT", "UT"}:
        return 0
    padded = _ONE_DIGIT_MINUTE.sub(r"\1:0\2", _ONE_DIGIT_HOUR.sub(r"\g<1>0\2:", name, count=1))
    found = _OFFSET.fullmatch(padded)
    if found is not None:
        sign, hours, *others = found.groups()
        minutes, seconds = int(others[0] or others[2] or 0), int(others[1] or others[3] or 0)
        east_s = int(hours) * 3600 + minutes * 60 + seconds
        if minutes > 59 or seconds > 59 or east_s > 18 * 3600:
            raise ValueError(name)
        return -east_s if sign == "-" else east_s
    if name.split("/")[0] in _NO_REGION:
        raise ValueError(name)
    try:
        return ZoneInfo(name)
    except (OSError, KeyError, ValueError):
        raise ValueError(name) from None


def _offset_s(zone: tzinfo, year: int, month: int, day: int, hour: int, minute: int, second: int) -> int:
    if not 1 < year < 9999:
        # Beyond all changes of zones: after the last year with another rule, or before the first.
        year = (9200 if year > 0 else 400) + year % _CYCLE_YEARS
    offset = zone.utcoffset(datetime(year, month, day, hour, minute, second))  # noqa: DTZ001
    return (offset or timedelta()) // timedelta(seconds=1)


def days_from(texts: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Dates as days, null if invalid, and the places of invalid ones."""
    try:
        return texts.cast(pa.date32()), _NOTHING
    except pa.ArrowInvalid:
        common = pc.match_substring_regex(texts, _COMMON_DATE)
        found = _cast(_only(texts, common), pa.date32())
        return _completed(texts, found, to_day, pa.date32(), pa.int32())


def instants_from(texts: pa.Array, zone: str | None) -> tuple[pa.Array, np.ndarray]:
    """Timestamps as instants, null if invalid, and the places of invalid ones."""
    kind = pa.timestamp("us") if zone is None else pa.timestamp("us", "UTC")
    found = pa.nulls(len(texts), kind)
    if zone is not None:
        found = _cast(_only(texts, pc.match_substring_regex(texts, _COMMON_ZONED)), kind)
    if found.null_count > texts.null_count:
        short = pc.replace_substring_regex(texts, _TOO_FINE, r"\1")
        if zone is not None:
            found = _cast(_only(short, pc.match_substring_regex(short, _COMMON_ZONED)), kind)
        local = _cast(_only(short, pc.match_substring_regex(short, _COMMON_LOCAL)), pa.timestamp("us"))
        if zone is not None:
            local = _in_zone(local, zone)
        found = pc.coalesce(found, local)
    return _completed(texts, found, to_instant(zone), kind, pa.int64())


def instants_from_seconds(numbers: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Instants of seconds since 1970, null if out of range, and the places of those."""
    seconds = numbers.fill_null(0).to_numpy()
    most = _MOST // _SECOND_US
    is_odd = (seconds > most) | (seconds < -most)
    micros = np.where(is_odd, 0, seconds) * _SECOND_US
    found = pa.array(micros, pa.int64(), mask=numbers.is_null().to_numpy(zero_copy_only=False))
    return found.cast(pa.timestamp("us", "UTC")), np.flatnonzero(is_odd)


_NOTHING: Final = np.empty(0, np.int64)


def _only(texts: pa.Array, chosen: pa.Array) -> pa.Array:
    return pc.if_else(chosen, texts, pa.scalar(None, pa.string()))


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """All of them, or none if one is not a date."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(len(texts), kind)


def _in_zone(local: pa.Array, zone: str) -> pa.Array:
    kind = pa.timestamp("us", "UTC")
    try:
        zoned = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="raise")
    except pa.ArrowInvalid:
        return pa.nulls(len(local), kind)
    return zoned.cast(kind)


def _completed(
    texts: pa.Array, found: pa.Array, scalar: Scalar, kind: pa.DataType, number: pa.DataType
) -> tuple[pa.Array, np.ndarray]:
    """`found`, with each text that has no value yet read individually."""
    if found.null_count == texts.null_count:
        return found, _NOTHING
    places = np.flatnonzero(pc.and_(found.is_null(), texts.is_valid()).to_numpy(zero_copy_only=False))
    values: list[int | None] = []
    bad: list[int] = []
    for place, text in zip(places.tolist(), texts.take(pa.array(places)).to_pylist(), strict=True):
        try:
            values.append(scalar(text))
        except ValueError:
            values.append(None)
            bad.append(place)
    mask = np.zeros(len(texts), np.bool_)
    mask[places] = True
    whole = pc.replace_with_mask(found.view(number), pa.array(mask), pa.array(values, number))
    return whole.view(kind), np.array(bad, np.int64)
