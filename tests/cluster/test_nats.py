"""Publishers of NATS on a cluster of three real nodes, each at a nats-server of its own, while leaders are killed.

What was acknowledged is there where the acknowledgement says, and once; whoever was not told asks again by its id.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import nats
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from nats.aio.client import Client
from tests.clients import until
from tests.doors.nats.conftest import Api, kafka_records

from duramen.codec.partitioner import partition_of
from duramen.node.processes import NodeProcesses

STREAM: Final = "orders"
PARTITIONS: Final = 3
_ANSWER_S: Final = 2.0
_WAIT_S: Final = 120.0
_LOG_CHARACTERS: Final = 6000
_NOT_AVAILABLE: Final = 10008


class Ack(NamedTuple):
    """A record that was acknowledged."""

    value: bytes
    partition: int
    offset: int


class Publisher:
    """Publishes one message after the other; with ids each again and again until it is acknowledged."""

    def __init__(self, name: str, client: Client, *, ids: bool) -> None:
        self.name = name
        self.ids = ids
        self.acks: list[Ack] = []
        self.acked = asyncio.Event()
        self.lost = 0
        self._client = client

    async def work(self, stopping: asyncio.Event) -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            value = f"{self.name}-{number}".encode()
            headers = {"Nats-Msg-Id": value.decode()} if self.ids else None
            while not await self._publish(f"orders.{number % 10}", value, headers):
                self.lost += 1
                if not self.ids or stopping.is_set():
                    break

    async def _publish(self, subject: str, value: bytes, headers: dict[str, str] | None) -> bool:
        try:
            answer = await self._client.request(subject, value, timeout=_ANSWER_S, headers=headers)
        except (nats.errors.Error, TimeoutError, ConnectionError):
            return False
        ack = json.loads(answer.data)
        if "error" in ack:
            return False
        assert ack["stream"] == STREAM
        self.acks.append(Ack(value, ack["partition"], ack["offset"]))
        self.acked.set()
        return True


class Cluster:
    """Three nodes with a stream on all of them that is bound to subjects."""

    def __init__(self, nodes: NodeProcesses) -> None:
        self.nodes = nodes
        self._api = Api(nodes.nodes[1])

    def start(self) -> None:
        self.nodes.start()
        self._api.create(STREAM, "orders.*", partitions=PARTITIONS, config={"min.insync.replicas": 2})

    def leader(self, partition: int) -> int:
        """Who leads a partition while all are in sync with it."""

        def found() -> int:
            admin = AdminClient({"bootstrap.servers": self.nodes.bootstrap_servers, "log_level": 0})
            one = admin.list_topics(STREAM, timeout=10).topics[STREAM].partitions[partition]
            return int(one.leader) if len(one.isrs) == len(self.nodes.nodes) else 0

        return until(found, _WAIT_S)

    def gaps(self) -> list[Any]:
        return list(self._api.gaps(STREAM)["recent"])

    def values(self) -> dict[tuple[int, int], bytes]:
        """All records, by partition and offset."""
        reader = Consumer({"bootstrap.servers": self.nodes.bootstrap_servers, "group.id": "ends"})
        ends = []
        for index in range(PARTITIONS):
            self.leader(index)
            place = TopicPartition(STREAM, index)
            ends.append(reader.get_watermark_offsets(place, timeout=_WAIT_S, cached=False)[1])
        reader.close()
        found = {}
        for record in kafka_records(self.nodes.nodes[1], STREAM, ends):
            partition, offset, value = record.partition(), record.offset(), record.value()
            assert partition is not None
            assert offset is not None
            found[partition, offset] = bytes(value or b"")
        return found

    @contextlib.asynccontextmanager
    async def publishers(self) -> AsyncIterator[list[Publisher]]:
        """Two at each node, which go to others while theirs is away; all of them are told to end with the block."""
        async with contextlib.AsyncExitStack() as stack:
            found = []
            for number in self.nodes.nodes:
                client = await _connect(self._servers(number))
                stack.push_async_callback(client.close)
                found += [Publisher(f"{number}-{ids}", client, ids=ids) for ids in (False, True)]
            stopping = asyncio.Event()
            tasks = [asyncio.create_task(one.work(stopping)) for one in found]
            try:
                yield found
            finally:
                stopping.set()
                await asyncio.gather(*tasks)

    def _servers(self, first: int) -> list[str]:
        numbers = [first, *(number for number in self.nodes.nodes if number != first)]
        return [f"nats://{self.nodes.nodes[number].nats}" for number in numbers]


async def _connect(servers: Sequence[str]) -> Client:
    async def quiet(_: Exception) -> None:
        pass

    return await nats.connect(
        list(servers), error_cb=quiet, dont_randomize=True, max_reconnect_attempts=-1, reconnect_time_wait=0.05
    )


async def _go_on(publishers: Sequence[Publisher], count: int = 20) -> None:
    """Wait until each has been acknowledged so many more."""
    wanted = [(one, len(one.acks) + count) for one in publishers]
    async with asyncio.timeout(_WAIT_S):
        for one, acks in wanted:
            while len(one.acks) < acks:
                one.acked.clear()
                await one.acked.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    nodes = NodeProcesses(tmp_path / "cluster", 3, nats=True)
    try:
        made = Cluster(nodes)
        made.start()
        yield made
        for number, log in nodes.logs().items():
            assert "Traceback" not in log, f"node {number}: {log[log.index('Traceback') :][:_LOG_CHARACTERS]}"
    finally:
        nodes.kill(*nodes.running)
        nodes.close()


def _judge(values: dict[tuple[int, int], bytes], publishers: Sequence[Publisher]) -> None:
    times = Counter(values.values())
    for one in publishers:
        false = [ack for ack in one.acks if values.get((ack.partition, ack.offset)) != ack.value]
        assert not false, f"{one.name}: {false[:10]}"
        repeated = [ack for ack in one.acks if times[ack.value] != 1]
        assert not repeated, f"{one.name}: {repeated[:10]}"
    assert max(times.values()) == 1


@pytest.mark.long
def test_leaders_are_killed_while_publishers_publish(cluster: Cluster) -> None:
    async def story() -> list[Publisher]:
        loop = asyncio.get_running_loop()
        async with cluster.publishers() as publishers:
            await _go_on(publishers)
            for partition in range(2):
                leader = await loop.run_in_executor(None, cluster.leader, partition)
                await loop.run_in_executor(None, cluster.nodes.kill, leader)
                await _go_on(publishers)
                await loop.run_in_executor(None, cluster.nodes.start, [leader])
                await _go_on(publishers)
        return publishers

    publishers = asyncio.run(story())
    _judge(cluster.values(), publishers)
    gaps = cluster.gaps()
    assert {gap["cause"] for gap in gaps} <= {"leader change", "restart"}
    assert any(gap["cause"] == "leader change" for gap in gaps)
    print({one.name: (len(one.acks), one.lost) for one in publishers}, gaps)


@pytest.mark.long
def test_a_leader_that_stands_still_acknowledges_nothing_that_is_not_there(cluster: Cluster) -> None:
    async def story() -> list[Publisher]:
        loop = asyncio.get_running_loop()
        async with cluster.publishers() as publishers:
            await _go_on(publishers)
            leader = await loop.run_in_executor(None, cluster.leader, 0)
            cluster.nodes.pause(leader)
            await _go_on(publishers)
            cluster.nodes.resume(leader)
            await _go_on(publishers)
        return publishers

    publishers = asyncio.run(story())
    _judge(cluster.values(), publishers)
    assert any(gap["cause"] == "leader change" for gap in cluster.gaps())


def test_a_leader_that_stops_lets_the_next_one_listen(cluster: Cluster) -> None:
    async def story() -> list[Publisher]:
        loop = asyncio.get_running_loop()
        async with cluster.publishers() as publishers:
            await _go_on(publishers)
            leader = await loop.run_in_executor(None, cluster.leader, 0)
            assert await loop.run_in_executor(None, cluster.nodes.stop, leader) == 0
            await _go_on(publishers)
            await loop.run_in_executor(None, cluster.nodes.start, [leader])
            await _go_on(publishers)
        return publishers

    publishers = asyncio.run(story())
    _judge(cluster.values(), publishers)


@pytest.mark.long
def test_an_id_stays_with_what_was_appended_and_not_acknowledged(cluster: Cluster) -> None:
    subject = "orders.0"
    leader = cluster.leader(partition_of(subject.encode(), PARTITIONS))
    followers = [number for number in cluster.nodes.nodes if number != leader]

    async def story() -> None:
        loop = asyncio.get_running_loop()
        client = await _connect([f"nats://{cluster.nodes.nodes[leader].nats}"])

        async def answered() -> dict[str, Any]:
            while True:
                try:
                    answer = await client.request(subject, b"once", timeout=_ANSWER_S, headers={"Nats-Msg-Id": "an id"})
                except (nats.errors.Error, TimeoutError):
                    continue
                return dict(json.loads(answer.data))

        async with asyncio.timeout(_WAIT_S):
            for number in followers:
                cluster.nodes.pause(number)
            assert (await answered())["error"]["err_code"] == _NOT_AVAILABLE
            for number in followers:
                await loop.run_in_executor(None, cluster.nodes.resume, number)
            while "error" in await answered():
                pass
        await client.close()

    asyncio.run(story())
    assert list(cluster.values().values()) == [b"once"]
