"""Query parameters, decoded into structs, with errors that name the problem and the fix."""

import re
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request

from duramen.base.errors import RequestInvalid
from duramen.base.settings import nearest

__all__ = ["read_query"]

T = TypeVar("T", bound=msgspec.Struct)

_SHOWN: Final = 40  # characters of a wrong value that an error repeats
_AT: Final = re.compile(r" - at `\$\.([a-z_]+)`$")


def read_query(request: Request, type_: type[T]) -> T:
    """The query parameters as `type_`, a struct. Raises RequestInvalid."""
    _check_utf_8(request.scope["query_string"])
    known = {field.encode_name for field in msgspec.structs.fields(type_)}
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            hint = nearest(name, known) or f"; those there are: {', '.join(sorted(known)) or 'none'}"
            raise RequestInvalid(f"there is no query parameter {name[:_SHOWN]}{hint}")
        if given.setdefault(name, value) != value:
            raise RequestInvalid(f"the query parameter {name} is given twice")
    try:
        return msgspec.convert(given, type_, strict=False)
    except msgspec.ValidationError as error:
        raise RequestInvalid(_explained(str(error), given)) from None


def _check_utf_8(query: bytes) -> None:
    """Raise RequestInvalid if escaped bytes are not UTF-8, which Starlette would replace."""
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError as bad:
        wrong = unquote_to_bytes(query)[bad.start]
        raise RequestInvalid(f"the query does not fit: it is not UTF-8: byte 0x{wrong:02x}, {bad.reason}") from None


def _explained(why: str, given: dict[str, str]) -> str:
    found = _AT.search(why)
    if found is None:
        return f"the query does not fit: {why}"
    name = found[1]
    return f"the query parameter {name}={given.get(name, '')[:_SHOWN]} does not fit: {why[: found.start()]}"
