"""Nodes form a cluster over real sockets, or say in the log why they do not."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import wraps
from uuid import UUID

from tests.doors.cluster.nodes import PATIENT, SECRET, WAIT_S, in_time, loopback

from duramen.base.ports import Buffer
from duramen.codec.cluster.channels import Subject
from duramen.codec.cluster.handshake import HandshakeIdentity
from duramen.doors.cluster.discovery import Gathering
from duramen.doors.cluster.door import ClusterDoor
from duramen.doors.cluster.link import PeerLink
from duramen.raft.forming.values import FormationDiskState
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voters

EMPTY = FormationDiskState()


class Lines(logging.Handler):
    """What the log says, for who waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put_nowait(record.getMessage())

    async def wait(self, line: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while line != await self._lines.get():
                pass


@contextlib.contextmanager
def log() -> Iterator[Lines]:
    lines = Lines()
    logger = logging.getLogger("duramen.cluster")
    logger.addHandler(lines)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)


class Member:
    """A node that only comes to a cluster: its door, and a disk that takes a turn of the loop for each write."""

    def __init__(
        self,
        node_id: int,
        listening: socket.socket,
        seeds: Sequence[int],
        kept: FormationDiskState = EMPTY,
        directory: int = 0,
    ) -> None:
        self.directory_id = UUID(int=directory or node_id)
        self.disk = kept
        self.belonged: asyncio.Future[tuple[UUID, Voters]] = asyncio.get_running_loop().create_future()
        self.listening = listening
        counter = iter(range(1, 1_000_000))
        self.door = ClusterDoor(
            self, HandshakeIdentity(node_id, self.directory_id, kept.cluster_id), SECRET,
            token=lambda size: (b"%d.%d" % (node_id, next(counter))).ljust(size, b"."), chance=lambda _: 0,
            later=in_time, timing=PATIENT,
        )  # fmt: skip
        self.gathering = Gathering(
            self.door, ReplicaId(node_id, str(self.directory_id)), kept, [("127.0.0.1", port) for port in seeds],
            persist=self._persist, belongs=lambda *what: self.belonged.set_result(what), later=in_time,
        )  # fmt: skip

    def _persist(self, kept: FormationDiskState, done: Callable[[], None]) -> None:
        def write() -> None:
            self.disk = kept
            done()

        asyncio.get_running_loop().call_soon(write)

    def opened(self, link: PeerLink) -> None:
        self.gathering.opened(link)

    def closed(self, link: PeerLink, _: str) -> None:
        self.gathering.closed(link)

    def found_itself(self, where: str) -> None:
        self.gathering.found_itself(where)

    def message(self, link: PeerLink, subject: Subject, body: Buffer) -> None:
        raise AssertionError(f"{link.where} says something about {subject}: {bytes(body)!r}")

    def request(self, link: PeerLink, subject: Subject, number: int, body: Buffer) -> None:
        assert subject is Subject.FORMING
        self.gathering.request(link, number, body)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Member"]:
        await self.door.listen([self.listening])
        self.gathering.start()
        try:
            yield self
        finally:
            self.gathering.stop()
            await self.door.close()

    async def cluster(self) -> tuple[UUID, Voters]:
        return await asyncio.wait_for(asyncio.shield(self.belonged), WAIT_S)


@contextlib.contextmanager
def places(count: int) -> Iterator[tuple[list[socket.socket], list[int]]]:
    """Sockets that are bound, and their ports; nobody listens there yet."""
    with contextlib.ExitStack() as close:
        sockets = [close.enter_context(loopback()) for _ in range(count)]
        yield sockets, [one.getsockname()[1] for one in sockets]


def in_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


@in_a_loop
async def test_three_form_a_cluster_and_a_fourth_joins() -> None:
    with places(4) as (sockets, ports):
        seeds = ports[:3]
        members = [Member(node_id, sockets[node_id - 1], seeds) for node_id in (1, 2, 3)]
        later = Member(4, sockets[3], [ports[1]])
        async with contextlib.AsyncExitStack() as running:
            for member in members:
                await running.enter_async_context(member.running())
            clusters = [await member.cluster() for member in members]
            assert len(set(clusters)) == 1
            cluster_id, voters = clusters[0]
            assert [(voter.id.node_id, voter.endpoint) for voter in voters] == [
                (number + 1, f"127.0.0.1:{port}") for number, port in enumerate(seeds)
            ]
            assert [member.disk.cluster_id for member in members] == [cluster_id] * 3
            assert [member.gathering.obstacle for member in members] == [""] * 3
            await running.enter_async_context(later.running())
            assert await later.cluster() == (cluster_id, NO_VOTERS)


@in_a_loop
async def test_no_cluster_is_formed_while_a_seed_is_missing() -> None:
    with places(3) as (sockets, ports), log() as lines:
        one, two = (Member(node_id, sockets[node_id - 1], ports) for node_id in (1, 2))
        async with one.running(), two.running():
            await lines.wait(
                "this node belongs to no cluster yet: a cluster is formed once all seeds are there; missing:"
                f" 127.0.0.1:{ports[2]}"
            )
            assert (one.disk.cluster_id, two.disk.cluster_id) == (None, None)
            async with Member(3, sockets[2], ports).running() as three:
                assert len({await member.cluster() for member in (one, two, three)}) == 1


@in_a_loop
async def test_another_list_is_named_and_nothing_is_formed() -> None:
    with places(3) as (sockets, ports), log() as lines:
        one, two = Member(1, sockets[0], ports[:2]), Member(2, sockets[1], ports)
        async with one.running(), two.running():
            all_of_them = sorted(f"127.0.0.1:{port}" for port in ports)
            ours = sorted(f"127.0.0.1:{port}" for port in ports[:2])
            await lines.wait(
                f"this node belongs to no cluster yet: node 2 at 127.0.0.1:{ports[1]} has the seeds"
                f" {', '.join(all_of_them)},"
                f" and this node {', '.join(ours)}: give all the same list"
            )
            assert (one.disk.cluster_id, two.disk.cluster_id) == (None, None)


@in_a_loop
async def test_two_nodes_with_one_id_are_named_and_nothing_is_formed() -> None:
    with places(3) as (sockets, ports), log() as lines:
        one, two, twin = (
            Member(1, sockets[0], ports), Member(2, sockets[1], ports), Member(2, sockets[2], ports, directory=9),
        )  # fmt: skip
        async with one.running(), two.running(), twin.running():
            first, second = sorted(f"127.0.0.1:{port}" for port in ports[1:])
            await lines.wait(
                f"this node belongs to no cluster yet: the seeds {first} and {second} are different nodes with the"
                " node id 2: give each its own"
            )
            assert {member.disk.cluster_id for member in (one, two, twin)} == {None}


@in_a_loop
async def test_a_member_that_comes_back_is_of_its_cluster_and_says_so() -> None:
    with places(4) as (sockets, ports):
        one, two = (Member(node_id, sockets[node_id - 1], ports[:2]) for node_id in (1, 2))
        async with one.running(), two.running():
            cluster_id, voters = await one.cluster()
            await two.cluster()
        back = Member(1, sockets[2], ports[:2], one.disk)
        blank = Member(3, sockets[3], [ports[2]])
        async with back.running(), blank.running():
            assert await back.cluster() == (cluster_id, voters)
            assert await blank.cluster() == (cluster_id, NO_VOTERS)
