"""Request bodies: JSON, received in bounded time and memory, decoded into structs."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from duramen.base.errors import BodyTooLarge, BodyTypeUnsupported, NodeBusy, RequestInvalid, RequestTimedOut
from duramen.codec.jsonbytes import why_unreadable
from duramen.codec.shown_batches import BATCHES_TYPE
from duramen.doors.http.serving.encodings import pieces_of
from duramen.doors.http.serving.rows import NDJSON, BodyRows, RowFormats
from duramen.service.forwarding.memory import Room

__all__ = ["RECEIVE_S", "Bodies"]

T = TypeVar("T")

RECEIVE_S: Final = 5.0
"""The time in seconds within which the head of a request must arrive, and then its body."""

_JSON: Final = "application/json"
_ANY: Final = msgspec.json.Decoder()
_LINE: Final = re.compile(rb"\S[^\n]*")  # without blank lines
_NO_ROWS: Final[RowFormats] = {}
_MOST_OF_ROWS: Final = 16  # since each may take long


class Bodies:
    """Reads bodies; those being read share a bounded amount of memory."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._of_rows = Room(_MOST_OF_ROWS)

    async def read(
        self, request: Request, type_: type[T], limit_bytes: int, lines: str = "", *, batches: bool = False,
        rows: RowFormats = _NO_ROWS,
    ) -> T | bytearray | BodyRows[Any]:  # fmt: skip
        """The body as `type_`. With `lines` an NDJSON body is accepted: its lines become that field, an entry each.

        With `batches` a body of record batches is returned as bytes. A body in a format of `rows` is returned before it
        is received.

        Raises BodyTypeUnsupported, BodyTooLarge, NodeBusy, RequestTimedOut, RequestInvalid.
        """
        # A form of any web page can send other types without asking; none can send these.
        said = request.headers.get("content-type", "")
        sent = said.partition(";")[0].strip().lower()
        taken = (_JSON, *((NDJSON,) if lines else ()), *((BATCHES_TYPE,) if batches else ()), *rows)
        if sent not in taken:
            raise BodyTypeUnsupported(
                f"a body is {' or '.join(taken)}, not {said[:40] or 'of no type'}: say so in Content-Type, as"
                " `curl --json` does"
            )
        pieces = pieces_of(request)
        if sent in rows:
            return BodyRows(pieces, self._room, self._of_rows, rows[sent])
        try:
            async with asyncio.timeout(RECEIVE_S):
                content = await self._received(pieces, limit_bytes)
        except TimeoutError:
            raise RequestTimedOut(f"the body was not complete within {RECEIVE_S:g} s") from None
        if sent == BATCHES_TYPE:
            return content
        try:
            if sent == NDJSON:
                return msgspec.convert({lines: _ANY.decode_lines(content)}, type_)
            return msgspec.json.decode(content, type=type_)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            why = _bad_line(content, lines, type_) if sent == NDJSON else ""
            raise RequestInvalid(why or f"the body does not fit: {why_unreadable(content, error)}") from None

    async def _received(self, pieces: AsyncIterator[bytes], limit_bytes: int) -> bytearray:
        content = bytearray()
        try:
            async for chunk in pieces:
                if len(content) + len(chunk) > limit_bytes:
                    raise BodyTooLarge(f"a JSON body has at most {limit_bytes} bytes on this path")
                if not self._room.take(len(chunk)):
                    limit = self._room.limit_bytes
                    raise NodeBusy(f"the request bodies in progress already have {limit} bytes")
                content += chunk
        finally:
            self._room.give(len(content))
        return content


def _bad_line(content: bytearray, lines: str, type_: type[Any]) -> str:
    """Why the first bad line of a body does not fit; nothing if each line fits on its own."""
    for found in _LINE.finditer(content):
        try:
            msgspec.convert({lines: [_ANY.decode(found[0])]}, type_)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            number = 1 + content.count(b"\n", 0, found.start())
            why = why_unreadable(found[0], error).replace(f"$.{lines}[0]", "$").removesuffix(" - at `$`")
            return f"line {number} does not fit: {why}; nothing of the body was stored"
    return ""
