"""One connection to a server that says what the test wants."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import DuramenError, NatsProtocolInvalid, ServerUnreachable, SettingInvalid
from duramen.codec.nats import Message
from duramen.doors.nats.address import ServerAddress, parse_server
from duramen.doors.nats.connection import NatsClientConnection

_INFO = b'INFO {"server_id":"A","server_name":"me","version":"2.15.1","headers":true,"max_payload":100}\r\n'


class Socket(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.reading = True
        self.aborted = False
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high
        assert low is None

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True


class Owner:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.welcomes = 0
        self.messages: list[Message] = []
        self.errors: list[str] = []

    def connected(self) -> None:
        self.welcomes += 1

    def take(self, messages: list[Message]) -> None:
        self.messages += messages

    def server_error(self, text: str) -> None:
        self.errors.append(text)


class Meeting:
    """A connection, its transport and its owner."""

    def __init__(self, address: str = "nats://h:1", server_name: str = "") -> None:
        self.owner = Owner()
        self.socket = Socket()
        self.connection = NatsClientConnection(
            self.owner, parse_server(address), name="duramen-1", server_name=server_name, queue=b"q", keep_bytes=1000
        )
        self.connection.connection_made(self.socket)

    def say(self, data: bytes) -> None:
        self.connection.data_received(data)

    def welcome(self) -> "Meeting":
        self.say(_INFO)
        self.say(b"PONG\r\n")
        assert self.owner.welcomes == 1
        self.socket.sent = b""
        return self

    async def end(self) -> DuramenError:
        self.connection.connection_lost(None)
        return await self.connection.lost


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def test_introduces_itself_with_what_the_address_says() -> None:
    async def test() -> None:
        for address, expected in (
            ("nats://h:1", {}),
            ("nats://us%40er:p%3Aw@h:1", {"user": "us@er", "pass": "p:w"}),
            ("nats://tok%2Fen@h:1", {"auth_token": "tok/en"}),
        ):
            meeting = Meeting(address)
            meeting.say(_INFO)
            command, _, rest = meeting.socket.sent.partition(b"\r\n")
            said = json.loads(command.removeprefix(b"CONNECT "))
            assert {key: said[key] for key in ("user", "pass", "auth_token") if key in said} == expected
            # Without an echo our own acknowledgements never come back to us, whatever is bound.
            assert (said["echo"], said["headers"], said["verbose"]) == (False, True, False)
            assert rest == b"PING\r\n"
            assert meeting.owner.welcomes == 0
            meeting.say(b"PONG\r\n")
            assert meeting.owner.welcomes == 1

    run(test)


@pytest.mark.parametrize(
    ("info", "complaint"),
    [
        (_INFO.replace(b'"headers":true', b'"headers":false'), "has no headers"),
        (_INFO.replace(b'"headers":true', b'"headers":true,"tls_required":true'), "demands TLS"),
        (_INFO.replace(b'"me"', b'"stranger"'), "another server"),
        (b"INFO nonsense\r\n", "INFO cannot be read"),
        (b"SSH-2.0-OpenSSH\r\n", "not of its protocol"),
    ],
)
def test_leaves_servers_that_do_not_fit(info: bytes, complaint: str) -> None:
    async def test() -> None:
        meeting = Meeting(server_name="me")
        meeting.say(info)
        assert meeting.socket.aborted
        assert complaint in str(await meeting.end())

    run(test)


def test_subscribes_in_one_queue_group_and_takes_subscriptions_back() -> None:
    async def test() -> None:
        meeting = Meeting().welcome()
        meeting.connection.subscribe([b"a.>", b"*.b"])
        meeting.connection.unsubscribe([b"a.>"])
        meeting.connection.subscribe([b"a.>"])
        meeting.connection.unsubscribe_all()
        assert meeting.socket.sent == (
            b"SUB a.> q 1\r\nSUB *.b q 2\r\nUNSUB 1\r\nSUB a.> q 3\r\nUNSUB 2\r\nUNSUB 3\r\n"
        )
        assert not meeting.connection.subscribed

    run(test)


def test_barriers_are_answered_in_their_order_and_by_the_end() -> None:
    async def test() -> None:
        meeting = Meeting().welcome()
        answers: list[tuple[int, bool]] = []

        def note(number: int, answered: bool) -> None:
            answers.append((number, answered))

        for number in range(3):
            meeting.connection.barrier(partial(note, number))
        meeting.say(b"MSG a 1 0\r\n\r\nPONG\r\nPING\r\nPO")
        assert answers == [(0, True)]
        assert meeting.socket.sent == b"PING\r\n" * 3 + b"PONG\r\n"
        meeting.say(b"NG\r\n")
        await meeting.end()
        assert answers == [(0, True), (1, True), (2, False)]
        meeting.connection.barrier(lambda answered: answers.append((3, answered)))
        assert answers[-1] == (3, False)

    run(test)


def test_reading_pauses_while_there_is_any_cause() -> None:
    async def test() -> None:
        meeting = Meeting().welcome()
        for cause in ("memory", "memory"):
            meeting.connection.pause(cause)
        meeting.connection.pause_writing()
        meeting.connection.resume("memory")
        meeting.connection.resume("memory")
        reading = [meeting.socket.reading]
        assert meeting.connection.paused
        for _ in range(20):
            assert not meeting.connection.tick()  # silence says nothing while we do not listen
        meeting.connection.resume_writing()
        assert [*reading, meeting.socket.reading] == [False, True]
        assert meeting.connection.lagged

    run(test)


def test_a_silent_server_is_left() -> None:
    async def test() -> None:
        meeting = Meeting().welcome()
        for _ in range(3):
            meeting.connection.tick()
        meeting.say(b"PING\r\n")
        for _ in range(5):
            assert meeting.connection.tick()
        aborted = [meeting.socket.aborted]
        meeting.connection.tick()
        assert [*aborted, meeting.socket.aborted] == [False, True]
        assert isinstance(await meeting.end(), ServerUnreachable)

    run(test)


def test_knows_when_it_fell_behind() -> None:
    async def test() -> None:
        for said, lagged in ((b"", False), (b"MSG a 1 0\r\n\r\n", True), (b"MSG a 1 0\r\n\r\nPONG\r\n", False)):
            meeting = Meeting().welcome()
            meeting.connection.barrier(lambda _: None)
            if said:
                meeting.say(said)
            await meeting.end()
            assert meeting.connection.lagged == lagged

    run(test)


def test_hands_on_what_the_server_complains_of() -> None:
    async def test() -> None:
        meeting = Meeting().welcome()
        meeting.say(b"-ERR 'Permissions Violation for Subscription to \"a\"'\r\n")
        assert meeting.owner.errors == ['Permissions Violation for Subscription to "a"']
        assert not meeting.socket.aborted

    run(test)


@given(st.lists(st.binary(max_size=60) | st.sampled_from([_INFO, b"PONG\r\n", b"MSG a 1 r 2\r\nxx\r\n", b"PING\r\n"])))
def test_any_bytes_end_the_connection_at_worst(chunks: list[bytes]) -> None:
    async def test() -> None:
        meeting = Meeting()
        for chunk in chunks:
            meeting.say(chunk)
            if meeting.socket.aborted:
                assert isinstance(await meeting.end(), NatsProtocolInvalid)
                return

    run(test)


# -- addresses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("nats://h", ServerAddress("h", 4222)),
        ("nats://h:1/", ServerAddress("h", 1)),
        ("nats://[::1]:2", ServerAddress("::1", 2)),
        ("nats://u:@h", ServerAddress("h", 4222, "u", "")),
        ("nats://t@h", ServerAddress("h", 4222, token="t")),
    ],
)
def test_addresses(text: str, address: ServerAddress) -> None:
    assert parse_server(text) == address


@pytest.mark.parametrize(
    "text", ["", "on", "h:1", "http://h", "nats://", "nats://h:x", "nats://h:1/path", "nats://[::1"]
)
def test_addresses_that_do_not_fit(text: str) -> None:
    with pytest.raises(SettingInvalid, match=r"nats\.server"):
        parse_server(text)


def test_what_does_not_fit_is_named_unless_it_holds_a_secret() -> None:
    with pytest.raises(SettingInvalid, match=r"'on' does not fit; it must be embedded, off, or an address such as"):
        parse_server("on")
    with pytest.raises(SettingInvalid) as raised:
        parse_server("nats://user:secret@h:x")
    assert "secret" not in str(raised.value)


def test_tls_is_a_clear_error_that_keeps_the_secret() -> None:
    with pytest.raises(SettingInvalid, match="not supported yet") as raised:
        parse_server("tls://user:secret@h")
    assert "secret" not in str(raised.value)
    assert str(parse_server("nats://user:secret@[::1]:5")) == "[::1]:5"
