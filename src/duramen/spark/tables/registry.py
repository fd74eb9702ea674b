"""Finds and creates tables according to their declarations."""

from typing import Final, Protocol

import pyarrow as pa

from duramen.base.errors import DependencyMissing, TableForeign, TableUnsupported
from duramen.spark.tables.columns import DEAD_LETTER_SCHEMA
from duramen.spark.tables.port import Declaration, LakeTable
from duramen.spark.tables.schemas import first_schema
from duramen.spark.tables.storage import TableLocation

__all__ = ["DEAD_LETTERS", "find_dead_letters", "find_table", "open_dead_letters", "open_table"]

DEAD_LETTERS: Final = "-dead-letters"
"""The suffix of the location of a table's dead letters."""


class _Openable(LakeTable, Protocol):
    """A table that may not exist yet."""

    def exists(self) -> bool: ...
    def create(self, schema: pa.Schema) -> None: ...


def find_table(declaration: Declaration) -> LakeTable | None:
    """The table, if it exists.

    Raises TableForeign if the location has something else, TableUnsupported, TableStorageFailed, and DependencyMissing
    if the format's library is not installed.
    """
    table = _table(declaration)
    if table.exists():
        return table
    _require_new(declaration)
    return None


def _require_new(declaration: Declaration) -> None:
    if declaration.made:
        raise TableForeign(
            f"the table of {declaration.stream} at {declaration.storage.location} is gone; bring it back, or begin a"
            " new one with `duramen table enable`"
        )


def open_table(declaration: Declaration) -> LakeTable:
    """The table, created if missing.

    Raises like `find_table`, and OptionInvalid for an invalid schema.
    """
    return _opened(declaration, first_schema(declaration))


def open_dead_letters(declaration: Declaration) -> LakeTable:
    """The table of dead letters, next to the table itself. Raises like `find_table`."""
    return _opened(_of_dead_letters(declaration), DEAD_LETTER_SCHEMA)


def find_dead_letters(declaration: Declaration) -> LakeTable | None:
    """The table of dead letters, if it exists. Raises like `find_table`."""
    return find_table(_of_dead_letters(declaration))


def _of_dead_letters(declaration: Declaration) -> Declaration:
    storage = declaration.storage
    return declaration._replace(
        storage=storage._replace(location=storage.location.rstrip("/") + DEAD_LETTERS),
        stream_id=f"{declaration.stream_id}{DEAD_LETTERS}",
        decode="none",
        partition_by=(),
        upsert=False,
        schema=b"",
        registry="",
        made=False,
    )


def _opened(declaration: Declaration, schema: pa.Schema) -> LakeTable:
    table = _table(declaration)
    if not table.exists():
        _require_new(declaration)
        place = TableLocation(declaration.storage)
        enclosing = place.enclosing_table()
        if enclosing is not None:
            raise TableForeign(f"{place.uri} lies in the table at {enclosing}, which would remove its files one day")
        table.create(schema)
    return table


def _table(declaration: Declaration) -> _Openable:
    try:
        if declaration.format == "delta":
            from duramen.spark.tables.delta.table import DeltaFormat

            return DeltaFormat(declaration)
        if declaration.format == "iceberg":
            from duramen.spark.tables.iceberg.table import IcebergFormat

            return IcebergFormat(declaration)
    except ImportError as error:
        raise DependencyMissing(f"tables need {error.name}: pip install 'duramen[tables]'") from None
    raise TableUnsupported(f"there is no table format {declaration.format!r}: take delta or iceberg")
