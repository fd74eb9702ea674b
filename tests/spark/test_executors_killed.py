"""Ten minutes on a cluster of Spark: drivers, executors, Python workers and brokers are killed; all is there once."""

import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
import pytest
from tests.spark.committed import committed, values
from tests.spark.standalone import standalone

from duramen.client import BrokerCluster, Consumer, Isolation, Producer, StreamAdmin, TopicPartition
from duramen.node.process import NodeProcess
from duramen.node.processes import NodeProcesses

DRIVER = Path(__file__).parent / "copying.py"
SLOW = """
import runpy, sys
from pathlib import Path
import duramen.spark
driver, servers, directory, master = sys.argv[1:]
copying = runpy.run_path(driver)
config = copying["CONFIG"] | copying["CLUSTER"] | {"spark.eventLog.dir": (Path(directory) / "events").as_uri()}
spark = duramen.spark.session("slow", master, config=config)
still = {"still_percent": 100, "still_s": 3_600}
query = copying["begin"](spark, servers, Path(directory), "from", "to", percent=0, once=True, **still)
query.awaitTermination()
"""
PARTITIONS = 2
PER_LIFE = 10_000
KILL_S = 600

_KINDS = (
    ["executor"] * 4 + ["Python worker"] * 4 + ["executor that stood still"] * 2 + ["driver's Python worker", "broker"]
)

_log = logging.getLogger(__name__)


class Killing:
    """Drivers one after another; while one runs, executors, Python workers and brokers of its are killed."""

    def __init__(self, command: list[str], log: Path, kill_broker: Callable[[random.Random], None], seed: int) -> None:
        """`kill_broker` kills one and starts it again, or starts the one that it killed before."""
        self._command = command
        self._log = log
        self._kill_broker = kill_broker
        self._random = random.Random(seed)
        self._paused: list[psutil.Process] = []
        self._next: list[str] = []
        self.kills: Counter[str] = Counter()

    def life(self, visible: Callable[[], int]) -> None:
        """One driver, until some records more are `visible`, or until it ends by itself."""
        before = visible()
        enough = before + self._random.randint(500, 3_000)
        with self._log.open("ab") as log:
            driver = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        # Whoever starts a JVM and the JVM are one process group.
        guard = threading.Timer(900, os.killpg, (driver.pid, signal.SIGKILL))
        guard.start()
        try:
            while (now := visible()) < enough and driver.poll() is None:
                time.sleep(self._random.uniform(0.1, 2))
                if now > before or self._random.random() < 0.02:
                    before = now
                    self._trouble(psutil.Process(driver.pid))
        finally:
            guard.cancel()
            self.kills["driver" if driver.poll() is None else "driver that ended by itself"] += 1
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            self.resume()

    def resume(self) -> None:
        """Let all go on that stand still."""
        _signal(self._paused, signal.SIGCONT)
        self._paused.clear()

    def _trouble(self, driver: psutil.Process) -> None:
        if self._random.random() < 0.3:
            self.resume()
        executors = [one for one in _below(psutil.Process()) if "CoarseGrainedExecutorBackend" in _command(one)]
        # In an order of their own, each as often as it is there.
        self._next = self._next or self._random.sample(_KINDS, len(_KINDS))
        found = {
            "executor": executors,
            "executor that stood still": executors,
            "Python worker": [one for executor in executors for one in _python(executor)],
            "driver's Python worker": _python(driver),
            "broker": [driver],
        }[kind := self._next.pop()]
        if not found:
            return
        self.kills[kind] += 1
        chosen = self._random.choice(found)
        if kind == "broker":
            self._kill_broker(self._random)
        elif kind == "executor that stood still":
            self._paused += (these := [chosen, *_below(chosen)])
            _signal(these, signal.SIGSTOP)
        else:
            _signal([chosen], signal.SIGKILL)


def _below(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def _python(process: psutil.Process) -> list[psutil.Process]:
    return [one for one in _below(process) if Path(_command(one).partition(" ")[0]).name.startswith("python")]


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for one in processes:
        with contextlib.suppress(psutil.Error):
            one.send_signal(number)


def fill(cluster: BrokerCluster, stream: str, first: int, end: int) -> None:
    with Producer(cluster) as producer:
        for number in range(first, end):
            producer.produce(stream, b"%d" % number, key=b"%d" % (number % 7))


def tasks(events: Path) -> Counter[str]:
    """What became of the tasks, as far as Spark's own logs of them go."""
    found: Counter[str] = Counter()
    for file in events.iterdir():
        for line in file.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event["Event"] == "SparkListenerTaskEnd":
                    found[event["Task End Reason"]["Reason"]] += 1
                    found["Speculative"] += event["Task Info"]["Speculative"]
                found["Executors"] += event["Event"] == "SparkListenerExecutorAdded"
    return found


def survive(
    servers: str, directory: Path, config: dict[str, str], kill_broker: Callable[[random.Random], None],
    mend: Callable[[], None],
) -> None:  # fmt: skip
    """Kill for `KILL_S`, and until all kinds were, while records come; copy what is left, and compare.

    `mend` starts the brokers that are down.
    """
    (directory / "events").mkdir()
    log = directory / "driver.log"
    command = [sys.executable, str(DRIVER), servers, str(directory), "from", "to"]
    seed = random.randrange(1 << 30)
    with BrokerCluster(servers) as cluster, standalone(directory, 2) as master:
        StreamAdmin(cluster).create_stream("from", 3, config)
        StreamAdmin(cluster).create_stream("to", PARTITIONS, config)
        consumer = Consumer(cluster, isolation=Isolation.READ_COMMITTED)
        ats = [TopicPartition("to", index) for index in range(PARTITIONS)]
        killing = Killing([*command, "10", master], log, kill_broker, seed)

        def visible() -> int:
            return sum(end for _, end in consumer.bounds(ats).values())

        written, in_vain, until = 0, 0, time.monotonic() + KILL_S
        while time.monotonic() < until or set(_KINDS) - killing.kills.keys():
            fill(cluster, "from", written, written + PER_LIFE)
            written += PER_LIFE
            before = visible()
            killing.life(visible)
            in_vain = in_vain + 1 if visible() == before else 0
            assert in_vain < 5, log.read_text(errors="replace")[-5000:]
            mend()
        with log.open("ab") as output:
            subprocess.run([*command, "0"], stdout=output, stderr=output, timeout=900, check=True)
        _log.info("seed %d, killed: %s", seed, dict(killing.kills))
        _log.info("%d records, tasks: %s", written, dict(tasks(directory / "events")))
        assert committed(cluster, "to") == values(written), log.read_text(errors="replace")[-5000:]


@pytest.mark.long
def test_ten_minutes_of_killing_write_every_record_once(new_node: Callable[..., NodeProcess], tmp_path: Path) -> None:
    node = new_node().start()

    def kill(rng: random.Random) -> None:
        del rng
        node.kill()
        node.start()

    survive(node.kafka, tmp_path, {}, kill, lambda: None)


@pytest.mark.long
def test_ten_minutes_of_killing_with_three_nodes(tmp_path: Path) -> None:
    """The one that is killed stays away until the next is due: others lead and coordinate meanwhile."""
    with NodeProcesses(tmp_path / "nodes") as nodes:

        def mend() -> None:
            nodes.start(set(nodes.nodes) - set(nodes.running))

        def kill(rng: random.Random) -> None:
            mend()
            nodes.kill(rng.choice(nodes.running))

        survive(nodes.bootstrap_servers, tmp_path, {"min.insync.replicas": "2"}, kill, mend)


@pytest.mark.long
def test_of_a_slow_task_and_its_copy_one_counts(new_node: Callable[..., NodeProcess], tmp_path: Path) -> None:
    """The first attempt has written and never ends: a copy on the other executor has to be through."""
    node = new_node().start()
    (tmp_path / "events").mkdir()
    with BrokerCluster(node.kafka) as cluster, standalone(tmp_path, 2) as master:
        StreamAdmin(cluster).create_stream("from", 1)
        StreamAdmin(cluster).create_stream("to", PARTITIONS)
        fill(cluster, "from", 0, 500)
        ran = subprocess.run(
            [sys.executable, "-c", SLOW, str(DRIVER), node.kafka, str(tmp_path), master],
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-5000:]
        assert committed(cluster, "to") == values(500)
    assert tasks(tmp_path / "events")["Speculative"]
