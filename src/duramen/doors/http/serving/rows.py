"""Bodies of any length with rows: NDJSON, or a stream of Arrow with names, received while they are used.

https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format
"""

import asyncio
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from duramen.base.errors import (
    BodyTypeUnsupported,
    InputInvalid,
    NodeBusy,
    RequestInvalid,
    RequestTimedOut,
)
from duramen.codec.bulk_names import (
    NO_NAME,
    ROWS_AT_ONCE,
    NameRows,
    RowProblem,
    Rows,
    cut_lines,
    names_of_column,
    names_of_lines,
    place_of_names,
)
from duramen.service.forwarding.memory import Room

__all__ = [
    "ARROW", "LARGEST_MESSAGE_BYTES", "NAME_ROWS", "NDJSON", "BodyRows", "RowDecoder", "RowFormats", "arrow_rows",
    "json_rows",
]  # fmt: skip

T = TypeVar("T")

NDJSON: Final = "application/x-ndjson"

ARROW: Final = "application/vnd.apache.arrow.stream"

LARGEST_MESSAGE_BYTES: Final = 8 << 20
"""Of one record batch of Arrow."""

_IDLE_S: Final = 30.0
"""How long the next piece of a body may take to come."""

_AT_ONCE_BYTES: Final = 512 << 10
_LONGEST_LINE_BYTES: Final = 64 << 10
_LARGEST_HEAD_BYTES: Final = 1 << 20
_CONTINUATION: Final = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3


class RowDecoder(Protocol[T]):
    """Takes rows from the front of received content."""

    def take(self, content: bytearray, *, last: bool) -> Iterator[Rows[T]]:
        """Remove whole rows, and yield them; `last`: no more content will come. Raises RequestInvalid."""


RowFormats: TypeAlias = Mapping[str, Callable[[], RowDecoder[Any]]]
"""Media types of bodies with rows, and their decoders."""


class BodyRows(Generic[T]):
    """The rows of one body."""

    def __init__(
        self, pieces: AsyncIterator[bytes], room: Room, bodies: Room, decoder: Callable[[], RowDecoder[T]]
    ) -> None:  # fmt: skip
        """`room` bounds the bytes of all bodies, `bodies` the number of those that are received at the same time."""
        self._pieces = pieces
        self._room = room
        self._bodies = bodies
        self._decoder = decoder

    def open(self) -> RowDecoder[T]:
        """A decoder of the rows; this may import pyarrow, which takes long. Raises BodyTypeUnsupported."""
        return self._decoder()

    async def read(self, decoder: RowDecoder[T]) -> AsyncGenerator[Rows[T], None]:
        """The rows, some at a time. Raises RequestTimedOut, NodeBusy, RequestInvalid; rows before that are valid."""
        content, held = bytearray(), 0
        if not self._bodies.take(1):
            raise NodeBusy(f"{self._bodies.limit_bytes} bulk requests are in progress: retry later; a repeat is safe")
        try:
            ended = False
            while not ended:
                wanted = len(content) + _AT_ONCE_BYTES
                while not ended and len(content) < wanted:
                    chunk = await _next(self._pieces)
                    ended = chunk is None
                    if chunk:
                        if not self._room.take(len(chunk)):
                            limit = self._room.limit_bytes
                            raise NodeBusy(f"the request bodies in progress already have {limit} bytes")
                        held += len(chunk)
                        content += chunk
                for rows in decoder.take(content, last=ended):
                    yield rows
                    await asyncio.sleep(0)  # bad rows take long
                self._room.give(held - len(content))
                held = len(content)
        finally:
            self._room.give(held)
            self._bodies.give(1)


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    try:
        async with asyncio.timeout(_IDLE_S):
            return await anext(chunks, None)
    except TimeoutError:
        raise RequestTimedOut(f"nothing more of the body came for {_IDLE_S:g} s; a repeat is safe") from None


class _JsonRows(Generic[T]):
    def __init__(self, rows_of: Callable[[bytes, int], Rows[T]], fault: str) -> None:
        self._rows_of = rows_of
        self._fault = fault
        self._count = 0
        self._skips = False  # the rest of a line that is too long

    def take(self, content: bytearray, *, last: bool) -> Iterator[Rows[T]]:
        """As of `RowDecoder`."""
        end = len(content) if last else content.rfind(b"\n") + 1
        if self._skips and end:
            del content[: content.find(b"\n") + 1 or end]
            self._skips, end = False, len(content) if last else content.rfind(b"\n") + 1
        if end:
            lines = bytes(content[:end])
            del content[:end]
            for some in cut_lines(lines):
                rows = self._rows_of(some, self._count)
                self._count += rows.rows
                yield rows
        if self._skips:
            content.clear()
        elif len(content) > _LONGEST_LINE_BYTES:
            content.clear()
            self._skips = True
            self._count += 1
            why = f"line {self._count} {self._fault}: it is longer than {_LONGEST_LINE_BYTES} bytes"
            yield Rows([], [], [RowProblem(self._count, why)], 1)


def json_rows(rows_of: Callable[[bytes, int], Rows[T]], fault: str) -> RowDecoder[T]:
    """A decoder of lines of JSON; `rows_of` decodes some, after a number of others. `fault`: see `rows_of_lines`."""
    return _JsonRows(rows_of, fault)


class _ArrowRows:
    """Decodes one message at a time; pyarrow gets the schema and the dictionaries again with each record batch.

    pyarrow itself reads streams from blocking sources only.
    """

    def __init__(self) -> None:
        self._count = 0
        self._schema = b""
        self._dictionaries = list[bytes]()
        self._ended = False

    def take(self, content: bytearray, *, last: bool) -> Iterator[NameRows]:
        """As of `RowDecoder`."""
        while not self._ended and (found := _message(content)) is not None:
            kind, message = found
            if not message:
                self._ended = True
            elif kind == _SCHEMA and not self._schema:
                self._schema = message
            elif kind == _DICTIONARY and self._schema:
                self._dictionaries.append(message)
                if sum(map(len, self._dictionaries)) > LARGEST_MESSAGE_BYTES:
                    raise _too_large("the dictionaries of the Arrow stream have")
            elif kind == _BATCH and self._schema:
                yield from self._rows(message)
            else:
                raise RequestInvalid("the Arrow stream does not begin with its only schema")
        if self._ended:
            content.clear()
        elif last and (content or not self._schema):
            raise RequestInvalid("the Arrow stream ends within a message; names of whole record batches were used")

    def _rows(self, message: bytes) -> Iterator[NameRows]:
        import pyarrow as pa

        try:
            stream = pa.ipc.open_stream(b"".join((self._schema, *self._dictionaries, message)))
            column = stream.read_next_batch().column(place_of_names(stream.schema))
            for at in range(0, len(column), ROWS_AT_ONCE):
                some = column.slice(at, ROWS_AT_ONCE)
                some.validate(full=True)
                rows = names_of_column(some, self._count)
                self._count += rows.rows
                yield rows
        except (pa.ArrowException, OSError, ValueError, InputInvalid) as error:
            raise RequestInvalid(f"the Arrow stream does not fit: {str(error)[:300]}") from None


def arrow_rows() -> RowDecoder[str]:
    """A decoder of an Arrow stream. Raises BodyTypeUnsupported if pyarrow is missing."""
    try:
        import pyarrow as pa
    except ImportError:
        raise BodyTypeUnsupported(
            "the node needs pyarrow for Arrow bodies: pip install 'duramen[spark]', or send application/x-ndjson"
        ) from None
    del pa
    return _ArrowRows()


NAME_ROWS: Final[RowFormats] = {NDJSON: partial(json_rows, names_of_lines, NO_NAME), ARROW: arrow_rows}
"""Rows that are names."""


def _too_large(what: str) -> RequestInvalid:
    return RequestInvalid(
        f"{what} more than {LARGEST_MESSAGE_BYTES} bytes: write smaller record batches, such as 100,000 rows"
    )


def _message(content: bytearray) -> tuple[int, bytes] | None:
    """The kind and the bytes of the first message, which is removed; empty at the end of the stream.

    None if it is not complete. Raises RequestInvalid.
    """
    if len(content) < 8:
        return None
    if content[:4] != _CONTINUATION:
        raise RequestInvalid("the body is no Arrow stream")
    head = int.from_bytes(content[4:8], "little", signed=True)
    if not head:
        return 0, b""
    if not 0 < head <= _LARGEST_HEAD_BYTES:
        raise RequestInvalid("the body is no Arrow stream: the size of a message cannot be")
    if len(content) < 8 + head:
        return None
    try:
        kind, body = _kind_and_body(bytes(content[8 : 8 + head]))
    except struct.error:
        raise RequestInvalid("the body is no Arrow stream: a message cannot be read") from None
    if not 0 <= body <= LARGEST_MESSAGE_BYTES:
        raise _too_large("a record batch of the Arrow stream has")
    if len(content) < 8 + head + body:
        return None
    message = bytes(content[: 8 + head + body])
    del content[: 8 + head + body]
    return kind, message


def _kind_and_body(head: bytes) -> tuple[int, int]:
    """The kind of a message, and the size of its body. Raises struct.error, and RequestInvalid if it is compressed.

    The head is a flatbuffer: https://github.com/apache/arrow/blob/main/format/Message.fbs
    """
    message = struct.unpack_from("<I", head)[0]
    kind = _field(head, message, 1, "<B")
    header = _field(head, message, 2, "<I")
    at = header and _place(head, message, 2) + header
    if kind == _DICTIONARY and at:
        data = _field(head, at, 1, "<I")
        at = data and _place(head, at, 1) + data
    if kind in (_DICTIONARY, _BATCH) and at and _field(head, at, 3, "<I"):
        raise RequestInvalid("the Arrow stream is compressed: write it without compression")
    return kind, _field(head, message, 3, "<q")


def _place(head: bytes, table: int, number: int) -> int:
    """The place of a table's field; 0 if it is absent."""
    fields = table - struct.unpack_from("<i", head, table)[0]
    if fields < 0 or struct.unpack_from("<H", head, fields)[0] < 6 + 2 * number:
        return 0
    offset = struct.unpack_from("<H", head, fields + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _field(head: bytes, table: int, number: int, form: str) -> Any:
    place = _place(head, table, number)
    return struct.unpack_from(form, head, place)[0] if place else 0
