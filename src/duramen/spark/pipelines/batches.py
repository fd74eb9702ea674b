"""Writes each micro-batch of a query once into its table, despite repetitions, interruptions and races.

The table itself records its batches: every commit stores, with its rows, the query, the batch's number, and a digest of
its end offsets. A table belongs to one query, which the commit that creates it names.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from duramen.base.errors import CheckpointInvalid, TableConflict, TableForeign, TableUnsupported
from duramen.spark.pipelines.checkpoints import PipelineCheckpoint
from duramen.spark.pipelines.schema_evolution import evolved, same_columns
from duramen.spark.tables.storage import TableLocation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "NOTHING_YET",
    "HasColumns",
    "Next",
    "SinkState",
    "SinkTable",
    "TableBatchWriter",
    "columns_after",
    "columns_of",
    "decision",
    "require_owner",
]  # fmt: skip

NOTHING_YET: Final = -1
"""The number of the last batch in a table without batches."""

_ATTEMPTS: Final = 20


class Next(NamedTuple):
    """The micro-batch to write; `digest` is empty if unknown."""

    query_id: str
    batch_id: int
    digest: str


class HasColumns(Protocol):
    """An object with Spark columns: a frame, or a stand-in."""

    @property
    def schema(self) -> "StructType":
        """The columns."""
        ...


class SinkState(Protocol):
    """One version of a sink's table. Its methods raise TableStorageFailed."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, as files have them."""
        ...

    def last(self, query_id: str) -> int | None:
        """The number of the query's last batch; None if the table belongs to another query."""

    def digest(self, query_id: str, batch_id: int) -> str:
        """The digest in the commit of that batch; empty if the table's history does not reach back to it."""


_S = TypeVar("_S", bound=SinkState)
Change = Callable[[_S, Next], bool]
"""Commits a batch as the table's next version; False if another commit was first, or may have been."""


class SinkTable(Protocol[_S]):
    """The table of a sink. Its methods raise TableForeign, TableUnsupported, TableStorageFailed."""

    place: TableLocation

    def columns(self, batch: HasColumns) -> pa.Schema:
        """The columns of the table for a micro-batch of these rows."""

    def find(self) -> _S | None:
        """The newest version; None if the table does not exist."""

    def require_types(self, schema: pa.Schema) -> None:
        """Raises TableUnsupported for a column that no new table could have, as far as is known in advance."""

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """The columns with the types of the table's format. Raises TableUnsupported."""
        ...

    def can_widen(self, before: pa.DataType, after: pa.DataType) -> bool:
        """Whether the format's library can change the type of an existing column like that."""
        ...

    def create(self, schema: pa.Schema, query_id: str) -> _S:
        """Create the table, unless another writer does so first."""

    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns that only `schema` has, and widen those that are wider in it."""

    def prepare(self, batch: "DataFrame", state: _S) -> Change[_S]:
        """Do all of a batch's work except its commit, which may be tried more than once."""
        ...


def columns_of(rows: HasColumns) -> pa.Schema:
    """The columns of a frame in Arrow. Raises TableUnsupported for a column that no table can have."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    from duramen.spark.api import to_arrow_schema

    for field in rows.schema.fields:
        problem = _problem(field.name, field.dataType)
        if problem:
            raise TableUnsupported(f"a table cannot have the column {field.name!r}: {problem}")
        try:
            to_arrow_schema(StructType([field]))
        except PySparkException:
            raise TableUnsupported(
                f"a table cannot have the column {field.name!r}: there is no type for {field.dataType.simpleString()}"
            ) from None
    return to_arrow_schema(rows.schema)


def _problem(name: str, kind: "DataType") -> str:
    """The reason why no table can have the column, or a part of it; empty if there is none."""
    from pyspark.sql.types import ArrayType, MapType, NullType, StructType

    if "\0" in name:
        return f"the name {name!r} has a zero byte"
    if isinstance(kind, NullType):
        return "it has a NULL without a type; CAST gives it one"
    if isinstance(kind, StructType):
        found = [_problem(field.name, field.dataType) for field in kind.fields]
        return next(filter(None, found), "" if found else "it has a structure without fields")
    if isinstance(kind, ArrayType):
        return _problem("", kind.elementType)
    return (_problem("", kind.keyType) or _problem("", kind.valueType)) if isinstance(kind, MapType) else ""


def decision(where: str, last: int, batch_id: int, known: str, digest: str) -> Literal["write", "done"]:
    """The action for a batch of a query whose batches the table has up to `last`.

    `known` and `digest` identify the last batch of the table and this one, unless they are empty. Raises
    CheckpointInvalid if checkpoint and table do not belong together.
    """
    if batch_id == last + 1:
        return "write"
    if batch_id > last + 1:
        has = "none" if last == NOTHING_YET else f"the last is {last}"
        raise CheckpointInvalid(
            f"the table {where} is older than the checkpoint: it should have the query's micro-batches up to"
            f" {batch_id - 1}, and {has}"
        )
    if batch_id < last:
        raise CheckpointInvalid(
            f"the checkpoint is older than the table {where}: it is at micro-batch {batch_id}, which the table has,"
            f" and those up to {last}"
        )
    if known and digest and known != digest:
        raise CheckpointInvalid(
            f"micro-batch {batch_id} ends at other offsets than the micro-batch of this number in the table {where}:"
            " the checkpoint has lost data"
        )
    return "done"


def columns_after(table: "SinkTable[Any]", state: SinkState, schema: pa.Schema) -> pa.Schema:
    """The columns of the table after it gets rows with the columns `schema`.

    Raises TableForeign if the table cannot take such rows, TableUnsupported for types.
    """
    wanted = evolved(table.place.uri, state.schema, table.stored(schema), table.can_widen)
    new = [field for field in schema if field.name not in state.schema.names]
    table.require_types(pa.schema(new))
    return wanted


def require_owner(where: str, found: str | None, owner: str) -> None:
    """Raises TableForeign unless a table belongs to the sink `owner`; `found` is the owner recorded in it."""
    if found is None:
        raise TableForeign(f"the table {where} was not made by a pipeline; choose another location")
    if found != owner:
        raise TableForeign(f"the table {where} belongs to the pipeline {found}; choose another location")


class TableBatchWriter(Generic[_S]):
    """The function for `foreachBatch`, on the driver, for each micro-batch of one query."""

    def __init__(self, table: SinkTable[_S], checkpoint: PipelineCheckpoint) -> None:
        self._table = table
        self._checkpoint = checkpoint

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        """Raises CheckpointInvalid, TableForeign, TableUnsupported, TableConflict, TableStorageFailed."""
        coming = Next(self._checkpoint.query_id, batch_id, self._checkpoint.digest_of(batch_id))
        schema = self._table.columns(batch)
        state = self._due(coming, schema)
        if state is None:
            return
        change = self._table.prepare(batch, state)
        for _ in range(_ATTEMPTS):
            # A commit in between may have been this very batch.
            state = self._due(coming, schema)
            if state is None or change(state, coming):
                return
        raise TableConflict(f"others changed the table {self._where} {_ATTEMPTS} times while a micro-batch came")

    @property
    def _where(self) -> str:
        return self._table.place.uri

    def _due(self, coming: Next, schema: pa.Schema) -> _S | None:
        """The present table, with the columns of the rows; None if it has the batch already.

        A missing table is created.
        """
        state = self._table.find()
        if state is None:
            if coming.batch_id > 0:
                decision(self._where, NOTHING_YET, coming.batch_id, "", "")
            state = self._table.create(schema, coming.query_id)
        wanted = columns_after(self._table, state, schema)
        last = state.last(coming.query_id)
        if last is None:
            raise CheckpointInvalid(
                f"the table {self._where} was begun with another checkpoint; use that checkpoint, or another location"
            )
        known = state.digest(coming.query_id, last) if last == coming.batch_id else ""
        decided = decision(self._where, last, coming.batch_id, known, coming.digest)
        if decided != "write":
            return None
        return state if same_columns(wanted, state.schema) else self._evolved(wanted)

    def _evolved(self, wanted: pa.Schema) -> _S:
        self._table.evolve(wanted)
        state = self._table.find()
        if state is None:
            raise TableForeign(f"the table at {self._where} is gone")
        return state
