"""The NATS client protocol: bytes to events, commands to bytes. Nothing here reads a socket.

A line ends with CR LF. What a server sends:

    INFO {json}                                        first of all, and when something has changed
    MSG subject sid [reply] bytes, payload             a message
    HMSG subject sid [reply] header-bytes total-bytes, header block, payload
    PING, PONG, +OK, -ERR 'text'

A header block is the line `NATS/1.0`, with a status behind it in replies of the server, then `Name: value`
lines, then an empty one. https://docs.nats.io/reference/reference-protocols/nats-protocol
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import NatsProtocolInvalid

__all__ = [
    "PING",
    "PONG",
    "Connect",
    "Event",
    "Info",
    "Message",
    "Parser",
    "ServerError",
    "Signal",
    "encode_connect",
    "encode_header_block",
    "encode_hpub",
    "encode_pub",
    "encode_sub",
    "encode_unsub",
    "parse_header_block",
]

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
LARGEST_PAYLOAD_BYTES: Final = 64 * 1024 * 1024  # the largest limits that a server accepts

_LONGEST_LINE: Final = 64 * 1024
_LONGEST_NUMBER: Final = 9
_VERSION: Final = b"NATS/1.0"

Message = tuple[bytes, bytes | None, bytes | None, bytes | None]
"""(subject, reply subject, header block, payload). The payload is None where it was larger than the parser keeps."""


class Signal(Enum):
    """A server's line of one word."""

    PING = "PING"
    PONG = "PONG"
    OK = "+OK"


class Info(msgspec.Struct, frozen=True):
    """A server's INFO, as far as it is needed."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    max_payload: int = 1024 * 1024
    headers: bool = False
    auth_required: bool = False
    tls_required: bool = False


class ServerError(NamedTuple):
    """The text of -ERR."""

    text: str


class Connect(msgspec.Struct, frozen=True, omit_defaults=True):
    """The CONNECT of a client."""

    verbose: bool
    pedantic: bool
    echo: bool
    headers: bool
    no_responders: bool
    protocol: int
    lang: str
    version: str
    name: str
    tls_required: bool = False
    user: str = ""
    password: str = msgspec.field(name="pass", default="")
    auth_token: str = ""


Event = list[Message] | Info | Signal | ServerError
"""Messages that came one after another are one event."""

_info_decoder = msgspec.json.Decoder(Info)
_SIGNALS: Final = {signal.value.encode(): signal for signal in Signal}


class Parser:
    """Parses a server's bytes in pieces of any size; yields complete events.

    Holds at most one line and one message of up to `keep_bytes`; a larger message's payload is discarded on arrival.
    """

    __slots__ = ("_held", "_held_bytes", "_needed_bytes", "_skip_bytes", "keep_bytes")

    def __init__(self, keep_bytes: int = LARGEST_PAYLOAD_BYTES) -> None:
        """`keep_bytes` bounds headers and payload of a message together; it may change at any time."""
        self.keep_bytes = keep_bytes
        self._held: list[bytes] = []  # the beginning of an incomplete event
        self._held_bytes = 0
        self._needed_bytes = 0  # with fewer there is nothing new to find
        self._skip_bytes = 0  # still to come of a message that is not kept

    @property
    def held_bytes(self) -> int:
        """The bytes that it keeps until more comes."""
        return self._held_bytes if self._held else 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes. Raises NatsProtocolInvalid for invalid input."""
        if self._skip_bytes:
            skipped = min(self._skip_bytes, len(chunk))
            self._skip_bytes -= skipped
            chunk = chunk[skipped:]
        if self._held:
            self._held.append(chunk)
            self._held_bytes += len(chunk)
            if self._held_bytes < self._needed_bytes:
                return []
            chunk = b"".join(self._held)
            self._held = []
        events: list[Event] = []
        position = 0
        while position < len(chunk):
            if chunk.startswith((b"MSG ", b"HMSG "), position):
                messages: list[Message] = []
                position = self._messages(chunk, position, messages)
                if messages:
                    events.append(messages)
                continue
            stop = self._line_end(chunk, position)
            if stop < 0:
                break
            events.append(_other(chunk[position:stop]))
            position = stop + 2
        return events

    def _messages(self, chunk: bytes, position: int, messages: list[Message]) -> int:
        """Parse consecutive messages into `messages`; returns the position of the next event, or the end."""
        end = len(chunk)
        while position < end:
            line_end = self._line_end(chunk, position)
            if line_end < 0:
                return end
            line = chunk[position:line_end]
            start = line_end + 2
            if line[:4] == b"MSG ":
                subject, reply, header_bytes, total_bytes = _message_line(line, 1)
            elif line[:5] == b"HMSG ":
                subject, reply, header_bytes, total_bytes = _message_line(line, 2)
            else:
                return position
            following = start + total_bytes + 2
            if total_bytes > self.keep_bytes:
                messages.append((subject, reply, None, None))
                self._skip_bytes = max(0, following - end)
            elif following > end:
                self._hold(chunk, position, following - position)
                return end
            elif chunk[following - 2 : following] != b"\r\n":
                raise NatsProtocolInvalid("the NATS server sent a message that does not end at its stated length")
            elif header_bytes:
                body = start + header_bytes
                messages.append((subject, reply, chunk[start:body], chunk[body : following - 2]))
            else:
                messages.append((subject, reply, None, chunk[start : following - 2]))
            position = following
        return position

    def _line_end(self, chunk: bytes, position: int) -> int:
        """The end of the line at `position`; -1 if it is incomplete: then its beginning is held."""
        stop = chunk.find(b"\r\n", position, position + _LONGEST_LINE)
        if stop < 0:
            if len(chunk) - position >= _LONGEST_LINE:
                raise NatsProtocolInvalid("the NATS server sent a line without an end")
            self._hold(chunk, position, 1 + len(chunk) - position)
        return stop

    def _hold(self, chunk: bytes, position: int, needed_bytes: int) -> None:
        self._held = [chunk[position:]]
        self._held_bytes = len(chunk) - position
        self._needed_bytes = needed_bytes


def _message_line(line: bytes, sizes: int) -> tuple[bytes, bytes | None, int, int]:
    """Subject, reply, header bytes and total bytes of a line with one size (MSG) or two (HMSG)."""
    fields = line.split(b" ")  # a subject may hold blanks of other kinds
    reply: bytes | None = None
    if len(fields) == 4 + sizes:
        reply = fields[3]
    elif len(fields) != 3 + sizes:
        raise NatsProtocolInvalid(f"the NATS server sent a message line with {len(fields)} fields")
    total = fields[-1]
    if not total.isdigit() or len(total) > _LONGEST_NUMBER:
        raise NatsProtocolInvalid(f"the NATS server sent a message of {total[:20]!r} bytes")
    total_bytes = int(total)
    if total_bytes > LARGEST_PAYLOAD_BYTES:
        raise NatsProtocolInvalid(f"the NATS server sent a message of {total_bytes} bytes")
    if sizes == 1:
        return fields[1], reply, 0, total_bytes
    if not fields[-2].isdigit() or len(fields[-2]) > _LONGEST_NUMBER or int(fields[-2]) > total_bytes:
        raise NatsProtocolInvalid(f"the NATS server sent a message with {fields[-2][:20]!r} bytes of headers")
    return fields[1], reply, int(fields[-2]), total_bytes


def _other(line: bytes) -> Info | Signal | ServerError:
    signal = _SIGNALS.get(line)
    if signal is not None:
        return signal
    if line[:5] == b"INFO ":
        try:
            return _info_decoder.decode(line[5:])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NatsProtocolInvalid(f"the NATS server's INFO cannot be read: {error}") from None
    if line[:4] == b"-ERR":
        return ServerError(line[4:].strip().strip(b"'").decode("utf-8", "replace"))
    raise NatsProtocolInvalid(f"the NATS server sent {line[:40]!r}, which is not of its protocol")


# -- headers ----------------------------------------------------------------------------------------


def parse_header_block(block: bytes) -> list[tuple[bytes, bytes]]:
    """Names and values in their order, names as they were written and as often as they come.

    A status on the first line is given as `Status` and `Description`. Lines that are no header are left out,
    and everything is where the block does not begin as one.
    """
    lines = block.split(b"\r\n")
    first = lines[0]
    if not first.startswith(_VERSION):
        return []
    headers = []
    if len(first) > len(_VERSION):
        status, _, description = first[len(_VERSION) :].strip().partition(b" ")
        headers.append((b"Status", status))
        if description:
            headers.append((b"Description", description.strip()))
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if colon and name:
            headers.append((name, value.strip(b" \t")))
    return headers


def encode_header_block(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A header block. Names and values must not hold CR or LF, names no colon."""
    return b"".join((_VERSION, b"\r\n", *(b"%b: %b\r\n" % header for header in headers), b"\r\n"))


# -- commands ---------------------------------------------------------------------------------------


def encode_connect(connect: Connect) -> bytes:
    """CONNECT."""
    return b"CONNECT %b\r\n" % msgspec.json.encode(connect)


def encode_sub(subject: bytes, sid: int, queue: bytes = b"") -> bytes:
    """SUB; `queue` names a queue group, of which one subscription gets each message."""
    if queue:
        return b"SUB %b %b %d\r\n" % (subject, queue, sid)
    return b"SUB %b %d\r\n" % (subject, sid)


def encode_unsub(sid: int) -> bytes:
    """UNSUB, at once."""
    return b"UNSUB %d\r\n" % sid


def encode_pub(subject: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    """PUB."""
    if reply:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)


def encode_hpub(subject: bytes, headers: Sequence[tuple[bytes, bytes]], payload: bytes, reply: bytes = b"") -> bytes:
    """HPUB: a message with headers."""
    block = encode_header_block(headers)
    total = len(block) + len(payload)
    if reply:
        return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, len(block), total, block, payload)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, len(block), total, block, payload)
