"""The inventory of a cluster of three real nodes: any of them takes requests, and a killed node loses nothing."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients import CONFLUENT, LIBRARIES, Record, until

import duramen
from duramen.base.errors import DuramenError
from duramen.client.api.client import Client, connect
from duramen.client.http import HttpNode, RequestBody
from duramen.node.processes import NodeProcesses
from duramen.spark.options import Options
from duramen.spark.read.exports import InventoryReader

WAIT_S = 60.0
SETTINGS = {"inventory.shards": 3, "inventory.queue.shards": 3}


def found(client: Client, path: str) -> str:
    """The lasting id of a topic, once those who lead the shards are asked; empty: there is none."""
    ids = list[str]()

    def look() -> bool:
        try:
            ids.append(str(client.inventory.topic(path).id))
        except duramen.errors.TopicNotFound:
            ids.append("")
        except DuramenError:
            return False
        return True

    until(look, WAIT_S)
    return ids[-1]


def test_any_node_takes_topics_and_kafka_clients_find_their_records(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        clients = [connect(node.http) for node in nodes.nodes.values()]
        one, two, three = (client.inventory for client in clients)
        assert one.create_tenants(["shop"]).created == 1
        until(lambda: not two.create_namespaces("shop", ["prod", "dev"]).failed, WAIT_S)
        names = [f"orders-{number}" for number in range(60)]
        assert three.create_topics("shop/prod", names).created == 60
        assert one.create_topics("shop/prod", [*names, "last"]).existing == 60
        assert [topic.name for topic in two.search("shop/prod")] == sorted([*names, "last"])
        before = two.topic("shop/prod/orders-7").id
        CONFLUENT.produce(nodes.bootstrap_servers, "shop.prod.orders-7", [Record(b"1", b"key")])
        assert one.move_topic("shop/prod/orders-7", "shop/dev/new", keep_alias=False).id == before
        assert three.topic("shop/dev/new").id == before
        assert found(clients[1], "shop/prod/orders-7") == ""
        reads = CONFLUENT.consume(nodes.bootstrap_servers, "shop.dev.new", 1, 1)
        assert [read.value for read in reads] == [b"1"]
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
        for name, code in (("shop.dev.new", "TOPIC_ALREADY_EXISTS"), ("shop.dev.none", "TOPIC_EXCEPTION")):
            with pytest.raises(KafkaException, match=code):
                admin.create_topics([NewTopic(name, 1)])[name].result(30)
        for node in nodes.nodes.values():
            content = RequestBody(b'"b"\nnope\n{"name": "a"}\n', "application/x-ndjson")
            made = HttpNode(node.http).ask("POST", "/v1/tenants/shop/namespaces/dev/topics", content)
            assert (made["created"] + made["existing"], [one["row"] for one in made["failed"]]) == (2, [2])
        one.policies.set("shop/dev/a", {"retention.ms": 1_000})
        two.alias("shop/dev/c", "shop/prod/last")
        for inventory in (one, two, three):
            assert [topic.name for topic in inventory.search("shop/dev", policy="retention.ms")] == ["a"]
            assert [topic.name for topic in inventory.search("shop", kind="alias")] == ["c"]
            account = inventory.account("default")
            assert (account.tenants, account.namespaces, account.topics) == (1, 2, 63)
        three.delete_namespace("shop/prod")
        with pytest.raises(duramen.errors.TopicAliasDangling):
            one.topic("shop/dev/c")
        two.delete_topic("shop/dev/c")
        for client in clients:
            client.close()


@pytest.mark.long
def test_a_node_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        clients = [connect(node.http) for node in nodes.nodes.values()]
        one, two, three = (client.inventory for client in clients)
        one.create_tenants(["shop"])
        until(lambda: not two.create_namespaces("shop", ["prod", "dev"]).failed, WAIT_S)
        names = [f"orders-{number}" for number in range(200)]
        assert three.create_topics("shop/prod", names).created == 200
        topics = one.lookup("shop/prod", names)
        ids = {name: topic.id for name, topic in zip(names, topics, strict=True) if topic is not None}
        for library in LIBRARIES:
            library.produce(nodes.bootstrap_servers, "shop.prod.orders-1", [Record(b"1", b"key")])
        with pytest.raises(DuramenError):
            clients[0].streams.create("shop.prod.plain")
        nodes.nodes[3].kill()
        for number, name in enumerate(names[:20]):
            path, to = f"shop/prod/{name}", f"shop/dev/{name}"
            assert found(clients[number % 2], path) == str(ids[name])
            until(lambda path=path, to=to: moved(clients[0], path, to), WAIT_S)  # type: ignore[misc]
            assert (found(clients[1], path), found(clients[1], to)) == ("", str(ids[name]))
        for library in LIBRARIES:
            library.produce(nodes.bootstrap_servers, "shop.dev.orders-1", [Record(b"2", b"key")])
            reads = library.consume(nodes.bootstrap_servers, "shop.dev.orders-1", 1, len(LIBRARIES) + 1)
            assert {read.value for read in reads} == {b"1", b"2"}
        two.update_tenant("shop", name="store")
        two.alias("store/prod/old", "store/dev/orders-1")
        assert found(clients[0], "store/prod/old") == str(ids["orders-1"])
        two.delete_namespace("store/prod")
        with pytest.raises(duramen.errors.NamespaceNotFound):
            one.topic("store/prod/old")
        nodes.nodes[3].start()
        with connect(nodes.nodes[3].http) as again:
            until(lambda: found(again, "store/dev/orders-1") == str(ids["orders-1"]), WAIT_S)
        for client in clients:
            client.close()


def moved(client: Client, path: str, to: str) -> bool:
    """Move a topic; whether it is there now."""
    try:
        client.inventory.move_topic(path, to)
    except DuramenError:
        return found(client, to) != ""
    return True


@pytest.mark.long
def test_exports_and_searches_have_every_topic_once_through_any_node(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        clients = {number: connect(node.http) for number, node in nodes.nodes.items()}
        assert exported(nodes.nodes[2].http) == []
        clients[1].inventory.create_tenants(["shop"])
        until(lambda: not clients[2].inventory.create_namespaces("shop", ["prod", "dev"]).failed, WAIT_S)
        names = [f"orders-{number:04}" for number in range(3000)]
        clients[3].inventory.create_topics("shop/prod", names)
        for number, name in enumerate(names[:30]):
            clients[1 + number % 3].inventory.move_topic(f"shop/prod/{name}", f"shop/dev/{name}")
        clients[2].inventory.delete_topic(f"shop/prod/{names[30]}")
        expected = [f"shop/dev/{name}" for name in names[:30]] + [f"shop/prod/{name}" for name in names[31:]]
        for number, node in nodes.nodes.items():
            assert exported(node.http) == expected
            assert clients[number].inventory.namespace("shop/prod").topics == len(names) - 31
        seen = list[str]()
        for topic in clients[1].inventory.search("shop"):
            seen.append(f"shop/{topic.namespace}/{topic.name}")
            if len(seen) == 500:
                nodes.nodes[3].kill()
        assert seen == expected
        until(lambda: read_patiently(nodes.nodes[2].http) == expected, WAIT_S)
        nodes.nodes[2].kill()
        with pytest.raises(duramen.errors.NotLeader, match="of __inventory cannot be exported"):
            exported(nodes.nodes[1].http)
        for client in clients.values():
            client.close()


def exported(server: str) -> list[str]:
    """The paths of all topics, as Spark reads them through a node."""
    reader = InventoryReader(Options({"server": server, "inventory": "topics", "minPartitions": "5"}, "batch"))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert len({row["id"] for row in rows}) == len(rows)
    return sorted(f"{row['tenant']}/{row['namespace']}/{row['name']}" for row in rows)


def read_patiently(server: str) -> list[str] | None:
    """As `exported`; None while a shard has no leader."""
    try:
        return exported(server)
    except DuramenError:
        return None
