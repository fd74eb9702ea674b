"""`duramen table run` as a user runs it: into S3 by two jobs at once, and on a Spark cluster of two workers."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.cli.command import Ended, command_environment, run
from tests.clients import until
from tests.spark.standalone import standalone
from tests.spark.tables.filling import rows
from tests.spark.tables.s3 import s3_with_a_lake
from tests.spark.translation.world import World
from tests.spark.values.test_avro import answer, prefixed, record, registry

from duramen.client.http import HttpNode, path_of
from duramen.node.process import NodeProcess
from duramen.spark.tables.port import LakeTable, Storage
from duramen.spark.tables.registry import open_dead_letters, open_table

_PATIENCE_S = 300.0
FLIGHT = record(("carrier", "string"), ("delay", "int"))
LATER = record(("carrier", "string"), ("delay", "int"), ("gate", ["null", "string"]))


@contextmanager
def running(node: NodeProcess, log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A job until it is told to stop."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "duramen", "table", "run", "--master", "local[1]", *words],
            env=command_environment(node.http), stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_PATIENCE_S)


def enabled(node: NodeProcess, world: World, location: str, *words: str) -> Ended:
    ended = run("table", "enable", world.stream, "--format", "delta", "--location", location, "--max-lag", "1s", *words,
                server=node.http)  # fmt: skip
    assert (ended.code, ended.err) == (0, "")
    return ended


def has(table: LakeTable, records: int, *processes: subprocess.Popen[bytes]) -> bool:
    """Whether the table has so many, or one that should bring them is gone."""
    return sum(table.ends().values()) >= records or any(process.poll() is not None for process in processes)


@pytest.mark.long
def test_two_jobs_on_one_table_on_s3_with_avro_of_a_registry(node: NodeProcess, world: World, tmp_path: Path) -> None:
    with s3_with_a_lake() as options, registry({7: answer(FLIGHT), 8: answer(LATER)}) as url:
        location = f"s3://lake/{world.stream}"
        storage = [word for name, value in options.items() for word in ("--storage", f"{name}={value}")]
        enabled(node, world, location, "--decode", "avro", "--registry", url, *storage)
        declaration = world.declaration(storage=Storage(location, options), decode="avro", registry=url)
        table = open_table(declaration)
        logs = [tmp_path / f"log-{number}" for number in range(2)]
        with (
            running(node, logs[0], world.stream, *storage) as one,
            running(node, logs[1], world.stream, *storage) as two,
        ):
            for turn in range(1, 5):
                values = [
                    b"no Avro" if number % 10 == 0
                    else prefixed(7, FLIGHT, {"carrier": "UA", "delay": number}) if turn < 3
                    else prefixed(8, LATER, {"carrier": "DL", "delay": number, "gate": "B7"})
                    for number in range(200)
                ]  # fmt: skip
                world.produce(values)
                until(partial(has, table, 200 * turn, one, two), _PATIENCE_S)
                assert (one.poll(), two.poll()) == (None, None), [log.read_text() for log in logs]
        assert (one.returncode, two.returncode) == (0, 0), [log.read_text() for log in logs]
        found = rows(table)
        assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in found] == world.expected()
        bad = [(row["_stream_partition"], row["_offset"]) for row in found if row["_error"] is not None]
        assert bad == [(partition, offset) for partition, offset, value in world.expected() if value == b"no Avro"]
        assert [(row["_stream_partition"], row["_offset"]) for row in rows(open_dead_letters(declaration))] == bad
        good = [row for row in found if row["_error"] is None]
        assert {(row["carrier"], row["gate"]) for row in good} == {("UA", None), ("DL", "B7")}
        assert sum(row["delay"] for row in good) == 4 * sum(number for number in range(200) if number % 10)
        ended = run("table", "status", world.stream, *storage, server=node.http)
        assert ended.code == 0, ended.out


@pytest.mark.long
def test_a_keyed_stream_as_an_upserted_table(node: NodeProcess, world: World) -> None:
    HttpNode(node.http).patch(
        path_of("streams", world.stream), {"config": {"keyed": True, "cleanup.policy": "compact"}}
    )
    enabled(node, world, str(world.location), "--decode", "json", "--upsert-by", "key")
    keys = [b"k%d" % (number % 50) for number in range(2_000)]
    for turn in range(2):
        world.produce([None if key.endswith(b"7") else b'{"a": %d}' % turn for key in keys], keys=keys)
        ended = run("table", "run", "--once", "--master", "local[1]", "--format", "json", world.stream,
                    server=node.http, timeout_s=_PATIENCE_S)  # fmt: skip
        assert ended.code == 0, ended.err
        told = [json.loads(line) for line in ended.out.splitlines()]
        assert (
            told[-1]["duramen_table_records_total"] == 45 + 5 * turn
        )  # each key once; the first round sees no deleted ones
        newest = {key: value for _, key, value in world.made}
        found = [(row["_key"], row["_value"], row["a"]) for row in world.rows(upsert=True)]
        assert sorted(found) == sorted((key, value, turn) for key, value in newest.items() if value is not None)


@pytest.mark.long
def test_on_a_cluster_of_two_workers(node: NodeProcess, world: World, tmp_path: Path) -> None:
    world.produce([b'{"a": %d}' % number if number % 7 else b"bad" for number in range(2_000)])
    enabled(node, world, str(world.location), "--decode", "json")
    conf = {
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    with standalone(tmp_path, 2) as master:
        words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        for _ in range(2):  # the second finds nothing new
            ended = run("table", "run", "--once", "--master", master, *words, world.stream, server=node.http,
                        timeout_s=_PATIENCE_S)  # fmt: skip
            assert ended.code == 0, ended.err
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in world.rows()] == world.expected()
    assert len(world.rows(dead=True)) == len([one for one in world.expected() if one[2] == b"bad"])
    # Each worker has had an executor of the application.
    assert all(list((tmp_path / f"worker-{number}").glob("app-*/*/stderr")) for number in range(2))
