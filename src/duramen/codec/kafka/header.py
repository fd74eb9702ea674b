"""Frames and headers of requests and responses.

request   int32 size, int16 api key, int16 version, int32 correlation id, nullable string client id,
          and tagged fields where the version is flexible
response  int32 size, int32 correlation id, and tagged fields where the version is flexible (ApiVersions
          never has them, so that a client can read the answer before it knows the broker)
"""

import struct
from typing import Final

import msgspec

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.kafka.schema import LARGEST_TAGS
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.codec.varint import read_uvarint

__all__ = [
    "FIXED_HEADER_BYTES",
    "RequestHeader",
    "encode_request",
    "encode_response",
    "has_response_tags",
    "read_request_header",
    "response_body_start",
    "skip_tags",
]

FIXED_HEADER_BYTES: Final = 8
_CLIENT_ID_BYTES: Final = 255  # the kept part of a client's name: member ids begin with it

_REQUEST = struct.Struct(">hhi")
_SIZED_REQUEST = struct.Struct(">ihhi")
_RESPONSE = struct.Struct(">ii")
_INT16 = struct.Struct(">h")

_NEVER: Final = 1 << 15
_TAGGED_FROM: Final = {key: _NEVER if key == ApiKey.API_VERSIONS else api.flexible for key, api in APIS.items()}


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """A request's header; the body begins at `end`."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    end: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header of a frame (without its size). Raises RequestInvalid.

    If the API or version is unknown, the client id and everything after it are not decoded.
    """
    if len(frame) < FIXED_HEADER_BYTES:
        raise RequestInvalid(f"a request of {len(frame)} bytes has no header")
    api_key, version, correlation_id = _REQUEST.unpack_from(frame)
    api = APIS.get(api_key)
    if api is None or not api.low <= version <= api.high:
        return RequestHeader(api_key, version, correlation_id, None, FIXED_HEADER_BYTES)
    try:
        (length,) = _INT16.unpack_from(frame, 8)
        end = 10 + max(0, length)
        client_id = (
            bytes(frame[10 : min(end, 10 + _CLIENT_ID_BYTES)]).decode("utf-8", "replace") if length >= 0 else None
        )
        if end > len(frame):
            raise ValueError("the client id is cut off")
        if version >= api.flexible:
            end = end + 1 if end < len(frame) and not frame[end] else skip_tags(frame, end)  # nearly always none
    except (struct.error, ValueError) as error:
        raise RequestInvalid(f"a request's header is damaged: {error}") from None
    return RequestHeader(api_key, version, correlation_id, client_id, end)


def skip_tags(buffer: Buffer, position: int) -> int:
    """The position after a section of tagged fields. Raises ValueError."""
    count, position = read_uvarint(buffer, position)
    if count > LARGEST_TAGS:
        raise ValueError(f"a header has {count} tagged fields")
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise ValueError("a tagged field is cut off")
    return position


def has_response_tags(api_key: int, version: int) -> bool:
    """Whether the response's header has tagged fields."""
    return version >= _TAGGED_FROM[api_key]


def encode_response(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole response frame."""
    if version >= _TAGGED_FROM[api_key]:
        return _RESPONSE.pack(len(body) + 5, correlation_id) + b"\0" + body
    return _RESPONSE.pack(len(body) + 4, correlation_id) + body


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
    """A whole request frame."""
    name = client_id.encode()
    tags = b"\0" if version >= APIS[api_key].flexible else b""
    size = 10 + len(name) + len(tags) + len(body)
    head = _SIZED_REQUEST.pack(size, api_key, version, correlation_id)
    return b"".join((head, _INT16.pack(len(name)), name, tags, body))


def response_body_start(api_key: int, version: int, frame: Buffer) -> int:
    """The position of the body in a response frame without its size. Raises ValueError."""
    return skip_tags(frame, 4) if has_response_tags(api_key, version) else 4
