"""Avro values to Arrow columns: with a registry's prefix, or with one schema."""

import io
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from duramen.base.errors import OptionInvalid
from duramen.spark.values.avro_types import READ, arrow_fields, without_others
from duramen.spark.values.decoded import MAGIC, PREFIX_BYTES, Decoded, joined, placed
from duramen.spark.values.fields import fitted, usable, wider
from duramen.spark.values.registry import SchemaRegistry

__all__ = ["AvroDecoder"]

_PREFIX: Final = bytes([MAGIC])
_GIVEN: Final = -1
_BAD: Final = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RecursionError, TypeError, ValueError,
)  # fmt: skip
"""fastavro's errors for bytes that do not match the schema."""


class _Known(NamedTuple):
    """A parsed schema with its columns, and the types in which values are read; or the reason why it cannot be used."""

    parsed: Any
    is_record: bool
    fields: Sequence[pa.Field]
    read: Sequence[pa.Field]
    problem: str


class AvroDecoder:
    """Decodes Avro values; columns of schemas from a registry are added after the others."""

    def __init__(
        self,
        fields: Sequence[pa.Field] = (),
        *,
        schema: str = "",
        registry: SchemaRegistry | None = None,
        taken: Iterable[str] = (),
    ) -> None:
        """Values without a prefix have `schema`; schemas of the others are looked up, or are `schema` too.

        Raises OptionInvalid.
        """
        if not schema and registry is None:
            raise OptionInvalid("Avro values need a schema, or the URL of a schema registry")
        self._fields = list(fields)
        self._registry = registry
        self._taken = frozenset(taken)
        self._known: dict[int, _Known] = {}
        if schema:
            given = self._known[_GIVEN] = _understood(schema)
            if given.problem:
                raise OptionInvalid(f"the Avro schema: {given.problem}")
            self._join(given)

    @property
    def fields(self) -> Sequence[pa.Field]:
        """The columns so far."""
        return self._fields

    def decode(self, values: pa.Array) -> Decoded:
        """See `Decoder`. Raises ServerUnreachable if the registry does not respond."""
        errors: list[str | None] = [None] * len(values)
        found: dict[int, tuple[list[int], list[Any]]] = {}
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                continue
            try:
                schema_id, record = self._record(value)
            except _BAD as error:
                errors[row] = f"not Avro of its schema: {_said(error)}"
                continue
            rows, records = found.setdefault(schema_id, ([], []))
            rows.append(row)
            records.append(record)
        pieces: list[pa.RecordBatch] = []
        order: list[int] = []
        for schema_id, (rows, records) in found.items():
            for some, piece in self._columns(self._known[schema_id], rows, records, errors):
                order += some
                pieces.append(piece)
        schema = pa.schema(self._fields)
        columns = joined([fitted(piece, schema) for piece in pieces], schema)
        return Decoded(placed(columns, order, len(values)), pa.array(errors, pa.string()))

    def _record(self, value: bytes) -> tuple[int, Any]:
        if self._registry is not None and len(value) >= PREFIX_BYTES and value[:1] == _PREFIX:
            schema_id = int.from_bytes(value[1:PREFIX_BYTES], "big")
            return schema_id, _read(self._schema(schema_id), value, PREFIX_BYTES)
        if _GIVEN not in self._known:
            raise ValueError("no prefix of a schema registry")
        try:
            return _GIVEN, _read(self._known[_GIVEN], value, 0)
        except _BAD:
            if value[:1] != _PREFIX or len(value) < PREFIX_BYTES:
                raise
            return _GIVEN, _read(self._known[_GIVEN], value, PREFIX_BYTES)

    def _schema(self, schema_id: int) -> _Known:
        known = self._known.get(schema_id)
        if known is None:
            text = None if self._registry is None else self._registry.schema(schema_id)
            missing = f"the registry has no Avro schema {schema_id} without references"
            known = _understood(text) if text is not None else _Known(None, False, (), (), missing)
            problem = known.problem or self._join(known)
            known = self._known[schema_id] = known._replace(problem=problem)
        if known.problem:
            raise ValueError(known.problem)
        return known

    def _join(self, known: _Known) -> str:
        """Add its columns, or return the reason why that is not possible."""
        there = {field.name: field.type for field in self._fields}
        for field in known.fields:
            kind = there.get(field.name, field.type)
            if wider(kind, field.type) is None:
                return f"column {field.name} is {kind}, and {field.type} in this schema"
        self._fields = usable(known.fields, self._fields, taken=self._taken)
        return ""

    @staticmethod
    def _columns(
        known: _Known, rows: Sequence[int], records: Sequence[Any], errors: list[str | None]
    ) -> Iterable[tuple[Sequence[int], pa.RecordBatch]]:
        schema, read = pa.schema(list(known.fields)), pa.schema(list(known.read))
        whole = [record if known.is_record else {"value": record} for record in records]
        try:
            yield rows, fitted(pa.RecordBatch.from_pylist(whole, read), schema)
        except (pa.ArrowException, *_BAD):
            for row, record in zip(rows, whole, strict=True):
                try:
                    yield [row], fitted(pa.RecordBatch.from_pylist([record], read), schema)
                except (pa.ArrowException, *_BAD) as error:
                    errors[row] = f"does not fit the columns: {error}"


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _read(known: _Known, value: bytes, begin: int) -> Any:
    stream = io.BytesIO(value)
    stream.seek(begin)
    record = fastavro.schemaless_reader(stream, known.parsed, None)
    if stream.tell() != len(value):
        raise ValueError(f"{len(value) - stream.tell()} bytes behind the value")
    return record


def _understood(text: str) -> _Known:
    names: dict[str, Any] = {}
    try:
        whole = fastavro.parse_schema(without_others(json.loads(text)), named_schemas=names)
        _check_sizes(whole, names, frozenset())
        fields, read = arrow_fields(whole, names), arrow_fields(whole, names, READ)
        parsed = fastavro.parse_schema(without_others(json.loads(text), ()))
    except (SchemaParseException, OptionInvalid, *_BAD) as error:
        return _Known(None, False, (), (), f"cannot be understood: {_said(error)}")
    return _Known(parsed, isinstance(parsed, dict) and parsed.get("type") == "record", fields, read, "")


def _check_sizes(schema: Any, names: dict[str, Any], inside: frozenset[str]) -> bool:
    """Whether a value of it may have no bytes.

    Raises ValueError for arrays of such: nine bytes may declare 2^60 of them.
    """
    if isinstance(schema, list):
        for branch in schema:
            _check_sizes(branch, names, inside)
        return False
    if isinstance(schema, str):
        if schema in inside or schema not in names:
            return schema == "null"
        return _check_sizes(names[schema], names, inside)
    kind = schema["type"]
    if kind == "record":
        inside |= {schema["name"]}
        empty = [_check_sizes(field["type"], names, inside) for field in schema["fields"]]
        return all(empty)
    if kind == "array":
        if _check_sizes(schema["items"], names, inside):
            raise ValueError("items of an array without any bytes")
        return False
    if kind == "map":
        _check_sizes(schema["values"], names, inside)
        return False
    return schema.get("size") == 0 if kind == "fixed" else _check_sizes(kind, names, inside)
