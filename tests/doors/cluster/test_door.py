"""Nodes over real sockets: they prove the secret, speak, and notice who is gone; strangers get nowhere."""

import asyncio
import contextlib
import importlib
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from uuid import UUID

import pytest
from tests.doors.cluster.nodes import (
    PATIENT,
    SECRET,
    Clock,
    identity,
    loopback,
    node,
    proven,
    raw,
    soon,
)

from duramen.base.ports import Buffer
from duramen.codec.cluster.channels import LARGEST_BODY_BYTES, PeerChannel, Subject
from duramen.codec.cluster.frames import ALIVE, PeerKind, encode_frame
from duramen.codec.cluster.handshake import Handshake, HandshakeIdentity, HandshakeSide
from duramen.doors.cluster.timer import TIMING, Backoff, LinkTiming

CLUSTER, OTHER = UUID(int=77), UUID(int=88)
MEBIBYTE = 1024 * 1024

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
with contextlib.suppress(ImportError):
    LOOPS.append(importlib.import_module("uvloop").new_event_loop)


def in_a_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """In asyncio's loop, and in the one that nodes run on where there is one."""

    @wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        for factory in LOOPS:
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(test(*args, **kwargs))

    return run


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return sorted(record.message for record in caplog.records if record.name == "duramen.cluster")


def ask(link: object, subject: Subject, *body: bytes) -> "asyncio.Future[bytes | None]":
    answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    def done(said: Buffer | None) -> None:
        answer.set_result(None if said is None else bytes(said))

    assert link.request(subject, done, *body)  # type: ignore[attr-defined]
    return answer


async def said_nothing_more(reader: asyncio.StreamReader) -> bytes:
    """All that still comes until the other side closes."""
    with contextlib.suppress(ConnectionError):
        return await soon(reader.read())
    return b""


# -- two nodes ------------------------------------------------------------------------------------------


@in_a_loop
async def test_two_nodes_speak_both_ways() -> None:
    async with node(identity(1)) as one, node(identity(2)) as two:
        there = await one.dial(two, PeerChannel.DATA, looked_for=2)
        back = await soon(two.owner.links.get())
        assert (there.peer.identity, back.peer.identity) == (identity(2), identity(1))
        assert (there.dialed, back.dialed, back.channel) == (True, False, PeerChannel.DATA)
        assert there.send(Subject.QUORUM, b"vo", b"te")
        heard = await soon(two.owner.heard.get())
        assert heard == (back, Subject.QUORUM, 0, b"vote")
        assert back.send(Subject.QUORUM)
        assert (await soon(one.owner.heard.get()))[1:] == (Subject.QUORUM, 0, b"")
        first, second = ask(there, Subject.REPLICAS, b"first"), ask(there, Subject.CONTROLLER, b"second")
        asked = [await soon(two.owner.heard.get()) for _ in range(2)]
        assert [heard.body for heard in asked] == [b"first", b"second"]
        large = bytes(range(256)) * 4096 * 8
        back.answer(Subject.CONTROLLER, asked[1].number, b"2")
        back.answer(Subject.REPLICAS, asked[0].number, large, b"end")
        assert await soon(second) == b"2"
        assert await soon(first) == large + b"end"
        assert (one.door.peers.node_ids(), two.door.peers.node_ids()) == ([2], [1])
        assert one.door.peers.link(2, PeerChannel.DATA) is there
        assert one.door.peers.link(2, PeerChannel.CONTROL) is None


@in_a_loop
async def test_what_was_dialed_is_used_before_what_dialed() -> None:
    async with node(identity(1)) as one, node(identity(2)) as two:
        there = await one.dial(two)
        accepted = await soon(two.owner.links.get())
        assert two.door.peers.link(1, PeerChannel.CONTROL) is accepted
        dialed = await two.dial(one)
        await soon(one.owner.links.get())
        assert two.door.peers.link(1, PeerChannel.CONTROL) is dialed
        assert one.door.peers.link(2, PeerChannel.CONTROL) is there
        dialed.abort("enough")
        assert await soon(two.owner.ends.get()) == (dialed, "enough")
        assert two.door.peers.link(1, PeerChannel.CONTROL) is accepted


@pytest.mark.parametrize(
    ("other", "secret", "looked_for", "text"),
    [
        (identity(2), b"x" * 32, 2, "the two nodes do not have the same cluster secret"),
        (identity(2, OTHER), SECRET, 2, f"node 1 is of the cluster {CLUSTER}, node 2 of the cluster {OTHER}"),
        (identity(2), SECRET, 3, "node 3 was expected, and node 2 is there"),
        (
            HandshakeIdentity(1, UUID(int=9)), SECRET, -1,
            f"two nodes have the node id 1, with the directory {UUID(int=1)} and {UUID(int=9)}",
        ),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_on_both_sides(
    other: HandshakeIdentity, secret: bytes, looked_for: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> int:
        clock = Clock()
        async with node(identity(1, CLUSTER), later=clock.later) as one, node(other, secret) as two:
            one.door.dial("127.0.0.1", two.port, PeerChannel.CONTROL, looked_for)
            for wait_ms in (25, 50, 100):  # it dials again, and says nothing new
                await clock.fire_next(wait_ms)
            assert one.owner.links.empty()
            assert two.owner.links.empty()
            return two.port

    port = asyncio.run(run())
    said = lines(caplog)
    assert said[1:] == [f"there is no connection to the node at 127.0.0.1:{port}: {text}"]
    assert said[0].startswith("a connection from 127.0.0.1:")
    assert said[0].endswith(f" was refused: {text}")


def test_another_version_is_said_on_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with node(identity(2)) as two, raw(two.port) as (reader, writer):
            hello = bytearray(Handshake(HandshakeSide.DIALER, identity(1), SECRET, bytes(32)).take())
            hello[8:10] = (2, 3)
            writer.write(hello)
            answer = await said_nothing_more(reader)
            assert answer[:10] == b"DURAMEN\n\1\1"

    asyncio.run(run())
    (line,) = lines(caplog)
    assert "of the protocol between nodes one speaks version 1, the other versions 2 to 3" in line


@in_a_loop
async def test_a_node_finds_itself() -> None:
    async with node(identity(1)) as one:
        one.door.dial("127.0.0.1", one.port, PeerChannel.CONTROL)
        assert await soon(one.owner.itself.get()) == f"127.0.0.1:{one.port}"


@in_a_loop
async def test_a_second_disk_under_a_node_id_that_is_connected_is_refused() -> None:
    async with node(identity(1)) as one, node(HandshakeIdentity(1, UUID(int=9))) as again, node(identity(2)) as two:
        await one.dial(two)
        first = await soon(two.owner.links.get())
        again.door.dial("127.0.0.1", two.port, PeerChannel.CONTROL)
        await one.dial(two, PeerChannel.DATA)
        assert (await soon(two.owner.links.get())).peer.identity == identity(1)
        # Once the first is gone there is nothing against it.
        await one.door.close()
        assert (await soon(again.owner.links.get())).peer.identity == identity(2)
        assert not first.open


@in_a_loop
async def test_who_has_come_to_a_cluster_proves_it_anew() -> None:
    async with node(identity(1)) as one, node(identity(2)) as two:
        await one.dial(two)
        await soon(two.owner.links.get())
        two.door.belong(CLUSTER)
        _, why = await soon(two.owner.ends.get())
        assert why == "this node has joined a cluster"
        again = await soon(one.owner.links.get())
        assert again.peer.identity == identity(2, CLUSTER)
        one.door.belong(CLUSTER)
        await soon(two.owner.links.get())
        assert (await soon(two.owner.links.get())).peer.identity == identity(1, CLUSTER)


# -- who is gone ----------------------------------------------------------------------------------------


@in_a_loop
async def test_the_end_of_a_connection_is_told_to_who_waits_for_an_answer() -> None:
    async with node(identity(1)) as one, node(identity(2)) as two:
        there = await one.dial(two)
        answer = ask(there, Subject.REPLICAS, b"?")
        heard = await soon(two.owner.heard.get())
        heard.link.abort("that is all")
        assert await soon(answer) is None
        ended, why = await soon(one.owner.ends.get())
        assert ended is there
        assert "connection" in why or "closed" in why
        assert not there.send(Subject.QUORUM, b"x")
        assert not there.request(Subject.QUORUM, print, b"x")
        there.answer(Subject.REPLICAS, 1, b"x")
        # And it is dialed again.
        assert (await soon(one.owner.links.get())).peer.identity == identity(2)


CHILD = """
import asyncio, sys
from tests.doors.cluster.nodes import PeerChannel, identity, node

async def main(port):
    async with node(identity(1)) as one:
        one.door.dial("127.0.0.1", port, PeerChannel.CONTROL)
        await one.owner.links.get()
        await asyncio.Event().wait()

asyncio.run(main(int(sys.argv[1])))
"""


@in_a_loop
async def test_a_node_that_is_killed_is_noticed_without_any_timer() -> None:
    async with node(identity(2), later=Clock().later) as two:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, str(two.port))
        try:
            link = await soon(two.owner.links.get())
            child.send_signal(signal.SIGKILL)
            ended, _ = await soon(two.owner.ends.get())
            assert ended is link
            assert two.door.peers.node_ids() == []
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


@in_a_loop
async def test_a_peer_that_has_gone_without_a_word_is_let_go() -> None:
    clock = Clock()
    async with node(identity(2), later=clock.later) as two, proven(two.port, identity(1)) as (reader, _):
        await soon(two.owner.links.get())
        for _ in range(TIMING.silent_turns):
            assert two.owner.ends.empty()
            assert clock.fire(PATIENT.alive_ms) == 1
        assert await soon(reader.readexactly(len(ALIVE))) == ALIVE
        assert clock.fire(PATIENT.alive_ms) == 1
        _, why = await soon(two.owner.ends.get())
        assert why == f"nothing was received from it for {TIMING.silent_turns * PATIENT.alive_ms} ms"


@in_a_loop
async def test_who_says_that_it_is_there_is_kept() -> None:
    clock = Clock()
    async with node(identity(2), later=clock.later) as two, proven(two.port, identity(1)) as (_, writer):
        link = await soon(two.owner.links.get())
        for number in range(3 * TIMING.silent_turns):
            frames = b"".join(map(bytes, encode_frame(PeerKind.MESSAGE, Subject.QUORUM, 0, [b"%d" % number])))
            writer.write(ALIVE + frames)
            assert (await soon(two.owner.heard.get())).body == b"%d" % number
            assert clock.fire(PATIENT.alive_ms) == 1
        assert link.open


@in_a_loop
async def test_much_at_once_is_taken_in_turns_and_in_order() -> None:
    """Whoever takes it has other peers and timers too; meanwhile the peer counts as heard."""
    clock, count = Clock(), 200
    async with node(identity(2), later=clock.later) as two, proven(two.port, identity(1)) as (_, writer):
        link = await soon(two.owner.links.get())
        for number in range(count):
            body = [b"%03d" % number, bytes(1024)]
            writer.write(b"".join(map(bytes, encode_frame(PeerKind.MESSAGE, Subject.QUORUM, 0, body))))
        most, heard = 0, list[int]()
        while len(heard) < count:
            heard.append(int((await soon(two.owner.heard.get())).body[:3]))
            most = max(most, 1 + two.owner.heard.qsize())
            if two.owner.heard.empty() and len(heard) < count:
                for _ in range(TIMING.silent_turns):
                    clock.fire(PATIENT.alive_ms)
                await clock.fire_next(0)
        assert heard == list(range(count))
        assert most <= 16
        assert link.open


@in_a_loop
async def test_a_peer_that_does_not_read_is_let_go_and_costs_what_is_allowed() -> None:
    clock = Clock()
    async with node(identity(2), later=clock.later) as two, proven(two.port, identity(1)) as (_, writer):
        link = await soon(two.owner.links.get())
        taken = 0
        while link.send(Subject.CONTROLLER, bytes(MEBIBYTE)):
            taken += MEBIBYTE
        assert taken <= 2 * LARGEST_BODY_BYTES[PeerChannel.CONTROL] + 8 * MEBIBYTE
        assert not link.request(Subject.CONTROLLER, print, b"x")
        for _ in range(TIMING.blocked_turns):
            writer.write(ALIVE)
            writer.write(b"".join(map(bytes, encode_frame(PeerKind.MESSAGE, Subject.QUORUM, 0, []))))
            await soon(two.owner.heard.get())
            assert clock.fire(PATIENT.alive_ms) == 1
        _, why = await soon(two.owner.ends.get())
        assert why == f"it has read nothing for {TIMING.blocked_turns * PATIENT.alive_ms} ms"


@in_a_loop
async def test_answers_that_nobody_reads_end_the_connection() -> None:
    async with node(identity(2), later=Clock().later) as two, proven(two.port, identity(1)):
        link = await soon(two.owner.links.get())
        for number in range(1, 40):
            link.answer(Subject.CONTROLLER, number, bytes(MEBIBYTE))
        _, why = await soon(two.owner.ends.get())
        assert why == "it does not read its responses"


@in_a_loop
async def test_a_peer_that_does_not_read_does_not_keep_a_node_from_stopping() -> None:
    clock = Clock()
    async with node(identity(2), later=clock.later) as two, proven(two.port, identity(1)):
        link = await soon(two.owner.links.get())
        while link.send(Subject.CONTROLLER, bytes(MEBIBYTE)):
            pass
        stopping = asyncio.ensure_future(two.door.close())
        await clock.fire_next(TIMING.closing_ms)
        await soon(stopping)
        assert await soon(two.owner.ends.get()) == (link, "this node is stopping")


@in_a_loop
async def test_more_than_a_channel_takes_is_not_sent() -> None:
    async with node(identity(1)) as one, node(identity(2)) as two:
        there = await one.dial(two)
        with pytest.raises(ValueError, match="a body is larger than CONTROL takes"):
            there.send(Subject.CONTROLLER, bytes(4 * MEBIBYTE), b"x")
        with pytest.raises(ValueError, match="a body is larger than CONTROL takes"):
            there.request(Subject.CONTROLLER, print, bytes(4 * MEBIBYTE), b"x")
        assert there.send(Subject.CONTROLLER, bytes(4 * MEBIBYTE))


# -- strangers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 100_000, b"DURAMEN?" + bytes(100)])
def test_who_speaks_something_else_hears_nothing(words: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with node(identity(2)) as two, raw(two.port) as (reader, writer):
            writer.write(words)
            assert await said_nothing_more(reader) == b""

    asyncio.run(run())
    (line,) = lines(caplog)
    assert line.endswith("was refused: what it says is not the protocol between Duramen's nodes")


def test_who_proves_nothing_in_time_is_let_go(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        clock = Clock()
        async with node(identity(2), later=clock.later) as two, contextlib.AsyncExitStack() as open_ones:
            hello = Handshake(HandshakeSide.DIALER, identity(1), SECRET, bytes(32)).take()
            strangers = [await open_ones.enter_async_context(raw(two.port)) for _ in range(3)]
            for (_, writer), words in zip(strangers, (b"", hello[:1], hello), strict=True):
                writer.write(words)
            assert len(await soon(strangers[2][0].readexactly(len(hello)))) == len(hello)
            assert clock.fire(PATIENT.handshake_ms) == 3
            for reader, _ in strangers:
                assert await said_nothing_more(reader) == b""

    asyncio.run(run())
    (line,) = lines(caplog)  # of one host, once
    assert line.endswith("was refused: it did not prove the cluster secret in time")


@in_a_loop
async def test_strangers_take_no_more_than_so_many_places() -> None:
    async with (
        node(identity(2), later=Clock().later) as two,
        node(identity(1)) as one,
        contextlib.AsyncExitStack() as open_ones,
    ):
        strangers = [await open_ones.enter_async_context(raw(two.port)) for _ in range(66)]
        assert await said_nothing_more(strangers[0][0]) == b""
        await one.dial(two)


def test_a_stranger_cannot_make_us_hold_more(caplog: pytest.LogCaptureFixture) -> None:
    """What comes behind a hello stays in the kernel until the proof is there."""

    async def run() -> None:
        async with node(identity(2), later=Clock().later) as two, raw(two.port) as (reader, writer):
            hello = Handshake(HandshakeSide.DIALER, identity(1), SECRET, bytes(32)).take()
            writer.write(hello + bytes(MEBIBYTE))
            await said_nothing_more(reader)

    asyncio.run(run())
    (line,) = lines(caplog)
    assert line.endswith("was refused: the two nodes do not have the same cluster secret")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xff\xff\xff\1\1\0\0\0\0", "a frame of 4294967295 bytes, and 4194304 are the most there may be"),
        (b"\0\0\0\0\1\x63\0\0\0\0", "a frame of kind 1 about 99, which there is not"),
        (b"\0\0\0\0\3\1\0\0\0\5", "an answer with the number 5 about FORMING, which was not requested"),
        (b"\0\0\0\x08\1\1\0\0\0\0nonsense", "that makes no sense"),
    ],
)
@in_a_loop
async def test_a_peer_that_says_what_cannot_be_is_let_go(data: bytes, why: str) -> None:
    async with node(identity(2)) as two, proven(two.port, identity(1)) as (reader, writer):
        await soon(two.owner.links.get())
        writer.write(data)
        assert (await soon(two.owner.ends.get()))[1] == why
        await said_nothing_more(reader)


# -- dialing --------------------------------------------------------------------------------------------


def test_nobody_there_is_said_once_and_dialed_until_somebody_is(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> int:
        clock = Clock()
        async with node(identity(1), later=clock.later) as one:
            free = loopback()
            port: int = free.getsockname()[1]
            one.door.dial("127.0.0.1", port, PeerChannel.CONTROL)
            for wait_ms in (25, 50, 100, 200):
                await clock.fire_next(wait_ms)
            free.close()
            return port

    port = asyncio.run(run())
    (line,) = lines(caplog)
    assert line.startswith(f"there is no connection to the node at 127.0.0.1:{port}: ")


def test_waits_grow_and_half_of_each_is_chance() -> None:
    timing = LinkTiming(first_retry_ms=100, longest_retry_ms=400)
    least, most = Backoff(timing, lambda _: 0), Backoff(timing, lambda below: below - 1)
    assert [least.next_ms() for _ in range(4)] == [50, 100, 200, 200]
    assert [most.next_ms() for _ in range(4)] == [100, 200, 400, 400]
    most.reset()
    assert most.next_ms() == 100


@in_a_loop
async def test_a_dialer_that_is_closed_lets_go() -> None:
    async with node(identity(1)) as one, node(identity(2)) as two:
        dialer = one.door.dial("127.0.0.1", two.port, PeerChannel.CONTROL)
        link = await soon(one.owner.links.get())
        assert dialer.link is link
        await dialer.close()
        assert not link.open
        await soon(two.owner.links.get())
        assert (await soon(two.owner.ends.get()))[1] == "the other side closed it"
