"""A sink's table in Iceberg format: append only.

The query, number and digest of the last batch are table properties, which change in the same commit as its snapshot.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from pyiceberg.table import Table as IcebergTable

from duramen.base.errors import TableUnsupported
from duramen.spark.pipelines.batches import NOTHING_YET, Change, HasColumns, Next, columns_of, require_owner
from duramen.spark.pipelines.handover import QueryHandover, written
from duramen.spark.tables.failures import one_line
from duramen.spark.tables.iceberg.catalog import (
    IcebergEntry,
    append,
    arrow_schema,
    can_widen,
    check_columns,
    has_single_attempts,
    stored,
)
from duramen.spark.tables.iceberg.manifests import described
from duramen.spark.tables.port import Storage
from duramen.spark.tables.schemas import optional
from duramen.spark.tables.storage import TableLocation, storage_errors
from duramen.spark.tables.written import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["IcebergSink", "IcebergState"]

_OWNER: Final = "duramen.pipeline"
_QUERY: Final = "duramen.query"
_BATCH: Final = "duramen.batch"
_DIGEST: Final = "duramen.offsets"


class IcebergState:
    """One state of the table; see `batches.State`."""

    def __init__(self, place: TableLocation, table: IcebergTable) -> None:
        self._place = place
        self._table = table

    @property
    def schema(self) -> pa.Schema:
        """See `SinkState`."""
        return arrow_schema(self._table)

    def last(self, query_id: str) -> int | None:
        """See `SinkState`."""
        said = self._table.properties
        return int(said.get(_BATCH, NOTHING_YET)) if said.get(_QUERY) == query_id else None

    def digest(self, query_id: str, batch_id: int) -> str:
        """See `SinkState`."""
        return str(self._table.properties.get(_DIGEST, "")) if self.last(query_id) == batch_id else ""

    def add(self, files: Sequence[WrittenFile], coming: Next) -> bool:
        """Commit a state with these additional files; returns whether it succeeded."""
        with storage_errors(self._place.uri):
            try:
                if not has_single_attempts(self._table):
                    return False
                writing = self._table.transaction()
                said = {_QUERY: coming.query_id, _BATCH: str(coming.batch_id), _DIGEST: coming.digest}
                writing.set_properties(said)
                table = self._table
                uris = [self._place.uri_of(file.path) for file in files]
                append(writing, [described(table.metadata, table.io, uri, {}) for uri in uris], said)
                writing.commit_transaction()
            except CommitFailedException:
                return False
        return True


class IcebergSink:
    """The table of a sink; see `batches.SinkTable`."""

    def __init__(self, storage: Storage, owner: str) -> None:
        """Raises TableUnsupported if the location cannot be accessed, or no catalog is known for it."""
        self.place = TableLocation(storage)
        self._storage = storage
        self._owner = owner
        self._handing = QueryHandover()
        self._entry = IcebergEntry(storage, self.place)

    def columns(self, batch: HasColumns) -> pa.Schema:
        """See `SinkTable`."""
        return columns_of(batch)

    def find(self) -> IcebergState | None:
        """See `SinkTable`."""
        with storage_errors(self.place.uri):
            found = self._entry.find()
            return None if found is None else self._state(found)

    def require_types(self, schema: pa.Schema) -> None:
        """See `SinkTable`: as far as the library itself knows; a catalog may refuse more."""
        try:
            check_columns(optional(schema))
        except (UnsupportedPyArrowTypeException, TypeError, ValueError) as error:
            raise TableUnsupported(f"an Iceberg table has no type for the rows: {one_line(error)}") from None

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """See `SinkTable`."""
        return stored(schema)

    def can_widen(self, before: pa.DataType, after: pa.DataType) -> bool:
        """See `SinkTable`."""
        return can_widen(before, after)

    def create(self, schema: pa.Schema, query_id: str) -> IcebergState:
        """See `SinkTable`."""
        self.require_types(schema)
        own = {_OWNER: self._owner, _QUERY: query_id, _BATCH: str(NOTHING_YET)}
        with storage_errors(self.place.uri):
            return self._state(self._entry.create(optional(schema), own))

    def _state(self, table: IcebergTable) -> IcebergState:
        require_owner(self.place.uri, table.properties.get(_OWNER), self._owner)
        return IcebergState(self.place, table)

    def evolve(self, schema: pa.Schema) -> None:
        """See `SinkTable`."""
        with storage_errors(self.place.uri):
            self._entry.evolve(schema)

    def prepare(self, batch: "DataFrame", state: IcebergState) -> Change[IcebergState]:
        """See `SinkTable`."""
        files = written(batch, self._storage, state.schema, self._handing)
        return lambda now, coming: now.add(files, coming)
