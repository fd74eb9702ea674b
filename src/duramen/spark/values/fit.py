"""Which JSON objects fit columns, one by one: for batches in which some do not, with a reason that says where. Pure."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import GenericAlias
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from pyarrow import types

__all__ = ["decoder_of"]

_LEAST: Final = -(1 << 63)
_Whole: Final = Annotated[int, msgspec.Meta(ge=_LEAST, le=(1 << 63) - 1)]


def decoder_of(fields: Sequence[pa.Field]) -> Callable[[bytes], object]:
    """A function that raises msgspec.MsgspecError for an object with another type in a field than the columns have.

    What it lets through may still be refused by Arrow's parser, which is what counts.
    """
    return _decoder(pa.schema(list(fields)))


@lru_cache(maxsize=64)
def _decoder(schema: pa.Schema) -> Callable[[bytes], object]:
    return msgspec.json.Decoder(_object(list(schema), 0)).decode


def _object(fields: Sequence[pa.Field], level: int) -> Any:
    names = {f"f{index}": field.name for index, field in enumerate(fields)}
    return msgspec.defstruct(
        f"Object{level}",
        [(name, _type(field.type, level + 1) | None, None) for name, field in zip(names, fields, strict=True)],
        rename=names,
    )


def _type(kind: pa.DataType, level: int) -> Any:
    if types.is_struct(kind):
        return _object(list(kind), level)
    if types.is_list(kind):
        return GenericAlias(list, (_type(kind.value_type, level + 1) | None,))
    for is_kind, found in ((types.is_int64, _Whole), (types.is_floating, float), (types.is_string, str)):
        if is_kind(kind):
            return found
    return bool if types.is_boolean(kind) else Any
