"""Queries of one application: each goes on by itself, stops where it is told, and refuses what is not its own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from tests.spark.pipelines.running import Seen, numbers, run_once

from duramen.base.errors import PipelineFailed
from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.pipelines.checkpoints import Checkpoints
from duramen.spark.pipelines.checks import prepare
from duramen.spark.pipelines.definition.loader import load
from duramen.spark.pipelines.definition.problems import Problems
from duramen.spark.pipelines.run import Application, Terms
from duramen.spark.pipelines.status import PipelineStatus, read_status
from duramen.spark.tables.delta.log import DeltaLog

WITHOUT_NATIVE = "duramen-native is not installed"
COPY = """\
pipeline: copy
brokers: {brokers}
sources:
  there:
    stream: {stream}
    options: {{startingOffsets: earliest, maxOffsetsPerTrigger: 50}}
steps:
  numbers: {{sql: "SELECT partition, offset, CAST(value AS STRING) AS value FROM there"}}
sinks:
  out: {{from: numbers, delta: out}}
"""


def fill(cluster: BrokerCluster, stream: str, count: int) -> None:
    StreamAdmin(cluster).create_stream(stream, 2)
    with Producer(cluster) as producer:
        for number in range(count):
            producer.produce(stream, b"%d" % number, partition=number % 2)


class Running:
    """`duramen pipeline run` as a process group of its own; its Java and what works for that belong to it."""

    def __init__(self, file: Path, log: Path) -> None:
        command = [sys.executable, "-m", "duramen", "pipeline", "run", "--master", "local[2]", str(file)]
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True
            )
        self._guard = threading.Timer(500, os.killpg, (self._process.pid, signal.SIGKILL))
        self._guard.start()

    def until(self, enough: Callable[[dict[str, Any]], bool]) -> None:
        """Read what it says, line by line, until that is `enough`, or it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if enough(json.loads(line)):
                return

    def end(self, number: signal.Signals) -> int:
        """Send a signal to all of it, as a terminal does; returns how the command ended."""
        os.killpg(self._process.pid, number)
        assert self._process.stdout is not None
        self._process.stdout.read()
        self._process.stdout.close()
        self._guard.cancel()
        return self._process.wait()


@pytest.mark.long
def test_killed_run_again_and_interrupted_each_record_is_there_once(
    node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    """Killed with -9 while micro-batches come, Java too; the next run does the rest, and ends as Ctrl-C asks."""
    fill(cluster, stream_name, 400)
    file, log = tmp_path / "copy.yaml", tmp_path / "log"
    file.write_text(COPY.format(brokers=node.kafka, stream=stream_name))
    checkpoints = Checkpoints(tmp_path / "checkpoints" / "copy", "copy")
    running = Running(file, log)
    running.until(lambda said: (said["batch"] or {}).get("batch_id", 0) >= 2)
    assert running.end(signal.SIGKILL) == -signal.SIGKILL
    assert 0 < len(numbers(tmp_path / "out")) < 400, log.read_text()
    assert read_status(checkpoints).state == "lost"
    running = Running(file, log)
    running.until(lambda said: (said["batch"] or {}).get("lag_records") == 0 and len(numbers(tmp_path / "out")) == 400)
    assert running.end(signal.SIGINT) == 0, log.read_text()
    assert [line for line in log.read_text().splitlines() if not line.startswith(WITHOUT_NATIVE)] == []
    assert numbers(tmp_path / "out") == list(range(400))
    status = read_status(checkpoints)
    assert (status.state, status.queries[0].state) == ("stopped", "stopped")


@pytest.mark.long
def test_ended_together_with_its_java(
    node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    """SIGTERM to all of it, as systemd sends it, is no failure and no bug; what it had is there."""
    fill(cluster, stream_name, 400)
    file, log = tmp_path / "copy.yaml", tmp_path / "log"
    file.write_text(COPY.format(brokers=node.kafka, stream=stream_name))
    running = Running(file, log)
    running.until(lambda said: (said["batch"] or {}).get("batch_id", 0) >= 2)
    assert running.end(signal.SIGTERM) == 0, log.read_text()
    assert [line for line in log.read_text().splitlines() if not line.startswith(WITHOUT_NATIVE)] == []
    assert read_status(Checkpoints(tmp_path / "checkpoints" / "copy", "copy")).state == "stopped"


class Gone:
    """A frame whose Java has been ended."""

    def __getattr__(self, name: str) -> Any:
        raise Py4JError(f"{name}: shutdown in progress")


def test_java_that_is_gone_is_a_failure_unless_it_was_told_to_stop(tmp_path: Path) -> None:
    file, problems = tmp_path / "copy.yaml", Problems()
    file.write_text(COPY.format(brokers="127.0.0.1:1", stream="there"))
    declared = load(file, problems)
    assert declared is not None
    checkpoints = Checkpoints(tmp_path / "checkpoints", "copy")
    for told in (False, True):
        seen = Seen()
        with checkpoints.held():
            application = Application(declared, {"numbers": cast("Any", Gone())}, checkpoints, Terms("local[2]"), seen)
            with nullcontext() if told else pytest.raises(PipelineFailed, match=r"Spark's Java is gone.*in progress"):
                application.run(lambda _, told=told: told)  # type: ignore[misc]
        assert seen.last is not None
        assert seen.last.state == ("stopped" if told else "failed")


@pytest.mark.long
def test_a_stream_deleted_under_its_query_and_another_goes_on(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    gone, stays = f"{stream_name[-80:]}-gone", f"{stream_name[-80:]}-stays"
    fill(cluster, gone, 100)
    fill(cluster, stays, 100)
    file = tmp_path / "two.yaml"
    file.write_text(
        f"pipeline: two\nbrokers: {node.kafka}\nsources:\n"
        f"  a: {{stream: {gone}, options: {{startingOffsets: earliest}}}}\n"
        f"  b: {{stream: {stays}, options: {{startingOffsets: earliest}}}}\n"
        "sinks:\n  gone: {from: a, console: true, rows: 1}\n"
        "  stays: {from: b, console: true, rows: 10000}\n"
    )
    problems, seen = Problems(), Seen()
    declared = load(file, problems)
    assert declared is not None
    frames = prepare(spark, declared, problems)
    checkpoints = Checkpoints(tmp_path / "checkpoints", "two")
    application = Application(declared, frames, checkpoints, Terms("local[2]"), seen)
    acted: list[str] = []

    def states(status: PipelineStatus | None) -> dict[str, str]:
        return {} if status is None else {query.query: query.state for query in status.queries}

    def wait(seconds: float) -> bool:
        """Delete one stream when both have been read, add to the other when its query has failed, then stop."""
        assert time.monotonic() < until_s
        if not acted and all(len(seen.rows_of.get(query, ())) for query in ("gone", "stays")):
            StreamAdmin(cluster).delete_stream(gone)
            acted.append("deleted")
        if acted == ["deleted"] and states(seen.last).get("gone") == "failed":
            with Producer(cluster) as producer:
                producer.produce(stays, b"one more")
            acted.append("added")
        if acted == ["deleted", "added"] and len(seen.rows_of["stays"]) == 101:
            return True
        return threading.Event().wait(seconds)

    until_s = time.monotonic() + 300
    with checkpoints.held(), pytest.raises(PipelineFailed, match=f"query gone: .*{gone}") as failed:
        application.run(wait)
    assert "\n" not in str(failed.value)
    assert states(seen.last) == {"gone": "failed", "stays": "stopped"}
    assert seen.last is not None
    assert [query.restarts for query in seen.last.queries] == [0, 0]


@pytest.mark.long
def test_a_checkpoint_of_another_stream_and_a_stream_that_is_not_there(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    one, two = f"{stream_name[-80:]}-one", f"{stream_name[-80:]}-two"
    fill(cluster, one, 10)
    fill(cluster, two, 10)
    file = tmp_path / "copy.yaml"
    file.write_text(COPY.format(brokers=node.kafka, stream=one))
    run_once(spark, file)
    file.write_text(COPY.format(brokers=node.kafka, stream=two))
    with pytest.raises(PipelineFailed, match=f"out is of the streams {one}, and the query reads {two}"):
        run_once(spark, file)
    file.write_text(COPY.format(brokers=node.kafka, stream=f"{one}x"))
    with pytest.raises(AssertionError, match=f"there is no stream {one}x; did you mean {one}"):
        run_once(spark, file)
    assert numbers(tmp_path / "out") == list(range(10))


def test_a_query_that_a_restart_cannot_cure_is_not_started_again(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    fill(cluster, stream_name, 10)
    file = tmp_path / "copy.yaml"
    bad = COPY.replace("SELECT partition,", "SELECT 1 / (partition - partition) AS never, partition,")
    file.write_text(bad.format(brokers=node.kafka, stream=stream_name))
    seen = Seen()
    with pytest.raises(PipelineFailed, match=r"query out: .*Division by zero"):
        run_once(spark, file, restarts=3, seen=seen)
    assert seen.last is not None
    assert (seen.last.queries[0].state, seen.last.queries[0].restarts) == ("failed", 0)


@pytest.mark.long
def test_a_query_that_fails_is_started_again_from_where_it_was(
    spark: SparkSession,
    node: NodeProcess,
    cluster: BrokerCluster,
    stream_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk is full at first."""
    fill(cluster, stream_name, 60)
    file = tmp_path / "copy.yaml"
    file.write_text(COPY.format(brokers=node.kafka, stream=stream_name))
    problems = Problems()
    declared = load(file, problems)
    assert declared is not None
    frames = prepare(spark, declared, problems)
    seen, checkpoints = Seen(), Checkpoints(tmp_path / "checkpoints", "copy")
    made, failures = DeltaLog.write, [OSError(28, "No space left on device")]

    def fail_once(log: DeltaLog, *words: Any, **more: Any) -> bool:
        if failures:
            raise failures.pop()
        return made(log, *words, **more)

    monkeypatch.setattr(DeltaLog, "write", fail_once)

    def wait(seconds: float) -> bool:
        if seen.last is not None and seen.last.queries[0].state == "waiting":
            assert seen.last.queries[0].error == f"{tmp_path / 'out'}: no space left on the device"
        return threading.Event().wait(seconds)

    application = Application(declared, frames, checkpoints, Terms("local[2]", once=True, restarts=3), seen)
    with checkpoints.held():
        application.run(wait)
    assert seen.last is not None
    assert seen.last.queries[0].restarts == 1
    assert numbers(tmp_path / "out") == list(range(60))


@pytest.mark.long
def test_an_error_is_gone_from_the_status_once_its_query_goes_on(
    spark: SparkSession,
    node: NodeProcess,
    cluster: BrokerCluster,
    stream_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(cluster, stream_name, 60)
    file = tmp_path / "copy.yaml"
    file.write_text(COPY.format(brokers=node.kafka, stream=stream_name))
    problems = Problems()
    declared = load(file, problems)
    assert declared is not None
    frames = prepare(spark, declared, problems)
    seen, checkpoints = Seen(), Checkpoints(tmp_path / "checkpoints", "copy")
    made, failures = DeltaLog.write, [OSError(28, "No space left on device")]
    errors: list[tuple[str, str | None, str | None]] = []

    def fail_once(log: DeltaLog, *words: Any, **more: Any) -> bool:
        if failures:
            raise failures.pop()
        return made(log, *words, **more)

    monkeypatch.setattr(DeltaLog, "write", fail_once)

    def wait(seconds: float) -> bool:
        assert time.monotonic() < until_s
        assert seen.last is not None
        query = seen.last.queries[0]
        errors.append((query.state, query.error, query.error_id))
        return (query.restarts > 0 and query.error is None) or threading.Event().wait(seconds)

    until_s = time.monotonic() + 300
    with checkpoints.held():
        Application(declared, frames, checkpoints, Terms("local[2]"), seen).run(wait)
    full = (f"{tmp_path / 'out'}: no space left on the device", "table-storage-failed")
    assert ("waiting", *full) in errors
    assert errors[-1] == ("running", None, None)
    assert [query.error for query in read_status(checkpoints).queries] == [None]
