"""Namespaces of the inventory that are bound to subjects, with nats-py."""

import json

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js.errors import APIError, NotFoundError
from tests.clients import CONFLUENT
from tests.doors.nats.conftest import Api, run, until

import duramen
from duramen.node.process import NodeProcess


@pytest.fixture
def tenant(nats_node: NodeProcess, prefix: str) -> str:
    """A tenant with a namespace `prod` of topics `a`, `b.c`, bound to subjects that begin with `prefix`."""
    name = "t" + prefix[-60:].strip("-")
    with duramen.connect(nats_node.http) as client:
        inventory = client.inventory
        inventory.create_tenants([name])
        inventory.create_namespaces(name, ["prod", "dev"])
        inventory.create_topics(f"{name}/prod", ["a", "b.c"])
        bound = inventory.update_namespace(f"{name}/prod", subjects=[f"{prefix}.>"])
        assert bound.subjects == [f"{prefix}.>"]
    return name


def test_messages_are_records_of_the_topic_that_the_subject_names(
    nats_node: NodeProcess, prefix: str, tenant: str
) -> None:
    topic = f"{tenant}.prod.b.c"

    async def test(client: Client) -> None:
        js = client.jetstream(timeout=60)
        acks = [await js.publish(f"{prefix}.b.c", b"%d" % number) for number in range(3)]
        assert {ack.stream for ack in acks} == {topic}
        assert [ack.seq for ack in acks] == sorted({ack.seq for ack in acks})
        await client.publish(f"{prefix}.b.c", b"3", headers={"Duramen-Key": "k", "Trace": "x"})
        ack = json.loads((await client.request(f"{prefix}.b.c", b"4", timeout=60)).data)
        assert (ack["stream"], ack["seq"]) == (topic, ack["offset"] + 1)
        await js.publish(f"{prefix}.a", b"other", stream=f"{tenant}.prod.a")

    run(test, nats_node.nats)
    read = CONFLUENT.consume(nats_node.kafka, topic, 1, 5)
    assert [one.value for one in read] == [b"0", b"1", b"2", b"3", b"4"]
    assert (read[3].key, dict(read[3].headers)) == (
        b"k",
        {"Duramen-Key": b"k", "Trace": b"x", "Nats-Subject": f"{prefix}.b.c".encode()},
    )
    with duramen.connect(nats_node.http) as python:
        python.produce(topic, ["5"])
        found = [record.value for batch in python.consume(topic) for record in batch]
    assert found == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_messages_go_to_topics_of_either_durability(nats_node: NodeProcess, prefix: str, tenant: str) -> None:
    with duramen.connect(nats_node.http) as client:
        client.inventory.policies.set(f"{tenant}/prod", {"durability": "os"})
        client.inventory.create_topics(f"{tenant}/prod", ["os"])

    async def test(client: Client) -> None:
        js = client.jetstream(timeout=60)
        for name in ("a", "os"):
            assert (await js.publish(f"{prefix}.{name}", name.encode())).stream == f"{tenant}.prod.{name}"

    run(test, nats_node.nats)
    for name in ("a", "os"):
        assert [one.value for one in CONFLUENT.consume(nats_node.kafka, f"{tenant}.prod.{name}", 1, 1)] == [
            name.encode()
        ]


@pytest.mark.parametrize("name", ["x/y", "größe", "two words", "a.b/c%d~"])
def test_topics_whose_names_kafka_does_not_allow_have_records(
    nats_node: NodeProcess, prefix: str, tenant: str, name: str
) -> None:
    topic = f"{tenant}.prod.{name}"
    with duramen.connect(nats_node.http) as python:
        assert python.inventory.create_topics(f"{tenant}/prod", [name, f"{name}-2"]).created == 2
        sent = []
        if " " not in name:  # which no subject has

            async def test(client: Client) -> None:
                ack = await client.jetstream(timeout=60).publish(f"{prefix}.{name}", b"over NATS")
                assert ack.stream == topic

            run(test, nats_node.nats)
            sent.append(b"over NATS")
        python.produce(topic, ["from Python"])
        found = [record.value for batch in python.consume(topic) for record in batch]
        assert found == [*sent, b"from Python"]
        python.inventory.move_topic(f"{tenant}/prod/{name}", f"{tenant}/dev/legal")
        found = [record.value for batch in python.consume(f"{tenant}.dev.legal") for record in batch]
        assert found == [*sent, b"from Python"]
        with pytest.raises(duramen.errors.DuramenError):
            python.produce(topic, ["gone"])


def test_what_is_not_taken_is_answered_with_the_reason(
    nats_node: NodeProcess, api: Api, prefix: str, tenant: str
) -> None:
    async def test(client: Client) -> None:
        js = client.jetstream(timeout=60)
        with pytest.raises(NotFoundError) as missing:
            await js.publish(f"{prefix}.nothing", b"1")
        assert f"there is no topic {tenant}/prod/nothing" in (missing.value.description or "")
        await client.publish(f"{prefix}.nothing", b"1")
        for headers in ({"Nats-Msg-Id": "1"}, {"Nats-TTL": "1s"}, {"Nats-Expected-Stream": "other"}):
            answer = json.loads((await client.request(f"{prefix}.a", b"1", headers=headers, timeout=60)).data)
            assert answer["error"]["code"] == 400

    run(test, nats_node.nats)
    refused = "duramen_nats_refused_total"
    until(lambda: api.metric(refused, stream=f"{tenant}/prod", cause="topic-not-found") == 2)


def test_publishers_are_slowed_down_by_the_quota_of_their_rate(
    nats_node: NodeProcess, api: Api, prefix: str, tenant: str
) -> None:
    with duramen.connect(nats_node.http) as client:
        client.inventory.policies.set(f"{tenant}/prod", {"producer_byte_rate": 10_000})

    async def test(client: Client) -> None:
        await client.publish(f"{prefix}.a", bytes(150_000))
        await client.flush()
        until(lambda: api.metric("duramen_nats_messages_total", stream=f"{tenant}/prod") == 1)
        with pytest.raises(APIError) as refused:
            await client.jetstream(timeout=60).publish(f"{prefix}.a", b"x")
        assert (refused.value.code, refused.value.err_code) == (429, 10167)
        assert f"{tenant}/prod/a" in (refused.value.description or "")

    run(test, nats_node.nats)
    assert api.metric("duramen_inventory_throttled_total", quota="producer_byte_rate") > 0


def test_a_full_namespace_is_said_to_publishers(nats_node: NodeProcess, prefix: str, tenant: str) -> None:
    with duramen.connect(nats_node.http) as client:
        client.inventory.policies.set(f"{tenant}/prod", {"quota.bytes": 1_000})

    async def test(client: Client) -> None:
        js = client.jetstream(timeout=60)
        await js.publish(f"{prefix}.a", bytes(500))
        with pytest.raises(APIError) as refused:
            await js.publish(f"{prefix}.a", bytes(500))
        assert refused.value.err_code == 10047
        assert f"{tenant}/prod may store 1,000 bytes" in (refused.value.description or "")

    run(test, nats_node.nats)


def test_bindings_follow_the_namespace(nats_node: NodeProcess, prefix: str, tenant: str) -> None:
    with duramen.connect(nats_node.http) as client:
        inventory = client.inventory
        for wrong in ("a", "a.>.b", "*.>", ">", "$SYS.>", "a..>", "a.b c.>", f"{prefix}.x.>", f"{prefix}.*"):
            with pytest.raises(duramen.errors.SubjectInvalid):
                inventory.update_namespace(f"{tenant}/dev", subjects=[wrong])
        inventory.create_topics(f"{tenant}/dev", ["a"])
        inventory.update_namespace(f"{tenant}/dev", subjects=[f"{prefix}-2.dev.*"])

        async def test(nats: Client) -> None:
            js = nats.jetstream(timeout=60)
            assert (await js.publish(f"{prefix}-2.dev.a", b"1")).stream == f"{tenant}.dev.a"
            inventory.update_namespace(f"{tenant}/dev", to=f"{tenant}/test", labels={"x": "y"})
            assert (await js.publish(f"{prefix}-2.dev.a", b"2")).stream == f"{tenant}.test.a"
            inventory.update_namespace(f"{tenant}/test", subjects=[])
            with pytest.raises(NoRespondersError):
                await nats.request(f"{prefix}-2.dev.a", b"3")

        run(test, nats_node.nats)
        assert [read.value for read in CONFLUENT.consume(nats_node.kafka, f"{tenant}.test.a", 1, 2)] == [b"1", b"2"]
