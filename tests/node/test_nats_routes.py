"""What a nats-server of a cluster's node is told: by whom it lets itself be reached, and whom it reaches."""

import hashlib
import hmac
from pathlib import Path

import pytest

from duramen.base.catalogue import BROKER
from duramen.base.errors import SettingInvalid
from duramen.base.settings import Settings
from duramen.controller.events import Endpoint
from duramen.controller.nodes import Node
from duramen.node.addresses import Address
from duramen.node.listening import listening
from duramen.node.nats_routes import places, routing, server_config, write_private

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


def test_the_file_with_the_password_is_its_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "nats-server.conf"
    path.write_text("older, longer, and for everybody")
    path.chmod(0o644)
    for text in ("one", "another"):
        write_private(path, text)
        assert (path.read_text(), path.stat().st_mode & 0o777) == (text, 0o600)
    assert [found.name for found in tmp_path.iterdir()] == ["nats-server.conf"]


def test_a_node_alone_has_one_server() -> None:
    with pytest.raises(SettingInvalid, match=r"nats\.cluster\.listen: a node that is alone"):
        listening(Settings(BROKER, options={"nats.cluster.listen": "127.0.0.1:6222"}))
