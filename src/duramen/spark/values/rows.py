"""JSON objects to rows one at a time, like Spark's `from_json`: for input that Arrow's parser does not accept. Pure.

Numbers stay text until the type of their column is known, so that nothing is rounded.
"""

import json
import math
import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from duramen.spark.values.fields import usable
from duramen.spark.values.times import Scalar, to_day, to_instant

__all__ = ["RowReader", "Unfit", "Whole", "read_json", "to_bytes", "without_large_numbers"]

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_MOST_DIGITS: Final = 20
_SECOND_US: Final = 1_000_000
_BAD: Final = "does not fit the columns: "

_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_DECIMALS: Final = Context(prec=76, Emax=999_999_999, Emin=-999_999_999, rounding=ROUND_HALF_UP)
_QUADS: Final = re.compile(r"[\0-\x20]*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)")
_NOT_NUMBERS: Final = {
    "NaN": math.nan,
    "+INF": math.inf,
    "+Infinity": math.inf,
    "Infinity": math.inf,
    "-INF": -math.inf,
    "-Infinity": -math.inf,
}
"""Texts that Spark reads as a DOUBLE."""

_ESCAPES: Final = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord(char): "\\" + letter for char, letter in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)
}

_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")

_Reader = Callable[[Any], Any]
"""Converts a non-null JSON value to one that `pa.array` accepts for a column's type. Raises Unfit."""


class Unfit(Exception):
    """A value that does not fit its column."""

    def __init__(self, reason: str, *, has_place: bool = True) -> None:
        super().__init__(reason)
        self._reason = reason
        self._path = ""
        self._has_place = has_place

    def within(self, step: str) -> "Unfit":
        """The same error, with its path extended by one level."""
        self._path = step + self._path
        return self

    @property
    def reason(self) -> str:
        """The reason, and the path."""
        place = f" - at `${self._path}`" if self._has_place else ""
        return _BAD + self._reason.replace("\0path", self._path.replace(".", "/")) + place


class Whole(str):
    """A number without fraction and exponent."""

    __slots__ = ()


class _Float(str):
    """Any other number."""

    __slots__ = ()


class _Repeated(dict[str, Any]):
    """An object with a repeated name."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs

    def twice(self, names: Iterable[str]) -> str | None:
        """The first of `names` that is repeated."""
        there = [name for name, _ in self.pairs]
        return next((name for name in names if there.count(name) > 1), None)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Repeated(pairs)


_parse: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=Whole, parse_float=_Float, strict=False
).raw_decode


def read_json(text: bytes) -> dict[str, Any]:
    """`text` must be one JSON object. Raises Unfit if it is nested too deeply."""
    try:
        found: dict[str, Any] = _parse(text.decode().lstrip())[0]
    except RecursionError:
        raise Unfit("nested too deeply") from None
    return found


class RowReader:
    """Reads JSON objects into dictionaries that `pa.array` accepts for a struct of `fields`."""

    def __init__(self, fields: Sequence[pa.Field], zone: str, *, taken: Iterable[str] = ()) -> None:
        """`zone` is the time zone of times without one; `taken` are names that no column may have."""
        self.fields = list(fields)
        self._taken = taken
        self._read = _struct(self.fields, zone)

    def read(self, text: bytes) -> dict[str, Any]:
        """`text` must be one JSON object. Raises Unfit."""
        found: dict[str, Any] = self._read(read_json(text))
        return found

    def beyond(self, text: bytes) -> Unfit | None:
        """The error for a number beyond LONG and DOUBLE, in a field that is no column but could be one."""
        try:
            path = _beyond(read_json(text), self.fields, self._taken)
        except Unfit as unfit:
            return unfit
        return None if path is None else Unfit("a number beyond LONG and DOUBLE").within(path)

    def others(self, text: bytes) -> bytes | None:
        """The fields without columns, of an object that fits the columns; None without such fields."""
        try:
            found = read_json(text)
            self._read(found)
        except Unfit:
            return None
        left = _others(found, self.fields)
        return json.dumps(_small(left)).encode() if left else None


def _is_long(text: str) -> bool:
    """Whether an integer has at most 64 bits."""
    return len(text) <= _MOST_DIGITS and _LEAST <= int(text) <= _MOST


def without_large_numbers(text: bytes) -> bytes:
    """The same JSON object with small numbers in place of those beyond LONG and DOUBLE."""
    return json.dumps(_small(read_json(text))).encode()


def _small(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _small(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_small(item) for item in value]
    if isinstance(value, Whole):
        return int(value) if _is_long(value) else 0
    if isinstance(value, _Float):
        return 0.5 if math.isinf(float(value)) else float(value)
    return value


def _others(found: dict[str, Any], known: Sequence[pa.Field]) -> dict[str, Any]:
    columns = {field.name: field.type for field in known}
    left: dict[str, Any] = {}
    for name, value in found.items():
        kind = columns.get(name)
        if kind is None:
            left[name] = value
        elif types.is_struct(kind) and isinstance(value, dict):
            left[name] = _others(value, list(kind))
        elif types.is_list(kind) and types.is_struct(kind.value_type) and isinstance(value, list):
            left[name] = [_others(item, list(kind.value_type)) for item in value if isinstance(item, dict)]
    return {name: value for name, value in left.items() if value or columns.get(name) is None}


def _beyond(found: dict[str, Any], known: Sequence[pa.Field], taken: Iterable[str] = ()) -> str | None:
    columns = {field.name: field.type for field in known}
    for name, value in found.items():
        kind = columns.get(name)
        path = None
        if kind is None:
            is_possible = len(usable([pa.field(name, pa.int64())], known, taken=taken)) > len(known)
            path = _large(value) if is_possible else None
        elif types.is_struct(kind) and isinstance(value, dict):
            path = _beyond(value, list(kind))
        elif types.is_list(kind) and types.is_struct(kind.value_type) and isinstance(value, list):
            inside = (_beyond(item, list(kind.value_type)) for item in value if isinstance(item, dict))
            path = next((f"[...]{place}" for place in inside if place is not None), None)
        if path is not None:
            return f".{name}{path}"
    return None


def _large(value: Any) -> str | None:
    """The path in `value` of a number beyond LONG and DOUBLE."""
    if isinstance(value, Whole):
        return None if _is_long(value) else ""
    if isinstance(value, _Float):
        return "" if math.isinf(float(value)) else None
    if isinstance(value, dict):
        found = ((f".{name}", _large(item)) for name, item in value.items())
    elif isinstance(value, list):
        found = ((f"[{index}]", _large(item)) for index, item in enumerate(value))
    else:
        return None
    return next((step + path for step, path in found if path is not None), None)


def _reader(kind: pa.DataType, zone: str) -> _Reader:
    if types.is_struct(kind):
        return _struct(list(kind), zone)
    if types.is_list(kind):
        return _list(_reader(kind.value_type, zone))
    if types.is_map(kind):
        return _map(_reader(kind.item_type, zone))
    if types.is_decimal(kind):
        return _decimal(kind)
    if types.is_timestamp(kind):
        return _instant(to_instant(None if kind.tz is None else zone), "TIMESTAMP_NTZ" if kind.tz is None else "")
    for is_kind, found in (
        (types.is_integer, _long),
        (types.is_floating, _double),
        (types.is_boolean, _boolean),
        (types.is_string, _string),
        (types.is_binary, _binary),
        (types.is_date, _date),
    ):
        if is_kind(kind):
            return found
    raise NotImplementedError(str(kind))


def _struct(fields: Sequence[pa.Field], zone: str) -> _Reader:
    readers = [(field.name, _reader(field.type, zone)) for field in fields]
    names = [field.name for field in fields]

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _mismatch("object", value)
        if isinstance(value, _Repeated) and (twice := value.twice(names)) is not None:
            raise _repeated(twice)
        row = {}
        for name, reader in readers:
            item = value.get(name)
            if item is not None:
                try:
                    row[name] = reader(item)
                except Unfit as unfit:
                    raise unfit.within(f".{name}") from None
        return row

    return read


def _list(reader: _Reader) -> _Reader:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _mismatch("array", value)
        items = []
        for item in value:
            try:
                items.append(None if item is None else reader(item))
            except Unfit as unfit:
                raise unfit.within(f"[{len(items)}]") from None
        return items

    return read


def _map(reader: _Reader) -> _Reader:
    def read(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise _mismatch("object", value)
        if isinstance(value, _Repeated):
            raise _repeated(value.twice(value) or "")
        items = []
        for name, item in value.items():
            try:
                items.append((_string(name), None if item is None else reader(item)))
            except Unfit as unfit:
                raise unfit.within(f".{name}") from None
        return items

    return read


def _repeated(name: str) -> Unfit:
    return Unfit("Column(\0path) was specified twice", has_place=False).within(f".{name}")


def _mismatch(expected: str, value: Any) -> Unfit:
    names = ((bool, "bool"), (Whole, "int"), (_Float, "float"), (str, "str"), (dict, "object"))
    got = next((name for kind, name in names if isinstance(value, kind)), "array")
    return Unfit(f"Expected `{expected} | null`, got `{got}`")


def _unreadable(value: str, kind: str) -> Unfit:
    shown = value if len(value) <= 40 else value[:40] + "…"
    return Unfit(f"{shown!r} is no {kind}")


def _is_text(value: Any) -> bool:
    return type(value) is str


def _long(value: Any) -> int:
    if not isinstance(value, Whole):
        raise _mismatch("int", value)
    if _is_long(value):
        return int(value)
    raise Unfit(f"Expected `int` >= {_LEAST}" if value.startswith("-") else f"Expected `int` <= {_MOST}")


def _double(value: Any) -> float:
    if isinstance(value, Whole):
        number = float(value)
        if _is_long(value) or (math.isfinite(number) and int(value) == int(number)):
            return number
        raise Unfit("a whole number of more than 64 bits that DOUBLE cannot have exactly")
    if isinstance(value, _Float):
        number = float(value)
        if math.isinf(number):
            raise Unfit("a number beyond DOUBLE")
        return number
    if not _is_text(value) or value not in _NOT_NUMBERS:
        raise _mismatch("float", value)
    return _NOT_NUMBERS[value]


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _mismatch("bool", value)
    return value


def _string(value: Any) -> str:
    if not _is_text(value):
        value = _json(value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit("half of a surrogate pair") from None
    return str(value)


def _json(value: Any) -> str:
    """Spark's text of a value that is not text, in a STRING column."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Whole):
        return "0" if value == "-0" else str(value)
    if isinstance(value, _Float):
        return _java_double(value)
    if isinstance(value, str):
        return f'"{_ASTRAL.sub(_surrogates, value.translate(_ESCAPES))}"'
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    pairs = value.pairs if isinstance(value, _Repeated) else value.items()
    return "{" + ",".join(f"{_json(name)}:{_json(item)}" for name, item in pairs) + "}"


def _surrogates(found: re.Match[str]) -> str:
    high, low = divmod(ord(found.group()) - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04X}\\u{0xDC00 + low:04X}"


def _java_double(text: str) -> str:
    """A number in the notation of `Double.toString` of Java 19 and newer."""
    number = float(text)
    if math.isinf(number):
        raise Unfit("a number beyond DOUBLE")
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        plain = f"{Decimal(repr(number)):f}"
        return plain if "." in plain else plain + ".0"
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    shown = "".join(map(str, digits)).rstrip("0")
    tens = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{tens}"


def _decimal(kind: pa.DataType) -> _Reader:
    unit = Decimal((0, (1,), -kind.scale))
    least_too_large = Decimal((0, (1,), kind.precision - kind.scale))
    name = f"DECIMAL({kind.precision},{kind.scale})"

    def read(value: Any) -> Decimal:
        if not isinstance(value, str):
            raise _mismatch("decimal", value)
        # Spark accepts commas between groups of digits.
        text = value.replace(",", "") if _is_text(value) else value
        if _DECIMAL.fullmatch(text) is None:
            raise _unreadable(value, name)
        try:
            number = Decimal(text).quantize(unit, context=_DECIMALS)
        except InvalidOperation:
            raise _unreadable(value, name) from None
        if number.copy_abs() >= least_too_large:
            raise _unreadable(value, name)
        return number

    return read


def _instant(scalar: Scalar, no_zone: str) -> _Reader:
    kind = no_zone or "TIMESTAMP"

    def read(value: Any) -> int:
        if isinstance(value, Whole) and not no_zone:
            micros = int(value) * _SECOND_US if _is_long(value) else _MOST + 1
            if not _LEAST <= micros <= _MOST:
                raise _unreadable(value, kind)
            return micros
        if not _is_text(value):
            raise _mismatch("timestamp", value)
        try:
            return scalar(value)
        except ValueError:
            raise _unreadable(value, kind) from None

    return read


def _date(value: Any) -> int:
    if not _is_text(value):
        raise _mismatch("date", value)
    try:
        return to_day(value)
    except ValueError:
        raise _unreadable(value, "DATE") from None


def _binary(value: Any) -> bytes:
    if not _is_text(value):
        raise _mismatch("base64", value)
    try:
        return to_bytes(value)
    except ValueError:
        raise _unreadable(value, "base64") from None


def to_bytes(text: str) -> bytes:
    """The decoded base64, as by Spark's JSON parser. Raises ValueError."""
    try:
        return a2b_base64(text, strict_mode=True)
    except (Base64Error, ValueError):
        # Spark accepts space between groups of four, and more groups after one that ends with `=`.
        place = 0
        groups = []
        while (found := _QUADS.match(text, place)) is not None:
            groups.append(a2b_base64(found.group(1)))
            place = found.end()
        if text[place:].strip("".join(map(chr, range(0x21)))):
            raise ValueError(text) from None
        return b"".join(groups)
