"""A stream with a table and a job over it without Spark: tasks run where the test runs, and anything may be killed."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer as Librdkafka

from duramen.client import BrokerCluster, Producer
from duramen.spark.tables.port import DataFile, Declaration, LakeTable, Storage, TableSpan
from duramen.spark.tables.reader import read_file
from duramen.spark.tables.registry import open_dead_letters, open_table
from duramen.spark.tables.storage import TableLocation
from duramen.spark.translation import task
from duramen.spark.translation.log import SourceLog
from duramen.spark.translation.round import Round, RoundOutcome, Runner
from duramen.spark.translation.task import TaskResult, TranslationTask


class Killed(Exception):
    """The process is gone."""


class Points:
    """The calls of a run, in their order; at the one with a number the process is killed, before it or behind it."""

    def __init__(self, kill_at: int = -1) -> None:
        self.kill_at = kill_at
        self.reached = 0

    def around(self, call: Callable[[], Any]) -> Any:
        self._pass()
        result = call()
        self._pass()
        return result

    def _pass(self) -> None:
        self.reached += 1
        if self.reached == self.kill_at:
            raise Killed


class WatchedTable:
    """A table whose every change passes two of these points."""

    def __init__(self, table: LakeTable, points: Points) -> None:
        self._table = table
        self._points = points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def evolve(self, schema: pa.Schema) -> None:
        self._points.around(lambda: self._table.evolve(schema))

    def commit(
        self, files: Sequence[DataFile], spans: Sequence[TableSpan], removed: Collection[str] = (), newest: int = -1
    ) -> None:
        self._points.around(lambda: self._table.commit(files, spans, removed, newest))


class World:
    """A stream, its table, and the rounds that anybody makes."""

    def __init__(self, kafka: str, cluster: BrokerCluster, stream: str, location: Path) -> None:
        self.kafka = kafka
        self.cluster = cluster
        self.stream = stream
        self.location = location
        self.stream_id = str(cluster.topic(stream).id)
        self.made: list[tuple[int, bytes | None, bytes | None]] = []
        self.server = ""  # of a keyed stream: where its snapshots are read

    def declaration(self, **changes: Any) -> Declaration:
        wish = Declaration("delta", Storage(str(self.location)), self.stream, self.stream_id, "json")
        return wish._replace(**changes)

    def produce(
        self, values: Sequence[bytes | None], *, keys: Sequence[bytes | None] | None = None, partitions: int = 2
    ) -> None:
        """One after another to the partitions in turn."""
        with Producer(self.cluster) as producer:
            for number, value in enumerate(values):
                key = None if keys is None else keys[number]
                partition = number % partitions if keys is None else sum(key or b"") % partitions
                producer.produce(self.stream, value, key=key, partition=partition)
                self.made.append((partition, key, value))

    def round(
        self,
        points: Points | None = None,
        *,
        between: Callable[[], object] = lambda: None,
        slots: int = 2,
        skip_lost: bool = False,
        **changes: Any,
    ) -> RoundOutcome:
        """One round, of a job that has just been started. `between` happens when tasks are done, before the commit."""
        watched = points or Points()

        def tables(declaration: Declaration) -> tuple[LakeTable, LakeTable]:
            made = [WatchedTable(one(declaration), watched) for one in (open_table, open_dead_letters)]
            return made[0], made[1]

        def runner(tasks: Sequence[TranslationTask]) -> Sequence[TaskResult]:
            done = watched.around(lambda: [task.run(one) for one in tasks])
            between()
            return list(done)

        return self.rounds(tables, runner, slots, skip_lost=skip_lost, **changes).run(self.cluster)

    def rounds(
        self,
        tables: Callable[[Declaration], tuple[LakeTable, LakeTable]],
        runner: Runner,
        slots: int,
        *,
        skip_lost: bool = False,
        **changes: Any,
    ) -> Round:
        log = SourceLog(self.kafka, self.stream, self.stream_id, skip_lost, self.server)
        return Round(self.declaration(**changes), log, tables, runner, slots)

    def to_the_end(self, **more: Any) -> None:
        while self.round(**more).behind:
            pass

    def rows(self, *, dead: bool = False, **changes: Any) -> list[dict[str, Any]]:
        """What the table has, by partition and offset."""
        declaration = self.declaration(**changes)
        table = open_dead_letters(declaration) if dead else open_table(declaration)
        place = TableLocation(table.declaration.storage)
        found = [
            row
            for file in table.scan()
            for batch in read_file(place, file, table.schema())
            for row in batch.to_pylist()
        ]
        return sorted(found, key=lambda row: (row["_stream_partition"], row["_offset"]))

    def expected(self) -> list[tuple[int, int, bytes | None]]:
        """Partition, offset and value of each record."""
        counts: dict[int, int] = {}
        found = []
        for partition, _, value in self.made:
            found.append((partition, counts.get(partition, 0), value))
            counts[partition] = found[-1][1] + 1
        return sorted(found, key=lambda one: one[:2])


def transactional(world: World, name: str) -> Librdkafka:
    """A producer of an unmodified client, in a transaction."""
    made = Librdkafka({"bootstrap.servers": world.kafka, "transactional.id": f"{world.stream}-{name}"})
    made.init_transactions(30)
    made.begin_transaction()
    return made


def write(world: World, producer: Librdkafka, value: bytes, *, begun: bool = True) -> None:
    """One record to partition 0, stored when this returns; in a transaction that is begun now unless it has."""
    if not begun:
        producer.begin_transaction()
    producer.produce(world.stream, value, b"k" + value, 0)
    assert producer.flush(30) == 0
