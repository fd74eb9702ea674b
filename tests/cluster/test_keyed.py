"""A keyed stream on three real nodes: any of them opens, reads and holds snapshots, also once a leader is killed."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.cli.command import run
from tests.clients import again, until
from tests.cluster import live_topics
from tests.doors.http.conftest import asking

import duramen
from duramen.base.errors import (
    ConfigInvalid,
    CoordinatorLoading,
    NodeBusy,
    NotCoordinator,
    NotLeader,
    ServerUnreachable,
    SnapshotLeaseNotFound,
    SnapshotNotReached,
)
from duramen.node.processes import NodeProcesses
from duramen.spark.options import Options
from duramen.spark.read.snapshot_stream import SnapshotStreamReader
from duramen.spark.read.snapshots import SnapshotReader

_WAIT_S = 60.0
_PASSING = (CoordinatorLoading, NodeBusy, NotCoordinator, NotLeader, ServerUnreachable, SnapshotNotReached)
_QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 500}
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


class Transfers(threading.Thread):
    """Writes its newest number to every partition of two streams, in one transaction after another."""

    def __init__(self, servers: str, name: str, streams: Sequence[str]) -> None:
        super().__init__(name=name, daemon=True)
        self.streams = streams
        self.stopping = threading.Event()
        self.committed = 0
        self.problem = ""
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": name, **_QUIET})

    def run(self) -> None:
        try:
            self._work()
        except KafkaException as error:
            self.problem = repr(error)

    def _work(self) -> None:
        again(lambda: self._producer.init_transactions(_WAIT_S))
        while not self.stopping.is_set():
            self._producer.begin_transaction()
            number = str(self.committed + 1)
            try:
                for stream, partition in product(self.streams, range(2)):
                    self._producer.produce(stream, number, key=self.name, partition=partition)
                again(lambda: self._producer.commit_transaction(_WAIT_S))
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                again(lambda: self._producer.abort_transaction(_WAIT_S))
            else:
                self.committed = int(number)


def look_at_transfers(client: duramen.Client, writers: Sequence[Transfers]) -> None:
    """A snapshot of both streams has each transaction wholly or not, and all that were committed before."""
    before = {writer.name: writer.committed for writer in writers}
    found: dict[str, set[int]] = {name: set() for name in before}
    counted = Counter[str]()
    snapshot = client.snapshot(*writers[0].streams)
    for stream in snapshot:
        for record in snapshot[stream]:
            name = (record.key or b"").decode()
            found[name].add(int(record.text or ""))
            counted[name] += 1
    for name, least in before.items():
        assert counted[name] in (0, 4), (name, snapshot.at)
        assert len(found[name]) <= 1, (name, found, snapshot.at)
        assert max(found[name], default=0) >= least


def begin_transfers(
    nodes: NodeProcesses, names: str = "writer", streams: Sequence[str] = ("orders", "customers")
) -> list[Transfers]:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
    config = {"keyed": "true", "cleanup.policy": "compact"}
    topics = [NewTopic(name, 2, 3, config=config) for name in streams]
    for made in admin.create_topics(topics).values():
        made.result(_WAIT_S)
    writers = [Transfers(nodes.bootstrap_servers, f"{names}-{number}", streams) for number in range(3)]
    for writer in writers:
        writer.start()
    until(lambda: all(writer.committed for writer in writers), _WAIT_S)
    return writers


def test_snapshots_over_streams_have_each_transaction_wholly_or_not(nodes: NodeProcesses) -> None:
    writers = begin_transfers(nodes)
    for node in nodes.nodes.values():
        with duramen.connect(node.http) as client:
            for _ in range(3):
                look_at_transfers(client, writers)
    end_transfers(writers)


def end_transfers(writers: Sequence[Transfers]) -> None:
    for writer in writers:
        writer.stopping.set()
    for writer in writers:
        writer.join(_WAIT_S)
        assert not writer.is_alive()
        assert not writer.problem


def rows_of(reader: SnapshotReader | SnapshotStreamReader, partitions: Iterable[Any]) -> list[dict[str, Any]]:
    """The rows of tasks."""
    return [row for one in partitions for batch in reader.read(one) for row in batch.to_pylist()]


def check_rows(values: Mapping[tuple[str, int, bytes], bytes], writers: Sequence[Transfers]) -> None:
    for writer in writers:
        places = product(writer.streams, range(2))
        found = {values.get((stream, partition, writer.name.encode())) for stream, partition in places}
        assert len(found) == 1, (writer.name, found)


@pytest.mark.long
def test_spark_reads_streams_of_a_cluster_at_one_cut(nodes: NodeProcesses) -> None:
    writers = begin_transfers(nodes, "joined", ("spark-orders", "spark-customers"))
    given = {"subscribe": ",".join(writers[0].streams), "snapshot": "true", "kafka.request.timeout.ms": "20000"}
    given |= {"columns": "topic,partition,key,value", "minPartitions": "4"}
    state: dict[tuple[str, int, bytes], bytes] = {}
    stream: SnapshotStreamReader | None = None
    place: dict[str, Any] = {}
    for turn in range(12):
        node = nodes.nodes[turn % 3 + 1]
        options = given | {"kafka.bootstrap.servers": node.kafka, "server": node.http}
        batch = SnapshotReader(Options(options, "batch"))
        found = rows_of(batch, batch.partitions())
        check_rows({(row["topic"], row["partition"], row["key"]): row["value"] for row in found}, writers)
        if stream is None:
            stream = SnapshotStreamReader(Options(options, "stream"))
            place = stream.initialOffset()
        end = stream.latestOffset(place, ReadAllAvailable())
        for row in rows_of(stream, stream.partitions(place, end)):
            state[row["topic"], row["partition"], row["key"]] = row["value"]
        check_rows(state, writers)
        place = end
    assert stream is not None
    stream.stop()
    end_transfers(writers)


@pytest.mark.long
def test_snapshots_have_each_transaction_wholly_or_not_while_nodes_are_killed(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path) as nodes:
        writers, looked = begin_transfers(nodes), Counter[int]()
        for killed in (1, 2, 3, 2):
            nodes.kill(killed)
            until_s = time.monotonic() + 15
            while time.monotonic() < until_s:
                for number, node in nodes.nodes.items():
                    if number == killed:
                        continue
                    with duramen.connect(node.http) as client, suppress(*_PASSING):
                        look_at_transfers(client, writers)
                        looked[killed] += 1
            nodes.start([killed])
        end_transfers(writers)
        assert min(looked.values()) > 3
        assert len(looked) == 3


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


def test_any_node_names_the_leaders_which_serve_the_live_topic(nodes: NodeProcesses) -> None:
    live = live_topics.create(nodes, "prices")
    state, ends = live_topics.write(nodes.bootstrap_servers, "prices", 0, 1000)
    assert sorted(ends) == [0, 1, 2]
    for node in nodes.nodes.values():
        assert live_topics.leaders(node.kafka, live) == live_topics.leaders(node.kafka, "prices")
    reader = live_topics.LiveConsumer(nodes.nodes[2].kafka, live, **{"client.rack": "far"})
    reader.read_to(ends)
    assert reader.state == state
    assert reader.ends == ends
    reader.consumer.commit(asynchronous=False)
    places = [TopicPartition(live, partition) for partition in sorted(ends)]
    assert {one.partition: one.offset for one in reader.consumer.committed(places, _WAIT_S)} == ends
    reader.consumer.close()
    told = run("group", "describe", "live", server=nodes.nodes[3].http)
    assert told.code == 0, told.err
    assert live in told.out
    moved = run("group", "reset", "live", "--to", "start", "--yes", server=nodes.nodes[1].http)
    assert moved.code == 0, moved.err
    again = live_topics.LiveConsumer(nodes.nodes[1].kafka, live)
    again.read_to(ends)
    assert again.state == state
    again.consumer.close()


@pytest.mark.long
def test_the_example_reads_states_along_a_chain(nodes: NodeProcesses) -> None:
    program = Path(__file__).parents[2] / "examples" / "keyed_chain.py"
    places = [f"{number}={nodes.nodes[number].http}" for number in (2, 3)]
    ran = subprocess.run(
        [sys.executable, str(program), nodes.nodes[1].http, *places], capture_output=True, text=True, check=False,
        timeout=_WAIT_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        f"node {number}: {text}"
        for text in ("30 seats as of 91, 7A: Ann", "30 seats as of 182, 7A: Bob", "29 seats as of 273, 7A: free")
        for number in (2, 3)
    ]


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
