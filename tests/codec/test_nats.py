"""The NATS protocol: what a server sends, however it is cut and whatever it is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import NatsProtocolInvalid
from duramen.codec.nats import (
    LARGEST_PAYLOAD_BYTES,
    Connect,
    Event,
    Info,
    Message,
    Parser,
    ServerError,
    Signal,
    encode_connect,
    encode_header_block,
    encode_hpub,
    encode_pub,
    encode_sub,
    encode_unsub,
    parse_header_block,
)

_TOKEN = st.binary(min_size=1, max_size=12).map(lambda raw: bytes(byte for byte in raw if byte not in b" \r\n") or b"t")
_HEADERS = st.lists(
    st.tuples(
        st.text("abcXYZ-0123", min_size=1, max_size=10).map(str.encode),
        st.text("abc :/=0123", max_size=10).map(lambda text: text.strip().encode()),
    ),
    max_size=4,
)


@st.composite
def _message(draw: st.DrawFn) -> tuple[bytes, Message]:
    subject, payload = draw(_TOKEN), draw(st.binary(max_size=300))
    reply = draw(st.none() | _TOKEN)
    block = encode_header_block(draw(_HEADERS)) if draw(st.booleans()) else None
    between = b" " + reply + b" " if reply is not None else b" "
    if block is None:
        line = b"MSG %b 7%b%d\r\n%b\r\n" % (subject, between, len(payload), payload)
    else:
        line = b"HMSG %b 7%b%d %d\r\n%b%b\r\n" % (
            subject, between, len(block), len(block) + len(payload), block, payload,
        )  # fmt: skip
    return line, (subject, reply, block, payload)


_OTHER = st.sampled_from(
    [
        (b"PING\r\n", Signal.PING),
        (b"PONG\r\n", Signal.PONG),
        (b"+OK\r\n", Signal.OK),
        (b"-ERR 'Slow Consumer'\r\n", ServerError("Slow Consumer")),
        (b'INFO {"server_id":"x","max_payload":5,"new":[1]}\r\n', Info(server_id="x", max_payload=5)),
    ]
)


def _flat(events: list[Event]) -> list[Any]:
    flat: list[Any] = []
    for event in events:
        flat += event if isinstance(event, list) else [event]
    return flat


@given(st.lists(_message() | _OTHER, max_size=20), st.data())
def test_events_do_not_depend_on_how_the_bytes_are_cut(said: list[tuple[bytes, Any]], data: st.DataObject) -> None:
    stream = b"".join(line for line, _ in said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    parser = Parser()
    events: list[Any] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        events += _flat(parser.feed(stream[start:end]))
    assert events == [event for _, event in said]


def test_messages_of_a_chunk_are_one_event() -> None:
    one = b"MSG a 1 1\r\nx\r\n"
    events = Parser().feed(one * 3 + b"PING\r\n" + one)
    assert [type(event) for event in events] == [list, Signal, list]
    assert len(_flat(events)) == 5


@given(st.integers(0, 40), st.integers(1, 64))
def test_a_message_larger_than_what_is_kept_is_let_go_as_it_comes(keep: int, step: int) -> None:
    parser = Parser(keep)
    stream = b"MSG a 1 r 20\r\n" + b"y" * 20 + b"\r\nHMSG b 1 12 30\r\nNATS/1.0\r\n\r\n" + b"z" * 18 + b"\r\nPONG\r\n"
    events: list[Any] = []
    for start in range(0, len(stream), step):
        events += _flat(parser.feed(stream[start : start + step]))
    small = (b"a", b"r", None, b"y" * 20 if keep >= 20 else None)
    large = (b"b", None, b"NATS/1.0\r\n\r\n", b"z" * 18) if keep >= 30 else (b"b", None, None, None)
    assert events == [small, large, Signal.PONG]


def test_nothing_of_a_message_that_is_not_kept_is_held() -> None:
    parser = Parser(1000)
    assert _flat(parser.feed(b"MSG a 1 50000000\r\n")) == [(b"a", None, None, None)]
    for _ in range(500):
        assert parser.feed(bytes(100_000)) == []
        assert parser.held_bytes == 0
    assert _flat(parser.feed(b"\r\nPONG\r\n")) == [Signal.PONG]


@pytest.mark.parametrize(
    "said",
    [
        b"MSG a 1 -5\r\n",
        b"MSG a 1 1_0\r\n",
        b"MSG a 1 99999999999999\r\n",
        b"MSG a 1 %d\r\n" % (LARGEST_PAYLOAD_BYTES + 1),
        b"MSG a\r\n",
        b"MSG a 1 r s 5\r\n",
        b"MSG a 1 2\r\nabc\r\n",
        b"HMSG a 1 20 5\r\n",
        b"HMSG a 1 x 5\r\n",
        b"HMSG a 1 5\r\n",
        b"INFO {\r\n",
        b"INFO []\r\n",
        b'INFO {"server_id": "\xff"}\r\n',
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\r\n",
        b"x" * 70_000,
        b"MSG " + b"x" * 70_000,
    ],
)
def test_what_no_server_says_is_refused(said: bytes) -> None:
    with pytest.raises(NatsProtocolInvalid):
        Parser().feed(said)


@given(st.lists(st.binary(max_size=200) | st.sampled_from([b"MSG a 1 ", b"HMSG ", b"10\r\n", b"\r\n", b"INFO {}\r\n"])))
def test_any_bytes_give_events_or_one_kind_of_error(chunks: list[bytes]) -> None:
    parser = Parser()
    try:
        for chunk in chunks:
            parser.feed(chunk)
    except NatsProtocolInvalid:
        pass


def test_a_subject_may_hold_blanks_that_do_not_part_fields() -> None:
    assert _flat(Parser().feed(b"MSG a\x0bb 1 r\x0c 0\r\n\r\n")) == [(b"a\x0bb", b"r\x0c", None, b"")]


# -- headers ----------------------------------------------------------------------------------------


@given(_HEADERS)
def test_header_blocks_are_read_as_they_were_written(headers: list[tuple[bytes, bytes]]) -> None:
    assert parse_header_block(encode_header_block(headers)) == headers


@pytest.mark.parametrize(
    ("block", "headers"),
    [
        (b"NATS/1.0\r\nA: 1\r\na: 2\r\nA:3\r\n\r\n", [(b"A", b"1"), (b"a", b"2"), (b"A", b"3")]),
        (b"NATS/1.0\r\nA:\t b: c \r\n\r\n", [(b"A", b"b: c")]),
        (b"NATS/1.0\r\nA:\r\n\r\n", [(b"A", b"")]),
        (b"NATS/1.0 503\r\n\r\n", [(b"Status", b"503")]),
        (b"NATS/1.0 100 Idle Heartbeat\r\nX: y\r\n\r\n",
         [(b"Status", b"100"), (b"Description", b"Idle Heartbeat"), (b"X", b"y")]),
        (b"NATS/1.0\r\nno header\r\n: no name\r\nA: 1\r\n\r\n", [(b"A", b"1")]),
        (b"HTTP/1.1\r\nA: 1\r\n\r\n", []),
        (b"", []),
    ],
)  # fmt: skip
def test_header_blocks(block: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    assert parse_header_block(block) == headers


@given(st.binary(max_size=200))
def test_any_header_block_is_read(block: bytes) -> None:
    parse_header_block(block)
    parse_header_block(b"NATS/1.0\r\n" + block)


# -- commands ---------------------------------------------------------------------------------------


def test_commands() -> None:
    assert encode_sub(b"a.>", 3) == b"SUB a.> 3\r\n"
    assert encode_sub(b"a.>", 3, b"q") == b"SUB a.> q 3\r\n"
    assert encode_unsub(3) == b"UNSUB 3\r\n"
    assert encode_pub(b"a", b"xyz") == b"PUB a 3\r\nxyz\r\n"
    assert encode_pub(b"a", b"xyz", b"r") == b"PUB a r 3\r\nxyz\r\n"
    block = b"NATS/1.0\r\nA: 1\r\n\r\n"
    assert encode_hpub(b"a", [(b"A", b"1")], b"xyz") == b"HPUB a %d %d\r\n%bxyz\r\n" % (
        len(block),
        len(block) + 3,
        block,
    )
    assert encode_hpub(b"a", [(b"A", b"1")], b"", b"r") == b"HPUB a r %d %d\r\n%b\r\n" % (len(block), len(block), block)


def test_connect_says_only_what_is_known() -> None:
    connect = Connect(
        verbose=False, pedantic=False, echo=False, headers=True, no_responders=True, protocol=1,
        lang="python", version="1", name="me",
    )  # fmt: skip
    assert b"auth_token" not in encode_connect(connect)
    connect = Connect(
        verbose=False, pedantic=False, echo=False, headers=True, no_responders=True, protocol=1,
        lang="python", version="1", name="me", user="u", password="p",
    )  # fmt: skip
    assert b'"user":"u","pass":"p"' in encode_connect(connect)
