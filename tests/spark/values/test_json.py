"""JSON values as columns: types that follow from values, and whatever bytes come."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import OptionInvalid
from duramen.spark.values.fields import MOST_COLUMNS, leaves
from duramen.spark.values.json import JsonDecoder


def decoded(decoder: JsonDecoder, values: Sequence[bytes | None]) -> tuple[list[dict[str, Any]], list[str | None]]:
    found = decoder.decode(pa.array(values, pa.binary()))
    found.columns.validate(full=True)
    rows = found.columns.to_pylist() if found.columns.num_columns else [{} for _ in values]
    assert len(rows) == len(values) == len(found.errors)
    return rows, found.errors.to_pylist()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not a JSON object: Input data was truncated"),
        (b"[1]", "not a JSON object: Expected `object`, got `array`"),
        (b"7", "not a JSON object: Expected `object`, got `int`"),
        (b'{"a": 1} {"a": 2}', "not a JSON object: JSON is malformed: trailing characters"),
        (b'{"a": 1}\n{"a": 2}', "not a JSON object: JSON is malformed: trailing characters"),
        (b'{"a": 1', "not a JSON object: Input data was truncated"),
        (b'{"a": "\xff"}', "not a JSON object: 'utf-8' codec can't decode byte 0xff in position 7: invalid start byte"),
        (b'{"a": NaN}', "not a JSON object: JSON is malformed: invalid character (byte 6)"),
        (b'{"a": "x"}', "does not fit the columns: Expected `int | null`, got `str` - at `$.a`"),
        (b'{"a": 2.5}', "does not fit the columns: Expected `int | null`, got `float` - at `$.a`"),
        (b'{"n": {"x": [1, "y"]}}', "does not fit the columns: Expected `int | null`, got `str` - at `$.n.x[1]`"),
        (b'{"a": 1, "a": 2}', "does not fit the columns: Column(/a) was specified twice"),
        (b'{"a": 99999999999999999999}', "does not fit the columns: Expected `int` <= 9223372036854775807 - at `$.a`"),
        (b'{"n": ' + b"[" * 100_000, "not a JSON object: "),
    ],
)
def test_a_bad_value_has_a_reason_and_harms_no_other(value: bytes, reason: str) -> None:
    fields = [pa.field("a", pa.int64()), pa.field("n", pa.struct([("x", pa.list_(pa.int64()))]))]
    rows, errors = decoded(JsonDecoder(fields), [b'{"a": 1}', value, b'{"a": 2}'])
    assert [row["a"] for row in rows] == [1, None, 2]
    assert errors[0] is errors[2] is None
    assert str(errors[1]).startswith(reason)


def test_what_two_values_make_up_between_them_is_not_one() -> None:
    _, errors = decoded(JsonDecoder(), [b'{"a": 1', b', "b": 2}', b'{"c": 3} {"d": 4}', b" "])
    assert all(errors)


def test_space_and_the_prefix_of_a_registry_do_not_count() -> None:
    rows, errors = decoded(JsonDecoder(), [b'\x00\x00\x00\x00\x07{"a": 1}', b'\n{\n\t"a":\n2\r\n}\n', None])
    assert [row["a"] for row in rows] == [1, 2, None]
    assert errors == [None, None, None]


def test_types_follow_from_the_first_values() -> None:
    decoder = JsonDecoder()
    values = [
        b'{"i": 1, "f": 1, "t": "2024-01-01", "o": {}, "l": [], "z": null}',
        b'{"f": 0.5}',
        b'{"l": [{"x": null}]}',
    ]
    rows, errors = decoded(decoder, values)
    assert errors == [None, None, None]
    assert [(field.name, str(field.type)) for field in decoder.fields] == [
        ("i", "int64"),
        ("f", "double"),
        ("t", "string"),
    ]
    assert rows[0] == {"i": 1, "f": 1.0, "t": "2024-01-01"}
    rows, errors = decoded(decoder, [b'{"z": true, "l": [{"x": [2]}], "i": 2}', b'{"i": 2.5}', b'{"z": 1}'])
    assert rows[0] == {"i": 2, "f": None, "t": None, "z": True, "l": [{"x": [2]}]}
    assert [error is None for error in errors] == [True, False, False]


def test_names_that_no_column_can_have_stay_in_the_value() -> None:
    decoder = JsonDecoder(taken=["_offset"])
    values = [
        b'{"first name": 1, "": 2, "a.b": 3, "_Offset": 4, "ok": 5, "OK": 6, "n": {"x y": 1, "z": 2}, "e": {" ": 1}}'
    ]
    rows, errors = decoded(decoder, values)
    assert rows == [{"ok": 5, "n": {"z": 2}}]
    assert errors == [None]


@pytest.mark.long
def test_there_is_an_end_of_columns() -> None:
    decoder = JsonDecoder()
    for batch in range(6):
        values = [b'{"f%d": 1, "n": {"g%d": 1}}' % (number, number) for number in range(batch * 300, batch * 300 + 300)]
        _, errors = decoded(decoder, values)
        assert not any(errors)
    assert sum(leaves(field.type) for field in decoder.fields) <= MOST_COLUMNS


def test_given_columns_stay_as_they_are() -> None:
    decoder = JsonDecoder([pa.field("a", pa.int32()), pa.field("when", pa.timestamp("us", "UTC"))], grows=False)
    rows, errors = decoded(decoder, [b'{"a": 1, "b": 2, "when": "2024-01-02T03:04:05.678Z"}', b'{"when": "yesterday"}'])
    assert rows[0]["a"] == 1
    assert rows[0]["when"].isoformat() == "2024-01-02T03:04:05.678000+00:00"
    assert [field.name for field in decoder.fields] == ["a", "when"]
    assert errors[0] is None
    assert str(errors[1]).startswith("does not fit the columns")
    with pytest.raises(OptionInvalid, match="cannot be made of JSON"):
        JsonDecoder([pa.field("a", pa.month_day_nano_interval())])


names = st.sampled_from(["a", "b", "c"])
large = st.integers(1 << 63, 1 << 200)
leaf = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
)
whole = st.recursive(
    leaf.filter(lambda value: not isinstance(value, float) or abs(value) < 1e300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, whole, max_size=3).map(lambda value: json.dumps(value).encode())
too_large = st.tuples(
    objects, names, st.sampled_from(["%s", "[1, %s]", '{"a": %s}']), large.map(str) | st.just("1e400")
).map(
    lambda parts: (
        parts[0][:-1]
        + (", " if len(parts[0]) > 2 else "").encode()
        + f'"z{parts[1]}": {parts[2] % parts[3]}}}'.encode()
    )
)
hostile = st.one_of(
    objects,
    objects,
    too_large,
    st.binary(max_size=12),
    st.lists(
        st.sampled_from([b'{"a":', b"1", b"}", b"{", b'"', b"\n", b",", b"[", b"]", b'"b":', b"\x00"]), max_size=8
    ).map(b"".join),
)


@given(st.lists(st.lists(st.none() | hostile, max_size=8), min_size=1, max_size=3))
@settings(max_examples=examples(300))
def test_whatever_comes_each_value_is_a_row_or_has_a_reason(batches: list[list[bytes | None]]) -> None:
    decoder = JsonDecoder()
    for values in batches:
        before = {field.name for field in decoder.fields}
        rows, errors = decoded(decoder, values)
        assert before <= {field.name for field in decoder.fields}
        for value, row, error in zip(values, rows, errors, strict=True):
            if value is None or error is not None:
                assert not any(column is not None for column in row.values())
                assert value is not None or error is None
                continue
            said = json.loads(value.lstrip(b"\x00") if value[:1] != b"\x00" else value[5:])
            assert isinstance(said, dict)
            for name, column in row.items():
                assert agrees(said.get(name), column)


@given(st.lists(st.none() | hostile, max_size=10))
@settings(max_examples=examples(150))
def test_what_is_bad_follows_from_the_columns_alone(values: list[bytes | None]) -> None:
    decoder = JsonDecoder()
    rows, errors = decoded(decoder, values)
    again = JsonDecoder(decoder.fields)
    assert decoded(again, values) == (rows, errors)
    for value, row, error in zip(values, rows, errors, strict=True):
        one, reason = decoded(JsonDecoder(decoder.fields), [value])
        assert ({name: one[0][name] for name in row}, reason[0] is None) == (row, error is None)


@pytest.mark.parametrize("number", ["99999999999999999999", "9" * 400, "9" * 5000, "-" + "9" * 5000, "1e400"])
def test_a_number_that_no_column_has_room_for_is_bad_and_changes_no_neighbour(number: str) -> None:
    bad = b'{"a": %s}' % number.encode()
    for values in ([b'{"a": 1}', bad, b'{"a": 3}'], [bad, b'{"a": 1}', b'{"a": 3}']):
        decoder = JsonDecoder()
        rows, errors = decoded(decoder, values)
        assert [field.type for field in decoder.fields] == [pa.int64()]
        assert [row["a"] for row in rows if row["a"] is not None] == [1, 3]
        assert [error is not None for error in errors] == [value is bad for value in values]
    for kind in (pa.float64(), pa.list_(pa.float64()), pa.struct([("x", pa.float64())])):
        shape = {pa.float64(): "%s", pa.struct([("x", pa.float64())]): '{"x": %s}'}.get(kind, "[0.5, %s]")
        values = [f'{{"a": {shape % one}}}'.encode() for one in ("0.5", number, "7")]
        _, errors = decoded(JsonDecoder([pa.field("a", kind)], grows=False), values)
        assert [error is not None for error in errors] == [False, True, False]
    decoder = JsonDecoder()
    _, errors = decoded(decoder, [bad])
    assert decoder.fields == []
    assert errors == ["does not fit the columns: a number beyond LONG and DOUBLE - at `$.a`"]
    decoder.learn(pa.array([bad], pa.binary()))
    assert [field.name for field in decoder.fields] == ["a"]


def test_what_double_has_exactly_is_read() -> None:
    fields = [pa.field("a", pa.float64())]
    rows, errors = decoded(JsonDecoder(fields), [b'{"a": 100000000000000000000}', b'{"a": 9223372036854775807}'])
    assert rows == [{"a": 1e20}, {"a": 2.0**63}]
    assert errors == [None, None]


@given(st.lists(objects, max_size=5), st.lists(st.tuples(st.integers(0, 5), too_large), min_size=1, max_size=3))
@settings(max_examples=examples(150))
def test_records_with_numbers_too_large_change_nothing_for_others(
    good: list[bytes], bad: list[tuple[int, bytes]]
) -> None:
    values: list[tuple[bytes, bool]] = [(value, True) for value in good]
    for place, value in bad:
        values.insert(place, (value, False))
    without, among = JsonDecoder(), JsonDecoder()
    expected = decoded(without, good)
    rows, errors = decoded(among, [value for value, _ in values])
    assert list(among.fields) == list(without.fields)
    kept = [(row, error) for row, error, (_, is_good) in zip(rows, errors, values, strict=True) if is_good]
    assert ([row for row, _ in kept], [error for _, error in kept]) == expected
    assert all(error is not None for error, (_, is_good) in zip(errors, values, strict=True) if not is_good)


def test_fields_beside_a_number_in_a_string_become_columns() -> None:
    decoder = JsonDecoder()
    rows, errors = decoded(
        decoder, [b'{"a": "x"}', b'{"a": 1, "b": 2, "c": {"d": 1}}', b'{"a": [2.50], "c": {"e": 1}}']
    )
    assert [(row["a"], row["b"]) for row in rows] == [("x", None), ("1", 2), ("[2.5]", None)]
    assert [row["c"] for row in rows] == [None, {"e": None, "d": 1}, {"e": 1, "d": None}]
    assert errors == [None, None, None]


def agrees(said: Any, column: Any) -> bool:
    """Whether a column's value is the JSON value, as far as columns can have it."""
    if column is None:
        return True
    if isinstance(column, str) and not isinstance(said, str):
        return agrees(said, json.loads(column))
    if isinstance(said, dict):
        return all(agrees(said.get(name), value) for name, value in column.items())
    if isinstance(said, list):
        return len(said) == len(column) and all(agrees(one, other) for one, other in zip(said, column, strict=True))
    return bool(said == column or float(said) == column)
