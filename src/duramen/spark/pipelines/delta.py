"""A Delta table that holds every micro-batch of a query exactly once.

A batch and its number are one commit: the number is the version of an application transaction of the table, named for
the query's id. So the table itself says what it has, and a batch that Spark repeats is written at most once. A table
belongs to one query, whose transaction its first commit begins.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from duramen.base.errors import CheckpointDiffers, TableRefused
from duramen.spark.pipelines.checkpoints import Checkpoint
from duramen.spark.pipelines.files import WRITTEN, writing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DeltaWriter", "Upsert", "decision", "fields_of", "require_columns", "require_ours"]

_MARK: Final = "Written by the Duramen pipeline "
_DELETED: Final = "__deleted"
_NOTHING_YET: Final = -1
_ATTEMPTS: Final = 20
_DIGEST: Final = "duramen.offsets"
_QUERY: Final = "duramen.query"
_BATCH: Final = "duramen.batch"


class Upsert:
    """How rows take each other's place: by `keys`, the newest by `sequence_by`; `delete_when` is SQL."""

    def __init__(self, keys: Sequence[str], sequence_by: str | None, delete_when: str | None) -> None:
        self.keys = list(keys)
        self.sequence_by = sequence_by
        self.delete_when = delete_when


def application(query_id: str) -> str:
    """The name of a query's application transaction."""
    return f"duramen:{query_id}"


def decision(where: str, last: int, batch_id: int, known: str, digest: str) -> Literal["write", "done"]:
    """What to do with a batch of a query of whose batches the table has all up to `last`.

    `known` and `digest` tell the last batch of the table and this one apart, as far as they are not empty. Raises
    CheckpointDiffers where checkpoint and table do not belong together.
    """
    if batch_id == last + 1:
        return "write"
    if batch_id > last + 1:
        has = "none" if last == _NOTHING_YET else f"the last is {last}"
        raise CheckpointDiffers(
            f"the table {where} is older than the checkpoint: it should have the query's micro-batches up to"
            f" {batch_id - 1}, and {has}"
        )
    if batch_id < last:
        raise CheckpointDiffers(
            f"the checkpoint is older than the table {where}: it is at micro-batch {batch_id}, which the table has,"
            f" and those up to {last}"
        )
    if known and digest and known != digest:
        raise CheckpointDiffers(
            f"micro-batch {batch_id} ends at other offsets than the one of this number that the table {where} has:"
            " the checkpoint has lost what it knew"
        )
    return "done"


def require_ours(location: Path, owner: str) -> DeltaTable | None:
    """The table at a location, or None where there is nothing yet. Raises TableRefused where it is not `owner`'s."""
    if not DeltaTable.is_deltatable(str(location)):
        if location.is_file() or (location.is_dir() and any(location.iterdir())):
            raise TableRefused(f"{location} has files that are no Delta table; choose an empty or a new directory")
        return None
    table = DeltaTable(str(location))
    described = table.metadata().description or ""
    if not described.startswith(_MARK):
        raise TableRefused(f"the Delta table {location} was not made by a pipeline; choose another location")
    if described != _MARK + owner:
        raise TableRefused(f"the Delta table {location} belongs to the pipeline {described.removeprefix(_MARK)}")
    return table


def require_columns(table: DeltaTable, schema: pa.Schema) -> None:
    """Raises TableRefused where the table has other columns than the rows."""
    has = {field.name: str(field.type) for field in fields_of(table)}
    wants = {field.name: _stored(field.type) for field in schema}
    for name in sorted(has.keys() | wants.keys()):
        if has.get(name) != wants.get(name):
            raise TableRefused(
                f"the table {table.table_uri} has other columns: {name} is {has.get(name, 'not there')}, and the"
                f" rows' is {wants.get(name, 'not there')}; choose another location"
            )


def fields_of(table: DeltaTable) -> pa.Schema:
    """A table's columns."""
    return _fields(table.schema())


def _fields(schema: Schema) -> pa.Schema:
    found: pa.Schema = pa.schema(schema.to_arrow())
    return found


def _stored(kind: pa.DataType) -> str:
    """What an Arrow type is once a Delta table has been read again. Raises TableRefused where Delta has none such."""
    try:
        return str(_fields(Schema.from_arrow(pa.schema([pa.field("it", kind)]))).field("it").type)
    except (DeltaError, ValueError, TypeError, pa.ArrowException) as error:
        raise TableRefused(f"a Delta table has no type for {kind}: {' '.join(str(error).split())}") from None


class DeltaWriter:
    """What `foreachBatch` calls, on the driver, for each micro-batch of one query."""

    def __init__(self, location: Path, owner: str, checkpoint: Checkpoint, upsert: Upsert | None) -> None:
        self._location = location
        self._owner = owner
        self._checkpoint = checkpoint
        self._upsert = upsert

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        """Raises TableRefused, CheckpointDiffers, and OSError or DeltaError where the disk does not take it."""
        from pyspark.sql.pandas.types import to_arrow_schema

        query_id, digest = self._checkpoint.query_id, self._checkpoint.digest_of(batch_id)
        schema = to_arrow_schema(batch.schema, timezone="UTC")
        if self._table(query_id, schema, batch_id, digest) is None:
            return
        commit = self._merging(batch, schema) if self._upsert is not None else self._adding(batch, schema)
        properties = CommitProperties(
            custom_metadata={_QUERY: query_id, _BATCH: str(batch_id), _DIGEST: digest},
            app_transactions=[Transaction(application(query_id), batch_id)],
            # Another commit may have been this very batch: the decision is made anew before every attempt.
            max_commit_retries=0,
        )
        for _ in range(_ATTEMPTS):
            table = self._table(query_id, schema, batch_id, digest)
            if table is None:
                return
            try:
                commit(table, properties)
            except CommitFailedError:
                continue
            return
        raise TableRefused(f"the table {self._location} was changed by others {_ATTEMPTS} times while a batch came")

    def _table(self, query_id: str, schema: pa.Schema, batch_id: int, digest: str) -> DeltaTable | None:
        """The table as it is now, made where there is none; None where it has the batch already."""
        table = require_ours(self._location, self._owner)
        if table is None:
            if batch_id > 0:
                decision(str(self._location), _NOTHING_YET, batch_id, "", "")
            table = DeltaTable.create(
                str(self._location), schema, mode="error", description=_MARK + self._owner,
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(application(query_id), _NOTHING_YET)]
                ),
            )  # fmt: skip
        require_columns(table, schema)
        last = table.transaction_version(application(query_id))
        if last is None:
            raise CheckpointDiffers(
                f"the table {self._location} was begun with another checkpoint; give the query that one, or begin"
                " anew with another location"
            )
        known = _digest_of(table, query_id, last) if last == batch_id else ""
        return table if decision(str(self._location), last, batch_id, known, digest) == "write" else None

    def _adding(self, batch: "DataFrame", schema: pa.Schema) -> Callable[[DeltaTable, CommitProperties], None]:
        """Files are written once, whatever becomes of the commit."""
        files = batch.mapInArrow(writing(str(self._location), schema), WRITTEN).collect()
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, {}, now_ms, data_change=True, stats=json.dumps({"numRecords": file.rows}))
            for file in files
        ]

        def commit(table: DeltaTable, properties: CommitProperties) -> None:
            table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)

        return commit

    def _merging(self, batch: "DataFrame", schema: pa.Schema) -> Callable[[DeltaTable, CommitProperties], None]:
        """The batch's newest row of each key goes through the driver, which merges it into the table."""
        upsert = self._upsert or Upsert((), None, None)
        rows = _newest(batch, upsert).toArrow()
        rows = rows.cast(schema.append(pa.field(_DELETED, pa.bool_())))
        _require_keys(rows, upsert.keys, str(self._location))

        def commit(table: DeltaTable, properties: CommitProperties) -> None:
            before = table.version()
            if rows.num_rows:
                _merge(table, rows, schema.names, upsert, properties)
            # A merge that changes nothing is no commit, and the table has to know of the batch all the same.
            if table.version() == before:
                table.create_write_transaction([], "append", table.schema(), commit_properties=properties)

        return commit


def _digest_of(table: DeltaTable, query_id: str, batch_id: int) -> str:
    """What the commit of a batch says of its offsets; empty where the table's log does not go back so far."""
    for commit in table.history():
        if commit.get(_QUERY) == query_id and commit.get(_BATCH) == str(batch_id):
            return str(commit.get(_DIGEST, ""))
    return ""


def _newest(batch: "DataFrame", upsert: Upsert) -> "DataFrame":
    """Of each key the newest row, and whether it says that there is none any more."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    deleted = sf.expr(upsert.delete_when) if upsert.delete_when is not None else sf.lit(False)
    rows = batch.withColumn(_DELETED, sf.coalesce(deleted, sf.lit(False)))
    if upsert.sequence_by is None:
        return rows
    keys = [sf.col(quoted(key)) for key in upsert.keys]
    newest_first = Window.partitionBy(*keys).orderBy(sf.col(quoted(upsert.sequence_by)).desc_nulls_last())
    return rows.withColumn("__rank", sf.row_number().over(newest_first)).where("__rank = 1").drop("__rank")


def quoted(name: str) -> str:
    """A column's name in Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def _require_keys(rows: pa.Table, keys: Sequence[str], where: str) -> None:
    """Two rows of one key would take each other's place in no order at all."""
    distinct = rows.select(list(keys)).group_by(list(keys)).aggregate([]).num_rows
    if distinct != rows.num_rows:
        raise TableRefused(
            f"a micro-batch for {where} has {rows.num_rows} rows of {distinct} keys; sequence_by has to say which"
        )


def _merge(
    table: DeltaTable, rows: pa.Table, columns: Sequence[str], upsert: Upsert, properties: CommitProperties
) -> Mapping[str, Any]:
    def of(side: str, name: str) -> str:
        return f'{side}."' + name.replace('"', '""') + '"'

    # Nulls are keys as any other.
    same = " AND ".join(f"({of('t', key)} IS NOT DISTINCT FROM {of('s', key)})" for key in upsert.keys)
    sequence = upsert.sequence_by
    newer = ""
    if sequence is not None:
        newer = f" AND ({of('s', sequence)} >= {of('t', sequence)} OR {of('t', sequence)} IS NULL)"
    gone = of("s", _DELETED)
    values = {f'"{name}"': of("s", name) for name in columns}
    merger = table.merge(
        rows, same, source_alias="s", target_alias="t", commit_properties=properties, streamed_exec=False
    )
    return (
        merger.when_matched_delete(f"{gone}{newer}")
        .when_matched_update(values, f"NOT {gone}{newer}")
        .when_not_matched_insert(values, f"NOT {gone}")
        .execute()
    )
