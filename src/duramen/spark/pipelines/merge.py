"""Upserts of a micro-batch's rows into a Delta table, by keys; the rows go through the driver."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from duramen.base.errors import OptionInvalid
from duramen.spark.values.fields import fitted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DELETED", "Upsert", "gathered", "merge"]

DELETED: Final = "__deleted"
"""The column that marks a row as a deletion of its keys."""


class Upsert:
    """The rule of replacement: by `keys`, the newest by `sequence_by`; `delete_when` is SQL."""

    def __init__(self, keys: Sequence[str], sequence_by: str | None, delete_when: str | None) -> None:
        self.keys = list(keys)
        self.sequence_by = sequence_by
        self.delete_when = delete_when


def gathered(batch: "DataFrame", schema: pa.Schema, upsert: Upsert, where: str) -> pa.Table:
    """The newest row of each key, with the columns of `schema`, null if absent in the rows, and `DELETED`.

    Raises OptionInvalid if a key has several newest rows: their order would be undefined.
    """
    wanted = schema.append(pa.field(DELETED, pa.bool_()))
    rows = pa.Table.from_batches([fitted(one, wanted) for one in _newest(batch, upsert).toArrow().to_batches()], wanted)
    keys = upsert.keys
    distinct = rows.select(keys).group_by(keys).aggregate([]).num_rows
    if distinct != rows.num_rows:
        raise OptionInvalid(
            f"a micro-batch for {where} has {rows.num_rows} rows of {distinct} keys; sequence_by has to say which"
        )
    return rows


def _newest(batch: "DataFrame", upsert: Upsert) -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    deleted = sf.expr(upsert.delete_when) if upsert.delete_when is not None else sf.lit(False)
    rows = batch.withColumn(DELETED, sf.coalesce(deleted, sf.lit(False)))
    if upsert.sequence_by is None:
        return rows
    keys = [sf.col(_quoted(key)) for key in upsert.keys]
    newest_first = Window.partitionBy(*keys).orderBy(sf.col(_quoted(upsert.sequence_by)).desc_nulls_last())
    return rows.withColumn("__rank", sf.row_number().over(newest_first)).where("__rank = 1").drop("__rank")


def _quoted(name: str) -> str:
    """A column's name in Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def merge(
    table: DeltaTable, rows: pa.Table, columns: Sequence[str], upsert: Upsert, properties: CommitProperties
) -> None:
    """Merge rows of `gathered`; without changes, there is no commit."""

    def of(side: str, name: str) -> str:
        return f'{side}."' + name.replace('"', '""') + '"'

    # Nulls are keys like any other.
    same = " AND ".join(f"({of('t', key)} IS NOT DISTINCT FROM {of('s', key)})" for key in upsert.keys)
    sequence = upsert.sequence_by
    newer = ""
    if sequence is not None:
        newer = f" AND ({of('s', sequence)} >= {of('t', sequence)} OR {of('t', sequence)} IS NULL)"
    gone = of("s", DELETED)
    values = {f'"{name}"': of("s", name) for name in columns}
    merger = table.merge(
        rows, same, source_alias="s", target_alias="t", commit_properties=properties, streamed_exec=False
    )
    (
        merger.when_matched_delete(f"{gone}{newer}")
        .when_matched_update(values, f"NOT {gone}{newer}")
        .when_not_matched_insert(values, f"NOT {gone}")
        .execute()
    )
