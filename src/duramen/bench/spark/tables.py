"""Streams as tables: write speed, lag of a running job, and freshness of reads."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from duramen.base.errors import RequestInvalid, RequestTimedOut
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.worker import LoadWorker
from duramen.bench.ours import Ours
from duramen.bench.report.targets import TargetOutcome, at_least, at_most
from duramen.bench.spark.sides import PARTITIONS, BenchSide, environment, process
from duramen.client import BrokerCluster
from duramen.spark.tables.port import Declaration, Storage
from duramen.spark.tables.registry import find_table, open_dead_letters, open_table
from duramen.spark.translation.log import SourceLog, bounds, newest_wait_ms
from duramen.spark.translation.round import Round
from duramen.spark.translation.task import run

__all__ = ["STEPS", "measure_translating"]

STEPS: Final = 3
_MIB: Final = 1 << 20
_RECORD_BYTES: Final = 1024
_WANTED_MIB_S: Final[Mapping[str, float]] = {"none": 50.0, "json": 20.0}
_LOAD_MIB_S: Final = 10
_LAG_MS: Final = 10_000.0
_AGE_MS: Final = 1000.0
_READS: Final = 10
_FLUSH_S: Final = 120.0
_WARM_S: Final = 40.0


def measure_translating(directory: Path, worker: LoadWorker, *, scale: float) -> list[TargetOutcome]:
    """MiB of records a second of one core, the lag of a job at 10 MiB/s, and the age of the newest row that is read.

    Raises ServerUnreachable, RequestInvalid, RequestTimedOut.
    """
    outcomes = []
    with Ours(directory / "duramen", nats=False) as ours:
        for decode, wanted in _WANTED_MIB_S.items():
            worker.say(f"a table with decode={decode}")
            rate = _rate(ours, directory, decode, max(4000, int(400_000 * scale)))
            outcomes.append(
                at_least(f"table translation, decode={decode}", rate, wanted, "1 MiB/s and core", f"{rate:.0f} MiB/s")
            )
            worker.step()
        worker.say(f"a job at {_LOAD_MIB_S} MiB/s")
        outcomes += _behind(ours, directory, max(10.0, 120.0 * scale))
        worker.step()
    return outcomes


def _declared(ours: Ours, directory: Path, name: str, decode: str) -> tuple[str, Declaration]:
    """A new stream that is a table; where it is, and what it is."""
    location = str(directory / f"table-{name}")
    config = {"table.format": "delta", "table.location": location, "table.decode": decode}
    servers = ours.stream(name, "os", "kafka", PARTITIONS, config).records
    with BrokerCluster(servers) as cluster:
        stream_id = str(cluster.topic(name).id)
    return servers, Declaration("delta", Storage(location), name, stream_id, decode)


def _rate(ours: Ours, directory: Path, decode: str, records: int) -> float:
    servers, declaration = _declared(ours, directory, f"rate-{decode}", decode)
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 20, "batch.size": 500_000})
    _send(producer, declaration.stream, records)
    _flush(producer, servers)
    log = SourceLog(servers, declaration.stream, declaration.stream_id)
    rounds = Round(
        declaration, log, lambda one: (open_table(one), open_dead_letters(one)), lambda tasks: list(map(run, tasks)), 1
    )
    began_s, read_bytes = time.process_time(), 0
    with BrokerCluster(servers) as cluster:
        while True:
            outcome = rounds.run(cluster)
            read_bytes += outcome.records * _RECORD_BYTES
            if not outcome.behind:
                return read_bytes / _MIB / (time.process_time() - began_s)


def _behind(ours: Ours, directory: Path, seconds: float) -> list[TargetOutcome]:
    servers, declaration = _declared(ours, directory, "behind", "none")
    command = [sys.executable, "-m", "duramen", "table", "run", declaration.stream, "--master", "local[2]"]
    side = BenchSide("duramen", servers, declaration.stream, None)
    with (
        (directory / "job.log").open("w") as said,
        subprocess.Popen([*command, "--server", ours.process.http], stderr=said, env=environment(side)) as job,
    ):
        try:
            lags_ms = _loaded(servers, declaration, seconds)
            ages_ms = _ages(side, directory)
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait()
    if not lags_ms:
        raise RequestInvalid(f"the job has committed nothing: {(directory / 'job.log').read_text()[-300:]}")
    lags = Latencies(int(1000 * one) for one in lags_ms)
    p99_ms = lags.at_ms(99) or lags.max_ms
    median = f"p50 {lags.at_ms(50) or lags.max_ms:,.0f} ms"
    return [
        at_most(f"table, lag at {_LOAD_MIB_S} MiB/s, p99", p99_ms, _LAG_MS, "ms", median),
        at_most("table and log read as one: age of the newest row", max(ages_ms), _AGE_MS, "ms", f"{_READS} reads"),
    ]


def _loaded(servers: str, declaration: Declaration, seconds: float) -> list[float]:
    """How long the first record that the table lacks has waited, a few times a second, in ms."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 20})
    log = SourceLog(servers, declaration.stream, declaration.stream_id)
    lags_ms: list[float] = []
    began_s, sent = time.monotonic(), 0
    with BrokerCluster(servers) as cluster:
        while (passed_s := time.monotonic() - began_s) < _WARM_S + seconds:
            due = int(passed_s * _LOAD_MIB_S * _MIB / _RECORD_BYTES)
            _send(producer, declaration.stream, due - sent)
            sent = due
            table = find_table(declaration) if passed_s > _WARM_S else None
            if table is None:
                producer.poll(0.1)
                continue
            ends, there = table.ends(), bounds(cluster, log)
            behind = [(at, ends.get(at, first)) for at, (first, end) in there.items() if ends.get(at, first) < end]
            lags_ms.append(newest_wait_ms(cluster, log, behind, int(time.time() * 1000)))
            producer.poll(0.1)
    _flush(producer, servers)
    return lags_ms


def _ages(side: BenchSide, directory: Path) -> Sequence[float]:
    """How old the newest row is of a read that begins right after it was acknowledged, in ms."""
    producer = Producer({"bootstrap.servers": side.servers, "acks": "all", "linger.ms": 0})
    ages_ms = []
    command = process(side, "newest", cores=2, runs=1, places=directory)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(side)
    ) as query:
        assert query.stdin is not None
        assert query.stdout is not None
        try:
            for _ in range(_READS + 1):
                _send(producer, side.stream, 1)
                _flush(producer, side.servers)
                acknowledged_ms = time.time() * 1000
                query.stdin.write("read\n")
                query.stdin.flush()
                ages_ms.append(acknowledged_ms - json.loads(query.stdout.readline()))
            query.stdin.close()
            query.stdout.read()
        except BaseException:
            query.kill()
            raise
    return ages_ms[1:]


def _send(producer: Producer, stream: str, count: int) -> None:
    for number in range(count):
        value: Any = json.dumps({"flight": number, "from": "JFK", "delay": number % 60, "notes": "x" * 940})
        while True:
            try:
                producer.produce(stream, value.ljust(_RECORD_BYTES)[:_RECORD_BYTES], partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)


def _flush(producer: Producer, servers: str) -> None:
    if producer.flush(_FLUSH_S):
        raise RequestTimedOut(f"{servers} has not acknowledged all records within {_FLUSH_S:g} s")
