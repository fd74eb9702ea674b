"""JSON values as columns of Spark's types, as Spark's `from_json` reads them; without Spark."""

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.documents import NESTED, documents

from duramen.base.errors import OptionInvalid
from duramen.spark.values.json import JsonDecoder

INSTANT = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
FIELDS = [
    ("d", pa.date32()),
    ("t", INSTANT),
    ("n", LOCAL),
    ("b", pa.binary()),
    ("x", pa.decimal128(12, 3)),
    ("y", pa.decimal128(38, 10)),
    ("text", pa.string()),
    ("f", pa.float64()),
    ("i", pa.int64()),
    ("z", pa.bool_()),
    (
        "s",
        pa.struct([("d", pa.date32()), ("t", INSTANT), ("text", pa.string()), ("x", pa.list_(pa.decimal128(12, 3)))]),
    ),
    ("l", pa.list_(pa.struct([("t", INSTANT), ("b", pa.binary()), ("i", pa.list_(pa.int64()))]))),
    ("ts", pa.list_(INSTANT)),
    ("dd", pa.list_(pa.list_(pa.date32()))),
]


def read(kind: pa.DataType, *values: str, zone: str = "UTC") -> list[Any]:
    """What values become; numbers of days and microseconds for times, whose years may be beyond Python's."""
    decoder = JsonDecoder([pa.field("a", kind)], grows=False, zone=zone)
    found = decoder.decode(pa.array([f'{{"a": {value}}}'.encode() for value in values], pa.binary()))
    column = found.columns.column("a")
    if kind in (INSTANT, LOCAL, pa.date32()):
        column = column.view(pa.int32() if kind == pa.date32() else pa.int64())
    pairs = zip(column.to_pylist(), found.errors.to_pylist(), strict=True)
    return ["bad" if error is not None else value for value, error in pairs]


SECOND = 1_000_000
DAY = 86_400 * SECOND
NEW_YEAR = 1_577_836_800 * SECOND


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (INSTANT, '"2020-01-01T00:00:00.123456789Z"', NEW_YEAR + 123_456),
        (INSTANT, "1577836800", NEW_YEAR),
        (INSTANT, "1767225600000", 1_767_225_600_000 * SECOND),
        (INSTANT, "10000000000000", "bad"),
        (INSTANT, "1577836800.5", "bad"),
        (INSTANT, '"1577836800"', "bad"),
        (INSTANT, '"2020"', NEW_YEAR),
        (INSTANT, '" 2020-1-1 0:0:0.5 Europe/Paris "', NEW_YEAR - 3600 * SECOND + 500_000),
        (INSTANT, '"2020-01-01 00:00:00-05:30"', NEW_YEAR + 5 * 3600 * SECOND + 1800 * SECOND),
        (INSTANT, '"2020-01-01 00:00:00PST"', NEW_YEAR + 8 * 3600 * SECOND),
        (INSTANT, '"12020-01-01"', NEW_YEAR + 25 * 146_097 * DAY),
        (INSTANT, '"2020-01-01T00:00Z"', "bad"),
        (INSTANT, '"2020-01-01T24:00:00Z"', "bad"),
        (INSTANT, '"2020-02-30T00:00:00Z"', "bad"),
        (INSTANT, '"00:00:00"', "bad"),
        (INSTANT, '""', "bad"),
        (LOCAL, '"2020-01-01T00:00:00"', NEW_YEAR),
        (LOCAL, '"2020-01-01T00:00:00Z"', "bad"),
        (LOCAL, "1577836800", "bad"),
        (pa.date32(), '"2020-01-01"', 18_262),
        (pa.date32(), '"2020-01-01T23:00:00-05:00"', 18_262),
        (pa.date32(), '"2020"', 18_262),
        (pa.date32(), '"123"', 123),
        (pa.date32(), '"-0001-01-01"', 18_262 - 2021 * 365 - 5 * 97 - 5),
        (pa.date32(), "18262", "bad"),
        (pa.date32(), '"01/02/2020"', "bad"),
        (pa.binary(), '"QUJD"', b"ABC"),
        (pa.binary(), '" QUJD\\nQQ==QQ== "', b"ABCAA"),
        (pa.binary(), '""', b""),
        (pa.binary(), '"QQ"', "bad"),
        (pa.binary(), '"-_-_"', "bad"),
        (pa.binary(), "5", "bad"),
        (pa.decimal128(6, 2), "12.545", Decimal("12.55")),
        (pa.decimal128(6, 2), '"1,234.5"', Decimal("1234.50")),
        (pa.decimal128(6, 2), "12345e-2", Decimal("123.45")),
        (pa.decimal128(6, 2), "9999.995", "bad"),
        (pa.decimal128(6, 2), "9" * 400, "bad"),
        (pa.decimal128(6, 2), '"NaN"', "bad"),
        (pa.decimal128(38, 0), "9" * 38, Decimal("9" * 38)),
        (pa.string(), "7", "7"),
        (pa.string(), "1.10", "1.1"),
        (pa.string(), "1e7", "1.0E7"),
        (pa.string(), "0.0001", "1.0E-4"),
        (pa.string(), "9" * 400, "9" * 400),
        (pa.string(), "1e400", "bad"),
        (pa.string(), "true", "true"),
        (
            pa.string(),
            '{"k": [1, 2.50, "\\n\\u0001\U0001f600", null], "k": {}}',
            '{"k":[1,2.5,"\\n\\u0001\\uD83D\\uDE00",null],"k":{}}',
        ),
        (pa.float64(), '"-Infinity"', -math.inf),
        (pa.float64(), '"1.5"', "bad"),
        (pa.map_(pa.string(), pa.int64()), '{"x": 1, "y": null}', [("x", 1), ("y", None)]),
        (pa.map_(pa.string(), pa.int64()), '{"x": 1, "x": 2}', "bad"),
        (pa.map_(pa.string(), pa.int64()), '{"x": "1"}', "bad"),
        (pa.map_(pa.string(), pa.int64()), "[]", "bad"),
        (pa.list_(pa.map_(pa.string(), pa.binary())), '[{"x": "QQ=="}, null]', [[("x", b"A")], None]),
    ],
)
def test_a_value_is_read_as_spark_reads_it(kind: pa.DataType, value: str, expected: object) -> None:
    assert read(kind, value) == [expected]
    # Whatever is beside it.
    assert read(kind, "null", value, '"?"', "2", value)[1::3] == [expected, expected]


def test_times_without_a_zone_are_in_the_given_one() -> None:
    # A time that a change of the clock leaves out, one that it repeats, and one in summer.
    texts = ['"2021-03-14 02:30:00"', '"2021-11-07 01:30:00"', '"2021-07-01"']
    seconds = [1_615_717_800, 1_636_273_800, 1_625_122_800]
    assert read(INSTANT, *texts, zone="America/Los_Angeles") == [second * SECOND for second in seconds]


def test_each_value_is_what_it_is_alone() -> None:
    fields = [pa.field(name, kind) for name, kind in FIELDS]
    values = documents(NESTED, 500, seed=36)
    together = JsonDecoder(fields, grows=False).decode(pa.array(values, pa.binary()))
    decoder = JsonDecoder(fields, grows=False)
    for row, value in enumerate(values):
        alone = decoder.decode(pa.array([value], pa.binary()))
        assert alone.columns.equals(together.columns.slice(row, 1))
        assert alone.errors.equals(together.errors.slice(row, 1))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (pa.map_(pa.int64(), pa.int64()), "column a cannot be made of JSON: keys of a MAP have to be STRING"),
        (pa.list_(pa.duration("us")), r"column a\.element cannot be made of JSON as duration"),
        (pa.struct([("b", pa.time64("us"))]), r"column a\.b cannot be made of JSON as time64"),
        (pa.null(), "column a cannot be made of JSON as null"),
    ],
)
def test_types_that_json_cannot_become_are_refused(kind: pa.DataType, reason: str) -> None:
    with pytest.raises(OptionInvalid, match=reason):
        JsonDecoder([pa.field("a", kind)])
