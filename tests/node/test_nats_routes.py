"""What a nats-server of a cluster's node is told: by whom it lets itself be reached, and whom it reaches."""

import asyncio
import contextlib
import hashlib
import hmac
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import SettingInvalid
from duramen.base.settings import Settings
from duramen.metadata.events import Endpoint
from duramen.metadata.nodes import Node
from duramen.node.addresses import Address
from duramen.node.listeners import listening
from duramen.node.nats_routes import Routing, places, routing, server_config, write_private
from duramen.node.process import hold_port

_LISTEN = Address("127.0.0.1", 6222)
_CLIENTS = Address("127.0.0.1", 4222)
_SECRET = b"s" * 32


def _node(node_id: int, *endpoints: Endpoint) -> Node:
    return Node(node_id, "d", endpoints=endpoints)


def test_the_password_is_derived_from_the_secret() -> None:
    route = routing(_LISTEN, _SECRET)
    assert route.listen == _LISTEN
    assert route.password == hmac.new(_SECRET, b"duramen nats routes 1", hashlib.sha256).hexdigest()
    assert routing(_LISTEN, b"t" * 32).password != route.password


def test_the_others_are_where_they_registered() -> None:
    nodes = [
        _node(1, Endpoint("nats-cluster", "10.0.0.1", 6222)),
        _node(2, Endpoint("kafka", "10.0.0.2", 9092), Endpoint("nats-cluster", "10.0.0.2", 6222)),
        _node(3, Endpoint("kafka", "10.0.0.3", 9092)),
    ]
    assert places(nodes, 1) == {Address("10.0.0.2", 6222)}


def test_a_server_of_a_node_alone_knows_no_others() -> None:
    assert "cluster" not in server_config("n", _CLIENTS, None, [_LISTEN])


def test_a_server_of_a_cluster_names_the_others_and_demands_the_password() -> None:
    route = routing(_LISTEN, _SECRET)
    config = server_config("n", Address("127.0.0.1", 0), route, [Address("10.0.0.2", 1), Address("::1", 2)])
    assert f'routes: ["nats-route://duramen:{route.password}@10.0.0.2:1"' in config
    assert f'"nats-route://duramen:{route.password}@[::1]:2"]' in config
    assert f'authorization {{ user: "duramen", password: "{route.password}"' in config
    assert "port: -1\n" in config
    assert "  port: 6222\n" in config
    # Who is gone is tried every second: that is no line of the log each time.
    assert "reconnect_error_reports: 3600\n" in config


def test_the_file_with_the_password_is_its_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "nats-server.conf"
    path.write_text("older, longer, and for everybody")
    path.chmod(0o644)
    for text in ("one", "another"):
        write_private(path, text)
        assert (path.read_text(), path.stat().st_mode & 0o777) == (text, 0o600)
    assert [found.name for found in tmp_path.iterdir()] == ["nats-server.conf"]


def test_a_node_alone_has_one_server() -> None:
    with pytest.raises(SettingInvalid, match=r"nats\.cluster\.listen: a standalone node"):
        listening(Settings(BROKER, options={"nats.cluster.listen": "127.0.0.1:6222"}))


# -- with real servers ------------------------------------------------------------------------------


class _Server:
    """A nats-server of that configuration, and what it says."""

    def __init__(
        self, directory: Path, name: str, clients: Address, route: Routing, others: Collection[Address]
    ) -> None:
        config = directory / f"{name}.conf"
        write_private(config, server_config(name, clients, route, others))
        binary = Path(sys.executable).parent / "nats-server"
        self.process = subprocess.Popen([binary, "-c", config], stderr=subprocess.PIPE, text=True)
        self.wait_for("Server is ready")

    def wait_for(self, words: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if words in line:
                return
        raise AssertionError(f"it ends without saying {words!r}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


@pytest.fixture
def addresses() -> Iterator[list[Address]]:
    """Addresses that nobody listens on."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(hold_port()) for _ in range(6)]
        yield [Address(*one.getsockname()) for one in held]


def test_servers_with_the_secret_are_one_and_another_is_left_out(tmp_path: Path, addresses: list[Address]) -> None:
    async def ask() -> None:
        first, second, third = [await nats.connect(f"nats://{address}") for address in addresses[:3]]

        async def answer(question: Msg) -> None:
            await question.respond(b"here")

        await first.subscribe("a", cb=answer)
        await first.flush()
        async with asyncio.timeout(60):
            heard = False
            while not heard:
                with contextlib.suppress(nats.errors.NoRespondersError):
                    heard = (await second.request("a", b"")).data == b"here"
        with pytest.raises(nats.errors.NoRespondersError):
            await third.request("a", b"")
        for client in (first, second, third):
            await client.close()

    servers: list[_Server] = []
    try:
        for number, secret in enumerate([_SECRET, _SECRET, b"t" * 32]):
            route = routing(addresses[3 + number], secret)
            others = addresses[3 : 3 + number]
            servers.append(_Server(tmp_path, f"n{number}", addresses[number], route, others))
        servers[0].wait_for("authentication error")
        asyncio.run(ask())
    finally:
        for server in servers:
            server.end()
