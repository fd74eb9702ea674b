"""Spark's own cluster manager on this machine: a master and workers, each a process."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from duramen.spark.launching.java import find_java

_WAIT_S = 300


def _environment(directory: Path) -> dict[str, str]:
    return os.environ | {
        "JAVA_HOME": find_java().home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        # An application is not given up, however often its executors end.
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
    }


def _spark_class() -> str:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "spark-class")


@contextmanager
def _daemon(words: Sequence[str], directory: Path, said: str, also: Mapping[str, str]) -> Iterator[str]:
    """A process of Spark's; gives what it says, which is matched by `said`, once it is there."""
    process = subprocess.Popen(
        [_spark_class(), *words], cwd=directory, env={**_environment(directory), **also}, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    found: list[str] = []
    there = threading.Event()

    def listen() -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                match = re.search(said, line)
                if match and not found:
                    found.append(match[0])
                    there.set()
        there.set()

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        assert there.wait(_WAIT_S)
        assert found, f"{words[0]} ended with {process.wait()}"
        yield found[0]
    finally:
        process.terminate()
        process.wait()
        listener.join()


@contextmanager
def standalone(directory: Path, workers: int, also: Mapping[str, str] | None = None) -> Iterator[str]:
    """A cluster with so many workers of one core each; gives its master's URL. `also` is in its environment.

    Each worker has an address of its own: Spark runs the copy of a slow task on another host only.
    """
    with ExitStack() as stack:
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        url = stack.enter_context(_daemon(master, directory, r"spark://127\.0\.0\.1:\d+", also or {}))
        for number in range(workers):
            worker = [
                "org.apache.spark.deploy.worker.Worker", "--host", f"127.0.0.{number + 1}", "--webui-port", "0",
                "--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"worker-{number}"), url,
            ]  # fmt: skip
            stack.enter_context(_daemon(worker, directory, "Successfully registered with master", also or {}))
        yield url
