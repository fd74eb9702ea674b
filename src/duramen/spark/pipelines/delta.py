"""A sink's table in Delta format.

A batch's number is the version of an application transaction named after the query's id; its digest is in the commit
info.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction

from duramen.base.errors import TableUnsupported
from duramen.spark.pipelines.batches import NOTHING_YET, Change, HasColumns, Next, columns_of, require_owner
from duramen.spark.pipelines.handover import QueryHandover, written
from duramen.spark.pipelines.merge import Upsert, gathered, merge
from duramen.spark.tables.delta.log import DeltaLog, fields_of
from duramen.spark.tables.port import Storage
from duramen.spark.tables.schemas import optional
from duramen.spark.tables.storage import TableLocation, storage_errors
from duramen.spark.tables.task_writer import said
from duramen.spark.tables.written import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DeltaCopySink", "DeltaSink", "DeltaState"]

_MARK: Final = "Written by the Duramen pipeline "
_DIGEST: Final = "duramen.offsets"
_QUERY: Final = "duramen.query"
_BATCH: Final = "duramen.batch"


class DeltaState:
    """One version of the table; see `batches.State`."""

    def __init__(self, place: TableLocation, log: DeltaLog, table: DeltaTable) -> None:
        self._where = place.uri
        self._log = log
        self._table = table

    @property
    def schema(self) -> pa.Schema:
        """See `SinkState`."""
        return fields_of(self._table.schema())

    def last(self, query_id: str) -> int | None:
        """See `SinkState`."""
        return self._table.transaction_version(_application(query_id))

    def digest(self, query_id: str, batch_id: int) -> str:
        """See `SinkState`."""
        with storage_errors(self._where):
            for commit in self._table.history():
                if commit.get(_QUERY) == query_id and commit.get(_BATCH) == str(batch_id):
                    return str(commit.get(_DIGEST, ""))
        return ""

    def add(self, files: Sequence[WrittenFile], coming: Next) -> bool:
        """Commit a version with these additional files; returns whether it succeeded."""
        now_ms = time.time_ns() // 1_000_000
        actions = [AddAction(file.path, file.size_bytes, {}, now_ms, True, file.statistics) for file in files]
        with storage_errors(self._where):
            return self._log.write(
                self._table, actions, transactions=[_transaction(coming)], metadata=_metadata(coming)
            )

    def merge(self, rows: pa.Table, columns: Sequence[str], upsert: Upsert, coming: Next) -> bool:
        """Commit a version in which these rows replace those with their keys; returns whether it succeeded."""
        table = self._table
        before = table.version()
        properties = self._log.properties([_transaction(coming)], _metadata(coming))

        def make() -> None:
            if rows.num_rows:
                merge(table, rows, columns, upsert, properties)
            # A merge without changes is not a commit, but the table must record the batch.
            if table.version() == before:
                table.create_write_transaction([], "append", table.schema(), commit_properties=properties)

        with storage_errors(self._where):
            return self._log.change(table, make)


class DeltaSink:
    """The table of a sink; see `batches.SinkTable`."""

    def __init__(self, storage: Storage, owner: str, upsert: Upsert | None) -> None:
        """Raises TableUnsupported if the location cannot be accessed."""
        self.place = TableLocation(storage)
        self._storage = storage
        self._owner = owner
        self._handing = QueryHandover()
        self._upsert = upsert
        self._log = DeltaLog(self.place)

    def columns(self, batch: HasColumns) -> pa.Schema:
        """See `SinkTable`."""
        return columns_of(batch)

    def find(self) -> DeltaState | None:
        """See `SinkTable`."""
        with storage_errors(self.place.uri):
            return self._state(self._log.load()) if self._log.is_there() else None

    def require_types(self, schema: pa.Schema) -> None:
        """See `SinkTable`."""
        self.stored(schema)

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """See `SinkTable`."""
        return pa.schema([pa.field(field.name, _stored(field.type)) for field in schema])

    def can_widen(self, before: pa.DataType, after: pa.DataType) -> bool:
        """See `SinkTable`: deltalake neither writes nor reads tables with the feature `typeWidening`."""
        del before, after
        return False

    def create(self, schema: pa.Schema, query_id: str) -> DeltaState:
        """See `SinkTable`."""
        self.require_types(schema)
        with storage_errors(self.place.uri):
            made = self._log.create(
                optional(schema),
                description=_MARK + self._owner,
                transactions=[Transaction(_application(query_id), NOTHING_YET)],
            )
            return self._state(made)

    def _state(self, table: DeltaTable) -> DeltaState:
        said = table.metadata().description or ""
        require_owner(self.place.uri, said.removeprefix(_MARK) if said.startswith(_MARK) else None, self._owner)
        return DeltaState(self.place, self._log, table)

    def evolve(self, schema: pa.Schema) -> None:
        """See `SinkTable`."""
        with storage_errors(self.place.uri):
            self._log.evolve(schema)

    def prepare(self, batch: "DataFrame", state: DeltaState) -> Change[DeltaState]:
        """See `SinkTable`."""
        upsert, schema = self._upsert, state.schema
        if upsert is None:
            files = written(batch, self._storage, schema, self._handing)
            return lambda now, coming: now.add(files, coming)
        rows = gathered(batch, schema, upsert, self.place.uri)
        return lambda now, coming: now.merge(rows, schema.names, upsert, coming)


class DeltaCopySink(DeltaSink):
    """A sink for unchanged records: the reading tasks have written the files, and micro-batches have their names."""

    def __init__(self, storage: Storage, owner: str, columns: pa.Schema) -> None:
        """`columns` are those of the records. Raises TableUnsupported if the location cannot be accessed."""
        super().__init__(storage, owner, None)
        self._columns = columns

    def columns(self, batch: HasColumns) -> pa.Schema:
        """See `SinkTable`."""
        del batch
        return self._columns

    def prepare(self, batch: "DataFrame", state: DeltaState) -> Change[DeltaState]:
        """See `SinkTable`."""
        del state
        files = said(batch)
        return lambda now, coming: now.add(files, coming)


def _application(query_id: str) -> str:
    """The name of a query's application transaction."""
    return f"duramen:{query_id}"


def _transaction(coming: Next) -> Transaction:
    return Transaction(_application(coming.query_id), coming.batch_id)


def _metadata(coming: Next) -> dict[str, str]:
    return {_QUERY: coming.query_id, _BATCH: str(coming.batch_id), _DIGEST: coming.digest}


def _stored(kind: pa.DataType) -> pa.DataType:
    """The Arrow type that a Delta table returns for one written to it."""
    try:
        return fields_of(Schema.from_arrow(pa.schema([pa.field("it", kind)]))).field("it").type
    except Exception as error:
        raise TableUnsupported(f"a Delta table has no type for {kind}") from error
