"""The network between the nodes of a cluster: TCP proxies before their doors, that do to connections what a test says.

A proxy knows who dials from the hello of the handshake, so a fault is of one node to another, and of one way where that
is wanted. What is cut is held back, the end of a connection too, and arrives once the network is whole again, as TCP
would send it again then: nothing vanishes out of the middle of a connection.
"""

import asyncio
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Self, TypeVar

__all__ = ["Network"]

T = TypeVar("T")

_NODE_ID: Final = struct.Struct(">10xi")
"""What a dialer's hello begins with: see `codec/cluster/handshake.py`."""

_PIECE_BYTES: Final = 64 * 1024
_PIECES: Final = 16
"""So much is under way on one way of a connection at most; then the sender waits, as at a full window."""

_WAIT_S: Final = 30.0


class _Piece(NamedTuple):
    """Bytes of a connection, and when they may arrive at the earliest; none for its end."""

    due_s: float
    data: bytes


class _Way:
    """From one node to another."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.delay_s = 0.0


class _Connection:
    """A connection and its other half, behind the proxy."""

    def __init__(self, nodes: frozenset[int], writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self.nodes = nodes
        self._writers = writers

    def reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


class Network:
    """Runs for as long as its block. What is said to it holds once the call returns."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._ways: dict[tuple[int, int], _Way] = {}
        self._connections: set[_Connection] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            for way in self._ways.values():
                way.open.set()
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(_WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def reach(self, node_id: int, address: str) -> str:
        """Where others reach the node that listens on `address`: the proxy before it."""

        async def listen() -> str:
            server = await asyncio.start_server(
                lambda reader, writer: self._welcome(node_id, address, reader, writer), "127.0.0.1", 0
            )
            self._servers.append(server)
            host, port = server.sockets[0].getsockname()
            return f"{host}:{port}"

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(_WAIT_S)

    # -- faults -------------------------------------------------------------------------------------

    def cut(self, sender: int, receiver: int) -> None:
        """From here on nothing that one says reaches the other; the way back stays as it is."""
        self._do(self._way(sender, receiver).open.clear)

    def part(self, ones: Iterable[int], others: Iterable[int]) -> None:
        """Nothing gets from these to those, nor back."""
        for one in ones:
            for other in others:
                self.cut(one, other)
                self.cut(other, one)

    def delay(self, sender: int, receiver: int, delay_s: float) -> None:
        """What one says arrives so much later at the other."""

        def set_delay() -> None:
            self._way(sender, receiver).delay_s = delay_s

        self._do(set_delay)

    def reset(self, one: int, other: int) -> int:
        """Break all connections between two nodes, in the middle of whatever they carry; returns how many."""

        def break_all() -> int:
            hit = [connection for connection in self._connections if connection.nodes == {one, other}]
            for connection in hit:
                connection.reset()
            return len(hit)

        return self._do(break_all)

    def heal(self) -> None:
        """The network is whole again; what was held back arrives."""

        def heal_all() -> None:
            for way in self._ways.values():
                way.open.set()
                way.delay_s = 0.0

        self._do(heal_all)

    def _do(self, action: Callable[[], T]) -> T:
        async def act() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(_WAIT_S)

    def _way(self, sender: int, receiver: int) -> _Way:
        return self._ways.setdefault((sender, receiver), _Way())

    # -- connections --------------------------------------------------------------------------------

    async def _welcome(
        self, node_id: int, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Somebody has dialed a node: carry what they say, until both are done."""
        ends = [writer]
        self._writers.add(writer)
        try:
            hello = await reader.readexactly(_NODE_ID.size)
            (dialer,) = _NODE_ID.unpack(hello)
            host, _, port = address.rpartition(":")
            there, back = await asyncio.open_connection(host, int(port))
            ends.append(back)
            self._writers.add(back)
            connection = _Connection(frozenset({dialer, node_id}), (writer, back))
            self._connections.add(connection)
            try:
                await asyncio.gather(
                    self._carry(self._way(dialer, node_id), reader, back, hello),
                    self._carry(self._way(node_id, dialer), there, writer),
                )
            finally:
                self._connections.remove(connection)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for end in ends:
                end.transport.abort()
                self._writers.remove(end)

    async def _carry(
        self, way: _Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes = b""
    ) -> None:
        pieces: asyncio.Queue[_Piece] = asyncio.Queue(_PIECES)
        if first:
            pieces.put_nowait(_Piece(0.0, first))
        delivering = asyncio.ensure_future(self._deliver(way, pieces, writer))
        try:
            data = b"more"
            while data:
                try:
                    data = await reader.read(_PIECE_BYTES)
                except OSError:
                    data = b""
                await pieces.put(_Piece(self._loop.time() + way.delay_s, data))
            await delivering
        finally:
            delivering.cancel()

    async def _deliver(self, way: _Way, pieces: "asyncio.Queue[_Piece]", writer: asyncio.StreamWriter) -> None:
        broken = False  # what comes then goes nowhere, but the sender is not to notice before its end arrives
        while (piece := await pieces.get()).data:
            await asyncio.sleep(max(piece.due_s - self._loop.time(), 0))
            await way.open.wait()
            try:
                if not broken:
                    writer.write(piece.data)
                    await writer.drain()
            except OSError:
                broken = True
        await way.open.wait()
        writer.close()
