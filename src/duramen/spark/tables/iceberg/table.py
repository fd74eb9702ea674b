"""A table in Iceberg format, through `pyiceberg` and a catalog: append, never upsert.

The position of each partition in the table is a table property, which changes in the same commit as the snapshot: both
are one new metadata file, and the catalog accepts it only as successor of the one that it was made from.
"""

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table as IcebergTable

from duramen.base.errors import TableConflict, TableForeign, TableUnsupported
from duramen.spark.tables.columns import COMMIT, OFFSET, PARTITION
from duramen.spark.tables.compaction import compacted
from duramen.spark.tables.files import FileLayout
from duramen.spark.tables.history import from_text, to_text, with_ends
from duramen.spark.tables.iceberg.catalog import ATTEMPTS, IcebergEntry, append, arrow_schema, has_single_attempts
from duramen.spark.tables.iceberg.manifests import described, partition_text
from duramen.spark.tables.port import Cleaned, DataFile, Declaration, Statistics, TableSnapshot, TableSpan
from duramen.spark.tables.spans import check_spans, chosen, counted, new_begins
from duramen.spark.tables.storage import TableLocation, storage_errors

__all__ = ["IcebergFormat"]

_ENDS: Final = "duramen.ends"
_BEGINS: Final = "duramen.begins"
_FLOORS: Final = "duramen.floors"
_HISTORY: Final = "duramen.history"
_SPANS: Final = "duramen.spans"
_COMMITTED_MS: Final = "duramen.committed.ms"
_STREAM: Final = "duramen.stream"
_STREAM_ID: Final = "duramen.stream.id"


class IcebergFormat:
    """A table in Iceberg format; `port.LakeTable` has the contract."""

    def __init__(self, declaration: Declaration) -> None:
        """Raises TableUnsupported for upserts, or if no catalog is known for its location."""
        if declaration.upsert:
            raise TableUnsupported(
                "an Iceberg table cannot have one row for each key: pyiceberg writes no row-level deletes; take the "
                "format delta"
            )
        self.declaration = declaration
        self.place = TableLocation(declaration.storage)
        self._entry = IcebergEntry(declaration.storage, self.place)

    @property
    def keeps_columns(self) -> bool:
        """See `LakeTable`: Iceberg's data files have all columns."""
        return True

    def exists(self) -> bool:
        """Whether the table exists. Raises TableForeign if the location has something else."""
        with storage_errors(self.place.uri):
            found = self._entry.find()
            if found is not None:
                self._check(found)
        return found is not None

    def create(self, schema: pa.Schema) -> None:
        """Create the table, unless another writer does so first. Raises TableForeign if that one is different."""
        declaration = self.declaration
        own = {_STREAM: declaration.stream, _STREAM_ID: declaration.stream_id, _ENDS: "{}"}
        with storage_errors(self.place.uri):
            self._check(self._entry.create(schema, own, declaration.partition_by))

    def _check(self, table: IcebergTable) -> None:
        found, where = table.properties, self.place.uri
        if _STREAM_ID not in found:
            raise TableForeign(f"{where}: the catalog's table {self._entry.name} is not one that Duramen made")
        if found[_STREAM_ID] != self.declaration.stream_id:
            raise TableForeign(
                f"{where} is the table of stream {found.get(_STREAM)} with id {found[_STREAM_ID]}, "
                f"not of {self.declaration.stream} with id {self.declaration.stream_id}"
            )
        columns = tuple(field.name for field in table.spec().fields)
        if columns != self.declaration.partition_by:
            raise TableForeign(
                f"{where} was made partitioned by {', '.join(columns) or 'nothing'}; that cannot be changed"
            )

    def ends(self) -> Mapping[int, int]:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            return _ends(self._entry.load())

    def state(self) -> TableSnapshot:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            table = self._entry.load()
            ends = _ends(table)
            history = from_text(table.properties.get(_HISTORY, "[]"))
            rounds = history if ends in history else [*history, ends]
            return TableSnapshot(
                _numbers(table, _BEGINS), ends, _floors(table), rounds, chosen(self._files(table), None)
            )

    def earlier(self, *, since_ms: int) -> Iterator[TableSnapshot]:
        """See `LakeTable`: a table without upserts keeps its rows, so they are not needed."""
        del since_ms
        return iter(())

    def schema(self) -> pa.Schema:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            return arrow_schema(self._entry.load())

    def evolve(self, schema: pa.Schema) -> None:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            self._entry.evolve(schema)

    def commit(
        self, files: Sequence[DataFile], spans: Sequence[TableSpan], removed: Collection[str] = (), newest: int = -1
    ) -> None:
        """See `LakeTable`."""
        del newest  # all rows stay
        with storage_errors(self.place.uri):
            # Compactions and added columns do not move the ends: a commit is retried after them.
            for _ in range(ATTEMPTS):
                table = self._entry.load()
                if not has_single_attempts(table):
                    continue
                ends = _ends(table)
                check_spans(self.declaration.stream, ends, spans)
                try:
                    self._write(table, files, {**ends, **{span.partition: span.end for span in spans}}, spans, removed)
                except CommitFailedException:
                    continue
                except ValidationException as error:
                    raise TableConflict(
                        f"another writer changed the table of {self.declaration.stream} at {self.place.uri}"
                    ) from error
                except Exception:
                    # It may be committed nevertheless: the catalog's response can be lost.
                    if not self._is_there(files):
                        raise
                return
            raise TableConflict(f"{self.place.uri}: others committed {ATTEMPTS} times meanwhile")

    def _write(
        self,
        table: IcebergTable,
        files: Sequence[DataFile],
        ends: Mapping[int, int],
        spans: Sequence[TableSpan],
        removed: Collection[str],
    ) -> None:
        """Commit one snapshot and the ends. Raises CommitFailedException if the table is no longer the loaded one."""
        gone = {self.place.uri_of(path) for path in removed}
        old = [file for file in _planned(table) if file.file_path.removeprefix("file://") in gone] if gone else []
        if len(old) != len(gone):
            raise ValidationException("a file that was to be removed is gone")
        said = {_SPANS: json.dumps([list(span) for span in spans])} if spans else {}
        writing = table.transaction()
        new = [
            described(table.metadata, table.io, self.place.uri_of(file.path), dict(file.values)) for file in files
        ]  # fmt: skip
        if spans:
            writing.set_properties(
                {
                    _ENDS: _as_json(ends),
                    _BEGINS: _as_json({**_numbers(table, _BEGINS), **new_begins(_ends(table), spans)}),
                    _FLOORS: _as_json(_floors(table)),
                    _HISTORY: to_text(with_ends(from_text(table.properties.get(_HISTORY, "[]")), ends)),
                    _COMMITTED_MS: str(time.time_ns() // 1_000_000),
                }
            )
        if not old:
            append(writing, new, said)
        else:
            with writing.update_snapshot(snapshot_properties=said).overwrite() as replacing:
                for file in old:
                    replacing.delete_data_file(file)
                for file in new:
                    replacing.append_data_file(file)
        writing.commit_transaction()

    def _is_there(self, files: Sequence[DataFile]) -> bool:
        paths = {file.path for file in files}
        return bool(paths) and paths <= {file.path for file in self._files(self._entry.load())}

    def _files(self, table: IcebergTable) -> Iterator[DataFile]:
        schema = table.schema()
        partition_id, offset_id = schema.find_field(PARTITION).field_id, schema.find_field(OFFSET).field_id
        commit_id = schema.find_field(COMMIT).field_id if COMMIT in schema.column_names else -1
        names = self.declaration.partition_by
        kinds = [schema.find_type(name) for name in names]
        for file in _planned(table):
            low, high = file.lower_bounds or {}, file.upper_bounds or {}
            values = tuple(
                (name, partition_text(file.partition[index], kinds[index])) for index, name in enumerate(names)
            )
            yield DataFile(
                self.place.relative(file.file_path),
                file.file_size_in_bytes,
                file.record_count,
                _number(low[partition_id]),
                _number(low[offset_id]),
                _number(high[offset_id]),
                max(_number(high[offset_id]), _number(high.get(commit_id, b""))),
                values,
            )

    def scan(self, spans: Sequence[TableSpan] | None = None) -> list[DataFile]:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            return chosen(self._files(self._entry.load()), spans)

    def statistics(self) -> Statistics:
        """See `LakeTable`."""
        with storage_errors(self.place.uri):
            table = self._entry.load()
            committed = table.properties.get(_COMMITTED_MS)
            found = counted(list(self._files(table)))
        return found._replace(last_commit_ms=None if committed is None else int(committed))

    def compact(self, *, target_bytes: int = 128 << 20) -> Cleaned:
        """See `LakeTable`."""
        layout = FileLayout(self.declaration.partition_by, keep_columns=True)
        return compacted(self, self.place, layout, target_bytes)

    def expire(self, *, older_than_ms: int) -> Cleaned:
        """See `LakeTable`. `vacuum` removes the files."""
        with storage_errors(self.place.uri):
            table = self._entry.load()
            before = len(table.snapshots())
            moment = datetime.fromtimestamp(older_than_ms / 1000, UTC)
            table.maintenance.expire_snapshots().older_than(moment).commit()
            return Cleaned(removed=before - len(self._entry.load().snapshots()))

    def vacuum(self, *, older_than_ms: int) -> Cleaned:
        """See `LakeTable`."""
        removed = 0
        with storage_errors(self.place.uri):
            old = [found.path for found in self.place.list() if found.modified_ms < older_than_ms]
            # Files of later commits are younger.
            kept = {self.place.relative(path) for path in _referenced(self._entry.load())}
            for path in old:
                if path not in kept:
                    self.place.remove(path)
                    removed += 1
        return Cleaned(removed=removed)


def _ends(table: IcebergTable) -> dict[int, int]:
    return _numbers(table, _ENDS)


def _floors(table: IcebergTable) -> dict[int, int]:
    return _numbers(table, _FLOORS) if _FLOORS in table.properties else _ends(table)


def _numbers(table: IcebergTable, name: str) -> dict[int, int]:
    return {int(partition): number for partition, number in json.loads(table.properties.get(name, "{}")).items()}


def _as_json(numbers: Mapping[int, int]) -> str:
    return json.dumps({str(partition): number for partition, number in numbers.items()})


def _planned(table: IcebergTable) -> list[IcebergFile]:
    return [task.file for task in table.scan().plan_files()]


def _referenced(table: IcebergTable) -> Iterator[str]:
    """All files of remembered states of the table."""
    yield table.metadata_location
    yield from (entry.metadata_file for entry in table.metadata.metadata_log)
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path


def _number(bound: bytes) -> int:
    """Source: the Iceberg table specification, "Binary single-value serialization"."""
    return int.from_bytes(bound, "little", signed=True)
