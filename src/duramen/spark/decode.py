"""Columns from JSON and Avro values of a DataFrame: `decode.json(records)`, `decode.avro(records, schema)`.

They are lazy like any Spark step, in batch and streaming queries. A value that cannot be decoded leaves its columns
null and a reason in the column `_error`; it never fails the query.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from duramen.base.errors import DependencyMissing, OptionInvalid
from duramen.spark.launching.requirements import require_pandas
from duramen.spark.values.decoded import Decoder
from duramen.spark.values.fields import fitted
from duramen.spark.values.json import JsonDecoder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["avro", "json"]

_SAMPLE: Final = 1000


def json(
    frame: "DataFrame",
    schema: "str | StructType | None" = None,
    *,
    column: str = "value",
    into: str | None = None,
    error: str = "_error",
) -> "DataFrame":
    """`frame` with columns from the JSON objects in its binary or string `column`, and failures in `error`.

    `schema` is Spark's, and values are read as by `from_json`; whole numbers become LONG and floats DOUBLE. Without it,
    the columns come from the first thousand values, which is not possible in a streaming query. The prefix of a schema
    registry is skipped. With `into` there is one struct column of that name instead of one per field. Raises
    OptionInvalid, DependencyMissing.
    """
    fields = _json_sampled(frame, column) if schema is None else _arrow_fields(schema)
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
    return _decoded(frame, column, into, error, fields, partial(JsonDecoder, fields, grows=False, zone=zone))


def avro(
    frame: "DataFrame",
    schema: str = "",
    *,
    registry: str = "",
    column: str = "value",
    into: str | None = None,
    error: str = "_error",
) -> "DataFrame":
    """`frame` with columns from the Avro values in its binary `column`, and the reason of failures in `error`.

    `schema` is Avro's, in JSON; `registry` is the URL of a schema registry, whose prefix values then have: each is read
    with the schema that it names. The columns are those of `schema`, else those of the first thousand values, which is
    not possible in a streaming query. `into` is as in `json`. Raises OptionInvalid, ServerUnreachable,
    DependencyMissing.
    """
    maker = partial(_avro_decoder, schema, registry)
    fields = list(maker().fields) if schema else _avro_sampled(frame, column, maker())
    return _decoded(frame, column, into, error, fields, maker)


def _avro_decoder(schema: str, registry: str) -> Decoder:
    try:
        from duramen.spark.values.avro import AvroDecoder
        from duramen.spark.values.registry import SchemaRegistry
    except ImportError as error:
        raise DependencyMissing(f"reading Avro needs {error.name}: pip install 'duramen[tables]'") from None
    return AvroDecoder(schema=schema, registry=SchemaRegistry(registry) if registry else None)


def _arrow_fields(schema: "str | StructType") -> list[pa.Field]:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    from duramen.spark.api import to_arrow_schema

    kind = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(kind, StructType):
        raise OptionInvalid(f"{schema!r} is not the schema of columns: give names and types")
    fields: list[pa.Field] = []
    for field in kind.fields:
        try:
            fields += to_arrow_schema(StructType([field]))
        except PySparkException:
            raise OptionInvalid(
                f"the column {field.name} cannot be made of JSON as {field.dataType.simpleString()}"
            ) from None
    return list(JsonDecoder(fields).fields)


def _json_sampled(frame: "DataFrame", column: str) -> list[pa.Field]:
    decoder = JsonDecoder()
    decoder.learn(_sample(frame, column))
    return list(decoder.fields)


def _avro_sampled(frame: "DataFrame", column: str, decoder: Decoder) -> list[pa.Field]:
    decoder.decode(_sample(frame, column))
    return list(decoder.fields)


def _sample(frame: "DataFrame", column: str) -> pa.Array:
    if frame.isStreaming:
        raise OptionInvalid("the columns of a streaming query must be known before it starts: pass a schema")
    rows = frame.select(column).limit(_SAMPLE).collect()
    return pa.array([bytes(row[0], "utf-8") if isinstance(row[0], str) else row[0] for row in rows], pa.binary())


def _decoded(
    frame: "DataFrame",
    column: str,
    into: str | None,
    error: str,
    fields: Sequence[pa.Field],
    maker: Callable[[], Decoder],
) -> "DataFrame":
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    require_pandas("decode needs")
    wanted = pa.schema(list(fields))
    new = pa.schema([pa.field(into, pa.struct(list(fields)))] if into else list(fields))
    added = from_arrow_schema(new.append(pa.field(error, pa.string())))
    there = {name.lower() for name in frame.columns}
    twice = [name for name in added.fieldNames() if name.lower() in there]
    if twice:
        raise OptionInvalid(f"there are columns {', '.join(twice)} already; give into= or error= another name")
    if column not in frame.columns:
        raise OptionInvalid(f"there is no column {column}; there are {', '.join(frame.columns)}")
    step = partial(_step, column, into, error, wanted, maker)
    return frame.mapInArrow(step, StructType([*frame.schema.fields, *added.fields]))


def _step(
    column: str,
    into: str | None,
    error: str,
    wanted: pa.Schema,
    maker: Callable[[], Decoder],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The step on the executors."""
    decoder = maker()
    for batch in batches:
        found = decoder.decode(batch.column(column).cast(pa.binary()))
        columns = fitted(found.columns, wanted)
        arrays = columns.columns
        if into:
            arrays = [pa.StructArray.from_arrays(arrays, fields=list(wanted))]
        names = [*batch.schema.names, *([into] if into else wanted.names), error]
        yield pa.RecordBatch.from_arrays([*batch.columns, *arrays, found.errors], names=names)
