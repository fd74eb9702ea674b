"""Bytes in JSON: text if they are UTF-8, otherwise `{"base64": "…"}`; null for none. Pure."""

import base64
import binascii
from typing import Annotated, Final, TypedDict

from msgspec import Meta

from duramen.base.errors import RequestInvalid

__all__ = [
    "Base64",
    "JsonBytes",
    "Timestamp",
    "bytes_of",
    "json_of",
    "json_size",
    "request_bytes",
    "request_headers",
    "why_unreadable",
]


class Base64(TypedDict):
    """Bytes that are not UTF-8."""

    base64: str


JsonBytes = str | Base64 | None

_INT64_MAX: Final = (1 << 63) - 1
_CONTROLS: Final = bytes(range(32))

Timestamp = Annotated[
    int, Meta(ge=-1 - _INT64_MAX, le=_INT64_MAX, description="Milliseconds since 1970, before then negative; -1: none")
]


def json_of(data: bytes | None) -> JsonBytes:
    """`data` as JSON has it; `bytes_of` gives the same bytes back."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def json_size(data: bytes | None) -> int:
    """An upper bound of the bytes that `json_of(data)` has as JSON."""
    if data is None:
        return len("null")
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            return len('{"base64":""}') + 4 * -(-len(data) // 3)
    escaped = data.count(b'"') + data.count(b"\\")
    controls = len(data) - len(data.translate(None, _CONTROLS))
    return len('""') + len(data) + escaped + (len("\\u0000") - 1) * controls


def bytes_of(value: object) -> bytes | None:
    """The bytes that a JSON value stands for. Raises ValueError with a hint."""
    match value:
        case None:
            return None
        case str():
            return _utf8(value)
        case {"base64": str(text), **rest} if not rest:
            try:
                return base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raise ValueError(f"{text[:40]!r} is not base64") from None
        case _:
            raise ValueError(f'{str(value)[:40]!r} is not text, {{"base64": "…"}} or null')


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError('text has half a surrogate pair, which is no UTF-8; write {"base64": "…"}') from None


def request_bytes(what: str, value: JsonBytes) -> bytes | None:
    """Bytes of a request that come as JSON. Raises RequestInvalid."""
    try:
        return bytes_of(value)
    except ValueError as error:
        raise RequestInvalid(f"{what}: {error}") from None


def request_headers(headers: list[tuple[str | Base64, JsonBytes]]) -> list[tuple[bytes, bytes | None]]:
    """Headers of a request that come as JSON. Raises RequestInvalid."""
    return [
        (request_bytes("a header's name", name) or b"", request_bytes("a header's value", content))
        for name, content in headers
    ]


def why_unreadable(content: bytes | bytearray, error: Exception) -> str:
    """Why content cannot be read. msgspec's message for invalid UTF-8 depends on the place in the JSON."""
    try:
        content.decode()
    except UnicodeDecodeError as bad:
        return f"it is not UTF-8: byte 0x{content[bad.start]:02x} at position {bad.start}, {bad.reason}"
    return str(error)
