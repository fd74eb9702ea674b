"""JSON objects through Arrow's parser, many at a time, and the conversion of its results to the columns' types.

Arrow's JSON parser has no types for Spark's dates, times and bytes, so it reads text there, which is converted by
column. Values that it handles wrongly, such as integers beyond 64 bits in a DOUBLE, are left to `rows`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyarrow import types

from duramen.base.errors import OptionInvalid
from duramen.spark.values.fields import fitted
from duramen.spark.values.rows import Whole, to_bytes
from duramen.spark.values.times import days_from, instants_from, instants_from_seconds

__all__ = ["adapted", "converted", "has_map", "large", "parse", "parsed_fields"]

_LARGE: Final = float(1 << 63)
_AS_THEY_ARE: Final = (
    types.is_boolean,
    types.is_string,
    lambda kind: types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision,
)
_AS_TEXT: Final = (
    types.is_date32,
    types.is_binary,
    lambda kind: types.is_timestamp(kind) and kind.unit == "us",
)
_EXTENSIONS: Final = {b"variant": "VARIANT", b"geometry": "GEOMETRY", b"geography": "GEOGRAPHY"}
_NONE: Final = np.empty(0, np.int64)


def parsed_fields(fields: Sequence[pa.Field]) -> list[pa.Field]:
    """The types to parse JSON to, for columns of these types. Raises OptionInvalid for unsupported ones."""
    return [pa.field(field.name, _parsed_type(field, field.name)) for field in fields]


def _parsed_type(field: pa.Field, path: str) -> pa.DataType:
    kind = field.type
    if types.is_struct(kind):
        for child in kind:
            for key, name in _EXTENSIONS.items():
                if key in (child.metadata or {}):
                    raise OptionInvalid(
                        f"the column {path} cannot be made of JSON as {name}; take STRING and convert that"
                    )
        return pa.struct([pa.field(child.name, _parsed_type(child, f"{path}.{child.name}")) for child in kind])
    if types.is_list(kind):
        return pa.list_(pa.field("element", _parsed_type(kind.value_field, f"{path}.element")))
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise OptionInvalid(f"the column {path} cannot be made of JSON: keys of a MAP have to be STRING")
        return pa.map_(pa.string(), _parsed_type(kind.item_field, f"{path}.value"))
    if types.is_signed_integer(kind):
        return pa.int64()
    if types.is_float32(kind) or types.is_float64(kind):
        return pa.float64()
    if any(is_kind(kind) for is_kind in _AS_THEY_ARE):
        return kind
    if any(is_kind(kind) for is_kind in _AS_TEXT):
        return pa.string()
    raise OptionInvalid(f"the column {path} cannot be made of JSON as {kind}")


def adapted(fields: Sequence[pa.Field], objects: Sequence[Mapping[str, Any]]) -> list[pa.Field]:
    """`parsed_fields`, but with integers in place of text if most values of these JSON objects are integers."""
    found = []
    for field in fields:
        values = [item for item in (one.get(field.name) for one in objects) if item is not None]
        found.append(pa.field(field.name, _adapted(field, values)))
    return found


def _adapted(field: pa.Field, values: Sequence[Any]) -> pa.DataType:
    kind = field.type
    if types.is_struct(kind):
        return pa.struct(adapted(list(kind), [value for value in values if isinstance(value, dict)]))
    if types.is_list(kind):
        items = [item for value in values if isinstance(value, list) for item in value if item is not None]
        return pa.list_(pa.field("element", _adapted(kind.value_field, items)))
    can_be = types.is_string(kind) or (types.is_timestamp(kind) and kind.tz is not None)
    is_whole = can_be and 2 * sum(isinstance(value, Whole) for value in values) > len(values)
    return pa.int64() if is_whole else _parsed_type(field, field.name)


def has_map(kind: pa.DataType) -> bool:
    """Whether a type has a map, which Arrow's parser does not know."""
    return types.is_map(kind) or any(has_map(kind.field(index).type) for index in range(kind.num_fields))


def parse(texts: Sequence[bytes], fields: Sequence[pa.Field], unexpected: str) -> pa.RecordBatch:
    """One row per text, with columns of `parsed_fields`. Raises ArrowException."""
    data = b"\n".join(texts)
    table = pj.read_json(
        pa.BufferReader(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior=unexpected),
    )
    if not table.num_columns:
        return fitted(pa.record_batch({"": pa.nulls(len(texts))}), pa.schema([]))
    batches = table.to_batches()
    if len(batches) != 1 or table.num_rows != len(texts):
        raise pa.ArrowInvalid(f"{len(texts)} values are {table.num_rows} rows in {len(batches)} batches")
    return batches[0]


def large(batch: pa.RecordBatch) -> list[int]:
    """Rows with a float that may have been an integer of more than 64 bits, or infinite."""
    rows = np.arange(batch.num_rows)
    return sorted({row for array in batch.columns for row in _large(array, rows).tolist()})


def _large(array: pa.Array, rows: np.ndarray) -> np.ndarray:
    kind = array.type
    if not _has_double(kind):
        return _NONE
    if types.is_struct(kind):
        return np.concatenate([_NONE, *(_large(array.field(index), rows) for index in range(kind.num_fields))])
    if types.is_list(kind):
        inner, owners = array.flatten(), _of_elements(array, rows)
        # Arrow makes broken lists of nulls before a type is known: each may have any number then.
        return _large(inner, owners) if len(inner) == len(owners) else owners
    ends = pc.min_max(array).as_py()
    if ends["min"] is None or (ends["min"] > -_LARGE and ends["max"] < _LARGE):
        return _NONE
    chosen: np.ndarray = rows[np.abs(array.to_numpy(zero_copy_only=False)) >= _LARGE]
    return chosen


def _has_double(kind: pa.DataType) -> bool:
    return types.is_float64(kind) or any(_has_double(kind.field(index).type) for index in range(kind.num_fields))


def _of_elements(array: pa.Array, rows: np.ndarray) -> np.ndarray:
    """The rows of the elements of lists."""
    owners: np.ndarray = rows[pc.list_parent_indices(array).to_numpy()]
    return owners


def converted(batch: pa.RecordBatch, fields: Sequence[pa.Field], zone: str) -> tuple[pa.RecordBatch, list[int]]:
    """`batch`, which has the parsed types, converted to those of `fields`; and the rows to be read one by one."""
    rows = np.arange(batch.num_rows)
    found = [_converted(batch.column(field.name), field.type, zone, rows) for field in fields]
    odd = {row for _, some in found for row in some.tolist()}
    if not found:
        return batch, []
    return pa.RecordBatch.from_arrays([array for array, _ in found], schema=pa.schema(fields)), sorted(odd)


def _converted(array: pa.Array, kind: pa.DataType, zone: str, rows: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    if array.type.equals(kind) and not _has_double(kind):
        return array, _NONE
    if types.is_struct(kind):
        found = [_converted(array.field(index), field.type, zone, rows) for index, field in enumerate(kind)]
        whole = pa.StructArray.from_arrays([one for one, _ in found], fields=list(kind), mask=array.is_null())
        return whole, np.concatenate([_NONE, *(odd for _, odd in found)])
    if types.is_list(kind):
        inner, odd = _converted(array.flatten(), kind.value_type, zone, _of_elements(array, rows))
        return pa.ListArray.from_arrays(array.offsets, inner, type=kind, mask=array.is_null()), odd
    if types.is_float64(kind):
        return array, _large(array, rows)
    if types.is_string(kind):
        return array.cast(kind), _NONE
    if types.is_date(kind):
        values, odd = days_from(array)
    elif types.is_timestamp(kind) and types.is_int64(array.type):
        values, odd = instants_from_seconds(array)
    elif types.is_timestamp(kind):
        values, odd = instants_from(array, None if kind.tz is None else zone)
    else:
        values, odd = _bytes_from(array)
    return values.cast(kind), rows[odd]


def _bytes_from(texts: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The decoded base64, null if invalid, and the places of invalid ones."""
    values: list[bytes | None] = []
    odd: list[int] = []
    for place, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else to_bytes(text))
        except ValueError:
            values.append(None)
            odd.append(place)
    return pa.array(values, pa.binary()), np.array(odd, np.int64)
