"""Of a process' sockets only those are closed that kafka-python left behind."""

import socket
from contextlib import closing

from duramen.node.process import hold_port
from tests.leaks import close_leaked_sockets


def test_what_is_used_stays_open() -> None:
    with (
        closing(hold_port()) as held,
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as connected,
        socket.socket() as refused,
        socket.socket() as fresh,
    ):
        for one in (connected, refused):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert refused.connect_ex(held.getsockname()) != 0
        close_leaked_sockets()
        assert refused.fileno() == -1
        assert -1 not in {one.fileno() for one in (held, listening, connected, fresh)}
