"""A driver without Spark, until all is written or it is killed: a checkpoint like Spark's, tasks that end anywhere.

Arguments: the Kafka address, a directory, the query, the target, how many records there are in all, and a seed. A batch
is a range of numbers, which its tasks write.
"""

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from duramen.client import BrokerCluster, Producer
from duramen.client.producer import OpenTransaction
from duramen.spark.write import attempts
from duramen.spark.write.attempts import WriteResult, WriteTask
from duramen.spark.write.writer import RowWriter

TASKS = 3
TIMEOUT_MS = 600_000


class Driver:
    """One run of the query."""

    def __init__(self, servers: str, directory: Path, query: str, target: str, seed: int) -> None:
        self._servers = servers
        self._checkpoint = directory / "checkpoint"
        self._query = query
        self._target = target
        self._run = f"run-{seed}"
        self._random = random.Random(seed)
        self._attempts = 0
        for name in ("offsets", "commits"):
            (self._checkpoint / name).mkdir(parents=True, exist_ok=True)

    def copy(self, upto: int) -> None:
        """Write every number below `upto`, from where the checkpoint is."""
        batch = self._next("commits")
        first = self._end_of(batch - 1)
        while first < upto:
            if batch == self._next("offsets"):
                end = min(upto, first + self._random.randint(1, 400))
                self._note("offsets", batch, f'v1\n{{"batchTimestampMs":{self._random.random()}}}\n{end}')
            end = self._end_of(batch)
            messages = [
                self._task(batch, partition, range(first + partition, end, TASKS)) for partition in range(TASKS)
            ]
            with BrokerCluster(self._servers) as cluster:
                attempts.commit(cluster, messages, attempts.digest_of(str(self._checkpoint), batch))
            self._note("commits", batch, "v1\n{}")
            first, batch = end, batch + 1

    def _next(self, name: str) -> int:
        return max((int(one.name) for one in (self._checkpoint / name).iterdir() if one.name.isdigit()), default=-1) + 1

    def _end_of(self, batch: int) -> int:
        return 0 if batch < 0 else int((self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])

    def _note(self, name: str, batch: int, text: str) -> None:
        there = self._checkpoint / name / str(batch)
        there.with_suffix(".new").write_text(text)
        there.with_suffix(".new").rename(there)

    def _task(self, batch: int, partition: int, numbers: range) -> WriteResult:
        """Attempts until one is through; some executors are killed, and some tasks are done twice, as slow ones are."""
        while self._random.random() < 0.15:
            executor = os.fork()
            if not executor:
                self._attempt(batch, partition, numbers, lambda: os.kill(os.getpid(), signal.SIGKILL))
                os._exit(0)
            os.waitpid(executor, 0)
            self._attempts += 1
        written = self._attempt(batch, partition, numbers)
        return written if self._random.random() < 0.8 else self._attempt(batch, partition, numbers)

    def _attempt(
        self, batch: int, partition: int, numbers: range, then: Callable[[], None] = lambda: None
    ) -> WriteResult:
        self._attempts += 1
        rows = pa.RecordBatch.from_arrays([pa.array([b"%d" % one for one in numbers], pa.binary())], names=["value"])

        def write_rows(transaction: OpenTransaction, found: Iterator[pa.RecordBatch]) -> int:
            producer = Producer(cluster, transaction=transaction)
            writer = RowWriter(cluster, producer, self._target, 0, 1 << 10)
            for one in found:
                writer.write(one)
            writer.flush()
            then()
            return producer.acknowledged

        task = WriteTask(self._query, self._run, batch, partition, self._attempts)
        with BrokerCluster(self._servers) as cluster:
            return attempts.write(cluster, task, TIMEOUT_MS, iter([rows]), write_rows)


def main() -> None:
    servers, directory, query, target, upto, seed = sys.argv[1:]
    Driver(servers, Path(directory), query, target, int(seed)).copy(int(upto))


if __name__ == "__main__":
    main()
