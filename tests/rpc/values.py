"""Values of any type that MessagePack carries between nodes, by the type alone."""

from collections.abc import Hashable
from functools import cache
from typing import Any

import msgspec.inspect as types
from hypothesis import strategies as st

__all__ = ["values"]

_INT64 = (-(1 << 63), (1 << 63) - 1)


def values(of: Any) -> st.SearchStrategy[Any]:
    """Values of a type."""
    return _values(of)


@cache
def _values(of: Hashable) -> st.SearchStrategy[Any]:
    return _of(types.type_info(of))


def _of(info: types.Type) -> st.SearchStrategy[Any]:
    match info:
        case types.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: _of(field.type) for field in fields})
        case types.NamedTupleType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: _of(field.type) for field in fields})
        case types.ListType():
            return st.lists(_of(info.item_type), min_size=info.min_length or 0, max_size=3)
        case types.VarTupleType():
            return st.lists(_of(info.item_type), max_size=3).map(tuple)
        case types.TupleType(item_types=items):
            return st.tuples(*map(_of, items))
        case types.DictType():
            return st.dictionaries(_of(info.key_type), _of(info.value_type), max_size=3)
        case types.UnionType(types=several):
            return st.one_of(*map(_of, several))
        case types.Metadata(type=inner):
            return _of(inner)
        case _:
            return _plain(info)


def _plain(info: types.Type) -> st.SearchStrategy[Any]:
    match info:
        case types.NoneType():
            return st.none()
        case types.BoolType():
            return st.booleans()
        case types.IntType():
            return st.integers(_INT64[0] if info.ge is None else info.ge, _INT64[1] if info.le is None else info.le)
        case types.FloatType():
            return st.floats(allow_nan=False)
        case types.StrType():
            return st.text(max_size=9)
        case types.BytesType():
            return st.binary(min_size=info.min_length or 0, max_size=info.max_length or 20)
        case types.ByteArrayType():
            return st.binary(max_size=20).map(bytearray)
        case types.LiteralType(values=several):
            return st.sampled_from(several)
        case types.EnumType(cls=cls):
            return st.sampled_from([*cls])
        case types.UUIDType():
            return st.uuids()
        case _:
            raise TypeError(f"{info} has no values here yet")
