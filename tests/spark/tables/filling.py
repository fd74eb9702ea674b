"""A job's rounds without Spark: records as the source gives them, into a table and its dead letters."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from duramen.spark.columns import COLUMNS, arrow_schema
from duramen.spark.tables.port import Declaration, LakeTable, TableSpan
from duramen.spark.tables.reader import read_file
from duramen.spark.tables.registry import open_dead_letters, open_table
from duramen.spark.tables.rounds import Work, commit_round, plan_round, translate
from duramen.spark.tables.storage import TableLocation

Keyed = tuple[bytes | None, bytes | None]
TIME = 1_700_000_000_000_000


def records(partition: int, begin: int, keyed: Sequence[Keyed]) -> pa.RecordBatch:
    """Keys and values with offsets from `begin`."""
    count = len(keyed)
    columns = [
        pa.array([key for key, _ in keyed], pa.binary()),
        pa.array([value for _, value in keyed], pa.binary()),
        pa.array(["flights"] * count, pa.string()),
        pa.array([partition] * count, pa.int32()),
        pa.array(range(begin, begin + count), pa.int64()),
        pa.array([TIME] * count, pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([0] * count, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(COLUMNS[:-1]))


def rows(table: LakeTable, spans: Sequence[TableSpan] | None = None) -> list[dict[str, Any]]:
    """All rows of a table, by partition and offset."""
    place, schema = TableLocation(table.declaration.storage), table.schema()
    found = [
        row
        for file in table.scan(spans)
        for batch in read_file(place, file, schema, spans=spans)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: (row["_stream_partition"], row["_offset"]))


class Job(NamedTuple):
    """One of maybe several that fill a table."""

    table: LakeTable
    dead: LakeTable

    @classmethod
    def of(cls, declaration: Declaration) -> "Job":
        return cls(open_table(declaration), open_dead_letters(declaration))

    def fill(self, log: Mapping[int, Sequence[Keyed]], most: int = 1 << 30) -> None:
        """Everything that is in `log` and not in the table yet, at most so many records of each partition."""
        while True:
            work, spans = self.plan(log, most)
            if not spans or self.commit(work, spans, log):
                return

    def plan(self, log: Mapping[int, Sequence[Keyed]], most: int = 1 << 30) -> tuple[Work, list[TableSpan]]:
        work = plan_round(self.table, self.dead)
        ends = self.table.ends()
        spans = [TableSpan(p, ends.get(p, 0), min(len(found), ends.get(p, 0) + most)) for p, found in log.items()]
        return work, [span for span in spans if span.end > span.begin]

    def commit(self, work: Work, spans: Sequence[TableSpan], log: Mapping[int, Sequence[Keyed]]) -> bool:
        written = [
            translate(work, span, [records(span.partition, span.begin, log[span.partition][span.begin : span.end])])
            for span in spans
        ]
        return commit_round(self.table, self.dead, work, written, spans)
