"""Unmodified nats-py against a node with its own nats-server."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.errors import BadRequestError, NoStreamResponseError
from tests.doors.nats.conftest import Api, kafka_records, run, until

from duramen.codec.partitioner import partition_of
from duramen.node.process import NodeProcess


def test_a_request_is_a_publish_with_acknowledgement(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    api.create(prefix, f"{prefix}.>")

    async def test(client: Client) -> None:
        for offset in range(3):
            ack = await client.request(f"{prefix}.a", b"%d" % offset, timeout=60)
            assert json.loads(ack.data) == {"stream": prefix, "seq": offset + 1, "partition": 0, "offset": offset}

    run(test, nats_node.nats)
    assert [message.value() for message in kafka_records(nats_node, prefix, [3])] == [b"0", b"1", b"2"]


def test_jetstreams_publish_works(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    api.create(prefix, prefix)

    async def test(client: Client) -> None:
        js = client.jetstream(timeout=60)
        first = await js.publish(prefix, b"1", stream=prefix, headers={"Nats-Msg-Id": "i"})
        again = await js.publish(prefix, b"2", headers={"Nats-Msg-Id": "i"})
        assert (first.stream, first.seq, first.duplicate) == (prefix, 1, None)
        assert (again.stream, again.seq, again.duplicate) == (prefix, 1, True)
        futures = [await js.publish_async(prefix, b"%d" % number) for number in range(500)]
        assert [(await future).seq for future in futures] == list(range(2, 502))
        with pytest.raises(BadRequestError) as raised:
            await js.publish(prefix, b"3", stream="another")
        assert raised.value.err_code == 10060
        with pytest.raises(NoStreamResponseError):
            await js.publish(f"{prefix}.nobody.listens", b"4")

    run(test, nats_node.nats)
    assert api.ends(prefix) == [501]


def test_what_is_published_is_what_a_kafka_consumer_gets(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    api.create(prefix, f"{prefix}.*", f"{prefix}.deep.>", partitions=3)
    before_ms = int(time.time() * 1000)

    async def test(client: Client) -> None:
        for number in range(30):
            headers = {"Duramen-Key": f"k{number % 4}", "Trace": "a b"}
            await client.publish(f"{prefix}.keyed", b"%d" % number, headers=headers)
            await client.publish(f"{prefix}.deep.{number}", b"%d" % number)
        await client.publish(f"{prefix}.no.match", b"not captured")
        await client.flush(60)

    run(test, nats_node.nats)
    until(lambda: sum(api.ends(prefix)) == 60)
    for message in kafka_records(nats_node, prefix, api.ends(prefix)):
        headers = message.headers() or []
        subject = dict(headers)["Nats-Subject"]
        value, key = message.value(), message.key()
        assert isinstance(subject, bytes)
        assert isinstance(value, bytes)
        assert before_ms <= message.timestamp()[1] <= time.time() * 1000
        if key is None:
            assert headers == [("Nats-Subject", f"{prefix}.deep.{value.decode()}".encode())]
            assert message.partition() == partition_of(subject, 3)
        else:
            assert isinstance(key, bytes)
            assert headers == [("Duramen-Key", key), ("Trace", b"a b"), ("Nats-Subject", f"{prefix}.keyed".encode())]
            assert key == b"k%d" % (int(value) % 4)
            assert message.partition() == partition_of(key, 3)


def test_overlapping_bindings_store_once_in_each_stream(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    subjects = [f"{prefix}.>", f"{prefix}.*.b", f"{prefix}.a.*", f"{prefix}.a.b", f"{prefix}.*.*"]
    for number in range(3):
        api.create(f"{prefix}-{number}", *subjects)
    api.create(f"{prefix}-silent", *subjects, config={"nats.ack": "never"})

    async def test(client: Client) -> None:
        acks: list[Msg] = []
        complete = asyncio.Event()

        async def keep(message: Msg) -> None:
            acks.append(message)
            if len(acks) == 600:
                complete.set()

        await client.subscribe("acks.>", cb=keep)
        for number in range(200):
            await client.publish(f"{prefix}.a.b", b"%d" % number, reply=f"acks.{number}")
        await client.flush(60)
        await complete.wait()
        # One acknowledgement of each stream that acknowledges, and nothing more comes.
        await client.request(f"{prefix}.last", b"", timeout=60)
        assert len(acks) == 600
        assert set(Counter(ack.subject for ack in acks).values()) == {3}

    run(test, nats_node.nats)
    for name in (f"{prefix}-0", f"{prefix}-1", f"{prefix}-2", f"{prefix}-silent"):
        assert api.ends(name) == [201]
        values = [message.value() for message in kafka_records(nats_node, name, [201])]
        assert values == [b"%d" % number for number in range(200)] + [b""]


@pytest.mark.long
def test_nothing_is_lost_or_doubled_while_other_bindings_come_and_go(
    nats_node: NodeProcess, api: Api, prefix: str
) -> None:
    api.create(prefix, f"{prefix}.a.*")
    changes = [f"{prefix}.>", f"{prefix}.a.b", f"{prefix}.*.b", f"{prefix}.*.*"]

    async def test(client: Client) -> None:
        published = 0
        going_on = True

        async def publish() -> None:
            nonlocal published
            while going_on:
                for _ in range(50):
                    await client.publish(f"{prefix}.a.b", b"%d" % published)
                    published += 1
                await client.flush(60)

        publishing = asyncio.create_task(publish())
        for _ in range(5):
            for number, subject in enumerate(changes):
                await asyncio.to_thread(api.create, f"{prefix}-{number}", subject)
            for number in range(len(changes)):
                await asyncio.to_thread(api.delete, f"{prefix}-{number}")
        going_on = False
        await publishing
        last = json.loads((await client.request(f"{prefix}.a.b", b"last", timeout=60)).data)
        assert last["offset"] == published

    run(test, nats_node.nats)
    messages = kafka_records(nats_node, prefix, api.ends(prefix))
    values = [message.value() for message in messages]
    assert values == [b"%d" % number for number in range(len(values) - 1)] + [b"last"]


def test_what_belongs_to_others_is_never_captured(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    api.create(f"{prefix}-all", ">", config={"nats.ack": "never"})
    api.create(f"{prefix}-two", "*.*", config={"nats.ack": "never"})
    api.create(f"{prefix}-inbox", "_INBOX.named.>")
    api.create(f"{prefix}-answering", f"{prefix}.>")

    async def test(client: Client) -> None:
        await client.publish("$JS.whatever", b"x")
        await client.publish("$X", b"x")
        await client.publish("_INBOX.some.thing", b"x")
        await client.publish("_INBOX.thing", b"x")
        await client.request("_INBOX.named.one", b"captured by name", timeout=60)
        # Its acknowledgement goes to an inbox, and to a subject that `>` matches.
        await client.request(f"{prefix}.request", b"captured", timeout=60)
        await client.publish(f"{prefix}.publish", b"captured", reply=f"replies.{prefix}")
        await client.request(f"{prefix}.last", b"captured", timeout=60)

    try:
        run(test, nats_node.nats)
        subjects = [
            dict(message.headers() or [])["Nats-Subject"]
            for message in kafka_records(nats_node, f"{prefix}-all", api.ends(f"{prefix}-all"))
            if prefix.encode() in (dict(message.headers() or [])["Nats-Subject"] or b"")
        ]
        assert subjects == [f"{prefix}.{last}".encode() for last in ("request", "publish", "last")]
        assert api.ends(f"{prefix}-inbox") == [1]
        assert api.ends(f"{prefix}-two") == [3]
    finally:
        for name in ("all", "two", "inbox"):
            api.delete(f"{prefix}-{name}")


def test_a_service_answers_for_itself_where_we_are_told_to_be_silent(
    nats_node: NodeProcess, api: Api, prefix: str
) -> None:
    api.create(prefix, prefix, config={"nats.ack": "never"})

    async def test(client: Client) -> None:
        async def serve(message: Msg) -> None:
            await message.respond(b"the service's answer")

        await client.subscribe(prefix, cb=serve)
        for _ in range(20):
            assert (await client.request(prefix, b"question", timeout=60)).data == b"the service's answer"

    run(test, nats_node.nats)
    until(lambda: api.ends(prefix) == [20])


def test_a_stream_listens_when_its_creation_returns(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    async def test(client: Client) -> None:
        for number in range(30):
            name = f"{prefix}-{number}"
            await asyncio.to_thread(api.create, name, name)
            ack = json.loads((await client.request(name, b"x", timeout=60)).data)
            assert (ack["stream"], ack["seq"]) == (name, 1)
            await asyncio.to_thread(api.delete, name)
            with pytest.raises(NoRespondersError):
                await client.request(name, b"x", timeout=60)

    run(test, nats_node.nats)


def test_too_large_a_message_is_refused_with_an_error(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    api.create(prefix, prefix)

    async def test(client: Client) -> None:
        js = client.jetstream(timeout=60)
        for size in (1_048_576, 2_000_000, 8_000_000):
            with pytest.raises(BadRequestError) as raised:
                await js.publish(prefix, bytes(size), timeout=60)
            assert raised.value.err_code == 10054
        assert (await js.publish(prefix, bytes(1_048_000), timeout=60)).seq == 1
        await asyncio.to_thread(api.configure, prefix, {"max.message.bytes": 5_000_000})
        assert (await js.publish(prefix, bytes(4_900_000), timeout=60)).seq == 2

    run(test, nats_node.nats)
    assert api.metric("duramen_nats_refused_total", stream=prefix, cause="batch-too-large") == 3


def test_a_wide_binding_is_warned_of(api: Api, prefix: str) -> None:
    created = api.create(prefix, "*.wide")
    assert "nats.ack=never" in created["warnings"][0]
    api.delete(prefix)


def test_many_publishers_with_ids_that_repeat_everything(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    api.create(prefix, f"{prefix}.>", partitions=4)

    async def test(client: Client) -> None:
        async def publish(publisher: int) -> list[tuple[int, int]]:
            places = []
            for number in range(100):
                subject, headers = f"{prefix}.{number}", {"Nats-Msg-Id": f"{publisher}-{number}"}
                ack = json.loads((await client.request(subject, b"x", headers=headers, timeout=60)).data)
                again = json.loads((await client.request(subject, b"x", headers=headers, timeout=60)).data)
                assert again == ack | {"duplicate": True}
                places.append((ack["partition"], ack["offset"]))
            return places

        places = [place for places in await asyncio.gather(*map(publish, range(10))) for place in places]
        assert len(set(places)) == 1000

    run(test, nats_node.nats)
    assert sum(api.ends(prefix)) == 1000


def test_a_subject_may_be_longer_than_a_binding(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    api.create(prefix, f"{prefix}.>")
    status, problem = api.ask("POST", "/v1/streams", {"name": f"{prefix}-2", "subjects": ["a." + "b" * 1023]})
    assert (status, json.loads(problem)["type"]) == (400, "subject-invalid")

    async def test(client: Client) -> None:
        for offset, size in enumerate((1100, 3000)):
            ack = await client.request(f"{prefix}." + "s" * size, b"v", timeout=60)
            assert json.loads(ack.data)["offset"] == offset

    run(test, nats_node.nats)


@pytest.mark.long
def test_ids_of_deleted_records_are_known_until_the_node_ends(
    new_node: Callable[..., NodeProcess], prefix: str
) -> None:
    with new_node({"nats.server": "embedded"}) as node:
        api = Api(node)
        api.create(prefix, prefix)

        async def publish(client: Client) -> None:
            for id_ in ("deleted", "kept"):
                ack = json.loads((await client.request(prefix, b"v", headers={"Nats-Msg-Id": id_}, timeout=60)).data)
                acks[id_] = ack["offset"], "duplicate" in ack

        acks: dict[str, tuple[int, bool]] = {}
        run(publish, node.nats)
        assert acks == {"deleted": (0, False), "kept": (1, False)}
        api.call("POST", f"/v1/streams/{prefix}/records/delete", {"before": 1})
        run(publish, node.nats)
        assert acks == {"deleted": (0, True), "kept": (1, True)}
        node.kill()
        node.restart()
        run(publish, node.nats)
        assert acks == {"deleted": (2, False), "kept": (1, True)}
