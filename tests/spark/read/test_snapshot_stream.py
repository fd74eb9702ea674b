"""Streaming queries over keyed streams by snapshots: planned and read as Spark does it, without a JVM."""

import json
import logging
import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event
from typing import Any, NamedTuple

import confluent_kafka
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.clients import until

import duramen
from duramen.base.errors import (
    CheckpointInvalid,
    OptionInvalid,
    SnapshotCut,
    SnapshotNotReached,
    SnapshotStartOver,
    StreamNotFound,
    StreamNotKeyed,
)
from duramen.client.http import HttpNode, path_of
from duramen.node.process import NodeProcess
from duramen.spark.options import Options
from duramen.spark.read.snapshot_stream import SnapshotStreamReader, stream_reader_of
from duramen.spark.read.snapshots import SnapshotReader

State = dict[bytes, bytes | None]


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None


def sent(one: Any) -> Any:
    """As it comes to an executor."""
    return pickle.loads(pickle.dumps(one))  # noqa: S301


Queries = Callable[..., "Query"]


class Query:
    """A query, its checkpoint, and the state that its rows make."""

    def __init__(self, node: NodeProcess, **options: Any) -> None:
        given = {"kafka.bootstrap.servers": node.kafka, "server": node.http, "snapshot": "true"}
        given |= {"kafka.request.timeout.ms": "5000", "columns": "topic,partition,offset,key,value"}
        self._options = {name: str(value) for name, value in (given | options).items()}
        self.start: Any = None
        self.end: Any = None
        self.state: State = {}
        self.run()

    def run(self) -> None:
        """A run of the query begins: all that is left of the one before is the checkpoint."""
        self.reader = stream_reader_of(Options(self._options, "stream"))
        assert isinstance(self.reader, SnapshotStreamReader)

    def plan(self) -> bool:
        """Plan a micro-batch; False where there is nothing new."""
        if self.start is None:
            self.start = self._stored(self.reader.initialOffset())
        self.end = self._stored(self.reader.latestOffset(self.start, ReadAllAvailable()))
        return bool(self.end != self.start)

    @staticmethod
    def _stored(document: Any) -> Any:
        return json.loads(json.dumps(document))

    def read(self) -> list[Row]:
        """The rows of the micro-batch that is planned, as tasks read them."""
        partitions = self.reader.partitions(self.start, self.end)
        handed = self.reader.getCache(self.start, self.end)
        batches: list[pa.RecordBatch]
        if handed is not None:
            batches = list(handed)
        else:
            task = sent(self.reader)
            batches = [batch for one in partitions for batch in task.read(sent(one))]
        return [Row(**row) for batch in batches for row in batch.to_pylist()]

    def done(self, rows: list[Row]) -> None:
        """The micro-batch is written."""
        for *_, key, value in rows:
            self.state.pop(key, None)
            if value is not None:
                self.state[key] = value
        self.start = self.end

    def step(self) -> list[Row]:
        """One micro-batch; no rows where there is nothing new."""
        if not self.plan():
            return []
        rows = self.read()
        self.done(rows)
        return rows


class Keyed:
    """A keyed stream and what it says."""

    def __init__(self, node: NodeProcess, name: str, client: duramen.Client, **config: Any) -> None:
        self.node, self.name, self.client = node, name, client
        client.streams.create(name, partitions=2, config={"keyed": True, **config})
        self.state: State = {}
        self._chance = Random(7)

    def write(self, count: int, keys: int = 40) -> None:
        wishes = []
        for _ in range(count):
            key, value = b"k%d" % self._chance.randrange(keys), b"v%d" % self._chance.randrange(10**6)
            gone = self._chance.random() < 0.3
            wishes.append(duramen.NewRecord(None if gone else value, key=key))
            self.state.pop(key, None)
            if not gone:
                self.state[key] = value
        self.client.produce(self.name, wishes)

    def leases(self) -> list[dict[str, Any]]:
        return list(HttpNode(self.node.http).get(path_of("streams", self.name) + "/snapshot/leases")["leases"])

    def end_leases(self) -> None:
        for one in self.leases():
            HttpNode(self.node.http).delete(f"{path_of('streams', self.name)}/snapshot/leases/{one['lease']}")

    def is_past(self, end: dict[str, int]) -> Callable[[], bool]:
        """Whether no snapshot as old as this one can be read any more."""
        return lambda: all(place["oldest"] > end[index] for index, place in self.places().items())

    def places(self) -> dict[str, dict[str, int]]:
        parts = HttpNode(self.node.http).get(path_of("streams", self.name) + "/snapshot")["partitions"]
        return {str(part["partition"]): part for part in parts}


@pytest.fixture
def client(node: NodeProcess) -> Iterator[duramen.Client]:
    with duramen.connect(node.http) as client:
        yield client


@pytest.fixture
def keyed(node: NodeProcess, stream_name: str, client: duramen.Client) -> Keyed:
    return Keyed(node, stream_name, client)


@pytest.fixture
def start_query(node: NodeProcess) -> Iterator[Queries]:
    made: list[Query] = []

    def make(**options: Any) -> Query:
        made.append(Query(node, **options))
        return made[-1]

    yield make
    for query in made:
        query.reader.stop()


def keys(rows: list[Row]) -> list[bytes]:
    return [key for *_, key, _ in rows]


def test_the_first_micro_batch_is_the_state_and_each_further_one_what_changed(
    keyed: Keyed, start_query: Queries
) -> None:
    query = start_query(subscribe=keyed.name)
    keyed.write(300)
    first = query.step()
    assert query.state == keyed.state
    assert all(value is not None for *_, value in first)
    deleted = 0
    for count in (1, 50, 3000):
        keyed.write(count)
        rows = query.step()
        deleted += sum(row.value is None for row in rows)
        assert len(keys(rows)) == len(set(keys(rows)))
        assert query.state == keyed.state
        assert {key for *_, key, value in rows if value is not None} <= keyed.state.keys()
        assert query.step() == []
    assert deleted
    query.run()
    keyed.write(20)
    assert query.step()
    assert query.state == keyed.state
    assert query.reader.reportLatestOffset()[keyed.name]["0"] == query.end[keyed.name]["0"]  # type: ignore[index]


@pytest.mark.long
def test_a_micro_batch_that_is_read_again_is_the_same_while_its_lease_holds(
    keyed: Keyed, client: duramen.Client, start_query: Queries
) -> None:
    client.streams.alter(keyed.name, config={"snapshot.retention.ms": 0})
    for options in ({}, {"minPartitions": 7}):
        query = start_query(subscribe=keyed.name, **options)
        for _ in range(3):
            keyed.write(400)
            assert query.plan()
            rows = query.read()
            for _ in range(2):
                keyed.write(400)  # what supersedes and deletes
                query.run()
                assert sorted(query.read(), key=str) == sorted(rows, key=str)
            query.done(rows)
        query.step()
        assert query.state == keyed.state
    assert len(keyed.leases()) == 2  # each query's last


@pytest.mark.long
def test_behind_the_lease_what_is_still_there_is_read_and_the_rest_comes_next(
    keyed: Keyed, client: duramen.Client, caplog: pytest.LogCaptureFixture, start_query: Queries
) -> None:
    client.streams.alter(keyed.name, config={"snapshot.retention.ms": 0})
    keyed.write(50)
    until(lambda: all(place["oldest"] == place["at"] for place in keyed.places().values()))
    query = start_query(subscribe=keyed.name)
    for _ in range(2):
        keyed.write(200)
        assert query.plan()
        rows, end = query.read(), query.end[keyed.name]
        keyed.write(30)
        keyed.end_leases()
        until(keyed.is_past(end))
        query.run()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "duramen.spark"):
            left = query.read()
        said = [
            one.getMessage()
            for one in caplog.records
            if "the lease on the last micro-batch has expired" in one.getMessage()
        ]
        assert said == [said[0]]
        assert keyed.name in said[0]
        assert set(left) < set(rows)
        held = {part["partition"]: part["at"] for part in keyed.leases()[0]["partitions"]}
        assert all(held[int(index)] >= place for index, place in end.items() if index in "01")
        query.done(left)
        query.step()
        assert query.state == keyed.state


@pytest.mark.long
def test_a_lease_is_renewed_as_long_as_the_query_runs_and_given_up_for_the_next(
    node: NodeProcess, stream_name: str, client: duramen.Client, start_query: Queries
) -> None:
    keyed = Keyed(node, stream_name, client, **{"snapshot.lease.ms": 1000})
    query = start_query(subscribe=keyed.name)
    keyed.write(10)
    query.step()
    (lease,) = keyed.leases()
    assert query.end[keyed.name]["lease"] == lease["lease"]
    until(lambda: keyed.leases()[0]["expires_ms"] >= lease["expires_ms"] + 2000)
    keyed.write(10)
    query.step()
    assert [one["lease"] for one in keyed.leases()] == [query.end[keyed.name]["lease"]]
    query.reader.stop()
    until(lambda: not keyed.leases())


@pytest.mark.long
def test_behind_the_tombstones_the_query_ends_and_says_so(
    keyed: Keyed, client: duramen.Client, start_query: Queries
) -> None:
    query = start_query(subscribe=keyed.name)
    keyed.write(100)
    query.step()
    client.streams.alter(keyed.name, config={"snapshot.retention.ms": 0, "delete.retention.ms": 0})
    keyed.end_leases()
    keyed.write(100)
    at = query.start[keyed.name]
    until(lambda: any(place["horizon"] > at[index] for index, place in keyed.places().items()))
    query.run()
    with pytest.raises(SnapshotStartOver, match=r"was read up to \d+, and tombstones are kept from .*new checkpoint"):
        query.plan()
    anew = start_query(subscribe=keyed.name)
    anew.step()
    assert anew.state == keyed.state


@pytest.mark.long
def test_a_stream_that_is_another_or_none_ends_the_query(
    keyed: Keyed, client: duramen.Client, start_query: Queries
) -> None:
    query = start_query(subscribe=keyed.name)
    keyed.write(10)
    query.step()
    client.streams.delete(keyed.name)
    with pytest.raises(StreamNotFound):
        query.plan()
    again = Keyed(keyed.node, keyed.name, client)
    again.write(10)
    query.run()
    with pytest.raises(SnapshotStartOver, match=r"was deleted and created again: start a query"):
        query.plan()
    other = start_query(subscribe=f"{keyed.name}-plain")
    client.streams.create(f"{keyed.name}-plain", partitions=1)
    with pytest.raises(StreamNotKeyed):
        other.plan()
    other.start = query.start
    with pytest.raises(CheckpointInvalid):
        other.plan()


@pytest.mark.long
def test_what_the_log_has_lost_ends_the_query(keyed: Keyed, start_query: Queries) -> None:
    query = start_query(subscribe=keyed.name)
    keyed.write(10)
    query.step()
    epochs = query.start[keyed.name]["epoch"]
    assert sorted(epochs) == ["0", "1"]
    epochs["1"] -= 1  # as if the records had been written anew since
    query.run()
    with pytest.raises(SnapshotCut, match=r"has lost records before .*; start a query with a new checkpoint"):
        query.plan()


@pytest.mark.long
def test_a_node_that_was_killed_has_the_lease_still(new_node: Callable[..., NodeProcess], stream_name: str) -> None:
    node = new_node().start()
    with duramen.connect(node.http) as client:
        keyed = Keyed(node, stream_name, client, **{"snapshot.retention.ms": 0})
        query = Query(node, subscribe=keyed.name)
        for _ in range(2):
            keyed.write(300)
            assert query.plan()
            rows = query.read()
            keyed.write(300)
            node.kill()
            node.restart()
            assert sorted(query.read(), key=str) == sorted(rows, key=str)
            query.run()
            assert sorted(query.read(), key=str) == sorted(rows, key=str)
            query.done(rows)
            query.step()
            assert query.state == keyed.state
        query.reader.stop()


@pytest.mark.long
def test_where_it_begins_is_what_starting_offsets_say(keyed: Keyed, start_query: Queries) -> None:
    keyed.write(100)
    at = {index: place["at"] for index, place in keyed.places().items()}
    before = dict(keyed.state)
    named = start_query(subscribe=keyed.name, startingOffsets=json.dumps({keyed.name: at}))
    mixed = start_query(subscribe=keyed.name, startingOffsets=json.dumps({keyed.name: {"0": -2, "1": -1}}))
    latest = start_query(subscribe=keyed.name, startingOffsets="latest")
    earliest = start_query(subscribe=keyed.name, startingOffsets="earliest")
    assert named.step() == latest.step() == []
    assert {partition for _, partition, *_ in mixed.step()} == {0}
    earliest.step()
    assert earliest.state == before
    keyed.write(60)
    assert sorted(named.step(), key=str) == sorted(latest.step(), key=str) == sorted(earliest.step(), key=str)
    assert earliest.state == keyed.state
    ahead = start_query(subscribe=keyed.name, startingOffsets=json.dumps({keyed.name: {"0": 10**6, "1": 0}}))
    with pytest.raises(SnapshotNotReached, match="read a whole snapshot"):
        ahead.plan()


@pytest.mark.long
def test_two_streams_available_now_and_the_group_that_shows_the_lag(
    keyed: Keyed, client: duramen.Client, start_query: Queries
) -> None:
    other = Keyed(keyed.node, f"{keyed.name}-2", client)
    query = start_query(path=f"{keyed.name},{other.name}", **{"kafka.group.id": keyed.name})
    keyed.write(50)
    other.write(50, keys=10)
    query.reader.prepareForTriggerAvailableNow()
    held = dict(keyed.state)
    keyed.write(50)
    rows = query.step()
    assert {topic for topic, *_ in rows} == {keyed.name, other.name}
    assert {key: value for topic, *_, key, value in rows if topic == keyed.name} == held
    assert query.step() == []
    query.reader.commit(query.end)
    group = client.groups.describe(keyed.name)
    lag = sum(one.lag_records or 0 for one in group.offsets if one.stream == keyed.name)
    assert lag == 50


class Transactor:
    """A transactional producer that writes equal values to a key in each of several streams, or gives that up."""

    def __init__(self, node: NodeProcess, streams: list[str], number: int) -> None:
        self._streams, self._chance = streams, Random(number)
        name = f"{streams[0]}-{number}"
        self._producer = confluent_kafka.Producer({"bootstrap.servers": node.kafka, "transactional.id": name})
        self._producer.init_transactions(30)
        self._open = False
        self._number = number

    def step(self) -> None:
        """Begin and write, or end what was written before: so transactions interleave."""
        if not self._open:
            self._producer.begin_transaction()
            value = b"%d-%d" % (self._number, self._chance.randrange(10**9))
            for stream in self._streams:
                for partition in range(2):
                    self._producer.produce(stream, value, b"k%d" % self._number, partition)
            self._producer.flush(30)
        elif self._chance.random() < 0.3:
            self._producer.abort_transaction(30)
        else:
            self._producer.commit_transaction(30)
        self._open = not self._open


@pytest.mark.long
def test_two_streams_have_each_transaction_wholly_in_batches_and_at_the_end_of_each_micro_batch(
    keyed: Keyed, client: duramen.Client, start_query: Queries
) -> None:
    names = [keyed.name, f"{keyed.name}-2"]
    Keyed(keyed.node, names[1], client)
    given = {"kafka.bootstrap.servers": keyed.node.kafka, "server": keyed.node.http, "snapshot": "true"}
    batch = Options(given | {"subscribe": ",".join(names)}, "batch")
    query, over = start_query(subscribe=",".join(names)), Event()
    state: dict[tuple[str, int, bytes], bytes | None] = {}

    def write(transactor: Transactor) -> None:
        while not over.is_set():
            transactor.step()

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, Transactor(keyed.node, names, number)) for number in range(4)]
        try:
            for turn in range(40):
                until(query.plan)
                rows = query.read()
                query.run()
                assert sorted(query.read(), key=str) == sorted(rows, key=str)
                state |= {(row.topic, row.partition, row.key): row.value for row in rows}
                query.done(rows)
                assert_whole(state, names, f"micro-batch {turn}")
                whole = SnapshotReader(batch)
                read = [rows for one in whole.partitions() for rows in sent(whole).read(sent(one))]
                found = [row for rows in read for row in rows.to_pylist()]
                assert_whole(
                    {(row["topic"], row["partition"], row["key"]): row["value"] for row in found}, names, "batch"
                )
        finally:
            over.set()
    for one in writing:
        one.result()


def assert_whole(state: Mapping[tuple[str, int, bytes], bytes | None], names: list[str], what: str) -> None:
    for number in range(4):
        values = {state.get((name, partition, b"k%d" % number)) for name in names for partition in range(2)}
        assert len(values) == 1, f"{what}: a transaction is there in part: {values}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tier": "hot"}, "tier does not go with snapshot"),
        ({"kafka.isolation.level": "read_uncommitted"}, "snapshots have committed records only"),
        ({"failOnDataLoss": "false"}, "failOnDataLoss does not go with snapshot"),
        ({"snapshot": '{"0": 1}'}, "a streaming query has one snapshot after the other, so it must be true"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "1"}, "minOffsetsPerTrigger is larger"),
        ({"startingOffsets": "soon"}, "must be earliest, latest or JSON"),
    ],
)
def test_what_does_not_fit_is_said(options: dict[str, str], said: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "s", "snapshot": "true"}
    with pytest.raises(OptionInvalid, match=said):
        stream_reader_of(Options(given | options, "stream"))
