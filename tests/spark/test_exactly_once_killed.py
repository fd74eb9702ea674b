"""Drivers, their workers and brokers are killed at random; what the sink writes is there once."""

import contextlib
import os
import random
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from tests.clients import until as wait_until
from tests.spark.committed import committed, values

from duramen.client import BrokerCluster, Consumer, Isolation, Producer, StreamAdmin, TopicPartition
from duramen.node.process import NodeProcess
from duramen.node.processes import NodeProcesses

DRIVER = Path(__file__).parent / "copying.py"
WITHOUT_SPARK = Path(__file__).parent / "driving.py"
PARTITIONS = 2
RECORDS = 3_000


@pytest.fixture
def target(cluster: BrokerCluster, stream_name: str) -> str:
    name = f"{stream_name[-100:]}-to"
    StreamAdmin(cluster).create_stream(name, PARTITIONS)
    return name


def fill(cluster: BrokerCluster, stream: str, first: int, end: int) -> None:
    with Producer(cluster) as producer:
        for number in range(first, end):
            producer.produce(stream, b"%d" % number, key=b"%d" % (number % 7))


# -- the protocol, without Spark ----------------------------------------------------------------------


def drive(servers: str, directory: Path, target: str, seed: int) -> "subprocess.Popen[bytes]":
    arguments = [servers, str(directory), f"query-{target}", target, str(RECORDS), str(seed)]
    with (directory / "driver.log").open("ab") as log:
        return subprocess.Popen([sys.executable, str(WITHOUT_SPARK), *arguments], stderr=log)


def lives(node: NodeProcess, directory: Path, target: str, rng: random.Random, until: float) -> Iterator[None]:
    """Drivers one after another, each killed after some batches, until one comes to its end; yields for each killed."""
    while True:
        begun, some = _begun(directory), rng.randrange(1, 4)
        driver = drive(node.kafka, directory, target, rng.randrange(1 << 30))
        try:
            if time.monotonic() < until:
                wait_until(lambda: driver.poll() is not None or _begun(directory) >= begun + some, 300)  # noqa: B023
                driver.wait(rng.uniform(0, 0.1))
            else:
                driver.wait(300)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
            yield
        else:
            assert driver.returncode == 0, (directory / "driver.log").read_text()[-3000:]
            return


def _begun(directory: Path) -> int:
    """How many batches the checkpoint knows."""
    there = directory / "checkpoint" / "offsets"
    return len(list(there.iterdir())) if there.exists() else 0


def survive_without_spark(node: NodeProcess, directory: Path, *, rounds: int, kill_s: float, seed: int) -> int:
    """Some queries one after another; how many drivers and nodes were killed."""
    rng = random.Random(seed)
    kills = 0
    for number in range(rounds):
        target, there = f"target-{number}", directory / str(number)
        there.mkdir()
        with BrokerCluster(node.kafka) as cluster:
            StreamAdmin(cluster).create_stream(target, PARTITIONS)
        for _ in lives(node, there, target, rng, time.monotonic() + kill_s):
            kills += 1
            if rng.random() < 0.4:
                node.kill()
                node.start()
                kills += 1
        with BrokerCluster(node.kafka) as cluster:
            assert committed(cluster, target) == values(RECORDS)
    return kills


@pytest.mark.long
def test_killed_drivers_executors_and_nodes_write_every_record_once(
    new_node: Callable[..., NodeProcess], tmp_path: Path
) -> None:
    node = new_node().start()
    assert survive_without_spark(node, tmp_path, rounds=1, kill_s=12, seed=1) > 0


@pytest.mark.long
def test_five_minutes_of_killing_without_spark(new_node: Callable[..., NodeProcess], tmp_path: Path) -> None:
    node = new_node().start()
    assert survive_without_spark(node, tmp_path, rounds=15, kill_s=20, seed=random.randrange(1 << 30)) > 0


@pytest.mark.long
def test_nodes_of_a_cluster_and_drivers_are_killed(tmp_path: Path) -> None:
    """Nodes while a driver writes, one at a time; what a driver cannot do it gives up, and another goes on."""
    rng = random.Random()
    with NodeProcesses(tmp_path / "cluster") as nodes:
        with BrokerCluster(nodes.bootstrap_servers) as cluster:
            StreamAdmin(cluster).create_stream("target", PARTITIONS, {"min.insync.replicas": "2"})
        until, ended = time.monotonic() + 120, False
        while not ended:
            driver = drive(nodes.bootstrap_servers, tmp_path, "target", rng.randrange(1 << 30))
            try:
                if time.monotonic() < until:
                    time.sleep(rng.uniform(1, 4))
                    number = rng.randint(1, 3)
                    nodes.kill(number)
                    time.sleep(rng.uniform(0, 4))
                    nodes.start([number])
                ended = driver.wait(2 if time.monotonic() < until else 300) == 0
            except subprocess.TimeoutExpired:
                driver.kill()
                driver.wait()
        with BrokerCluster(nodes.bootstrap_servers) as cluster:
            assert committed(cluster, "target") == values(RECORDS)


# -- Spark --------------------------------------------------------------------------------------------


def copy(spark: SparkSession, node: NodeProcess, directory: Path, stream: str, target: str) -> None:
    """Copy all that is left."""
    begin = runpy.run_path(str(DRIVER))["begin"]
    begin(spark, node.kafka, directory, stream, target, percent=0, once=True).awaitTermination()


class Killing:
    """Drivers that are started, and killed at random, with the Python workers of theirs in between."""

    def __init__(self, node: NodeProcess, directory: Path, stream: str, target: str, seed: int) -> None:
        self._command = [sys.executable, str(DRIVER), node.kafka, str(directory), stream, target, "10"]
        self._directory = directory
        self._random = random.Random(seed)
        self.workers = self.drivers = 0

    def life(self, visible: Callable[[], int]) -> None:
        """One driver, from its start to its end, some time after so many records more are `visible`."""
        with (self._directory / "driver.log").open("ab") as log:
            driver = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        # Whoever starts a JVM and the JVM are one process group.
        guard = threading.Timer(900, os.killpg, (driver.pid, signal.SIGKILL))
        guard.start()
        try:
            before = visible()
            enough = before + self._random.randint(1, 3000)
            while (now := visible()) < enough and driver.poll() is None:
                time.sleep(self._random.uniform(0.05, 0.5))
                if now > before and self._random.random() < 0.15:
                    self._kill_worker(driver.pid)
        finally:
            guard.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            self.drivers += 1

    def _kill_worker(self, driver: int) -> None:
        with contextlib.suppress(psutil.Error, IndexError):
            children = psutil.Process(driver).children(recursive=True)
            workers = [one for one in children if one.name().startswith("python") and one.pid != driver]
            self._random.choice(workers).kill()
            self.workers += 1


def survive(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str, target: str, directory: Path,
    *, drivers: int, seed: int,
) -> Killing:  # fmt: skip
    """Kill so many drivers while records come, catch up, and compare with what was written."""
    consumer = Consumer(cluster, isolation=Isolation.READ_COMMITTED)
    ats = [TopicPartition(target, index) for index in range(PARTITIONS)]

    def visible() -> int:
        return sum(end for _, end in consumer.bounds(ats).values())

    killing = Killing(node, directory, stream, target, seed)
    written = 0
    while killing.drivers < drivers:
        fill(cluster, stream, written, written + 10_000)
        written += 10_000
        killing.life(visible)
    copy(spark, node, directory, stream, target)
    assert committed(cluster, target) == values(written), (directory / "driver.log").read_text()[-5000:]
    return killing


@pytest.mark.long
def test_killed_drivers_and_workers_write_every_record_once(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str, target: str, tmp_path: Path
) -> None:
    killing = survive(spark, node, cluster, stream, target, tmp_path, drivers=2, seed=1)
    assert killing.drivers == 2
