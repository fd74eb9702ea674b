"""Leases on snapshots at the doors: HTTP, the command and Python, also over a kill -9."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.command import run
from tests.doors.http.conftest import Ask, asking

import duramen
from duramen.base.errors import (
    DuramenError,
    RequestInvalid,
    SnapshotLeaseExpired,
    SnapshotLeaseNotFound,
    SnapshotTooOld,
    StreamNotKeyed,
)
from duramen.node.process import NodeProcess

NewNode = Callable[..., NodeProcess]
QUICK: dict[str, Any] = {"keyed": True, "snapshot.retention.ms": 0, "delete.retention.ms": 0}


def produce(client: duramen.Client, name: str, turn: int) -> None:
    client.produce(name, [duramen.NewRecord(f"{turn}", key=f"k{number}") for number in range(5)])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def oldest(ask: Ask, name: str) -> int:
    found: int = ask("GET", f"/v1/streams/{name}/snapshot")[1]["partitions"][0]["oldest"]
    return found


def test_a_lease_outlives_a_kill(new_node: NewNode) -> None:
    node = new_node().start()
    with duramen.connect(node.http) as client:
        client.streams.create("users", partitions=1, config=QUICK)
        produce(client, "users", 1)
        lease = client.snapshot("users").hold()
        produce(client, "users", 2)
        wait_for(lambda: oldest(asking(node.http), "users") == 5)
    node.kill()
    node.restart()
    ask = asking(node.http)
    with duramen.connect(node.http) as client:
        produce(client, "users", 3)
        wait_for(lambda: ask("GET", f"/v1/streams/users/snapshot/leases/{lease}")[1]["held_bytes"] > 0)
        assert oldest(ask, "users") == 5
        assert {record.text for record in client.snapshot("users", lease=lease)} == {"1"}
        with pytest.raises(SnapshotTooOld):
            client.snapshot("users", at={0: 4}).hold()
        client.snapshot("users", lease=lease).close()
        wait_for(lambda: oldest(ask, "users") == 15)
        with pytest.raises(SnapshotTooOld):
            list(client.snapshot("users", at={0: 5}))


@pytest.mark.long
def test_an_end_comes_and_is_told(new_node: NewNode) -> None:
    node = new_node().start()
    ask = asking(node.http)
    with duramen.connect(node.http) as client:
        client.streams.create("users", partitions=1, config={**QUICK, "snapshot.lease.ms": 2000})
        produce(client, "users", 1)
        snapshot = client.snapshot("users")
        lease = snapshot.hold()
        records = iter(snapshot)
        next(records)
        wait_for(lambda: ask("GET", f"/v1/streams/users/snapshot/leases/{lease}")[0] == 410)
        with pytest.raises(SnapshotLeaseExpired, match=rf"the lease {lease} ended \d+ s ago"):
            list(records)
        answered = run("snapshot", "read", "users", "--lease", lease, server=node.http)
        assert (answered.code, answered.out) == (1, "")
        assert f"the lease {lease} ended" in answered.err
        produce(client, "users", 2)
        wait_for(lambda: oldest(ask, "users") == 10)


@pytest.mark.long
def test_it_stays_open_while_it_is_read(new_node: NewNode) -> None:
    node = new_node().start()
    with duramen.connect(node.http) as client:
        client.streams.create("users", partitions=1, config={**QUICK, "snapshot.lease.ms": 4000})
        produce(client, "users", 1)
        begun_s, values = time.monotonic(), []
        with client.snapshot("users") as snapshot:
            for record in snapshot:
                produce(client, "users", 2)
                values.append(record.text)
                time.sleep(1)  # as who works on it
            assert time.monotonic() - begun_s > 4
            assert values == ["1"] * 5
            path = f"/v1/streams/users/snapshot/leases/{snapshot.hold()}"
            assert asking(node.http)("GET", path)[0] == 200
        assert asking(node.http)("GET", path)[0] == 404


class Listed:
    def __init__(self, document: dict[str, Any]) -> None:
        self.lease: str = document["lease"]
        self.at: str = document["at"]


def leases_of(node: NodeProcess, name: str) -> list[Listed]:
    answered = run("snapshot", "list", name, "--format", "json", server=node.http)
    return [Listed(document) for document in json.loads(answered.out)]


def test_the_command(node: NodeProcess, stream_name: str) -> None:
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=2, config={"keyed": True})
        produce(client, stream_name, 1)
        at = client.snapshot(stream_name).at
        vector = ",".join(f"{partition}:{offset}" for partition, offset in at.items())
        assert "No lease holds" in run("snapshot", "list", stream_name, server=node.http).err
        lease, opened = run("snapshot", "open", stream_name, server=node.http).out.split()
        assert opened == vector
        produce(client, stream_name, 2)
        listed = run("snapshot", "list", stream_name, server=node.http).out.splitlines()
        assert [line.split()[0] for line in listed] == ["LEASE", lease]
        assert [one.at for one in leases_of(node, stream_name)] == [vector]
        read = run("snapshot", "read", stream_name, "--lease", lease, server=node.http).out.splitlines()
        assert {json.loads(line)["value"] for line in read} == {"1"}
        assert len(read) == 5
        described = run(
            "snapshot", "describe", stream_name, "--lease", lease, "--format", "json", server=node.http
        )  # fmt: skip
        assert json.loads(described.out)["lease"] == lease
        assert run("snapshot", "renew", stream_name, lease, server=node.http).code == 0
        older = run("snapshot", "open", stream_name, "--at", "0:0,1:0", "--format", "json", server=node.http)
        assert json.loads(older.out)["at"] == "0:0,1:0"
        closed = run("snapshot", "close", stream_name, lease, "--format", "json", server=node.http)
        assert json.loads(closed.out) == {"lease": lease, "stream": stream_name, "closed": True}
        again = run("snapshot", "close", stream_name, lease, server=node.http)
        assert again.code == 1
        assert f"there is no lease {lease}" in again.err
        both = run("snapshot", "read", stream_name, "--lease", lease, "--at", "0:1", server=node.http)
        assert both.code == 2


def test_leases_are_listed_page_by_page(ask: Ask, stream_name: str) -> None:
    ask("POST", "/v1/streams", {"name": stream_name, "partitions": 1, "config": {"keyed": True}})
    path = f"/v1/streams/{stream_name}/snapshot/leases"
    opened = [ask("POST", path, {})[1]["lease"] for _ in range(5)]
    found = list[str]()
    query: str | None = ""
    while query is not None:
        page = ask("GET", f"{path}?limit=2{query}")[1]
        assert len(page["leases"]) <= 2
        found += [lease["lease"] for lease in page["leases"]]
        query = None if page["next"] is None else f"&after={page['next']}"
    assert sorted(found) == sorted(opened)
    assert ask("GET", f"{path}?after=x")[0] == 400


def test_the_asyncio_client_holds_too(node: NodeProcess, stream_name: str) -> None:
    async def program() -> None:
        async with await duramen.aio.connect(node.http) as client:
            await client.streams.create(stream_name, partitions=1, config={"keyed": True})
            await client.produce(stream_name, [duramen.NewRecord("v", key="k")])
            async with await client.snapshot(stream_name) as snapshot:
                lease = await snapshot.hold()
                async with await client.snapshot(stream_name, lease=lease) as same:
                    assert [record.text async for record in same] == ["v"]
                assert [one.lease for one in leases_of(node, stream_name)] == [lease]
            assert leases_of(node, stream_name) == []
            with pytest.raises(RequestInvalid, match="leave out"):
                await client.snapshot(stream_name, at={0: 0}, lease="x")

    asyncio.run(program())


@pytest.mark.variants(2)
@pytest.mark.parametrize("door", ["python", "http", "command"])
def test_bad_input_is_one_line_from_every_door(node: NodeProcess, stream_name: str, door: str) -> None:
    keyed = f"{stream_name}-keyed"
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1)
        client.streams.create(keyed, partitions=1, config={"keyed": True})
    ask = {"http": over_http, "python": in_python, "command": by_command}[door]
    for name, at, lease, id_, words in (
        (stream_name, None, None, "stream-not-keyed", "is not keyed"),
        (stream_name, None, "x", "stream-not-keyed", "is not keyed"),
        (keyed, {3: 0}, None, "stream-not-found", "has no partition 3"),
        (keyed, {0: 9}, None, "snapshot-not-reached", "ends at 0, and the snapshot is at 9"),
        (keyed, None, "x", "snapshot-lease-not-found", "there is no lease x"),
    ):
        found = ask(node, name, at, lease)
        assert id_ in found
        assert words in found
        assert len(found.splitlines()) == 1


def over_http(node: NodeProcess, name: str, at: dict[int, int] | None, lease: str | None) -> str:
    path, ask = f"/v1/streams/{name}/snapshot/leases", asking(node.http)
    text = "" if at is None else ",".join(f"{partition}:{offset}" for partition, offset in at.items())
    problem = ask("POST", path, {"at": text})[1] if lease is None else ask("GET", f"{path}/{lease}")[1]
    return f"{problem['detail']} [{problem['type']}]"


def in_python(node: NodeProcess, name: str, at: dict[int, int] | None, lease: str | None) -> str:
    with duramen.connect(node.http) as client, pytest.raises(DuramenError) as raised:
        client.snapshot(name, at=at, lease=lease).hold()
    return f"{raised.value} [{raised.value.id}]"


def by_command(node: NodeProcess, name: str, at: dict[int, int] | None, lease: str | None) -> str:
    given = [] if at is None else ["--at", ",".join(f"{partition}:{offset}" for partition, offset in at.items())]
    if lease is not None:
        return run("snapshot", "read", name, "--lease", lease, server=node.http).err.strip()
    return run("snapshot", "open", name, *given, server=node.http).err.strip()


def test_leases_end_with_their_stream(node: NodeProcess, stream_name: str) -> None:
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1, config={"keyed": True})
        lease = client.snapshot(stream_name).hold()
        client.streams.delete(stream_name)
        client.streams.create(stream_name, partitions=1, config={"keyed": True})
        with pytest.raises(SnapshotLeaseNotFound):
            client.snapshot(stream_name, lease=lease)
        client.streams.alter(stream_name, config={"keyed": False})
        with pytest.raises(StreamNotKeyed):
            client.snapshot(stream_name, lease=lease)
