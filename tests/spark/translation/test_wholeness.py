"""Tables of streams with transactions, without a broker: at each of its ends a table is a state that existed.

Transactions interleave, their markers come late, rounds end at random and are killed at random and done again.
"""

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.spark.read.test_transaction_boundaries import ATS, Entry, Places, batch_of
from tests.spark.read.test_transaction_boundaries import World as Logs
from tests.spark.translation.world import Killed, Points, WatchedTable

from duramen.client import TopicPartition
from duramen.codec.batch import BatchInput
from duramen.spark.read.splits import Floors
from duramen.spark.read.transaction_boundaries import cut
from duramen.spark.tables.columns import COMMIT
from duramen.spark.tables.port import Declaration, LakeTable, Storage, TableSnapshot, TableSpan
from duramen.spark.tables.reader import read_file
from duramen.spark.tables.registry import open_dead_letters, open_table
from duramen.spark.tables.rounds import commit_round, plan_round
from duramen.spark.tables.storage import TableLocation
from duramen.spark.translation import log as log_module
from duramen.spark.translation import task
from duramen.spark.translation.log import SourceLog
from duramen.spark.translation.plan import Filled, plan
from duramen.spark.translation.task import TranslationTask

RANDOMS = st.integers(0, (1 << 32) - 1).map(random.Random)
KEYS = 4


class KeyedLogs(Logs):
    """With keys, tombstones and values that are no JSON."""

    def record(self, at: TopicPartition, offset: int) -> BatchInput:
        mixed = random.Random(f"{at.partition} {offset}")
        value = mixed.choice([b'{"a": 1}', b"bad", None])
        return BatchInput(0, b"k%d" % mixed.randrange(KEYS), value)


class Broker:
    """The consumer that tasks read with."""

    def __init__(self, world: KeyedLogs) -> None:
        self._world = world

    def read(self, at: TopicPartition, first: int, end: int, **_: object) -> Iterator[memoryview]:
        return self._world.bytes_of(ATS[at.partition], first, end)


def marks_of(log: Sequence[Entry]) -> dict[int, int]:
    """The offset of the marker of each transaction that is committed."""
    return {one.transaction: offset for offset, one in enumerate(log) if one.commit}


def counted(world: Logs, at: TopicPartition, end: int) -> dict[int, int | None]:
    """The offsets of the records that count before an end, and the markers that they count at."""
    log = world.logs[at]
    marks = marks_of(log)
    found: dict[int, int | None] = {}
    for offset, one in enumerate(log):
        if one.commit is None:
            marker = marks.get(one.transaction, end) if one.transaction else None
            if (offset if marker is None else marker) < end:
                found[offset] = marker
    return found


def expected(world: KeyedLogs, at: TopicPartition, end: int, *, upsert: bool) -> dict[int, int | None]:
    """The rows of a table with this end."""
    found = counted(world, at, end)
    if not upsert:
        return found
    newest = {world.record(at, offset).key: offset for offset in sorted(found)}
    return {offset: found[offset] for offset in newest.values() if world.record(at, offset).value is not None}


def rows(
    table: LakeTable, state: TableSnapshot, spans: Sequence[TableSpan] | None = None
) -> dict[tuple[int, int], int | None]:
    place = TableLocation(table.declaration.storage)
    found = [
        row
        for file in state.files
        for batch in read_file(place, file, table.schema(), spans=spans)
        for row in batch.to_pylist()
    ]
    places = {(row["_stream_partition"], row["_offset"]): row.get(COMMIT) for row in found}
    assert len(places) == len(found), "each offset is there once"
    return places


class Job:
    """Fills a table with rounds of any size."""

    def __init__(self, world: KeyedLogs, declaration: Declaration) -> None:
        self.world = world
        self.declaration = declaration
        self.table = open_table(declaration)
        self.dead = open_dead_letters(declaration)

    def round(self, kill_at: int = -1) -> bool:
        """Whether it went on."""
        world, points = self.world, Points(kill_at)
        state = self.table.state()
        bounds = {at.partition: (0, end) for at, end in world.ends().items()}
        marked = {at.partition: world.marked(at, state.ends.get(at.partition, 0)) for at in self.looked_at()}
        made = plan(
            Filled(state.ends, state.begins, state.floors), bounds, marked,
            piece=world.random.randint(1, 12), slots=world.random.randint(1, 3), whole=self.declaration.upsert,
        )  # fmt: skip
        if not made.spans:
            assert not made.behind
            return False
        work = plan_round(self.table, self.dead)
        log = SourceLog("127.0.0.1:9092", "s", "")
        done = [task.run(TranslationTask(log, work, pieces)) for pieces in made.tasks]
        for one in done:
            one.check()
        table: Any = WatchedTable(self.table, points)
        dead: Any = WatchedTable(self.dead, points)
        with suppress(Killed):
            commit_round(table, dead, work, [one for each in done for one in each.written], made.spans, made.newest)
        self.check()
        return True

    def looked_at(self) -> Iterator[TopicPartition]:
        for at in self.world.shuffled():
            self.world.pass_time()
            yield at

    def check(self) -> None:
        """The table is what it should be at its ends, and was at those before; transactions are whole at each."""
        upsert, state = self.declaration.upsert, self.table.state()
        assert rows(self.table, state) == self.expected(state.ends)
        for ends in state.rounds:
            if not upsert:
                spans = [TableSpan(partition, 0, end) for partition, end in ends.items()]
                assert rows(self.table, state, spans) == self.expected(ends)
            self.require_whole(ends)
        if self.declaration.upsert:
            assert state.newest == max(self.sequences(state.ends), default=-1)
        dead = rows(self.dead, self.dead.state()).keys()
        below = self.dead.ends()
        assert dead == {
            (at.partition, offset)
            for at in ATS
            for offset in counted(self.world, at, below.get(at.partition, 0))
            if self.world.record(at, offset).value == b"bad"
        }

    def expected(self, ends: Mapping[int, int]) -> dict[tuple[int, int], int | None]:
        upsert = self.declaration.upsert
        return {
            (at.partition, offset): marker
            for at in ATS
            for offset, marker in expected(self.world, at, ends.get(at.partition, 0), upsert=upsert).items()
        }

    def sequences(self, ends: Mapping[int, int]) -> list[int]:
        """Those of the transactions that count before these ends."""
        logs = ((log, ends.get(at.partition, 0)) for at, log in self.world.logs.items())
        return [self.world.decided[one.transaction][0] for log, end in logs for one in log[:end] if one.commit]

    def require_whole(self, ends: Mapping[int, int]) -> None:
        sides: dict[int, set[bool]] = {}
        for at, log in self.world.logs.items():
            wrote = {one.transaction for one in log if one.transaction and one.commit is None}
            marks = marks_of(log)
            for transaction in wrote:
                if self.world.decided.get(transaction, (0, False))[1]:
                    is_in = marks.get(transaction, 1 << 30) < ends.get(at.partition, 0)
                    sides.setdefault(transaction, set()).add(is_in)
        assert all(len(one) == 1 for one in sides.values())


def run(world: KeyedLogs, declaration: Declaration, rounds: int) -> None:
    job = Job(world, declaration)
    for _ in range(rounds):
        for _ in range(world.random.randint(1, 12)):
            world.step()
        job.round(world.random.choice([-1, 1, 2, 3, 4]))
        if world.random.random() < 0.2:
            job.table.compact()
            job.check()
    state = job.table.state()
    if not declaration.upsert:
        # The log behind the table, read as a query does: both together are a state of their own.
        begin: Places = {at: state.ends.get(at.partition, 0) for at in ATS}
        ends = world.ends()
        marked = world.look(begin)
        upto = cut(begin, ends, marked)
        behind = batch_of(world, begin, upto, marked, Floors(whole=dict.fromkeys(ATS, 0)))
        together = sorted([*rows(job.table, state), *((at.partition, offset) for at, offset in behind)])
        assert together == sorted((at.partition, offset) for at in ATS for offset in counted(world, at, upto[at]))
    world.settle()
    while job.round():
        pass
    assert job.table.ends() == {at.partition: len(log) for at, log in world.logs.items() if log}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "upsert"),
    [
        pytest.param("delta", False, marks=pytest.mark.long),
        ("delta", True),
        pytest.param("iceberg", False, marks=pytest.mark.long),
    ],
)
def test_a_table_is_whole_at_all_of_its_ends(kind: str, upsert: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    @given(RANDOMS, st.integers(1, 6))
    @settings(max_examples=examples(25 if kind == "delta" else 10))
    def program(source: random.Random, rounds: int) -> None:
        world = KeyedLogs(source)
        monkeypatch.setattr(log_module, "consumer_of", lambda _: Broker(world))
        with tempfile.TemporaryDirectory() as directory:
            run(world, Declaration(kind, Storage(f"{directory}/s"), "s", "id", "json", upsert=upsert), rounds)

    program()
