"""The network between nodes, with an echo in the place of a node."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Final

import pytest
from tests.cluster.proxy import Network

_HELLO: Final = struct.Struct(">10si")
_ME: Final = 1
_THERE: Final = 2
_SHORT_S: Final = 0.3


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of what says again whatever is said to it."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    stack.enter_context(connection)
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := connection.recv(1 << 16):
                    connection.sendall(data)
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def dialed(network: Network, echo: str) -> Iterator[socket.socket]:
    """A connection of node 1 to node 2, whose hello has come back."""
    host, _, port = network.reach(_THERE, echo).rpartition(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        hello = _HELLO.pack(b"DURAMEN\n\x01\x01", _ME)
        connection.sendall(hello)
        assert _exactly(connection, len(hello)) == hello
        yield connection


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += connection.recv(size - len(found))
    return found


def _silent(connection: socket.socket) -> bool:
    connection.settimeout(_SHORT_S)
    try:
        return connection.recv(1) is None
    except TimeoutError:
        return True
    finally:
        connection.settimeout(60)


def test_everything_comes_through_in_its_order(network: Network, echo: str) -> None:
    said = bytes(range(256)) * 4096
    with dialed(network, echo) as connection:
        threading.Thread(target=connection.sendall, args=(said,)).start()
        assert _exactly(connection, len(said)) == said


@pytest.mark.parametrize(("sender", "receiver"), [(_ME, _THERE), (_THERE, _ME)])
def test_what_is_cut_arrives_once_the_network_is_whole(network: Network, echo: str, sender: int, receiver: int) -> None:
    with dialed(network, echo) as connection:
        network.cut(sender, receiver)
        connection.sendall(b"hello")
        assert _silent(connection)
        network.heal()
        assert _exactly(connection, 5) == b"hello"


def test_other_ways_are_left_alone(network: Network, echo: str) -> None:
    with dialed(network, echo) as connection:
        network.part([_ME, _THERE], [3])
        connection.sendall(b"hello")
        assert _exactly(connection, 5) == b"hello"


def test_the_end_of_a_connection_is_held_back_too(network: Network, echo: str) -> None:
    with dialed(network, echo) as connection:
        network.part([_ME], [_THERE])
        connection.shutdown(socket.SHUT_WR)
        assert _silent(connection)
        network.heal()
        assert connection.recv(1) == b""


def test_late_is_in_order_all_the_same(network: Network, echo: str) -> None:
    with dialed(network, echo) as connection:
        network.delay(_ME, _THERE, 0.05)
        connection.sendall(b"one ")
        network.delay(_ME, _THERE, 0)
        connection.sendall(b"two")
        assert _exactly(connection, 7) == b"one two"


def test_a_reset_breaks_the_connections_of_two_nodes(network: Network, echo: str) -> None:
    with dialed(network, echo) as connection:
        assert network.reset(_ME, 3) == 0
        assert network.reset(_THERE, _ME) == 1
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_nobody_there_is_an_end(network: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    host, _, port = network.reach(_THERE, address).rpartition(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(_HELLO.pack(b"DURAMEN\n\x01\x01", _ME))
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_a_cut_network_can_end(echo: str) -> None:
    with Network() as network, dialed(network, echo) as connection:
        network.part([_ME], [_THERE])
        connection.sendall(b"hello")
