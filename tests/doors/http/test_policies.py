"""Policies and quotas of the inventory over HTTP, with the Python client and by command."""

import json
from functools import partial
from uuid import uuid4

import pytest
from tests.cli.command import run
from tests.doors.http.conftest import Ask

import duramen
from duramen.node.process import NodeProcess


@pytest.fixture
def tenant(ask: Ask) -> str:
    name = f"t-{uuid4().hex[:12]}"
    assert ask("POST", "/v1/tenants", {"names": [name]})[1]["created"] == 1
    assert ask("POST", f"/v1/tenants/{name}/namespaces", {"names": ["prod"]})[1]["created"] == 1
    assert ask("POST", f"/v1/tenants/{name}/namespaces/prod/topics", {"names": ["a/b"]})[1]["created"] == 1
    return name


def test_policies_are_set_inherited_and_shown_with_their_sources(ask: Ask, tenant: str) -> None:
    path = f"/v1/policies/{tenant}"
    status, found = ask("PATCH", f"{path}?wait=effective", {"policies": {"quota.topics": 2, "producer_byte_rate": 9}})
    assert (status, found["level"], found["confirmed"]) == (200, "tenant", [1])
    assert found["own"] == {"producer_byte_rate": 9, "quota.topics": 2}
    assert ask("PATCH", f"{path}/prod", {"policies": {"auto.create.topics.enable": "true"}})[0] == 200
    shown = ask("GET", f"{path}/prod/a/b")[1]
    assert (shown["level"], shown["own"]) == ("topic", {})
    assert shown["effective"]["quota.topics"] == {"value": 2, "source": "tenant"}
    assert shown["effective"]["auto.create.topics.enable"] == {"value": True, "source": "namespace"}
    assert shown["effective"]["consumer_byte_rate"] == {"value": None, "source": "default"}
    assert {"policy": "quota.topics", "source": "tenant", "limit": 2, "used": 1} in shown["quotas"]
    assert ask("PATCH", f"{path}/prod/a/b", {"policies": {"producer_byte_rate": 5}})[1]["own"] == {
        "producer_byte_rate": 5
    }
    assert ask("PATCH", path, {"policies": {"producer_byte_rate": None}})[1]["own"] == {"quota.topics": 2}
    made = ask("POST", f"/v1/tenants/{tenant}/namespaces/prod/topics", {"names": ["a/b", "c", "d"]})[1]
    assert (made["created"], made["existing"]) == (1, 1)
    assert [(one["name"], one["problem"]["type"]) for one in made["failed"]] == [("d", "topic-quota-exceeded")]


@pytest.mark.parametrize(
    ("below", "name", "value"),
    [
        ("", "quota.topic", 1),
        ("", "quota.topics", -1),
        ("", "quota.topics", "many"),
        ("", "quota.topics", True),
        ("", "producer_byte_rate", 0),
        ("", "auto.create.topics.enable", 3),
        ("", "quota.bytes", -1),
        ("", "retention.ms", -2),
        ("", "durability", "memory"),
        ("/prod", "durability", 1),
        ("/prod/a/b", "durability", "os"),
        ("", "retention.bytes", "much"),
        ("/prod/a/b", "retention.records", 1 << 63),
        ("/prod/a/b", "quota.bytes", 1),
        ("/prod/a/b", "quota.topics", 1),
        ("/prod/a/b", "auto.create.topics.enable", True),
    ],
)
def test_policies_that_cannot_be_are_refused_by_name(
    ask: Ask, tenant: str, below: str, name: str, value: object
) -> None:
    changes = {"consumer_byte_rate": 10, name: value}
    status, problem = ask("PATCH", f"/v1/policies/{tenant}{below}", {"policies": changes})
    assert (status, problem["type"]) == (400, "policy-invalid")
    assert name in problem["detail"]
    assert ask("GET", f"/v1/policies/{tenant}{below}")[1]["own"] == {}


def test_the_client_and_the_command_do_the_same(node: NodeProcess, tenant: str) -> None:
    duramen_command = partial(run, server=node.http)
    with duramen.connect(node.http) as client:
        policies = client.inventory.policies
        assert policies.set(tenant, {"quota.topics": 5}, wait_effective=True).confirmed == [1]
        with pytest.raises(duramen.errors.PolicyInvalid):
            policies.set(tenant, {"quota.topics": -1})
        out = duramen_command("policy", "describe", f"{tenant}/prod").out
        assert [line.split() for line in out.splitlines() if line.startswith("quota.topics")] == [
            ["quota.topics", "5", "tenant"], ["quota.topics", "tenant", "1", "5"],
        ]  # fmt: skip
        set_ = ("policy", "set", f"{tenant}/prod", "--policy", "quota.topics=3", "--wait-effective", "--format", "json")
        assert json.loads(duramen_command(*set_).out)["own"] == {"quota.topics": 3}
        assert duramen_command("policy", "set", f"{tenant}/prod", "--unset", "quota.topics").code == 0
        assert policies.describe(f"{tenant}/prod").own == {}
        refused = duramen_command("policy", "set", tenant, "--policy", "what=1")
        assert (refused.code, "[policy-invalid]" in refused.err) == (1, True)
