"""The configs of a broker: what DescribeConfigs tells of them, and which are changed while it runs."""

import re
from collections.abc import Callable
from typing import Any

from tests.doors.kafka.asking import Asking

from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

BROKER = 4


def _configs(asking: Asking, name: str, *keys: str, kind: int = BROKER) -> dict[str, Message]:
    resource: dict[str, Any] = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    wish = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    (found,) = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, wish)["results"]
    assert found["error_code"] == 0, found["error_message"]
    return {one["name"]: one for one in found["configs"]}


def test_where_a_node_listens_and_what_its_clients_are_told(new_node: Callable[..., NodeProcess]) -> None:
    settings = {"kafka.listen": "127.0.0.1:0,[::1]:0", "kafka.advertise": "log.example:19092"}
    node = new_node(settings).start()
    with Asking(node) as asking:
        found = _configs(asking, "1", "listeners", "advertised.listeners")
    first, second = found["listeners"]["value"].split(",")
    assert first == f"PLAINTEXT://{node.kafka}"
    assert re.fullmatch(r"PLAINTEXT://\[::1\]:\d+", second)
    assert found["advertised.listeners"]["value"] == "PLAINTEXT://log.example:19092"
    for name, one in found.items():
        assert (one["read_only"], one["config_source"], one["config_type"]) == (True, 4, 7)
        assert [synonym["name"] for synonym in one["synonyms"]] == [name]
        assert one["documentation"]
