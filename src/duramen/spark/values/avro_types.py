"""Avro schemas as Arrow types. Pure.

Source: the Apache Avro specification 1.12, "Schema Declaration" and "Logical Types".
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import pyarrow as pa

from duramen.base.errors import OptionInvalid

__all__ = ["KEPT", "READ", "NotAColumn", "arrow_fields", "without_others"]

_SIMPLE: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
Times = Mapping[str, pa.DataType]

KEPT: Final[Times] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
}
"""The types of days and times in tables."""

READ: Final[Times] = {**KEPT, "timestamp-millis": pa.timestamp("ms", "UTC")}
"""Avro's own representation, as numbers: Python's types cannot hold all of them."""

_MOST_DIGITS: Final = 38


class NotAColumn(Exception):
    """A schema without a type in tables."""


def arrow_fields(schema: Any, names: Mapping[str, Any], times: Times = KEPT) -> list[pa.Field]:
    """The columns of a parsed schema: a record's fields with types in tables, or `value` for another schema.

    `names` are all named schemas, `times` the types of days and times. Raises OptionInvalid if no column is left.
    """
    kind = names.get(schema) if isinstance(schema, str) else schema
    fields = kind["fields"] if isinstance(kind, dict) and kind.get("type") == "record" else None
    found = _fields(fields or [{"name": "value", "type": schema}], names, times, frozenset())
    if not found:
        raise OptionInvalid("the Avro schema has no field that can be a column")
    return found


def _fields(fields: Any, names: Mapping[str, Any], times: Times, inside: frozenset[str]) -> list[pa.Field]:
    found: list[pa.Field] = []
    for field in fields:
        try:
            found.append(pa.field(field["name"], _type(field["type"], names, times, inside)))
        except NotAColumn:
            continue
    return found


def without_others(schema: Any, times: Collection[str] = KEPT) -> Any:
    """A schema with no logical types except decimals and `times`: values of others have Avro's own representation."""
    if isinstance(schema, list):
        return [without_others(branch, times) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    known = schema.get("logicalType") in {"decimal", *times}
    return {
        name: without_others(value, times) if name in {"type", "items", "values", "fields"} else value
        for name, value in schema.items()
        if name != "logicalType" or known
    }


def _type(schema: Any, names: Mapping[str, Any], times: Times, inside: frozenset[str]) -> pa.DataType:
    if isinstance(schema, list):
        kinds = [_type(branch, names, times, inside) for branch in schema if branch != "null"]
        if not kinds or any(not kind.equals(kinds[0]) for kind in kinds):
            raise NotAColumn
        return kinds[0]
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return _SIMPLE[schema]
        if schema in inside or schema not in names:
            raise NotAColumn
        return _type(names[schema], names, times, inside)
    kind = schema["type"]
    if kind == "record":
        fields = _fields(schema["fields"], names, times, inside | {schema["name"]})
        if not fields:
            raise NotAColumn
        return pa.struct(fields)
    if kind == "array":
        return pa.list_(pa.field("element", _type(schema["items"], names, times, inside)))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], names, times, inside))
    return _logical(schema, times) or (_SIMPLE[kind] if kind in _SIMPLE else _type(kind, names, times, inside))


def _logical(schema: Mapping[str, Any], times: Times) -> pa.DataType | None:
    logical = schema.get("logicalType")
    if logical != "decimal":
        return times.get(str(logical))
    if not 0 < schema.get("precision", 0) <= _MOST_DIGITS:
        raise NotAColumn
    return pa.decimal128(schema["precision"], schema.get("scale", 0))
