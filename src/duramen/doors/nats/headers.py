"""The message headers that the door interprets. Pure."""

from typing import Final

__all__ = ["KEY_HEADER", "MESSAGE_ID_HEADER", "SUBJECT_HEADER", "Headers", "special", "text"]

KEY_HEADER: Final = b"Duramen-Key"
MESSAGE_ID_HEADER: Final = b"Nats-Msg-Id"
SUBJECT_HEADER: Final = b"Nats-Subject"
_EXPECTED_STREAM: Final = b"Nats-Expected-Stream"

_NOT_DONE: Final = (
    b"Nats-Batch-",
    b"Nats-Expected-Last-",
    b"Nats-Incr",
    b"Nats-Rollup",
    b"Nats-Schedule",
    b"Nats-TTL",
)
"""Headers, or their prefixes, with which a publisher requests features of JetStream that Duramen does not have."""

Headers = list[tuple[bytes, bytes]]


def text(name: bytes) -> bytes:
    """A header's name as text: Kafka's clients read names as UTF-8, and one that is not would stop them for good."""
    return name if name.isascii() else name.decode(errors="replace").encode()


def special(headers: Headers) -> tuple[bytes | None, bytes, bytes | None, bytes | None]:
    """The key, the message id, the expected stream, and the name of a header for an unsupported feature."""
    key = message_id = expected = not_done = None
    for name, value in headers:
        if name == KEY_HEADER:
            key = value if key is None else key
        elif name[:5] != b"Nats-":
            continue
        elif name == MESSAGE_ID_HEADER:
            message_id = value if message_id is None else message_id
        elif name == _EXPECTED_STREAM:
            expected = expected or value or None
        elif name.startswith(_NOT_DONE):
            not_done = name
    return key, message_id or b"", expected, not_done
