"""A keyed stream on three real nodes: any of them opens, reads and holds snapshots, also once a leader is killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.cli.command import run
from tests.clients import until
from tests.doors.http.conftest import asking

import duramen
from duramen.base.errors import ConfigInvalid, SnapshotLeaseNotFound, SnapshotNotReached
from duramen.node.processes import NodeProcesses

_WAIT_S = 60.0
_LEASES = "/v1/streams/alone/snapshot/leases"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcesses]:
    path: Path = tmp_path_factory.mktemp("keyed")
    with NodeProcesses(path) as found:
        yield found
        for log in found.logs().values():
            assert "Traceback" not in log


def state(snapshot: duramen.Snapshot) -> dict[str, str | None]:
    found = [(record.key or b"", record.text) for record in snapshot]
    assert len(found) == len(dict(found))
    return {key.decode(): text for key, text in found}


def leaders(nodes: NodeProcesses, number: int, name: str) -> list[int | None]:
    status, found = asking(nodes.nodes[number].http)("GET", f"/v1/streams/{name}")
    return [one["leader"] for one in found["partitions"]] if status == 200 else [None]


def test_nodes_without_a_replica_find_read_and_hold_snapshots(nodes: NodeProcesses) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
    topic = NewTopic("alone", 3, 1, config={"keyed": "true", "cleanup.policy": "compact"})
    admin.create_topics([topic])["alone"].result(_WAIT_S)
    until(lambda: all(None not in leaders(nodes, number, "alone") for number in nodes.nodes), _WAIT_S)
    assert sorted(map(str, leaders(nodes, 1, "alone"))) == ["1", "2", "3"]
    wanted: dict[str, str | None] = {}
    lease = ""
    for number, node in nodes.nodes.items():
        with duramen.connect(node.http) as client:
            client.produce("alone", [duramen.NewRecord(f"{number}", key=f"k{at}") for at in range(40)])
            before = dict(wanted)
            wanted = dict.fromkeys((f"k{at}" for at in range(40)), f"{number}")
            snapshot = client.snapshot("alone")
            assert state(snapshot) == wanted
            lease = snapshot.hold()
            assert lease in [one["lease"] for one in asking(node.http)("GET", _LEASES)[1]["leases"]]
        for other in nodes.nodes.values():
            with duramen.connect(other.http) as client:
                assert state(client.snapshot("alone", lease=lease)) == wanted
                assert len(list(client.snapshot("alone", lease=lease).changes_since({0: 0, 1: 0, 2: 0}))) == 40
                with pytest.raises(SnapshotNotReached):
                    list(client.snapshot("alone", at={0: 9999, 1: 0, 2: 0}))
        assert before != wanted
    with duramen.connect(nodes.nodes[2].http) as client:
        for snapshot in client.snapshots("alone", group="g", whole=True, idle_s=0):
            assert state(snapshot) == wanted
            snapshot.commit()
    for command in (("read", "alone", "--lease", lease), ("list", "alone"), ("describe", "alone"), ("open", "alone")):
        answered = run("snapshot", *command, server=nodes.nodes[1].http)
        assert answered.code == 0, answered.err


def test_a_record_without_a_key_is_named_wherever_it_is(nodes: NodeProcesses) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
    admin.create_topics([NewTopic("mixed", 3, 1)])["mixed"].result(_WAIT_S)
    until(lambda: all(None not in leaders(nodes, number, "mixed") for number in nodes.nodes), _WAIT_S)
    with duramen.connect(nodes.nodes[1].http) as client:
        client.produce("mixed", [duramen.NewRecord("v", key="k", partition=2), duramen.NewRecord("v", partition=2)])
    for node in nodes.nodes.values():
        with (
            duramen.connect(node.http) as client,
            pytest.raises(ConfigInvalid, match="offset 1 of partition 2 of mixed"),
        ):
            client.streams.alter("mixed", config={"keyed": True, "cleanup.policy": "compact"})


def test_a_held_snapshot_goes_on_when_a_leader_is_killed(nodes: NodeProcesses) -> None:
    by_node = {number: duramen.connect(node.http) for number, node in nodes.nodes.items()}
    config = {"keyed": True, "snapshot.retention.ms": 0, "delete.retention.ms": 0}
    by_node[1].streams.create("users", partitions=3, config=config)
    until(lambda: all(None not in leaders(nodes, number, "users") for number in by_node), _WAIT_S)
    by_node[1].produce("users", [duramen.NewRecord("old", key=f"k{number}") for number in range(30)])
    held = by_node[2].snapshot("users")
    lease = held.hold()
    wanted: dict[str, str | None] = {f"k{number}": "old" for number in range(30)}
    by_node[3].produce("users", [duramen.NewRecord("new", key=f"k{number}") for number in range(30)])
    renewed: dict[str, str | None] = dict.fromkeys(wanted, "new")
    for client in by_node.values():
        assert state(client.snapshot("users", lease=lease)) == wanted
        newest = client.snapshot("users")
        assert state(newest) == renewed
        assert {record.key for record in newest.changes_since(held.at)} == {key.encode() for key in wanted}

    place = by_node[1].produce("users", [duramen.NewRecord("Ulm", key="far")])[0]
    by_node[1].wait_replicated("users", place.partition, place.offset, node=3)
    assert "Ulm" in [one.text for one in by_node[3].snapshot("users", at={place.partition: place.offset + 1})]
    renewed["far"] = "Ulm"

    killed = leaders(nodes, 1, "users")[0]
    assert killed is not None
    nodes.nodes[killed].kill()
    others = {number: client for number, client in by_node.items() if number != killed}
    asked = min(others)
    until(lambda: not {killed, None} & {*leaders(nodes, asked, "users")}, _WAIT_S)
    renewed["k1"] = "newest"
    for client in others.values():
        client.produce("users", [duramen.NewRecord("newest", key="k1")])
        assert state(client.snapshot("users", lease=lease)) == wanted
        assert state(client.snapshot("users")) == renewed
    others[asked].snapshot("users", lease=lease).close()
    with pytest.raises(SnapshotLeaseNotFound):
        state(others[asked].snapshot("users", lease=lease))
    for client in by_node.values():
        client.close()
