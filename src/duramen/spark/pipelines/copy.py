"""A stream copied unchanged into a Delta table: the tasks that read it write the files, not Java.

The rows of such a query are file names, so the records that it has read are observed separately, for the progress
display.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from duramen.spark.options import Options
from duramen.spark.pipelines.definition.model import PipelineModel, PipelineSource, Sink
from duramen.spark.pipelines.progress import OBSERVED
from duramen.spark.tables.port import Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamReader

__all__ = ["copied_columns", "copied_frame", "copied_source"]


def copied_source(pipeline: PipelineModel, sink: Sink) -> PipelineSource | None:
    """The stream that a sink takes unchanged; None if its rows are processed."""
    if sink.kind != "delta" or sink.keys:
        return None
    for source in pipeline.sources:
        if source.name.value.lower() == sink.input.value.lower():
            plain = source.format is None and source.json is None and source.watermark is None
            return source if plain else None
    return None


def copied_columns(options: Mapping[str, str]) -> "pa.Schema":
    """The columns of records read with these options. Raises OptionInvalid."""
    from duramen.spark.columns import arrow_schema
    from duramen.spark.read.reader import columns_of

    return arrow_schema(columns_of(Options(options, "stream")))


def copied_frame(reader: "DataStreamReader", storage: Storage) -> "DataFrame":
    """The frame of the files with a reader's records."""
    from pyspark.sql import functions as sf

    options: dict[str, Any] = {"parquetTo": storage.location, "parquetStorage": json.dumps(dict(storage.options))}
    rows = sf.get_json_object("statistics", "$.numRecords").cast("long")
    return reader.options(**options).load().observe(OBSERVED, sf.sum(rows).alias("rows"))
