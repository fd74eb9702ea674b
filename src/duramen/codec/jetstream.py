"""JetStream's responses to a publisher: the acknowledgement and the error, as JSON. Pure bytes.

    {"stream": "flights", "seq": 8, "partition": 0, "offset": 7}          "duplicate": true where it is one
    {"error": {"code": 400, "err_code": 10054, "description": "…"}, "stream": "flights", "seq": 0}

`partition` and `offset` are ours; clients leave alone what they do not know. The numbers are those of
nats-server's `server/errors.json`. https://docs.nats.io/reference/reference-protocols/nats_api_reference
"""

from typing import Final, NamedTuple

import msgspec

__all__ = [
    "BAD_REQUEST",
    "INSUFFICIENT_RESOURCES",
    "MESSAGE_TOO_LARGE",
    "NOT_AUTHORIZED",
    "NOT_AVAILABLE",
    "STORAGE_FULL",
    "STORE_FAILED",
    "STREAM_NOT_FOUND",
    "TOO_MANY_REQUESTS",
    "WRONG_STREAM",
    "AckEncoder",
    "ApiError",
    "encode_error",
]


class ApiError(NamedTuple):
    """An error of JetStream's API: an HTTP-like code, JetStream's own number, and its words."""

    code: int
    err_code: int
    description: str


BAD_REQUEST: Final = ApiError(400, 10003, "bad request")
NOT_AUTHORIZED: Final = ApiError(403, 0, "not authorized")  # JetStream has no number for it: its server refuses earlier
NOT_AVAILABLE: Final = ApiError(503, 10008, "JetStream system temporarily unavailable")
INSUFFICIENT_RESOURCES: Final = ApiError(503, 10023, "insufficient resources")
STORAGE_FULL: Final = ApiError(500, 10047, "insufficient storage resources available")
MESSAGE_TOO_LARGE: Final = ApiError(400, 10054, "message size exceeds maximum allowed")
STREAM_NOT_FOUND: Final = ApiError(404, 10059, "stream not found")
WRONG_STREAM: Final = ApiError(400, 10060, "expected stream does not match")
STORE_FAILED: Final = ApiError(503, 10077, "message could not be stored")
TOO_MANY_REQUESTS: Final = ApiError(429, 10167, "too many requests")


class AckEncoder:
    """Acknowledgements of one partition. `seq` is the offset plus one: dense, from 1."""

    __slots__ = ("_format",)

    def __init__(self, stream: str, partition: int) -> None:
        name = msgspec.json.encode(stream).replace(b"%", b"%%")
        self._format = b'{"stream":%b,"seq":%%d,"partition":%d,"offset":%%d' % (name, partition)

    def encode(self, offset: int) -> bytes:
        """The acknowledgement of the record at `offset`."""
        return self._format % (offset + 1, offset) + b"}"

    def encode_duplicate(self, offset: int) -> bytes:
        """The acknowledgement of a message that was stored before, at `offset`."""
        return self._format % (offset + 1, offset) + b',"duplicate":true}'


def encode_error(stream: str, error: ApiError, detail: str = "") -> bytes:
    """The answer to a message that was not stored; `detail` goes behind JetStream's words."""
    description = f"{error.description}: {detail}" if detail else error.description
    named = {"code": error.code, "err_code": error.err_code, "description": description}
    return msgspec.json.encode({"error": named, "stream": stream, "seq": 0})
