"""Columns from values: how they merge with known ones, and how rows are fitted to them. Pure."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
from pyarrow import types

__all__ = ["MOST_COLUMNS", "fitted", "leaves", "usable", "wider", "widest"]

MOST_COLUMNS: Final = 1000
"""A limit for streams whose records each have fields of their own: they must not make a table of a million columns."""

_MOST_LEVELS: Final = 32
_MOST_DIGITS: Final = 38  # of a decimal in Spark, Delta and Iceberg
_UNUSABLE: Final = re.compile(r"[\x00-\x1f ,;{}()=`.\ud800-\udfff]")


def widest(kind: pa.DataType) -> pa.DataType:
    """The widest type of its kind, so that no later value needs a wider one: numbers of 64 bits."""
    if types.is_integer(kind):
        return pa.int64()
    if types.is_floating(kind):
        return pa.float64()
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, widest(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(pa.field("element", widest(kind.value_type)))
    return pa.map_(kind.key_type, widest(kind.item_type)) if types.is_map(kind) else kind


def wider(known: pa.DataType, found: pa.DataType, *, numbers: bool = False) -> pa.DataType | None:
    """A type for the values of both; None if there is none. Fields of structs are merged.

    With `numbers` integers and floats merge to floats: for columns that are in no table yet.
    """
    if types.is_null(found) or known.equals(found):
        return known
    if types.is_null(known):
        return found
    if types.is_struct(known) and types.is_struct(found):
        fields = {field.name: field for field in known}
        for field in found:
            there = fields.get(field.name)
            kind = field.type if there is None else wider(there.type, field.type, numbers=numbers)
            if kind is None:
                return None
            fields[field.name] = pa.field(field.name, kind)
        return pa.struct(list(fields.values()))
    if types.is_list(known) and types.is_list(found):
        inner = wider(known.value_type, found.value_type, numbers=numbers)
        return None if inner is None else pa.list_(pa.field("element", inner))
    if types.is_map(known) and types.is_map(found):
        key = wider(known.key_type, found.key_type)  # keys stay unchanged, except for nullability
        inner = wider(known.item_type, found.item_type, numbers=numbers)
        return None if inner is None or key is None or not key.equals(known.key_type) else pa.map_(key, inner)
    if numbers and {known, found} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return _wider_number(known, found)


def _wider_number(known: pa.DataType, found: pa.DataType) -> pa.DataType | None:
    """The number type that represents every value of both exactly."""
    both = (known, found)
    if all(map(types.is_signed_integer, both)) or all(map(types.is_floating, both)):
        return max(both, key=lambda kind: kind.bit_width)
    if pa.float64() in both and any(types.is_signed_integer(kind) and kind.bit_width <= 32 for kind in both):
        return pa.float64()
    if all(map(types.is_decimal128, both)):
        scale = max(kind.scale for kind in both)
        precision = scale + max(kind.precision - kind.scale for kind in both)
        return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else None
    return None


def leaves(kind: pa.DataType) -> int:
    """The number of value columns of a type."""
    if types.is_struct(kind):
        return sum(leaves(field.type) for field in kind)
    return leaves(kind.value_type) if types.is_list(kind) else 1


def usable(
    found: Iterable[pa.Field],
    known: Sequence[pa.Field] = (),
    *,
    taken: Iterable[str] = (),
    texts: bool = False,
    level: int = 0,
) -> list[pa.Field]:
    """The `known` columns, and after them the usable ones of `found`, as far as they have types.

    A name that Delta or Spark refuse, that is `taken` or differs from another only in case, is left out, and so is a
    new field beyond `MOST_COLUMNS`: its content stays only in the value. With `texts` new times are text.
    """
    fields = {field.name: field for field in known}
    names = {field.name.lower(): field.name for field in known} | {name.lower(): "" for name in taken}
    room = MOST_COLUMNS - sum(leaves(field.type) for field in known)
    for field in found:
        there = fields.get(field.name)
        is_taken = names.get(field.name.lower(), field.name) != field.name
        if is_taken or not field.name or _UNUSABLE.search(field.name):
            continue
        kind = _usable(field.type, None if there is None else there.type, level + 1, texts=texts)
        if kind is None:
            continue
        grown = leaves(kind) - (0 if there is None else leaves(there.type))
        if level or grown <= room:
            room -= grown
            names[field.name.lower()] = field.name
            fields[field.name] = pa.field(field.name, kind)
    return list(fields.values())


def _usable(kind: pa.DataType, known: pa.DataType | None, level: int, *, texts: bool) -> pa.DataType | None:
    if types.is_null(kind) or level > _MOST_LEVELS:
        return known
    if types.is_struct(kind):
        inside = list(known) if known is not None and types.is_struct(known) else []
        fields = usable(kind, inside, texts=texts, level=level)
        return pa.struct(fields) if fields else None
    if types.is_list(kind):
        inside_type = known.value_type if known is not None and types.is_list(known) else None
        inner = _usable(kind.value_type, inside_type, level + 1, texts=texts)
        return None if inner is None else pa.list_(pa.field("element", inner))
    if known is not None:
        return known
    # Text that looks like a time in one batch may not in the next.
    return pa.string() if texts and types.is_timestamp(kind) else kind


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with the columns of `schema`, null if absent. Raises ArrowInvalid."""
    arrays = [
        _fitted(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    if not arrays:
        return pa.record_batch({"": pa.nulls(batch.num_rows)}).select([])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if types.is_struct(kind):
        there = {field.name: index for index, field in enumerate(array.type)}
        children = [
            _fitted(array.field(there[field.name]), field.type)
            if field.name in there
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if types.is_list(kind):
        inner = _fitted(array.values, kind.value_type)
        whole = pa.Array.from_buffers(kind, len(array) + array.offset, [*array.buffers()[:2]], children=[inner])
        return whole.slice(array.offset, len(array))
    if types.is_map(kind) and types.is_map(array.type):
        pairs = [_fitted(array.keys, kind.key_type), _fitted(array.items, kind.item_type)]
        entries = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
        whole = pa.Array.from_buffers(kind, len(array) + array.offset, [*array.buffers()[:2]], children=[entries])
        return whole.slice(array.offset, len(array))
    return array.cast(kind)
