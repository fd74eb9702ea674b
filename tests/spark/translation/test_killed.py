"""The job as a user runs it: a process of its own that is killed with -9 in the middle, and another after it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.cli.command import command_environment, run
from tests.clients import until
from tests.spark.translation.world import World

from duramen.client.http import HttpNode, path_of
from duramen.node.process import NodeProcess
from duramen.spark.tables.port import LakeTable
from duramen.spark.tables.registry import open_table

_PATIENCE_S = 300.0
_RUN = ("table", "run", "--master", "local[1]")


@contextmanager
def running(node: NodeProcess, log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job with its JVM, until it is killed with all of its processes."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "duramen", *_RUN, *words],
            env=command_environment(node.http), stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def has(table: LakeTable, records: int, process: subprocess.Popen[bytes]) -> bool:
    """Whether the table has so many, or nobody will bring them."""
    return sum(table.ends().values()) >= records or process.poll() is not None


@pytest.mark.long
def test_killed_with_9_while_it_writes_each_offset_is_there_once(
    node: NodeProcess, world: World, tmp_path: Path
) -> None:
    config = {"table.format": "delta", "table.location": str(world.location), "table.decode": "json",
              "table.max.lag.ms": "1s"}  # fmt: skip
    HttpNode(node.http).patch(path_of("streams", world.stream), {"config": config})
    table = open_table(world.declaration())
    log = tmp_path / "log"
    with running(node, log, world.stream) as process:
        for turn in range(1, 4):
            world.produce([b'{"a": %d}' % number if number % 9 else b"bad" for number in range(500)])
            until(partial(has, table, 500 * turn, process), _PATIENCE_S)
            assert process.poll() is None, log.read_text()
        world.produce([b'{"a": 1}', b"bad"] * 500)
    ended = run(*_RUN, "--once", world.stream, server=node.http)
    assert ended.code == 0, ended.err
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in world.rows()] == world.expected()
    dead = [(row["_stream_partition"], row["_offset"]) for row in world.rows(dead=True)]
    assert dead == [one[:2] for one in world.expected() if one[2] == b"bad"]
