"""Delta's log, for all code that writes Delta tables: a change is one version, or none.

A change is made for exactly one version of the table and never rebased by the library: if another commit came first,
the writer examines that one. Commits are identified by *application transactions*, named numbers that a commit carries
with its files and that checkpoints keep. Source: the Delta transaction log protocol, "Transaction Identifiers".
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from duramen.base.errors import TableForeign, TableUnsupported
from duramen.spark.tables.partition_values import texts_of
from duramen.spark.tables.s3 import ENVIRONMENT, endpoint_of, region_of
from duramen.spark.tables.statistics import statistics_columns
from duramen.spark.tables.storage import TableLocation

__all__ = ["ATTEMPTS", "DeltaLog", "added", "fields_of"]

ATTEMPTS: Final = 20
"""The number of attempts of a change against concurrent ones before it fails."""

_TOLD: Final = ("path", "size_bytes", "modification_time", "num_records")
_STATISTICS: Final = "delta.dataSkippingStatsColumns"
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")


class DeltaLog:
    """The log of the table at a place. Its methods raise the library's storage errors."""

    def __init__(self, place: TableLocation) -> None:
        """Raises TableUnsupported if the library would use another location: it treats a path as part of a URL."""
        escape = _ESCAPE.search(place.uri)
        if escape is not None:
            raise TableUnsupported(f"a Delta table cannot lie at {place.uri}: {escape[0]} would be read as an escape")
        self._place = place
        self._options = _storage_options(place)

    def is_there(self) -> bool:
        """Whether the table exists. Raises TableForeign if the location has other files."""
        if DeltaTable.is_deltatable(self._place.uri, self._options):
            return True
        for found in self._place.list():
            if not found.path.startswith("_delta_log/"):
                raise TableForeign(f"{self._place.uri} has files and is no Delta table: {found.path}")
        return False

    def load(self) -> DeltaTable:
        """The newest version. Raises TableForeign if the table no longer exists."""
        try:
            return DeltaTable(self._place.uri, storage_options=self._options)
        except TableNotFoundError as error:
            raise TableForeign(f"the table at {self._place.uri} is gone") from error

    def create(
        self,
        schema: pa.Schema,
        *,
        name: str | None = None,
        description: str | None = None,
        partition_by: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        transactions: Sequence[Transaction] = (),
    ) -> DeltaTable:
        """Create the table, unless another writer does so first; returns the existing table."""
        try:
            DeltaTable.create(
                self._place.uri,
                Schema.from_arrow(schema),
                partition_by=list(partition_by),
                name=name,
                description=description,
                configuration={**(configuration or {}), _STATISTICS: statistics_columns(schema, partition_by)},
                storage_options=self._options,
                commit_properties=CommitProperties(app_transactions=list(transactions) or None),
                raise_if_key_not_exists=False,
            )
        except Exception:
            if not DeltaTable.is_deltatable(self._place.uri, self._options):
                raise
        return self.load()

    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns, and the nested fields, that the table lacks."""
        for attempt in range(ATTEMPTS):
            table = self.load()
            there = fields_of(table.schema())
            new = [
                field for field in schema if field.name not in there.names or there.field(field.name).type != field.type
            ]
            if not new:
                return
            try:
                table.alter.add_columns(list(Schema.from_arrow(pa.schema(new)).fields))
            except CommitFailedError:
                if attempt == ATTEMPTS - 1:
                    raise

    def change(self, table: DeltaTable, make: Callable[[], object]) -> bool:
        """Whether `make` made the version after `table`'s; False if another was first, or may have been.

        The storage's response can be lost: after False, only the table shows whether it was this one.
        """
        before = table.version()
        try:
            make()
        except Exception:
            if self.load().version() == before:
                raise
            return False
        self._place.sync(f"_delta_log/{before + 1:020d}.json")
        return True

    def write(
        self,
        table: DeltaTable,
        actions: Sequence[AddAction | RemoveAction],
        *,
        transactions: Sequence[Transaction] = (),
        metadata: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
    ) -> bool:
        """Commit a change that adds and removes files; returns like `change`."""
        properties = self.properties(transactions, metadata)
        return self.change(
            table,
            lambda: table.create_write_transaction(
                list(actions), "append", table.schema(), partition_by=list(partition_by), commit_properties=properties
            ),
        )

    def properties(
        self, transactions: Sequence[Transaction], metadata: Mapping[str, str] | None = None
    ) -> CommitProperties:
        """The properties of a commit, for one version only."""
        return CommitProperties(
            custom_metadata=None if metadata is None else dict(metadata),
            app_transactions=list(transactions) or None,
            max_commit_retries=0,
        )


def added(
    table: DeltaTable, statistics: Collection[str] = ()
) -> Iterator[tuple[dict[str, Any], tuple[tuple[str, str | None], ...]]]:
    """The files of a table: path, size and rows of each with these of its statistics, and its partition values.

    Only the requested ones are converted: other statistics may have times beyond Python's range.
    """
    actions = pa.table(table.get_add_actions(flatten=True)).combine_chunks()
    names = table.metadata().partition_columns
    columns = [actions.column(f"partition.{name}") for name in names]
    texts = [texts_of(column.chunk(0)) if column.num_chunks else [] for column in columns]
    wanted = [name for name in (*_TOLD, *statistics) if name in actions.column_names]
    for index, row in enumerate(actions.select(wanted).to_pylist()):
        yield row, tuple((name, text[index]) for name, text in zip(names, texts, strict=True))


def fields_of(schema: Schema) -> pa.Schema:
    """A table's columns in pyarrow."""
    found: pa.Schema = pa.schema(schema.to_arrow())
    return found


def _storage_options(place: TableLocation) -> dict[str, str]:
    if place.is_local:
        return {}
    options = {ENVIRONMENT[name]: value for name, value in place.options.items() if name in ENVIRONMENT}
    if endpoint_of(place.options).startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    # Of two writers of one version the storage accepts one.
    return {**options, "AWS_REGION": region_of(place.options), "aws_conditional_put": "etag"}
