"""Snapshots of keyed streams at the doors: written by a Kafka producer, read over HTTP, in Python, by the command."""

import json
from collections.abc import Callable
from random import Random

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.cli.command import run
from tests.doors.http.conftest import Ask

import duramen
from duramen.base.errors import RequestInvalid, SnapshotNotReached, StreamNotKeyed
from duramen.node.process import NodeProcess

State = dict[bytes, bytes]
NewNode = Callable[..., NodeProcess]


def applied(state: State, records: "list[duramen.Record]") -> State:
    found = dict(state)
    for record in records:
        assert record.key is not None
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = record.value
    return found


def test_what_a_kafka_producer_wrote_is_read_as_states_that_existed(
    node: NodeProcess, stream_name: str, ask: Ask
) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    config = {"keyed": "true", "cleanup.policy": "compact"}
    admin.create_topics([NewTopic(stream_name, 2, config=config)])[stream_name].result()
    producer = confluent_kafka.Producer({"bootstrap.servers": node.kafka, "linger.ms": 1, "compression.type": "lz4"})
    chance, states, snapshots = Random(7), [State()], []
    told: list[object] = []
    with duramen.connect(node.http) as client:
        for _ in range(4):
            state = dict(states[-1])
            for _ in range(200):
                key, value = b"k%d" % chance.randrange(60), b"v%d" % chance.randrange(1000)
                gone = chance.random() < 0.2
                value_or_none = None if gone else value
                producer.produce(
                    stream_name, key=key, value=value_or_none, on_delivery=lambda error, _: told.append(error)
                )
                state.pop(key, None)
                if not gone:
                    state[key] = value
            assert producer.flush(30) == 0
            assert [error for error in told if error is not None] == []
            states.append(state)
            snapshots.append(client.snapshot(stream_name))
        for state, snapshot in zip(states[1:], snapshots, strict=True):
            found = list(snapshot)
            assert len(found) == len({record.key for record in found})
            assert applied({}, found) == state
        for old in range(3):
            changes = list(snapshots[3].changes_since(snapshots[old]))
            assert len(changes) == len({record.key for record in changes})
            assert applied(states[old + 1], changes) == states[4]
        assert list(snapshots[2].changes_since(snapshots[2])) == []
    view = ask("GET", f"/v1/streams/{stream_name}")[1]["partitions"][0]["view"]
    assert (view["lag"], view["problem"]) == (0, "")


def test_pages(ask: Ask, stream_name: str) -> None:
    ask("POST", "/v1/streams", {"name": stream_name, "partitions": 1, "config": {"keyed": True}})
    wishes = [{"key": f"k{number % 5}", "value": f"{number}"} for number in range(20)]
    ask("POST", f"/v1/streams/{stream_name}/records", {"records": wishes})
    assert ask("GET", f"/v1/streams/{stream_name}/snapshot")[1]["partitions"][0]["at"] == 20
    path = f"/v1/streams/{stream_name}/snapshot/records?at=18&limit=2"
    offset: int | None = 0
    found: list[str] = []
    while offset is not None:
        page = ask("GET", f"{path}&offset={offset}")[1]
        found += [record["value"] for record in page["records"]]
        offset = page["next"]
    assert found == ["13", "14", "15", "16", "17"]


def test_the_command(node: NodeProcess, stream_name: str) -> None:
    assert run("stream", "create", stream_name, "--keyed", "--partitions", "1", server=node.http).code == 0
    with duramen.connect(node.http) as client:
        client.produce(stream_name, [duramen.NewRecord(f"v{n}", key=f"k{n % 2}") for n in range(4)])
    described = run("snapshot", "describe", stream_name, server=node.http)
    assert f"The newest snapshot of {stream_name} is 0:4." in described.out
    values = [
        json.loads(line)["value"] for line in run("snapshot", "read", stream_name, server=node.http).out.splitlines()
    ]
    assert values == ["v2", "v3"]
    changes = run("snapshot", "read", stream_name, "--at", "0:3", "--since", "0:2", server=node.http).out
    assert [json.loads(line)["value"] for line in changes.splitlines()] == ["v2"]
    assert run("snapshot", "read", stream_name, "--at", "0", server=node.http).code == 2


def test_what_is_asked_wrongly(node: NodeProcess, stream_name: str, ask: Ask) -> None:
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name, partitions=1)
        with pytest.raises(StreamNotKeyed, match="not keyed"):
            client.snapshot(stream_name)
        name = f"{stream_name}-keyed"
        client.streams.create(name, partitions=1, config={"keyed": True})
        with pytest.raises(SnapshotNotReached):
            list(client.snapshot(name, at={0: 1}))
        with pytest.raises(RequestInvalid, match="no partition 3"):
            client.snapshot(name).changes_since({3: 0})
        for wrong in ({0: -1}, {"x": 0}, [0]):
            with pytest.raises(RequestInvalid):
                client.snapshot(name, at=wrong)  # type: ignore[arg-type]
    path = f"/v1/streams/{name}/snapshot/records"
    for query, status in (
        ("?at=0&partition=9", 404), ("", 400), ("?at=-1", 400), ("?at=x", 400), ("?at=0&since=-1", 400),
        (f"?at={10**30}", 400), (f"?at={2**63 - 1}", 503), (f"?at=0&offset={2**62}", 200), ("?at=0&limit=0", 400),
        ("?at=0&since=5", 503),
    ):  # fmt: skip
        assert (query, ask("GET", path + query)[0]) == (query, status)


def test_transactions_of_a_kafka_producer_are_in_snapshots_wholly_or_not(
    node: NodeProcess, stream_name: str, ask: Ask
) -> None:
    """Each moves money between two accounts, which lie in two partitions and in another stream."""
    names = [f"{stream_name}-accounts", f"{stream_name}-totals"]
    for name, partitions in zip(names, (2, 1), strict=True):
        ask("POST", "/v1/streams", {"name": name, "partitions": partitions, "config": {"keyed": True}})
    producer = confluent_kafka.Producer({"bootstrap.servers": node.kafka, "transactional.id": stream_name})
    producer.init_transactions(30)
    chance, balances, seen = Random(5), [100, 100], list[int]()
    with duramen.connect(node.http) as client:
        cache: dict[bytes, bytes] = {}
        before: dict[int, int] = {}
        for number in range(30):
            producer.begin_transaction()
            moved = chance.randrange(1, 50)
            after = [balances[0] - moved, balances[1] + moved]
            for account, balance in enumerate(after):
                producer.produce(names[0], key=b"a%d" % account, value=b"%d" % balance, partition=account)
            producer.produce(names[1], key=b"count", value=b"%d" % number, partition=0)
            producer.flush(30)
            open_one = client.snapshot(*names)
            seen.append(check_transfers(open_one, names))
            if chance.random() < 0.3:
                producer.abort_transaction(30)
                continue
            producer.commit_transaction(30)
            balances = after
            snapshot = client.snapshot(names[0])
            cache = applied(cache, list(snapshot.changes_since(before) if before else snapshot))
            before = snapshot.at
            assert cache == {b"a0": b"%d" % after[0], b"a1": b"%d" % after[1]}
            assert check_transfers(client.snapshot(*names), names) == number
        assert len(set(seen)) > 10
        with client.snapshot(*names) as held:
            assert [snapshot.lease is None for snapshot in held.values()] == [False, False]
        with pytest.raises(RequestInvalid, match="of one stream"):
            client.snapshot(*names, at={0: 1})
        with pytest.raises(RequestInvalid, match="named twice"):
            client.snapshot(names[0], names[0])
    lines = run("snapshot", "read", *names, server=node.http).out.splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["a0", "a1", "count"]
    opened = run("snapshot", "open", *names, server=node.http).out.splitlines()
    assert [line.split()[1] for line in opened] == names
    assert run("snapshot", "read", *names, "--at", "0:1", server=node.http).code == 2
    for query, status in (("", 400), ("?streams=,", 400), (f"?streams={stream_name}-none", 404)):
        assert (query, ask("GET", "/v1/snapshot" + query)[0]) == (query, status)


def check_transfers(snapshot: duramen.JointSnapshot, names: list[str]) -> int:
    """Nothing is half done in it. Returns which transfer was the last, -1: none."""
    balances = {record.key: int(record.value or b"0") for record in snapshot[names[0]]}
    counts = [int(record.value or b"0") for record in snapshot[names[1]]]
    assert (sum(balances.values()), len(balances), len(counts)) in ((0, 0, 0), (200, 2, 1))
    return counts[0] if counts else -1


@pytest.mark.long
def test_kills(new_node: NewNode) -> None:
    node, chance, state, count = new_node().start(), Random(3), State(), 0
    with duramen.connect(node.http) as client:
        client.streams.create("users", partitions=1, config={"keyed": True, "segment.bytes": 20_000})
    for _ in range(12):
        with duramen.connect(node.http) as client:
            for _ in range(chance.randrange(1, 40)):
                records = [
                    duramen.NewRecord(b"v%d" % chance.randrange(10**6), key=b"k%d" % chance.randrange(300))
                    for _ in range(50)
                ]
                client.produce("users", records)
                state |= {record.key: record.value for record in records}  # type: ignore[misc]
                count += len(records)
            before = client.snapshot("users")
        node.kill()
        node.restart()
        with duramen.connect(node.http) as client:
            snapshot = client.snapshot("users")
            assert snapshot.at == before.at == {0: count}
            assert applied({}, list(snapshot)) == state
            assert applied({}, list(client.snapshot("users", at=before.at))) == state
    assert "Traceback" not in node.log_path.read_text()
