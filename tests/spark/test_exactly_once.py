"""The sink writes every batch once, through everything that Spark repeats and everybody who is killed."""

import contextlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from tests.clients import until
from tests.spark.committed import committed, values

from duramen.base.errors import AttemptLost, QueryFenced, UnsupportedFeature
from duramen.client import BrokerCluster, Consumer, Producer, StreamAdmin, TopicPartition
from duramen.client.batches import Batches
from duramen.client.cluster import RetryPatience
from duramen.client.producer import OpenTransaction
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess
from duramen.spark.write import attempts
from duramen.spark.write.attempts import WriteResult, WriteTask, digest_of, is_exactly_once
from duramen.spark.write.writer import RowWriter

DRIVER = Path(__file__).parent / "copying.py"
OLDER = """
import runpy, sys
from pathlib import Path
import duramen.spark
driver, servers, directory, stream, target = sys.argv[1:]
copying = runpy.run_path(driver)
spark = duramen.spark.session("older", "local[4]", config=copying["CONFIG"])
still = {"still_percent": 100, "still_s": 3_600}
query = copying["begin"](spark, servers, Path(directory), stream, target, percent=0, once=False, **still)
query.awaitTermination()
"""
KILLED = """
import os, runpy, signal, sys
from pathlib import Path
import duramen.spark
from duramen.spark.options import Options
from duramen.spark.datasource import DuramenDataSource
from duramen.spark.write.sink import StreamWriter
driver, servers, directory, stream, target, last = sys.argv[1:]
LAST, GROUP = int(last), os.getpid()

class KilledWriter(StreamWriter):
    def commit(self, messages, batch_id):
        super().commit(messages, batch_id)
        if batch_id == LAST:  # Java, which waits for the answer, is of the group; this worker is not
            os.killpg(GROUP, signal.SIGKILL)
            os._exit(1)

class KilledSource(DuramenDataSource):
    @classmethod
    def name(cls):
        return "killed"

    def streamWriter(self, schema, overwrite):
        return KilledWriter(Options(self.options, "sink"), schema)

copying = runpy.run_path(driver)
spark = duramen.spark.session("killed", "local[2]", config=copying["CONFIG"])
spark.dataSource.register(KilledSource)
query = copying["begin"](spark, servers, Path(directory), stream, target, percent=0, once=False, sink="killed")
query.awaitTermination()
"""
PARTITIONS = 2


@pytest.fixture
def target(cluster: BrokerCluster, stream_name: str) -> str:
    name = f"{stream_name[-100:]}-to"
    StreamAdmin(cluster).create_stream(name, PARTITIONS)
    return name


def write(frame: DataFrame, node: NodeProcess, target: str, **options: str) -> None:
    writer = frame.write.format("duramen").mode("append").option("kafka.bootstrap.servers", node.kafka)
    writer.option("topic", target).options(**options).save()


def transactions(cluster: BrokerCluster) -> list[str]:
    """The ids of Spark's attempts that the node keeps."""
    listed = cluster.ask(ApiKey.LIST_TRANSACTIONS, {"state_filters": [], "producer_id_filters": []})
    ids = [one["transactional_id"] for one in listed["transaction_states"]]
    return [id_ for id_ in ids if id_.startswith("__spark/")]


# -- batches ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_batch_is_there_at_once_and_nothing_is_left_open(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, target: str
) -> None:
    frame = spark.range(1000).repartition(4).select(sf.col("id").cast("string").alias("value"))
    write(frame, node, target)
    assert committed(cluster, target) == values(1000)
    assert transactions(cluster) == []


@pytest.mark.long
def test_a_batch_that_fails_leaves_nothing(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, target: str
) -> None:
    number = sf.col("id")
    value = sf.when(number == 900, sf.raise_error(sf.lit("no"))).otherwise(number.cast("string"))
    with pytest.raises(PySparkException):
        write(spark.range(1000).repartitionByRange(4, "id").select(value.alias("value")), node, target)
    assert committed(cluster, target) == Counter()
    assert transactions(cluster) == []


@pytest.mark.long
def test_a_batch_that_fails_leaves_nothing_of_tasks_that_still_run(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, target: str, tmp_path: Path
) -> None:
    servers, seen = node.kafka, tmp_path / "seen"
    ats = [TopicPartition(target, index) for index in range(PARTITIONS)]

    def wait_for(condition: Callable[[], bool]) -> None:  # `until` comes with what is not for executors
        patience = RetryPatience(60)
        while not condition():
            patience.pause(AttemptLost("it did not happen"))

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = sum(batch.column("id").to_pylist()[0] for batch in batches)
        if number == 0:
            column = pa.array([bytes(100)] * 5_000, pa.binary())
            yield from [pa.RecordBatch.from_arrays([column], names=["value"])] * 20  # more than Spark holds back
            wait_for(seen.exists)
            return
        with BrokerCluster(servers) as own:
            wait_for(lambda: any(end for _, end in Consumer(own).bounds(ats).values()))
        raise ValueError("this task fails while the other has written")

    frame = spark.range(2).repartitionByRange(2, "id").mapInArrow(rows, "value binary")
    with pytest.raises(PySparkException, match="this task fails while the other has written"):
        write(frame, node, target, **{"kafka.batch.size": "1000"})
    assert committed(cluster, target) == Counter()
    assert transactions(cluster) == []
    seen.touch()


def test_at_least_once_by_option(spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, target: str) -> None:
    frame = spark.range(10).select(sf.col("id").cast("string").alias("value"))
    write(frame, node, target, exactlyOnce="false")
    bounds = Consumer(cluster).bounds([TopicPartition(target, index) for index in range(PARTITIONS)])
    assert sum(end for _, end in bounds.values()) == 10, "no marker"
    with pytest.raises(PySparkException, match="exactlyOnce: 'maybe' does not fit; it must be one of auto,"):
        write(frame, node, target, exactlyOnce="maybe")


def test_other_brokers_than_duramens(cluster: BrokerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_exactly_once(cluster, "auto")
    assert is_exactly_once(cluster, "true")
    assert not is_exactly_once(cluster, "false")
    monkeypatch.setattr(attempts, "are_offered", lambda _: False)
    assert not is_exactly_once(cluster, "auto")
    with pytest.raises(UnsupportedFeature, match="these brokers do not decide about batches"):
        is_exactly_once(cluster, "true")


# -- attempts, as Spark makes them --------------------------------------------------------------------


@pytest.fixture
def attempt(cluster: BrokerCluster, target: str) -> Callable[..., WriteResult]:
    """An attempt of a task, in this process."""

    def write_rows(transaction: OpenTransaction, rows: Iterator[pa.RecordBatch]) -> int:
        producer = Producer(cluster, transaction=transaction)
        writer = RowWriter(cluster, producer, target, 0, 1 << 16)
        for batch in rows:
            writer.write(batch)
        writer.flush()
        return producer.acknowledged

    def run(task: WriteTask, *found: bytes, timeout_ms: int = 60_000) -> WriteResult:
        rows = pa.RecordBatch.from_arrays([pa.array(list(found), pa.binary())], names=["value"])
        return attempts.write(cluster, task, timeout_ms, iter([rows]), write_rows)

    return run


def test_of_two_attempts_of_a_task_one_counts(
    cluster: BrokerCluster, target: str, attempt: Callable[..., WriteResult], stream_name: str
) -> None:
    query = stream_name[-100:]
    attempt(WriteTask(query, "r", 0, 0, 1), b"a")
    second = attempt(WriteTask(query, "r", 0, 0, 2), b"a")
    other = attempt(WriteTask(query, "r", 0, 1, 3), b"b")
    none = attempt(WriteTask(query, "r", 0, 2, 4))
    attempts.commit(cluster, [second, other, none, None], b"")
    assert committed(cluster, target) == {b"a": 1, b"b": 1}
    with pytest.raises(QueryFenced, match="another run writes now, or the batch is decided"):
        Batches(cluster, query).open(f"__spark/{query}/1/0/0/9", 60_000)
    again = attempt(WriteTask(query, "another", 0, 0, 1), b"a")
    assert (again.records, again.winner) == (0, None)
    attempts.commit(cluster, [again], b"")
    assert committed(cluster, target) == {b"a": 1, b"b": 1}


def test_a_batch_that_is_given_up_leaves_nothing(
    cluster: BrokerCluster, target: str, attempt: Callable[..., WriteResult], stream_name: str
) -> None:
    query = stream_name[-100:]
    written = attempt(WriteTask(query, "r", 0, 0, 1), b"a")
    attempts.abandon(cluster, [written, None])
    assert committed(cluster, target) == Counter()
    with pytest.raises(AttemptLost, match="attempt 1 of partition 0 is no longer open"):
        attempts.commit(cluster, [written], b"")


@pytest.mark.parametrize("begun", [True, False])
def test_a_write_that_is_given_up_refuses_its_tasks(
    cluster: BrokerCluster, target: str, attempt: Callable[..., WriteResult], stream_name: str, begun: bool
) -> None:
    query = stream_name[-100:]
    if begun:
        attempt(WriteTask(query, query, 0, 0, 1), b"a")
    attempts.give_up(cluster, query)
    attempts.give_up(cluster, query)
    assert committed(cluster, target) == Counter()
    with pytest.raises(QueryFenced, match="has begun to write since"):
        attempt(WriteTask(query, query, 0, 0, 2), b"a")
    with pytest.raises(QueryFenced, match="another run writes now, or the batch is decided"):
        Batches(cluster, query).open(f"__spark/{query}/1/0/0/3", 60_000)
    assert committed(cluster, target) == Counter()


def test_a_write_that_is_decided_is_not_given_up(
    cluster: BrokerCluster, target: str, attempt: Callable[..., WriteResult], stream_name: str
) -> None:
    query = stream_name[-100:]
    attempts.commit(cluster, [attempt(WriteTask(query, query, 0, 0, 1), b"a")], b"")
    attempts.give_up(cluster, query)
    assert committed(cluster, target) == {b"a": 1}


def test_the_digest_of_a_batch_is_that_of_its_offsets(tmp_path: Path) -> None:
    offsets = tmp_path / "check point" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "3").write_text('v1\n{"batchTimestampMs":1}\n{"a":1}\n', encoding="utf-8")
    (offsets / "4").write_text('v1\n{"batchTimestampMs":2}\n{"a":1}', encoding="utf-8")
    (offsets / "5").write_text('v1\n{"batchTimestampMs":1}\n{"a":2}', encoding="utf-8")
    directory = str(offsets.parent)
    third, fourth, fifth = (digest_of(directory, batch) for batch in (3, 4, 5))
    assert third == fourth != fifth
    assert digest_of(offsets.parent.as_uri(), 3) == third
    for unreadable in ("", "s3://bucket/checkpoint", str(tmp_path / "nowhere")):
        assert digest_of(unreadable, 3) == b""


# -- streaming queries --------------------------------------------------------------------------------


def fill(cluster: BrokerCluster, stream: str, first: int, end: int) -> None:
    with Producer(cluster) as producer:
        for number in range(first, end):
            producer.produce(stream, b"%d" % number, key=b"%d" % (number % 7))


def copy(spark: SparkSession, node: NodeProcess, directory: Path, stream: str, target: str) -> None:
    """Copy all that there is, with one micro-batch."""
    begin = runpy.run_path(str(DRIVER))["begin"]
    begin(spark, node.kafka, directory, stream, target, percent=0, once=True).awaitTermination()


def forget_commit(directory: Path, batch: int) -> None:
    """What a driver leaves that was killed between the sink's commit and its own entry in the checkpoint."""
    commits = directory / "checkpoint" / "commits"
    for name in (str(batch), f".{batch}.crc"):
        (commits / name).unlink(missing_ok=True)


def test_a_driver_that_ended_before_its_checkpoint_writes_nothing_twice(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str, target: str, tmp_path: Path
) -> None:
    fill(cluster, stream, 0, 300)
    copy(spark, node, tmp_path, stream, target)
    forget_commit(tmp_path, 0)
    fill(cluster, stream, 300, 400)
    copy(spark, node, tmp_path, stream, target)
    assert committed(cluster, target) == values(400)


@pytest.mark.long
def test_a_driver_killed_behind_its_decision_writes_nothing_twice(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str, target: str, tmp_path: Path
) -> None:
    """Killed with -9 between the sink's commit and the checkpoint's, and once more with the next batch."""
    fill(cluster, stream, 0, 1_200)
    there = 0
    for batch in range(2):
        arguments = [str(DRIVER), node.kafka, str(tmp_path), stream, target, str(batch)]
        with (tmp_path / "driver.log").open("ab") as log:
            driver = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stderr=log, start_new_session=True)
        try:
            assert driver.wait(500) == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-5000:]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        before, there = there, committed(cluster, target).total()
        assert before < there < 1_200
        assert (tmp_path / "checkpoint" / "offsets" / str(batch)).exists()
        assert not (tmp_path / "checkpoint" / "commits" / str(batch)).exists()
    copy(spark, node, tmp_path, stream, target)
    assert committed(cluster, target) == values(1_200)


@pytest.mark.long
def test_a_batch_that_comes_again_with_another_range_is_refused(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str, target: str, tmp_path: Path
) -> None:
    fill(cluster, stream, 0, 100)
    copy(spark, node, tmp_path, stream, target)
    forget_commit(tmp_path, 0)
    fill(cluster, stream, 100, 200)
    shutil.rmtree(tmp_path / "checkpoint" / "offsets")  # a loss of power: Spark does not sync its checkpoints
    with pytest.raises(StreamingQueryException, match=r"batch 0 of query .* was written with another range"):
        copy(spark, node, tmp_path, stream, target)
    assert committed(cluster, target) == values(100)


@pytest.mark.long
def test_a_second_driver_takes_over_in_the_middle_of_a_batch(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str, target: str, tmp_path: Path
) -> None:
    """Both write the same batch of the same checkpoint; the first goes on when the second is through."""
    fill(cluster, stream, 0, 300)
    arguments = [str(DRIVER), node.kafka, str(tmp_path), stream, target]
    with (tmp_path / "driver.log").open("wb") as log:
        older = subprocess.Popen([sys.executable, "-c", OLDER, *arguments], stderr=log, start_new_session=True)
    try:
        until(lambda: older.poll() is not None or transactions(cluster), 300)
        copy(spark, node, tmp_path, stream, target)
        assert committed(cluster, target) == values(300)
        (tmp_path / "go").touch()
        assert older.wait(300), "it ended as if it had written"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(older.pid, signal.SIGKILL)
        older.wait()
    assert re.search(r"run 1 \(.*\) is fenced: run 2", (tmp_path / "driver.log").read_text())
    assert committed(cluster, target) == values(300)


@pytest.mark.long
def test_an_older_driver_is_fenced(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str, target: str, tmp_path: Path
) -> None:
    fill(cluster, stream, 0, 100)
    begin = runpy.run_path(str(DRIVER))["begin"]
    query = begin(spark, node.kafka, tmp_path, stream, target, percent=0, once=False)
    try:
        while not query.recentProgress or not query.recentProgress[-1]["numInputRows"]:
            query.processAllAvailable()
        id_ = json.loads((tmp_path / "checkpoint" / "metadata").read_text(encoding="utf-8"))["id"]
        assert Batches(cluster, id_).begin("the-other-driver", 1).run == 2
        fill(cluster, stream, 100, 200)
        with pytest.raises(StreamingQueryException, match=r"run 1 \(.*\) is fenced: run 2 \(the-other-driver\)"):
            query.awaitTermination()
    finally:
        query.stop()
    assert committed(cluster, target) == values(100)
