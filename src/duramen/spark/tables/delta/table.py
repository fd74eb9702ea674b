"""A table in Delta format, through `deltalake`.

The position of each partition in the table is in *application transactions* of Delta's log, which every commit carries
with its files and which checkpoints keep: `duramen:<stream id>:<partition>`, whose version is the end offset, and
`duramen:<stream id>:partitions`, their number. In upserted tables, `duramen:<stream id>:newest` is the last commit
sequence of a transaction in the table. Earlier ends are in the commit info of each commit, so they disappear with
Delta's old logs.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from duramen.base.errors import TableConflict, TableForeign
from duramen.spark.tables.columns import COMMIT, OFFSET, PARTITION
from duramen.spark.tables.compaction import compacted
from duramen.spark.tables.delta.log import ATTEMPTS, DeltaLog, added, fields_of
from duramen.spark.tables.files import FileLayout
from duramen.spark.tables.history import Ends, from_text, to_text, with_ends
from duramen.spark.tables.port import Cleaned, DataFile, Declaration, Statistics, TableSnapshot, TableSpan
from duramen.spark.tables.spans import check_spans, chosen, counted, new_begins
from duramen.spark.tables.storage import TableLocation, storage_errors

__all__ = ["DeltaFormat"]

_MARK: Final = "duramen.table"
_STREAM: Final = "duramen.stream"
_STREAM_ID: Final = "duramen.stream.id"
_UPSERT: Final = "duramen.upsert"
_HISTORY: Final = "duramen.history"
_RETENTION: Final = "delta.logRetentionDuration"
_LOOK_BACK: Final = 20
"""The largest number of commits since the last one with the history: those that only change the table's metadata."""

_MOST_BACK: Final = 256
"""The number of commits searched for earlier states of the table."""

_HOUR_MS: Final = 3_600_000
_TOLD: Final = (f"min.{PARTITION}", f"min.{OFFSET}", f"max.{OFFSET}", f"max.{COMMIT}")
"""The statistics by which files are found."""


class DeltaFormat:
    """A table in Delta format; `port.LakeTable` has the contract."""

    def __init__(self, declaration: Declaration) -> None:
        """Raises TableUnsupported if the location cannot be accessed."""
        self.declaration = declaration
        self.place = TableLocation(declaration.storage)
        self._id = f"duramen:{declaration.stream_id}"
        self._log = DeltaLog(self.place)

    @property
    def keeps_columns(self) -> bool:
        """See `LakeTable`: Delta has them in its log."""
        return False

    def exists(self) -> bool:
        """Whether the table exists. Raises TableForeign if the location has something else."""
        with storage_errors(self.place.uri):
            if not self._log.is_there():
                return False
            self._check(self._log.load())
        return True

    def create(self, schema: pa.Schema) -> None:
        """Create the table, unless another writer does so first. Raises TableForeign if that one is different."""
        declaration = self.declaration
        with storage_errors(self.place.uri):
            made = self._log.create(
                schema,
                name=declaration.stream,
                partition_by=declaration.partition_by,
                configuration={
                    _MARK: "1",
                    _STREAM: declaration.stream,
                    _STREAM_ID: declaration.stream_id,
                    _UPSERT: str(declaration.upsert).lower(),
                },
            )
            self._check(made)

    def _check(self, table: DeltaTable) -> None:
        metadata = table.metadata()
        found, where = metadata.configuration, self.place.uri
        if found.get(_MARK) != "1":
            raise TableForeign(f"{where} is a Delta table that Duramen did not make")
        if found.get(_STREAM_ID) != self.declaration.stream_id:
            raise TableForeign(
                f"{where} is the table of stream {found.get(_STREAM)} with id {found.get(_STREAM_ID)}, "
                f"not of {self.declaration.stream} with id {self.declaration.stream_id}"
            )
        if found.get(_UPSERT) != str(self.declaration.upsert).lower():
            kind = "one row for each record" if self.declaration.upsert else "one row for each key"
            raise TableForeign(f"{where} was made with {kind}; that cannot be changed")
        if tuple(metadata.partition_columns) != self.declaration.partition_by:
            columns = ", ".join(metadata.partition_columns) or "nothing"
            raise TableForeign(f"{where} was made partitioned by {columns}; that cannot be changed")

    def ends(self) -> Mapping[int, int]:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            return self._ends(self._log.load())

    def _ends(self, table: DeltaTable) -> dict[int, int]:
        count = table.transaction_version(f"{self._id}:partitions") or 0
        found = {partition: table.transaction_version(f"{self._id}:{partition}") for partition in range(count)}
        return {partition: end for partition, end in found.items() if end is not None}

    def state(self) -> TableSnapshot:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            return self._state(self._log.load())

    def earlier(self, *, since_ms: int) -> Iterator[TableSnapshot]:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            table = self._log.load()
            replaced_ms = [commit["timestamp"] for commit in table.history(_MOST_BACK)]
            ends = self._ends(table)
            for at_ms, version in zip(replaced_ms, range(table.version() - 1, -1, -1), strict=False):
                if at_ms < since_ms:
                    return
                table.load_as_version(version)
                if self._ends(table) != ends:
                    ends = self._ends(table)
                    yield self._state(table)

    def _state(self, table: DeltaTable) -> TableSnapshot:
        ends = self._ends(table)
        history = self._history(table)
        rounds = history if ends in history else [*history, ends]
        files = chosen(self._files(table), None)
        begins, floors = self._numbers(table, "begin", ends), self._floors(table, ends)
        return TableSnapshot(begins, ends, floors, rounds, files, self._newest(table))

    def _newest(self, table: DeltaTable) -> int:
        found = table.transaction_version(f"{self._id}:newest")
        return -1 if found is None else found

    def _numbers(self, table: DeltaTable, kind: str, partitions: Iterable[int]) -> dict[int, int]:
        found = {at: table.transaction_version(f"{self._id}:{kind}:{at}") for at in partitions}
        return {partition: number for partition, number in found.items() if number is not None}

    def _floors(self, table: DeltaTable, ends: Ends) -> Ends:
        knows = table.transaction_version(f"{self._id}:counted") is not None
        return self._numbers(table, "floor", ends) if knows else ends

    def _history(self, table: DeltaTable) -> list[Ends]:
        for count in (1, _LOOK_BACK):
            for commit in table.history(count):
                if _HISTORY in commit:
                    return from_text(commit[_HISTORY])
        return []

    def schema(self) -> pa.Schema:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            return fields_of(self._log.load().schema())

    def evolve(self, schema: pa.Schema) -> None:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            self._log.evolve(schema)

    def commit(
        self, files: Sequence[DataFile], spans: Sequence[TableSpan], removed: Collection[str] = (), newest: int = -1
    ) -> None:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            # Compactions and added columns do not move the ends: a commit is retried after them.
            for _ in range(ATTEMPTS):
                table = self._log.load()
                ends = self._ends(table)
                check_spans(self.declaration.stream, ends, spans)
                moved = self._moved(table, ends, spans) if spans else []
                if self.declaration.upsert and newest > self._newest(table):
                    moved.append(Transaction(f"{self._id}:newest", newest))
                history = self._history(table)
                if spans:
                    history = with_ends(history, {**ends, **{span.partition: span.end for span in spans}})
                if self._written(table, files, removed, moved, history) or self._is_there(files):
                    return
            raise TableConflict(f"{self.place.uri}: others committed {ATTEMPTS} times meanwhile")

    def _moved(self, table: DeltaTable, ends: Ends, spans: Sequence[TableSpan]) -> list[Transaction]:
        after = dict(ends) | {span.partition: span.end for span in spans}
        moved = [Transaction(f"{self._id}:{span.partition}", span.end) for span in spans]
        moved += [Transaction(f"{self._id}:begin:{at}", begin) for at, begin in new_begins(ends, spans).items()]
        if table.transaction_version(f"{self._id}:counted") is None:
            moved += [Transaction(f"{self._id}:floor:{at}", end) for at, end in ends.items()]
            moved.append(Transaction(f"{self._id}:counted", 1))
        count = max(after, default=-1) + 1
        return [*moved, Transaction(f"{self._id}:partitions", count)] if count > max(ends, default=-1) + 1 else moved

    def _written(
        self,
        table: DeltaTable,
        files: Sequence[DataFile],
        removed: Collection[str],
        moved: list[Transaction],
        history: Sequence[Ends],
    ) -> bool:
        """Whether the next version of the table is certainly this commit."""
        there = {file.path: file for file in self._files(table)} if removed else {}
        if not there.keys() >= set(removed):
            raise TableConflict(f"another writer changed the table of {self.declaration.stream} at {self.place.uri}")
        now_ms = time.time_ns() // 1_000_000
        # Readers of the table's changes need not see rows that only move from file to file.
        is_new = bool(moved)
        actions: list[AddAction | RemoveAction] = [
            AddAction(f.path, f.size_bytes, dict(f.values), f.modified_ms or now_ms, is_new, f.statistics)
            for f in files
        ]
        actions += [
            RemoveAction(path, is_new, now_ms, there[path].size_bytes, dict(there[path].values)) for path in removed
        ]
        return self._log.write(
            table, actions, transactions=moved, metadata={_HISTORY: to_text(history)},
            partition_by=self.declaration.partition_by,
        )  # fmt: skip

    def _is_there(self, files: Sequence[DataFile]) -> bool:
        paths = {file.path for file in files}
        return bool(paths) and paths <= {file.path for file in self._files(self._log.load())}

    def _files(self, table: DeltaTable) -> list[DataFile]:
        found: list[DataFile] = []
        for row, values in added(table, _TOLD):
            partition = int(dict(values).get(PARTITION) or row.get(f"min.{PARTITION}") or 0)
            found.append(
                DataFile(
                    row["path"], row["size_bytes"], row["num_records"] or 0, partition, row[f"min.{OFFSET}"],
                    row[f"max.{OFFSET}"], max(row[f"max.{OFFSET}"], row.get(f"max.{COMMIT}") or 0), values,
                    modified_ms=row["modification_time"],
                )
            )  # fmt: skip
        return found

    def scan(self, spans: Sequence[TableSpan] | None = None) -> list[DataFile]:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            return chosen(self._files(self._log.load()), spans)

    def statistics(self) -> Statistics:
        """See `LakeTable`."""
        return counted(self.scan())

    def compact(self, *, target_bytes: int = 128 << 20) -> Cleaned:
        """See `LakeTable`."""
        return compacted(self, self.place, FileLayout(self.declaration.partition_by), target_bytes)

    def expire(self, *, older_than_ms: int) -> Cleaned:
        """See `LakeTable`. Delta keeps the files that its log's last checkpoint before that time needs."""
        with storage_errors(self.place.uri):
            before = sum(1 for _ in self.place.list("_delta_log"))
            table = self._log.load()
            hours = max(0, -(-(time.time_ns() // 1_000_000 - older_than_ms) // _HOUR_MS))
            kept = f"interval {hours} hours"
            if table.metadata().configuration.get(_RETENTION) != kept:
                table.alter.set_table_properties({_RETENTION: kept})
            table = self._log.load()
            table.create_checkpoint()
            table.cleanup_metadata()
            return Cleaned(removed=max(0, before + 1 - sum(1 for _ in self.place.list("_delta_log"))))

    def vacuum(self, *, older_than_ms: int) -> Cleaned:
        """See `LakeTable`."""
        hours = max(0, -(-(time.time_ns() // 1_000_000 - older_than_ms) // _HOUR_MS))
        with storage_errors(self.place.uri):
            removed = self._log.load().vacuum(
                retention_hours=hours, enforce_retention_duration=False, dry_run=False, full=True
            )
        return Cleaned(removed=len(removed))
