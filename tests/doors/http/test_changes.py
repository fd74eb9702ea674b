"""Subscriptions to the inventory over HTTP, as server-sent events and with both Python clients."""

import asyncio
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from uuid import uuid4

import pytest
from tests.doors.http.conftest import Ask

import duramen
from duramen.node.process import NodeProcess


@pytest.fixture
def tenant(ask: Ask) -> str:
    name = f"t-{uuid4().hex[:12]}"
    assert ask("POST", "/v1/tenants", {"names": [name]})[1]["created"] == 1
    assert ask("POST", f"/v1/tenants/{name}/namespaces", {"names": ["prod", "dev"]})[1]["created"] == 2
    return name


def events(node: NodeProcess, path: str, last: str = "") -> Iterator[tuple[str, str, Any]]:
    """Server-sent events: the name, the id and the data."""
    connection = HTTPConnection(node.http, timeout=60)
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert (answer.status, answer.headers.get_content_type()) == (200, "text/event-stream")
    fields: dict[str, str] = {}
    try:
        for line in iter(answer.readline, b""):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            else:
                yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
                fields = {}
    finally:
        connection.close()


def test_changes_come_as_server_sent_events_and_go_on_behind_the_last_one(
    node: NodeProcess, ask: Ask, tenant: str
) -> None:
    prod, path = f"/v1/tenants/{tenant}/namespaces/prod", f"/v1/changes?tenant={tenant}&namespace=prod&prefix=a"
    told = events(node, path)
    kind, start, data = next(told)
    assert (kind, data) == ("position", {"position": start})
    ask("POST", f"{prod}/topics", {"names": ["b"]})
    ask("POST", f"{prod}/topics", {"names": ["a1"]})
    kind, position, data = next(told)
    assert (kind, [topic["name"] for topic in data["topics"]]) == ("topics-created", ["a1"])
    ask("PATCH", f"/v1/policies/{tenant}", {"policies": {"quota.topics": 9}})
    told.close()  # type: ignore[attr-defined]
    again = events(node, path, last=position)
    assert next(again)[2]["policies"] == {"quota.topics": 9}
    ask("PATCH", f"/v1/tenants/{tenant}", {"name": f"{tenant}-new"})
    kind, data = next((kind, data) for kind, _, data in again if kind != "position")
    assert (kind, data["old"], data["labels"]) == ("tenant-renamed", tenant, {})
    again.close()  # type: ignore[attr-defined]
    assert ask("GET", f"{path}&position=1")[1]["type"] == "tenant-not-found"
    now = path.replace(tenant, f"{tenant}-new")
    assert ask("GET", f"{now}&position=1")[1]["type"] == "request-invalid"
    beyond = ",".join("9" * 15 for _ in start.split(","))
    assert (ask("GET", f"{now}&position={beyond}")[0]) == 410
    assert ask("GET", "/v1/changes?namespace=prod")[1]["type"] == "request-invalid"


@pytest.mark.parametrize("entity", ["tenant", "namespace", "topic"])
def test_server_sent_events_end_after_the_deletion_of_what_they_follow(
    node: NodeProcess, ask: Ask, tenant: str, entity: str
) -> None:
    paths = {
        "tenant": (f"/v1/tenants/{tenant}", f"tenant={tenant}"),
        "namespace": (f"/v1/tenants/{tenant}/namespaces/prod", f"tenant={tenant}&namespace=prod"),
        "topic": (f"/v1/tenants/{tenant}/namespaces/prod/topics/a", f"tenant={tenant}&namespace=prod&topic=a"),
    }
    path, scope = paths[entity]
    ask("POST", f"/v1/tenants/{tenant}/namespaces/prod/topics", {"names": ["a"]})
    follow, start = (ask("GET", f"/v1/changes?{scope}")[1][field] for field in ("follow", "position"))
    told = events(node, f"/v1/changes?{scope}")
    assert next(told)[0] == "position"
    assert ask("DELETE", path)[0] == 200
    kinds = [(kind, data) for kind, _, data in told if kind != "position"]
    assert [kind for kind, _ in kinds] == [f"{entity}-deleted", "error"]
    assert kinds[-1][1]["type"] == f"{entity}-not-found"
    # Those who come later get the last changes too, and nothing to wait for after them.
    later = [kind for kind, _, _ in events(node, f"/v1/changes?follow={follow}&position={start}")]
    assert [kind for kind in later if kind != "position"] == [f"{entity}-deleted", "error"]
    end = ask("GET", f"/v1/changes?follow={follow}&position={start}")[1]["position"]
    connection = HTTPConnection(node.http, timeout=60)
    connection.request("GET", f"/v1/changes?follow={follow}&position={end}", headers={"Accept": "text/event-stream"})
    assert connection.getresponse().status == 404
    connection.close()


def test_the_clients_iterate_over_changes_from_a_position(node: NodeProcess, tenant: str) -> None:
    with duramen.connect(node.http) as client:
        inventory = client.inventory
        position = inventory.tenant(tenant).position
        inventory.create_topics(f"{tenant}/prod", ["one"])
        changes = inventory.subscribe(f"{tenant}/prod", position=position)
        assert [topic.name for topic in next(changes).topics] == ["one"]
        follower = inventory.subscribe(f"{tenant}/prod/one", position=changes.position)
        assert follower.poll() == []
        inventory.move_topic(f"{tenant}/prod/one", f"{tenant}/dev/two")
        moved = next(changes)
        assert (moved.kind, moved.old, moved.topics[0].name) == ("topic-moved", f"{tenant}/prod/one", "two")

        async def follow() -> list[str]:
            async with await duramen.aio.connect(node.http) as aio:
                told = aio.inventory.subscribe(tenant, position=position)
                return [(await anext(told)).kind for _ in range(2)]

        assert asyncio.run(follow()) == ["topics-created", "topic-moved"]
        (moved,) = follower.poll()
        assert (moved.kind, moved.namespace) == ("topic-moved", "dev")
        inventory.delete_topic(f"{tenant}/dev/two")
        assert [change.kind for change in follower.poll()] == ["topic-deleted"]
        with pytest.raises(duramen.errors.TopicNotFound):
            follower.poll()


def test_a_subscription_goes_on_after_renames_and_moves_of_what_it_follows(
    ask: Ask, node: NodeProcess, tenant: str
) -> None:
    with duramen.connect(node.http) as client:
        inventory, new, other = client.inventory, f"{tenant[:50]}-new", f"{tenant[:50]}-other"
        inventory.create_tenants([other])
        changes = inventory.subscribe(f"{tenant}/prod", prefix="a")
        assert changes.poll() == []
        follow = ask("GET", f"/v1/changes?tenant={tenant}&namespace=prod")[1]["follow"]
        inventory.update_namespace(f"{tenant}/prod", to=f"{tenant}/prod2")
        inventory.update_tenant(tenant, name=new)
        told = changes.poll()
        inventory.update_namespace(f"{new}/prod2", to=f"{other}/prod2")
        inventory.create_topics(f"{other}/prod2", ["b", "a"])
        while told[-1].kind != "topics-created":
            told.append(next(changes))
        assert [(change.kind, change.namespace) for change in told if change.old] == [
            ("namespace-moved", "prod2"), ("tenant-renamed", ""), ("namespace-moved", "prod2"),
        ]  # fmt: skip
        assert [topic.name for topic in told[-1].topics] == ["a"]
        assert (told[-1].tenant, told[-1].namespace_id) == (other, int(follow.split(".")[1]))
        status, page = ask("GET", f"/v1/changes?follow={follow}&position={told[-2].position}")
        assert (status, page["changes"][-1]["tenant"]) == (200, other)
        assert ask("GET", f"/v1/changes?follow={follow}&tenant={tenant}")[1]["type"] == "request-invalid"
        assert ask("GET", "/v1/changes?follow=1.2.3")[1]["type"] == "request-invalid"
        assert ask("GET", "/v1/changes?follow=1&prefix=a")[1]["type"] == "request-invalid"
        inventory.delete_namespace(f"{other}/prod2")
        assert next(changes).kind == "namespace-deleted"
        with pytest.raises(duramen.errors.NamespaceNotFound):
            next(changes)
