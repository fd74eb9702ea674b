"""Snapshots by consumer group: each has what changed since the one before, and the group's offsets are its position."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable
from http.client import HTTPConnection
from random import Random
from typing import Any

import confluent_kafka
import pytest
from tests.cli.command import run
from tests.doors.http.conftest import Ask

import duramen
from duramen.base.errors import (
    GroupNotEmpty,
    NameInvalid,
    RequestInvalid,
    SnapshotCut,
    SnapshotNotReached,
    SnapshotStartOver,
    StreamNotFound,
    StreamNotKeyed,
)
from duramen.node.process import NodeProcess

State = dict[bytes, bytes]


def apply(state: State, records: Iterable[duramen.Record]) -> int:
    """Returns how many records there were."""
    seen = set[bytes]()
    count = 0
    for record in records:
        assert record.key is not None
        assert record.key not in seen
        seen.add(record.key)
        count += 1
        state.pop(record.key, None)
        if record.value is not None:
            state[record.key] = record.value
    return count


def some(chance: Random) -> list[duramen.NewRecord]:
    return [
        duramen.NewRecord(None if chance.random() < 0.2 else b"v%d" % chance.randrange(1000), key=b"k%d" % key)
        for key in (chance.randrange(40) for _ in range(chance.randrange(1, 60)))
    ]


def committed(node: NodeProcess, stream: str, group: str, partitions: int) -> dict[int, int]:
    """As a Kafka client sees it."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.kafka, "group.id": group})
    asked = [confluent_kafka.TopicPartition(stream, index) for index in range(partitions)]
    found = {one.partition: one.offset for one in consumer.committed(asked, timeout=30)}
    consumer.close()
    return found


def test_a_consumer_is_one_integer_per_partition(node: NodeProcess, stream_name: str) -> None:
    chance, truth, state, kept = Random(5), State(), State(), State()
    group = f"{stream_name}-group"
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=2, config={"keyed": True})
        for turn in range(12):
            for _ in range(chance.randrange(1, 4)):
                records = some(chance)
                client.produce(stream_name, records)
                apply_all(truth, records)
            state = dict(kept)  # a program begins again with what it had when it committed
            [snapshot] = client.snapshots(stream_name, group=group, idle_s=0) if turn else [
                first_of(client, stream_name, group)
            ]  # fmt: skip
            assert (snapshot.since == {}) == (turn == 0)
            with pytest.raises(RequestInvalid, match="no partition 7"):
                snapshot.changes_since({7: 0})
            apply(state, snapshot)
            assert state == truth
            if chance.random() < 0.6 or turn == 0:
                snapshot.commit()
                kept = dict(state)
                assert committed(node, stream_name, group, 2) == snapshot.at
        described = json.loads(run("group", "describe", group, "--format", "json", server=node.http).out)
        assert described["state"] == "Empty"
        [whole] = client.snapshots(stream_name, group=group, whole=True, idle_s=0)
        assert whole.since == {}
        state = {}
        apply(state, whole)
        assert state == truth
        assert described["members"] == []


def first_of(client: duramen.Client, stream: str, group: str) -> duramen.GroupSnapshot:
    return next(iter(client.snapshots(stream, group=group)))


def apply_all(truth: State, records: Iterable[duramen.NewRecord]) -> None:
    for record in records:
        key = record.key if isinstance(record.key, bytes) else b""
        truth.pop(key, None)
        if isinstance(record.value, bytes):
            truth[key] = record.value


def test_lag_is_what_every_kafka_tool_shows(node: NodeProcess, stream_name: str) -> None:
    group = f"{stream_name}-group"
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1, config={"keyed": True})
        client.produce(stream_name, [duramen.NewRecord(b"v", key="k")] * 5)
        for snapshot in client.snapshots(stream_name, group=group, idle_s=0):
            assert apply({}, snapshot) == 1
            snapshot.commit()
        client.produce(stream_name, [duramen.NewRecord(b"v", key="k")] * 3)
        [offset] = json.loads(run("group", "describe", group, "--format", "json", server=node.http).out)["offsets"]
        assert (offset["committed_offset"], offset["end_offset"], offset["lag_records"]) == (5, 8, 3)
        assert committed(node, stream_name, group, 1) == {0: 5}
        # What a Kafka tool sets is where the group goes on.
        client.groups.reset(group, 6, streams=[stream_name])
        [snapshot] = client.snapshots(stream_name, group=group, idle_s=0)
        assert (snapshot.since, snapshot.at, apply({}, snapshot)) == ({0: 6}, {0: 8}, 1)


def requests(node: NodeProcess) -> float:
    connection = HTTPConnection(node.http)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("duramen_http_requests_total{"))


def test_it_waits_for_newer_state_without_asking_all_the_time(node: NodeProcess, stream_name: str) -> None:
    found: list[tuple[dict[int, int], int]] = []
    read, written = threading.Event(), threading.Event()

    def consume() -> None:
        with duramen.connect(node.http) as client:
            for snapshot in client.snapshots(stream_name, group=f"{stream_name}-group"):
                found.append((snapshot.at, apply({}, snapshot)))
                read.set()
                if len(found) == 4:
                    return

    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1, config={"keyed": True})
        thread = threading.Thread(target=consume)
        thread.start()
        assert read.wait(60)
        before = requests(node)
        assert not written.wait(1.0)
        assert requests(node) - before < 6
        for turn in range(3):
            read.clear()
            client.produce(stream_name, [duramen.NewRecord(f"{turn}", key=f"k{number}") for number in range(turn + 1)])
            assert read.wait(60)
        thread.join(60)
    assert found == [({0: 0}, 0), ({0: 1}, 1), ({0: 3}, 2), ({0: 6}, 3)]


def test_what_was_not_read_to_its_end_comes_again(node: NodeProcess, stream_name: str) -> None:
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1, config={"keyed": True})
        client.produce(stream_name, [duramen.NewRecord("1", key=f"k{number}") for number in range(3)])
        found: list[list[str]] = []
        for snapshot in client.snapshots(stream_name, group=f"{stream_name}-group", idle_s=0):
            records = iter(snapshot)
            found.append([next(records).text])
            if len(found) < 3:
                client.produce(stream_name, [duramen.NewRecord(f"{len(found) + 1}", key="k0")])
            if len(found) == 2:
                snapshot.commit()
            if len(found) > 2:
                found[-1] += [record.text for record in records]
        assert found == [["1"], ["1"], ["3"]]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.long
def test_who_has_read_what_was_lost_is_told(node: NodeProcess, stream_name: str, ask: Ask) -> None:
    group = f"{stream_name}-group"
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1, config={"keyed": True})
        client.produce(stream_name, [duramen.NewRecord("v", key="k")] * 2)
        for snapshot in client.snapshots(stream_name, group=group, idle_s=0):
            snapshot.commit()
        epoch = ask("GET", f"/v1/streams/{stream_name}/snapshot")[1]["partitions"][0]["epoch"]
        # As if the records had been written anew since.
        status, problem = ask("GET", f"/v1/streams/{stream_name}/snapshot?newer_than=0:2@{epoch - 1}")
        assert (status, problem["type"]) == (410, "snapshot-cut")
        consumer = confluent_kafka.Consumer({"bootstrap.servers": node.kafka, "group.id": group})
        [stored] = consumer.committed([confluent_kafka.TopicPartition(stream_name, 0)], timeout=30)
        assert (stored.offset, stored.leader_epoch) == (2, epoch)
        older = confluent_kafka.TopicPartition(stream_name, 0, 2, leader_epoch=epoch - 1)
        consumer.commit(offsets=[older], asynchronous=False)
        consumer.close()
        with pytest.raises(SnapshotCut, match="has lost records before 2, which the snapshot has: read a whole"):
            list(client.snapshots(stream_name, group=group, idle_s=0))


def test_who_was_away_for_too_long_starts_over(node: NodeProcess, stream_name: str, ask: Ask) -> None:
    group, path = f"{stream_name}-group", f"/v1/streams/{stream_name}/snapshot"
    config: dict[str, Any] = {"keyed": True, "snapshot.retention.ms": 0, "delete.retention.ms": 0}
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1, config=config)
        client.produce(stream_name, [duramen.NewRecord("1", key="k")])
        for snapshot in client.snapshots(stream_name, group=group, idle_s=0):
            snapshot.commit()
        client.produce(stream_name, [duramen.NewRecord(None, key="k"), duramen.NewRecord("2", key="l")])
        wait_for(lambda: bool(ask("GET", path)[1]["partitions"][0]["horizon"] == 3))
        with pytest.raises(SnapshotStartOver, match="up to 1, and tombstones are kept from 3 on: drop the state"):
            next(iter(client.snapshots(stream_name, group=group)))
        [whole] = client.snapshots(stream_name, group=group, whole=True, idle_s=0)
        state = State()
        apply(state, whole)
        assert state == {b"l": b"2"}


def test_bad_input(node: NodeProcess, stream_name: str) -> None:
    group = f"{stream_name}-group"
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1)
        with pytest.raises(StreamNotKeyed):
            list(client.snapshots(stream_name, group=group, idle_s=0))
        with pytest.raises(StreamNotFound):
            list(client.snapshots(f"{stream_name}-none", group=group, idle_s=0))
        keyed = f"{stream_name}-keyed"
        client.streams.create(keyed, partitions=1, config={"keyed": True})
        client.produce(keyed, [duramen.NewRecord("v", key="k")])
        consumer = confluent_kafka.Consumer({"bootstrap.servers": node.kafka, "group.id": group})
        consumer.commit(offsets=[confluent_kafka.TopicPartition(keyed, 0, 9)], asynchronous=False)
        consumer.close()
        with pytest.raises(
            SnapshotNotReached, match="ends at 1, and the snapshot is at 9: it belongs to another stream"
        ):
            list(client.snapshots(keyed, group=group))
        for wrong in ({"group": ""}, {"group": 5}, {"group": "g", "idle_s": "x"}, {"group": "g", "whole": 1}):
            with pytest.raises(RequestInvalid):
                client.snapshots(keyed, **wrong)
        for name in ("a/b", f"{keyed}/records", "a/"):
            for ask in (
                client.snapshot,
                client.streams.describe,
                lambda name: list(client.snapshots(name, group=group)),
            ):
                with pytest.raises(NameInvalid, match=name):
                    ask(name)


@pytest.mark.long
def test_a_group_with_members_takes_no_snapshots(node: NodeProcess, stream_name: str) -> None:
    group = f"{stream_name}-group"
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1, config={"keyed": True})
        consumer = confluent_kafka.Consumer({"bootstrap.servers": node.kafka, "group.id": group})
        assigned = threading.Event()
        consumer.subscribe([stream_name], on_assign=lambda *_: assigned.set())
        wait_for(lambda: consumer.poll(0.1) is not None or assigned.is_set())
        snapshot = first_of(client, stream_name, group)
        with pytest.raises(GroupNotEmpty, match="has members: snapshots are committed in a group of their own"):
            snapshot.commit()
        consumer.close()


def test_the_asyncio_client_has_it_too(node: NodeProcess, stream_name: str) -> None:
    group = f"{stream_name}-group"

    async def program() -> None:
        async with await duramen.aio.connect(node.http) as client:
            await client.streams.create(stream_name, partitions=1, config={"keyed": True})
            waiting = asyncio.create_task(three(client))
            for turn in range(3):
                await turns[turn].wait()
                await client.produce(stream_name, [duramen.NewRecord(f"{turn}", key="k")] * 2)
            assert await waiting == [({}, []), ({0: 0}, ["0"]), ({0: 2}, ["1"]), ({0: 4}, ["2"])]
            endless = asyncio.create_task(three(client))
            await asyncio.sleep(0)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless

    async def three(client: duramen.aio.Client) -> list[tuple[dict[int, int], list[str]]]:
        found = list[tuple[dict[int, int], list[str]]]()
        async for snapshot in client.snapshots(stream_name, group=group):
            found.append((snapshot.since, [record.text async for record in snapshot]))
            await snapshot.commit()
            if len(found) == 4:
                break
            turns[len(found) - 1].set()
        return found

    turns = [asyncio.Event() for _ in range(4)]
    asyncio.run(program())
    assert committed(node, stream_name, group, 1) == {0: 6}


def test_who_waits_hears_that_the_stream_is_deleted(node: NodeProcess, stream_name: str) -> None:
    raised: list[Exception] = []
    begun = threading.Event()

    def consume() -> None:
        with duramen.connect(node.http) as client:
            try:
                for snapshot in client.snapshots(stream_name, group=f"{stream_name}-group"):
                    assert apply({}, snapshot) == 0
                    begun.set()
            except StreamNotFound as error:
                raised.append(error)

    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1, config={"keyed": True})
        thread = threading.Thread(target=consume)
        thread.start()
        assert begun.wait(60)
        client.streams.delete(stream_name)
        thread.join(60)
    assert [str(error) for error in raised] == [f"there is no stream {stream_name}"]
