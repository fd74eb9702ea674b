"""An application killed with -9 between a table's commit and the checkpoint's; and one with an older checkpoint."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.pipelines.running import numbers

from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.pipelines.checkpoints import Checkpoints

KILLED = """
import os, runpy, signal, sys
from duramen.spark.pipelines.batches import TableBatchWriter
last = int(sys.argv.pop(1))
write = TableBatchWriter.__call__

def write_and_die(writer, batch, batch_id):
    write(writer, batch, batch_id)
    if batch_id == last:
        os.killpg(0, signal.SIGKILL)

TableBatchWriter.__call__ = write_and_die
runpy.run_module("duramen", run_name="__main__", alter_sys=True)
"""
COPY = """\
pipeline: copy
brokers: {brokers}
sources:
  there:
    stream: {stream}
    options: {{startingOffsets: earliest, maxOffsetsPerTrigger: 50}}
steps:
  numbers: {{sql: "SELECT CAST(value AS STRING) AS value FROM there"}}
sinks:
  out: {{from: numbers, delta: out}}
"""


def run(file: Path, *options: str, killed_behind: int | None = None) -> tuple[int, str]:
    """`duramen pipeline run`, killed behind the commit of that micro-batch; how it ended, and what it said."""
    hooked = ["-m", "duramen"] if killed_behind is None else ["-c", KILLED, str(killed_behind)]
    command = [sys.executable, *hooked, "pipeline", "run", "--master", "local[2]", *options, str(file)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said = process.communicate(timeout=500)[1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, said


@pytest.mark.long
def test_killed_behind_the_commit_of_a_table_and_run_again(
    node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    StreamAdmin(cluster).create_stream(stream_name, 1)
    with Producer(cluster) as producer:
        for number in range(200):
            producer.produce(stream_name, b"%d" % number)
    file, checkpoints = tmp_path / "copy.yaml", tmp_path / "checkpoints" / "copy"
    file.write_text(COPY.format(brokers=node.kafka, stream=stream_name))
    for batch in range(2):
        code, said = run(file, killed_behind=batch)
        assert code == -signal.SIGKILL, said
        assert numbers(tmp_path / "out") == list(range(50 * (batch + 1)))
        assert (checkpoints / "out" / "offsets" / str(batch)).exists()
        assert not (checkpoints / "out" / "commits" / str(batch)).exists()
    shutil.copytree(checkpoints, tmp_path / "older")
    assert run(file, "--once")[0] == 0
    assert numbers(tmp_path / "out") == list(range(200))
    code, said = run(file, "--once", "--checkpoints", str(tmp_path / "older"))
    assert (code, "the checkpoint is older than the table" in said) == (1, True), said
    with Checkpoints(checkpoints, "copy").held():
        code, said = run(file, "--once")
    assert (code, "[pipeline-busy]" in said) == (1, True), said
    assert numbers(tmp_path / "out") == list(range(200))
