"""Schemas of tables: the initial one, and changes by new files. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyarrow import types

from duramen.base.errors import OptionInvalid, TableUnsupported
from duramen.spark.tables.columns import DATE, ERROR, PARTITION, ROW_FIELDS
from duramen.spark.tables.port import Declaration
from duramen.spark.values.fields import usable, wider, widest

__all__ = [
    "OWN_NAMES", "declared_fields", "decoded_fields", "first_schema", "loaded", "merged", "optional", "saved",
    "widened",
]  # fmt: skip

OWN_NAMES: Final = frozenset({*(field.name for field in ROW_FIELDS), ERROR, DATE})
"""Names that no decoded column may have."""

_PARTITION_TYPES: Final = (types.is_string, types.is_integer, types.is_date, types.is_boolean)


def saved(schema: pa.Schema) -> bytes:
    """A schema as bytes."""
    return schema.serialize().to_pybytes()


def loaded(schema: bytes) -> pa.Schema:
    """A schema that was `saved`; no bytes mean no columns."""
    return pa.ipc.read_schema(pa.py_buffer(schema)) if schema else pa.schema([])


def declared_fields(declaration: Declaration) -> list[pa.Field]:
    """The declared columns of JSON. Raises OptionInvalid for names that a table cannot have."""
    if declaration.decode != "json" or not declaration.schema:
        return []
    found = [pa.field(field.name, widest(field.type)) for field in loaded(declaration.schema)]
    fields = usable(found, taken=OWN_NAMES)
    if fields != found:
        names = sorted({field.name for field in found} - {field.name for field in fields})
        raise OptionInvalid(f"a table cannot have columns of these names or types: {', '.join(names) or 'too many'}")
    return fields


def first_schema(declaration: Declaration) -> pa.Schema:
    """The columns of an empty table. Raises TableUnsupported for columns that it cannot be partitioned by.

    An undeclared decoded column is text if the table is partitioned by it.
    """
    fields = list(ROW_FIELDS)
    if declaration.decode != "none":
        fields += [pa.field(ERROR, pa.string()), *declared_fields(declaration)]
    if DATE in declaration.partition_by:
        fields.append(pa.field(DATE, pa.date32()))
    known = {field.name: field for field in fields}
    for name in declaration.partition_by:
        is_decoded = name not in OWN_NAMES
        if name not in known and declaration.decode != "none" and is_decoded:
            fields = usable([pa.field(name, pa.string())], fields, taken=OWN_NAMES)
            known = {field.name: field for field in fields}
        can_be = name in known and (is_decoded or name in {PARTITION, DATE})
        if not can_be or not any(is_kind(known[name].type) for is_kind in _PARTITION_TYPES):
            raise TableUnsupported(
                f"the table cannot be partitioned by {name!r}; it can be by {DATE}, {PARTITION}, and decoded "
                "columns of text, whole numbers, days and booleans"
            )
    return pa.schema(fields)


def decoded_fields(schema: pa.Schema) -> list[pa.Field]:
    """The columns that come from values."""
    return [field for field in schema if field.name not in OWN_NAMES]


def merged(known: pa.Schema, found: Iterable[pa.Schema]) -> tuple[pa.Schema, bool]:
    """`known` with the new columns of `found`, and whether all that was found fits unchanged.

    Of two incompatible types the first stays; a new column with integers here and floats there has floats.
    """
    fields = {field.name: field for field in known}
    agreed = True
    for field in (field for schema in found for field in schema):
        there = fields.get(field.name)
        kind = field.type if there is None else wider(there.type, field.type)
        if kind is None:
            agreed = False
            is_new = field.name not in known.names
            kind = wider(fields[field.name].type, field.type, numbers=True) if is_new else None
        if kind is not None:
            fields[field.name] = pa.field(field.name, kind)
    return pa.schema(list(fields.values())), agreed


def widened(known: pa.Schema, wanted: pa.Schema) -> Iterator[tuple[str, pa.DataType, pa.DataType]]:
    """Each column of `known`, or nested field, whose type differs in `wanted`: its path, and both types."""
    for field in known:
        yield from _widened(field.name, field.type, wanted.field(field.name).type)


def _widened(path: str, known: pa.DataType, wanted: pa.DataType) -> Iterator[tuple[str, pa.DataType, pa.DataType]]:
    if types.is_struct(known) and types.is_struct(wanted):
        after = {field.name: field.type for field in wanted}
        for field in known:
            yield from _widened(f"{path}.{field.name}", field.type, after[field.name])
    elif types.is_list(known) and types.is_list(wanted):
        yield from _widened(f"{path}.element", known.value_type, wanted.value_type)
    elif types.is_map(known) and types.is_map(wanted):
        yield from _widened(f"{path}.value", known.item_type, wanted.item_type)
    elif not known.equals(wanted):
        yield path, known, wanted


def optional(schema: pa.Schema) -> pa.Schema:
    """The columns, all of them nullable, nested ones too."""
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if types.is_large_string(kind):
        return pa.string()
    return pa.binary() if types.is_large_binary(kind) else kind
