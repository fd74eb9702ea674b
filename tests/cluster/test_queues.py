"""Queues of a cluster of three real nodes: any of them takes a request, and a leader that is killed loses nothing."""

import asyncio
import json
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import nats
import pytest
from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tests.cli.command import run
from tests.clients import until

from duramen.base.errors import DuramenError, NotLeader, QueueHistoryRewritten
from duramen.base.ids import Position
from duramen.client.api.client import Client, connect
from duramen.client.http import HttpNode
from duramen.codec.exports import read_runs_page
from duramen.node.processes import NodeProcesses
from duramen.queues.runs import Run, entry_of

WAIT_S = 60.0
QUEUES = [f"user-{number}" for number in range(12)]


def patiently(client: Client, queue: str) -> list[str]:
    """What is in a queue, once somebody leads its shard."""
    found = list[str]()

    def read() -> bool:
        try:
            found[:] = [entry.text for entry in client.queues("mail").retrieve(queue).entries]
        except DuramenError:
            return False
        return True

    until(read, WAIT_S)
    return found


def lease_list_and_count(nodes: NodeProcesses, clients: list[Client]) -> None:
    """Each is asked of another node than what it needs was done by."""
    every = [client.queues("mail") for client in clients]
    jobs = [f"job-{number}" for number in range(6)]
    every[0].enqueue_many([(queue, text) for queue in jobs for text in ("a", "b")])
    for queues in every:
        assert sorted(queues.queues(prefix="job-")) == jobs
        leased = queues.lease(jobs, 4)
        assert len(leased) == 4
        stats = [every[1].stats(queue) for queue in jobs]
        assert sum(one.leased for one in stats) == 4
        every[2].extend(leased)
        every[1].ack(leased[:2])
        every[0].nack(leased[2:])
    http = [node.http for node in nodes.nodes.values()]
    assert sorted(run("queue", "list", "mail", "--prefix", "job-", server=http[2]).out.split()) == jobs
    assert "leased" in run("queue", "stats", "mail", jobs[0], server=http[1]).out
    left = every[0].lease(jobs, 100)
    assert len(left) == len(jobs) * 2 - 6
    every[2].ack(left)
    every[0].purge(jobs[0])
    for queue in jobs:
        every[1].drop(queue)
    assert every[2].queues(prefix="job-") == []


def export_through_every_node(nodes: NodeProcesses, expected: dict[str, list[str]]) -> None:
    """An export is opened through one node, and its pages are read through the others."""
    doors = [HttpNode(node.http) for node in nodes.nodes.values()]
    for number, door in enumerate(doors):
        opened = door.post("/v1/spaces/mail/exports", {})
        assert len({one["export"] for one in opened["shards"]}) == 3  # each node leads a shard
        found: dict[str, list[str]] = {}
        for shard in opened["shards"]:
            path = f"/v1/spaces/mail/exports/{shard['export']}/runs?shard={shard['shard']}"
            page = read_runs_page(doors[(number + shard["shard"]) % 3].content(path, "application/vnd.msgpack"))
            runs = iter(page.runs)
            for name, count in zip(page.names, page.counts, strict=True):
                bodies = [body for run in islice(runs, count) for at, body in Run(run).bodies() if body]
                texts = [(entry_of(Position(0, 0), body).value or b"").decode() for body in bodies]
                found[name.decode()] = [*found.get(name.decode(), []), *texts]
        assert {name: texts for name, texts in found.items() if texts} == expected


def test_any_node_takes_requests_and_a_leader_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3) as nodes:
        clients = [connect(node.http) for node in nodes.nodes.values()]
        clients[0].spaces.create("mail", shards=3)
        every = [client.queues("mail") for client in clients]
        until(lambda: not any(patiently(client, queue) for client in clients for queue in QUEUES[:3]), WAIT_S)
        waiting = list[Any]()
        poll = threading.Thread(
            target=lambda: waiting.append(every[0].retrieve_many(dict.fromkeys(QUEUES, "end"), wait_s=WAIT_S))
        )
        poll.start()
        positions = {queue: every[1].enqueue(queue, ["one", "two", "three"]) for queue in QUEUES}
        poll.join()
        assert any(page.entries for page in waiting[0].values())
        every[2].enqueue_many([(queue, "four") for queue in QUEUES])
        for queues in every:
            found = queues.retrieve_many(dict.fromkeys(QUEUES, "start"), limit=1000)
            texts = [
                [entry.text for entry in page.entries] for page in found.values() if not isinstance(page, Exception)
            ]
            assert texts == [["one", "two", "three", "four"]] * len(QUEUES)
        for number, queue in enumerate(QUEUES):
            first, second, third = positions[queue]
            every[number % 3].edit(queue, [(first, "1")])
            every[(number + 1) % 3].delete(queue, [second])
            every[(number + 2) % 3].replace(queue, third, ["3"], by="Eve")
        export_through_every_node(nodes, {queue: ["1", "3"] for queue in QUEUES})
        lease_list_and_count(nodes, clients)
        killed = nodes.nodes[2]
        killed.kill()
        for queue in QUEUES:
            assert patiently(clients[0], queue) == ["1", "3"]
            epoch, _, offset = positions[queue][2].partition(".")
            with pytest.raises(QueueHistoryRewritten) as rewritten:
                every[2].retrieve(queue, f"{epoch}.{int(offset) + 1}")
            assert rewritten.value.by == "Eve"
        for client in clients:
            client.close()


@pytest.mark.long
def test_a_request_that_is_repeated_at_the_next_leader_is_done_once(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3) as nodes:
        with connect(nodes.nodes[1].http) as client:
            client.spaces.create("mail", shards=3)
            until(lambda: not any(patiently(client, queue) for queue in QUEUES), WAIT_S)
            requests = {queue: f"request of {queue}" for queue in QUEUES}
            first = {queue: client.queues("mail").enqueue(queue, ["x"], request_id=requests[queue]) for queue in QUEUES}
        nodes.nodes[1].kill()
        with connect(nodes.nodes[2].http) as client:
            queues = client.queues("mail")

            def repeated() -> bool:
                try:
                    again = {queue: queues.enqueue(queue, ["x"], request_id=requests[queue]) for queue in QUEUES}
                except DuramenError:
                    return False
                assert again == first
                return True

            until(repeated, WAIT_S)
            assert all(patiently(client, queue) == ["x"] for queue in QUEUES)


@pytest.mark.long
def test_a_shard_without_a_leader_is_named_at_every_door(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, nats=True) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.nodes[1].kafka})
        space = NewTopic("mail", 1, 1, config={"kind": "queues"})
        admin.create_topics([space])["mail"].result(WAIT_S)
        until(lambda: bool(admin.list_topics("mail", WAIT_S).topics["mail"].partitions), WAIT_S)
        leader = admin.list_topics("mail", WAIT_S).topics["mail"].partitions[0].leader
        other = next(node for node_id, node in nodes.nodes.items() if node_id != leader)
        with connect(other.http) as client:
            until(lambda: patiently(client, "ann") == [], WAIT_S)
            nodes.nodes[leader].kill()
            queues = client.queues("mail")
            asked = (
                lambda: queues.enqueue("ann", ["x"]), lambda: queues.enqueue("ann", ["x"], request_id="r"),
                lambda: queues.retrieve("ann"), lambda: queues.stats("ann"), queues.usage,
            )  # fmt: skip
            until(lambda: led_by_nobody(asked[0]), WAIT_S)
            assert all(map(led_by_nobody, asked))
        ended = run("queue", "put", "mail", "ann", "x", server=other.http)
        assert (ended.code, "[not-leader]" in ended.err) == (1, True)

        async def ask() -> Any:
            server = await nats.connect(other.nats)
            wish = json.dumps({"entries": [{"queue": "ann", "value": "x"}]}).encode()
            answer = await server.request("$DURAMEN.Q.mail.enqueue", wish, timeout=30)
            await server.close()
            return json.loads(answer.data)["type"]

        assert asyncio.run(ask()) == "not-leader"


def led_by_nobody(ask: Callable[[], object]) -> bool:
    """Whether a request ends with NotLeader."""
    try:
        ask()
    except NotLeader:
        return True
    except DuramenError:
        return False
    return False


@pytest.mark.long
def test_requests_over_nats_are_done_once_whichever_server_they_come_to(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, nats=True) as nodes:
        with connect(nodes.nodes[1].http) as client:
            client.spaces.create("mail", shards=3)
            until(lambda: not any(patiently(client, queue) for queue in QUEUES), WAIT_S)

        async def test() -> None:
            servers = [await nats.connect(node.nats) for node in nodes.nodes.values()]

            async def ask(number: int, operation: str, **wish: object) -> Any:
                answer = await servers[number % 3].request(
                    f"$DURAMEN.Q.mail.{operation}", json.dumps(wish).encode(), timeout=30
                )
                return json.loads(answer.data)

            for number, queue in enumerate(QUEUES):
                placed = await ask(number, "enqueue", entries=[{"queue": queue, "value": "x"}])
                assert len(placed["positions"]) == 1
            for number, queue in enumerate(QUEUES):
                assert (await ask(number + 1, "stats", queue=queue))["entries"] == 1
            leased = (await ask(0, "lease", queues=QUEUES, limit=100))["entries"]
            assert len(leased) == len(QUEUES)
            places = [{name: one[name] for name in ("queue", "position", "lease")} for one in leased]
            assert await ask(1, "ack", entries=places) == {"refused": []}
            for server in servers:
                await server.close()

        asyncio.run(test())


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafka_clients_use_queues_as_topics_at_any_node(tmp_path: Path, protocol: str) -> None:
    names = QUEUES[:6]
    with NodeProcesses(tmp_path, 3) as nodes:
        with connect(nodes.nodes[1].http) as client:
            client.spaces.create("mail", shards=3, config={"queue.topic.prefix": "mail."})
        kafka = [node.kafka for node in nodes.nodes.values()]
        topics = [f"mail.{name}" for name in names]
        group = {"group.id": "g", "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumers = [Consumer({"bootstrap.servers": one, **group}) for one in kafka[:2]]
        for consumer in consumers:
            consumer.subscribe(topics)
        found = list[tuple[str, bytes]]()

        def poll(count: int) -> bool:
            for consumer in consumers:
                for message in consumer.consume(10, 0.2):
                    if message.error() is None:
                        found.append((message.topic() or "", message.value() or b""))
            return len(set(found)) >= count

        def produce(place: str, value: bytes) -> None:
            producer = Producer({"bootstrap.servers": place, "acks": "all"})
            for topic in topics:
                producer.produce(topic, value)
            assert producer.flush(WAIT_S) == 0

        for number, place in enumerate(kafka):
            produce(place, b"%d" % number)
        until(lambda: poll(18), 2 * WAIT_S)
        assert sorted(set(found)) == sorted((topic, b"%d" % number) for topic in topics for number in range(3))
        nodes.nodes[3].kill()
        produce(kafka[0], b"3")
        until(lambda: poll(24), 2 * WAIT_S)
        for consumer in consumers:
            consumer.close()
        asking = Consumer({"bootstrap.servers": kafka[1], "group.id": "g"})
        places = [TopicPartition(topic, 0) for topic in topics]
        for committed in asking.committed(places, WAIT_S):
            _, end = asking.get_watermark_offsets(TopicPartition(committed.topic, 0), WAIT_S)
            assert committed.offset == end
        asking.close()


@pytest.mark.long
def test_a_share_group_reads_queues_while_a_leader_is_killed(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3) as nodes:
        servers = nodes.bootstrap_servers
        with connect(nodes.nodes[1].http) as client:
            client.spaces.create("mail", shards=3, config={"queue.topic.prefix": "mail."})
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        group = ConfigResource(ResourceType.GROUP, "g", incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": servers})
        admin.incremental_alter_configs([group])[group].result(WAIT_S)
        topics = [f"mail.{queue}" for queue in QUEUES[:6]]
        config = {"bootstrap.servers": servers, "group.id": "g", "share.acknowledgement.mode": "explicit"}
        consumers = [ShareConsumer({**config, "log_level": 3}) for _ in range(2)]
        for consumer in consumers:
            consumer.subscribe(topics)
        accepted = list[tuple[str | None, bytes | None]]()

        def poll(count: int) -> bool:
            for consumer in consumers:
                try:
                    found = [one for one in consumer.poll(timeout=0.5) if one.error() is None]
                    for message in found:
                        consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                    stored = {place.topic for place, error in consumer.commit_sync(timeout=WAIT_S).items() if not error}
                    accepted.extend((one.topic(), one.value()) for one in found if one.topic() in stored)
                except KafkaException:
                    continue  # what was not acknowledged is delivered again
            return len(set(accepted)) >= count

        def produce(number: int) -> None:
            producer = Producer({"bootstrap.servers": servers, "acks": "all"})
            for topic in topics:
                producer.produce(topic, b"%d" % number)
            assert producer.flush(2 * WAIT_S) == 0

        for number in range(5):
            produce(number)
        until(lambda: poll(30), 2 * WAIT_S)
        nodes.nodes[3].kill()
        for number in range(5, 10):
            produce(number)
        until(lambda: poll(60), 3 * WAIT_S)
        assert sorted(accepted) == sorted((topic, b"%d" % number) for topic in topics for number in range(10))
        for consumer in consumers:
            consumer.close()
