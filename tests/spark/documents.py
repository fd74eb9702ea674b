"""JSON objects for a schema with every type that `decode.json` reads, some with values that do not fit. From a seed."""

import base64
import json
import random
from collections.abc import Callable, Mapping

__all__ = ["NESTED", "WITH_MAPS", "documents"]

NESTED = (
    "d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, b BINARY, x DECIMAL(12,3), y DECIMAL(38,10), text STRING, f DOUBLE, i LONG, "
    "z BOOLEAN, s STRUCT<d: DATE, t: TIMESTAMP, text: STRING, x: ARRAY<DECIMAL(12,3)>>, "
    "l ARRAY<STRUCT<t: TIMESTAMP, b: BINARY, i: ARRAY<LONG>>>, ts ARRAY<TIMESTAMP>, dd ARRAY<ARRAY<DATE>>"
)
WITH_MAPS = (
    "d DATE, m MAP<STRING, LONG>, mt MAP<STRING, TIMESTAMP>, ms MAP<STRING, STRUCT<d: DATE, text: STRING>>, "
    "ml MAP<STRING, ARRAY<DECIMAL(12,3)>>, mm MAP<STRING, MAP<STRING, BINARY>>, l ARRAY<MAP<STRING, STRING>>, "
    "text STRING"
)

_ZONES = [
    "Z", "Z", "+01:00", "-05:30", "+0100", "+1:00", "+01", "-5", " UTC", "UTC", "GMT", "GMT+1", "UTC-03:30",
    "+01:02:03", "Europe/Paris", " America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "EST", "PST", "+18:00", "",
]  # fmt: skip
_BAD_ZONES = ["z", "+19:00", "+1:60", "Mars/Olympus", "[Europe/Paris]", "+01:00[Europe/Paris]", ".", "+"]
_CHARS = "abcXYZ 09\"\\/\n\t\u00e9\u20ac\U0001f600\x00\x7f'"

_Maker = Callable[[random.Random], str]
"""A JSON value."""


def documents(schema: str, count: int, seed: int) -> list[bytes]:
    """Objects for `NESTED` or `WITH_MAPS`."""
    rng = random.Random(seed)
    makers = _NESTED_FIELDS if schema == NESTED else _MAP_FIELDS
    return [_object(makers, rng).encode() for _ in range(count)]


def _object(makers: Mapping[str, _Maker], rng: random.Random) -> str:
    names = [name for name in makers if rng.random() < 0.4]
    rng.shuffle(names)
    pairs = [f"{_quoted(name)}:{_space(rng)}{_or_null(makers[name])(rng)}" for name in names]
    if rng.random() < 0.1:
        pairs.append(f'"unknown": {_any(rng)}')
    return "{" + ("," + _space(rng)).join(pairs) + "}"


def _quoted(text: str) -> str:
    return json.dumps(text)


def _space(rng: random.Random) -> str:
    return rng.choice(["", "", " ", "\n", " \t"])


def _or_null(maker: _Maker) -> _Maker:
    return lambda rng: "null" if rng.random() < 0.05 else maker(rng)


def _any(rng: random.Random) -> str:
    makers = (_long, _number, _boolean, _text)
    return rng.choice([*(maker(rng) for maker in makers), "{}", "[]", '[{"k": 1.50}]'])


def _or_other(maker: _Maker, chance: float = 0.01) -> _Maker:
    """Now and then a value of any other type."""
    return lambda rng: _any(rng) if rng.random() < chance else maker(rng)


def _calendar(rng: random.Random) -> str:
    year = rng.choices([rng.randint(1970, 2040), rng.randint(0, 9999), rng.randint(10_000, 200_000)], [6, 3, 1])[0]
    sign = rng.choices(["", "+", "-"], [30, 1, 1])[0]
    month, day = rng.randint(1, 12), rng.randint(1, 28 if rng.random() < 0.97 else 31)
    if rng.random() < 0.8:
        return f"{sign}{year:04d}-{month:02d}-{day:02d}"
    return f"{sign}{year:04d}" + rng.choice(["", f"-{month}", f"-{month}-{day}", f"-{month:02d}-{day}"])


def _clock(rng: random.Random) -> str:
    hour, minute, second = rng.randint(0, 23), rng.randint(0, 59), rng.randint(0, 59)
    if rng.random() < 0.02:
        hour, second = rng.choice([(24, second), (hour, 60)])
    fraction = "".join(rng.choices("0123456789", k=rng.choice([0, 1, 3, 6, 7, 9, 12])))
    whole = f"{hour:02d}:{minute:02d}:{second:02d}" if rng.random() < 0.9 else f"{hour}:{minute}:{second}"
    return whole + ("." + fraction if fraction else "")


def _date(rng: random.Random) -> str:
    kinds = [
        (60, lambda: _calendar(rng)),
        (5, lambda: f"{_calendar(rng)}T{_clock(rng)}Z"),
        (5, lambda: f" {_calendar(rng)} "),
        (2, lambda: f"{_calendar(rng)} {rng.choice(['x', 'later', '2020'])}"),
        (2, lambda: str(rng.choice([0, 99, 12_345_678, 999]))),
        (1, lambda: rng.choice(["", "yesterday", "2020-13-01", "01/02/2020", "2020-02-30", "20-1-1", "2020-01-01x"])),
    ]
    return _quoted(_one(rng, kinds))


def _timestamp(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return str(rng.choice([0, -1, 1_767_225_600, rng.randint(-(10**11), 10**11), 1_767_225_600_000]))
    kinds = [
        (50, lambda: f"{_calendar(rng)}{rng.choice('T ')}{_clock(rng)}{rng.choice(_ZONES)}"),
        (40, lambda: f"20{rng.randint(10, 39)}-01-{rng.randint(10, 28)}T10:30:00.{rng.randint(1, 999)}Z"),
        (10, lambda: _calendar(rng)),
        (5, lambda: f"{_calendar(rng)} {rng.randint(0, 23)}" + rng.choice(["", ":30", ":5"])),
        (3, lambda: f"{_calendar(rng)}T{_clock(rng)}{rng.choice(_BAD_ZONES)}"),
        (3, lambda: f"{rng.choice(['2021-03-14 02:30:00', '2021-11-07 01:30:00'])}{rng.choice(['', 'PST', 'Z'])}"),
        (1, lambda: rng.choice(["", "now", "1767225600", "2020-01-01T12:30Z", "2020-01-01t00:00:00z", "2020-01-01T"])),
    ]  # fmt: skip
    return _quoted(_one(rng, kinds))


def _local(rng: random.Random) -> str:
    zone = rng.choice(_ZONES) if rng.random() < 0.02 else ""
    return _quoted(f"{_calendar(rng)}{rng.choice('T ')}{_clock(rng)}{zone}" if rng.random() < 0.8 else _calendar(rng))


def _binary(rng: random.Random) -> str:
    text = base64.b64encode(rng.randbytes(rng.randint(0, 12))).decode()
    if rng.random() < 0.9:
        return _quoted(text)
    odd = [
        " " + text,
        text + "\n",
        text.rstrip("="),
        text + "QQ==",
        "-_-_",
        "QR==",
        text.replace("A", "\u00e9"),
        "QUJD QUJD",
    ]
    return _quoted(rng.choice(odd))


def _digits(rng: random.Random, most: int) -> str:
    return str(rng.randint(0, 10 ** rng.randint(1, most)))


def _number(rng: random.Random) -> str:
    return rng.choice(["", "", "-"]) + _digits(rng, 6) + "." + "".join(rng.choices("0123456789", k=rng.randint(1, 5)))


def _decimal(rng: random.Random) -> str:
    sign = rng.choice(["", "", "-"])
    plain = sign + _digits(rng, 9) + rng.choice(["", "." + _digits(rng, 4)])
    kinds = [
        (60, lambda: plain),
        (20, lambda: _quoted(plain)),
        (5, lambda: f"{sign}{_digits(rng, 3)}e{rng.randint(-6, 6)}"),
        (5, lambda: _quoted(rng.choice(["1,234.5", ".5", "1.", "+7", "1e3", "1,,2", "1E-2"]))),
        (3, lambda: sign + _digits(rng, 30)),
        (2, lambda: _quoted(rng.choice(["", "x", " 1", "1_0", "NaN", ",", "0x1", "1e", "--1"]))),
        (1, lambda: rng.choice(["9" * 400, "0." + "1" * 400, "1e400", "0e400", "1e-400"])),
    ]
    return _one(rng, kinds)


def _text(rng: random.Random) -> str:
    return _quoted("".join(rng.choices(_CHARS, k=rng.randint(0, 8))))


def _string(rng: random.Random) -> str:
    kinds = [
        (70, lambda: _text(rng)),
        (10, lambda: _long(rng)),
        (10, lambda: _number(rng)),
        (5, lambda: _boolean(rng)),
        (5, lambda: "9" * rng.randint(19, 400)),
        (5, lambda: f'{{"k": [{_number(rng)}, {_text(rng)}, null, {{ }}], "k": {_text(rng)}}}'),
        (5, lambda: f"[{_long(rng)} , -0, 1e2, [], {_text(rng)}]"),
        (2, lambda: rng.choice(["1e7", "0.001", "0.0001", "-0.0", "123456789.5", "1E-7", "9999999.0"])),
    ]
    return _one(rng, kinds)


def _double(rng: random.Random) -> str:
    kinds = [
        (60, lambda: _number(rng)),
        (20, lambda: _long(rng)),
        (5, lambda: f"{_digits(rng, 3)}e{rng.randint(-300, 300)}"),
        (
            2,
            lambda: rng.choice(["100000000000000000000", "-0.0", "1e-400", "9007199254740993", '"Infinity"', '"-INF"']),
        ),
        (1, lambda: rng.choice(['"1.5"', '""', '"INF"', "true"])),
    ]
    return _one(rng, kinds)


def _long(rng: random.Random) -> str:
    return str(rng.choice([0, -1, 7, rng.randint(-(10**9), 10**9), rng.randint(-(1 << 63), (1 << 63) - 1)]))


def _any_long(rng: random.Random) -> str:
    return _long(rng) if rng.random() < 0.99 else rng.choice(["9223372036854775808", "1.0", "1e3", '"1"', "9" * 400])


def _boolean(rng: random.Random) -> str:
    return rng.choice(["true", "false"])


def _one(rng: random.Random, kinds: list[tuple[int, Callable[[], str]]]) -> str:
    return rng.choices([make for _, make in kinds], [weight for weight, _ in kinds])[0]()


def _list(maker: _Maker) -> _Maker:
    return lambda rng: "[" + ", ".join(_or_null(maker)(rng) for _ in range(rng.randint(0, 3))) + "]"


def _map(maker: _Maker) -> _Maker:
    def make(rng: random.Random) -> str:
        keys = {"".join(rng.choices(_CHARS, k=rng.randint(0, 3))) for _ in range(rng.randint(0, 3))}
        return "{" + ", ".join(f"{_quoted(key)}: {_or_null(maker)(rng)}" for key in sorted(keys)) + "}"

    return make


def _struct(**makers: _Maker) -> _Maker:
    return lambda rng: _object(makers, rng)


_NESTED_FIELDS: Mapping[str, _Maker] = {
    "d": _or_other(_date),
    "t": _or_other(_timestamp),
    "n": _or_other(_local),
    "b": _or_other(_binary),
    "x": _or_other(_decimal),
    "y": _or_other(_decimal),
    "text": _string,
    "f": _double,
    "i": _any_long,
    "z": _or_other(_boolean),
    "s": _or_other(_struct(d=_date, t=_timestamp, text=_string, x=_list(_decimal))),
    "l": _or_other(_list(_struct(t=_timestamp, b=_binary, i=_list(_long)))),
    "ts": _or_other(_list(_timestamp)),
    "dd": _or_other(_list(_list(_date))),
}
_MAP_FIELDS: Mapping[str, _Maker] = {
    "d": _date,
    "m": _or_other(_map(_any_long)),
    "mt": _or_other(_map(_timestamp)),
    "ms": _or_other(_map(_struct(d=_date, text=_string))),
    "ml": _or_other(_map(_list(_decimal))),
    "mm": _or_other(_map(_map(_binary))),
    "l": _or_other(_list(_map(_string))),
    "text": _string,
}
