"""Avro values as columns: with one schema, with a registry, and whatever bytes come."""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import OptionInvalid, ServerUnreachable
from duramen.spark.values.avro import AvroDecoder
from duramen.spark.values.registry import SchemaRegistry

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "delay", "type": ["null", "float"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["GO", "COME"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "legs", "type": {"type": "array", "items": {
            "type": "record", "name": "Leg", "fields": [{"name": "to", "type": "string"}]}}},
        {"name": "either", "type": ["int", "string"]},
    ],
}  # fmt: skip
ROW: dict[str, Any] = {
    "id": 7,
    "delay": 0.5,
    "at": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
    "day": date(2024, 1, 2),
    "price": Decimal("12.34"),
    "token": "6f7ad1ea-9c2c-4a52-8b59-0d3bfa3f8f31",
    "kind": "COME",
    "counts": {"a": 1},
    "legs": [{"to": "JFK"}],
    "either": "way",
}


def written(schema: Any, row: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
    return out.getvalue()


def decoded(decoder: AvroDecoder, values: Sequence[bytes | None]) -> tuple[list[dict[str, Any]], list[str | None]]:
    found = decoder.decode(pa.array(values, pa.binary()))
    found.columns.validate(full=True)
    rows = found.columns.to_pylist() if found.columns.num_columns else [{} for _ in values]
    assert len(rows) == len(values) == len(found.errors)
    return rows, found.errors.to_pylist()


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def test_every_type_has_its_column() -> None:
    value = written(FLIGHT, ROW)
    rows, errors = decoded(AvroDecoder(schema=json.dumps(FLIGHT)), [value, None, value[:-1], value + b"x"])
    assert errors[:2] == [None, None]
    expected = {name: column for name, column in ROW.items() if name != "either"} | {"counts": [("a", 1)]}
    assert rows[0] == expected
    assert all(column is None for row in rows[1:] for column in row.values())
    assert str(errors[2]).startswith("not Avro of its schema: ")
    assert errors[3] == "not Avro of its schema: 1 bytes behind the value"


def test_a_prefix_is_skipped_where_a_schema_is_given() -> None:
    value = written(record(("a", "long")), {"a": 5})
    rows, errors = decoded(AvroDecoder(schema=json.dumps(record(("a", "long")))), [b"\0\0\0\0\x07" + value, value])
    assert ([row["a"] for row in rows], errors) == ([5, 5], [None, None])


def test_a_schema_that_is_no_record_is_one_column() -> None:
    assert decoded(AvroDecoder(schema='"string"'), [b"\x04ab"]) == ([{"value": "ab"}], [None])


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        '"nothing"',
        "[]",
        '{"type": "array", "items": "null"}',
        '{"type": "record", "name": "R", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}',
        '{"type": "array", "items": {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}}',
    ],
)
def test_schemas_that_cannot_be(schema: str) -> None:
    with pytest.raises(OptionInvalid, match="the Avro schema: cannot be understood"):
        AvroDecoder(schema=schema)


def test_neither_a_schema_nor_a_registry() -> None:
    with pytest.raises(OptionInvalid, match="need a schema, or the URL of a schema registry"):
        AvroDecoder()


@contextmanager
def registry(answers: dict[int, tuple[int, bytes]]) -> Iterator[str]:
    """Serves schemas by their ids."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            begin, _, schema_id = self.path.rpartition("/")
            status, body = answers.get(int(schema_id), (404, b"{}")) if begin == "/schemas/ids" else (500, b"")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(schema: Any, **more: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"schema": json.dumps(schema), **more}).encode()


def prefixed(schema_id: int, schema: Any, row: Any) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + written(schema, row)


def test_each_value_is_read_with_the_schema_that_it_names() -> None:
    old, new, odd = record(("a", "int")), record(("b", "string"), ("a", "long")), record(("a", "string"))
    answers = {1: answer(old), 2: answer(new), 3: answer(odd), 4: answer("x", schemaType="JSON"), 5: answer("nothing")}
    with registry(answers) as url:
        decoder = AvroDecoder(registry=SchemaRegistry(url))
        values = [
            prefixed(1, old, {"a": 1}),
            prefixed(2, new, {"b": "x", "a": 1 << 40}),
            prefixed(1, old, {"a": 2}),
            prefixed(3, odd, {"a": "text"}),
            prefixed(4, old, {"a": 1}),
            prefixed(5, old, {"a": 1}),
            prefixed(9, old, {"a": 1}),
            b"\x02",
        ]
        rows, errors = decoded(decoder, values)
    assert [(row["a"], row["b"]) for row in rows[:3]] == [(1, None), (1 << 40, "x"), (2, None)]
    assert errors[:3] == [None, None, None]
    assert errors[3] == "not Avro of its schema: column a is int64, and string in this schema"
    assert errors[4] == "not Avro of its schema: the registry has no Avro schema 4 without references"
    assert str(errors[5]).startswith("not Avro of its schema: cannot be understood")
    assert errors[6] == "not Avro of its schema: the registry has no Avro schema 9 without references"
    assert errors[7] == "not Avro of its schema: no prefix of a schema registry"


def test_a_registry_that_does_not_answer_is_no_bad_record() -> None:
    value = prefixed(1, record(("a", "int")), {"a": 1})
    with registry({1: (503, b"")}) as url, pytest.raises(ServerUnreachable, match="answered 503"):
        decoded(AvroDecoder(registry=SchemaRegistry(url)), [value])
    with pytest.raises(ServerUnreachable, match="did not answer"):
        decoded(AvroDecoder(registry=SchemaRegistry(url)), [value])
    with pytest.raises(OptionInvalid, match="must be a URL"):
        SchemaRegistry("registry:8081")


VALUE = written(FLIGHT, ROW)
mutated = st.lists(st.tuples(st.integers(0, len(VALUE) - 1), st.integers(0, 255)), max_size=4).map(
    lambda changes: bytes(dict(changes).get(index, byte) for index, byte in enumerate(VALUE))
)


@given(st.lists(st.none() | st.binary(max_size=40) | mutated, max_size=8))
@settings(max_examples=examples(300))
def test_whatever_comes_each_value_is_a_row_or_has_a_reason(values: list[bytes | None]) -> None:
    rows, errors = decoded(AvroDecoder(schema=json.dumps(FLIGHT)), [*values, VALUE])
    assert (rows[-1]["id"], errors[-1]) == (7, None)
    for value, row, error in zip(values, rows, errors, strict=False):
        if error is not None or value is None:
            assert all(column is None for column in row.values())
        else:
            assert row["id"] is not None


@pytest.mark.parametrize(
    ("kind", "logical", "number", "stored"),
    [
        ("long", "timestamp-millis", -62135596800001, -62135596800001000),
        ("long", "timestamp-millis", 253402300800000, 253402300800000000),
        ("long", "timestamp-micros", -(1 << 63), -(1 << 63)),
        ("int", "date", 2932897, 2932897),
        ("int", "date", -(1 << 31), -(1 << 31)),
    ],
)
def test_times_that_python_has_no_room_for_are_as_spark_reads_them(
    kind: str, logical: str, number: int, stored: int
) -> None:
    schema = record(("it", {"type": "array", "items": ["null", {"type": kind, "logicalType": logical}]}))
    plain = record(("it", {"type": "array", "items": ["null", kind]}))
    decoder = AvroDecoder(schema=json.dumps(schema))
    found = decoder.decode(pa.array([written(plain, {"it": [number, None]})], pa.binary()))
    assert found.errors.to_pylist() == [None]
    numbers = found.columns.column("it").values
    assert numbers.cast(pa.int32() if kind == "int" else pa.int64()).to_pylist() == [stored, None]


def test_a_time_that_no_column_has_room_for_is_bad_alone() -> None:
    schema = record(("it", {"type": "long", "logicalType": "timestamp-millis"}))
    values = [written(record(("it", "long")), {"it": number}) for number in (1, 1 << 62)]
    rows, errors = decoded(AvroDecoder(schema=json.dumps(schema)), values)
    assert [row["it"] for row in rows] == [datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC), None]
    assert errors[0] is None
    assert errors[1] is not None
