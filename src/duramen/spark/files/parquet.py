"""A stream's records as a directory of Parquet files: in a batch, or per micro-batch, each exactly once.

Spark runs and retries the tasks and keeps the checkpoint, as for any frame; only the names of files pass through Java.
"""

from typing import TYPE_CHECKING, Any, Final

from duramen.base.errors import CheckpointInvalid, OptionInvalid, TableForeign
from duramen.spark.files.directory import SINK_LOG, ParquetDirectory
from duramen.spark.files.sinklog import NOTHING_YET, SinkLog
from duramen.spark.tables.parquet import ParquetFile
from duramen.spark.tables.port import Storage
from duramen.spark.tables.storage import TableLocation, storage_errors
from duramen.spark.tables.task_writer import named, said
from duramen.spark.tables.written import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter
    from pyspark.sql.types import StructType

__all__ = ["MODES", "stream_to", "write_to"]

MODES: Final = ("errorifexists", "error", "ignore", "append", "overwrite")
"""The modes of `DataFrameWriter.mode`; the first two are equivalent."""

_QUERY_ID: Final = "sql.streaming.queryId"


def write_to(reader: "DataFrameReader", path: str, mode: str) -> None:
    """See `duramen.spark.write_parquet`."""
    wanted = mode.lower()
    if wanted not in MODES:
        raise OptionInvalid(f"mode: {mode!r} does not fit; it must be one of {', '.join(MODES)}")
    directory = ParquetDirectory(path)
    if directory.exists() and wanted == "ignore":
        return
    if directory.exists() and wanted in MODES[:2]:
        raise TableForeign(f"{directory.path} is there already; say mode append or overwrite, or choose another")
    directory.check()
    if wanted == "append" and (directory.path / SINK_LOG).exists():
        raise TableForeign(f"{directory.path} is written by a streaming query, and its readers would not see a batch")
    schema, frame = _loaded(reader, directory)
    try:
        files = said(frame) or [_empty(directory, schema)]
        if wanted == "overwrite":
            directory.replace(files)
        else:
            directory.publish(files)
        directory.succeed()
    finally:
        directory.forget()


def stream_to(reader: "DataStreamReader", path: str) -> "DataStreamWriter":
    """See `duramen.spark.stream_parquet`."""
    directory = ParquetDirectory(path)
    directory.check()
    return _loaded(reader, directory)[1].writeStream.foreachBatch(_Stream(directory))


def _loaded(reader: Any, directory: ParquetDirectory) -> tuple["StructType", "DataFrame"]:
    """The columns of the records, and the frame of file names. Leaves the reader unchanged.

    Raises OptionInvalid if it is not of this format.
    """
    records: DataFrame = reader.load()
    files: DataFrame = reader.option("parquetTo", directory.run).load()
    reader.option("parquetTo", "")
    if tuple(files.columns) != WrittenFile._fields:
        raise OptionInvalid('the reader must be of the format duramen: spark.read.format("duramen")')
    return records.schema, files


def _empty(directory: ParquetDirectory, schema: "StructType") -> WrittenFile:
    """A file without rows: it gives an empty directory its columns."""
    from duramen.spark.api import to_arrow_schema

    place = TableLocation(Storage(directory.run))
    with storage_errors(place.uri):
        file = ParquetFile(place, named(), to_arrow_schema(schema))
        return file.close()


class _Stream:
    """The function for `foreachBatch`, on the driver."""

    def __init__(self, directory: ParquetDirectory) -> None:
        self._directory = directory
        self._log = SinkLog(directory.path)

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        """Commit a micro-batch, unless it is committed. Raises CheckpointInvalid, TableForeign, TableConflict …"""
        query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or ""
        owner = self._log.owner()
        if owner is None:
            self._require_next(NOTHING_YET, batch_id)
            self._log.begin(query_id)
        elif owner != query_id:
            raise CheckpointInvalid(
                f"{self._where} was begun with another checkpoint; use that checkpoint, or another directory"
            )
        last = self._log.last()
        if batch_id == last:
            return
        self._require_next(last, batch_id)
        try:
            self._log.add(batch_id, self._directory.publish(said(batch)))
        finally:
            self._directory.forget()

    def _require_next(self, last: int, batch_id: int) -> None:
        if batch_id == last + 1:
            return
        which = "older" if batch_id > last else "newer"
        has = "has none" if last == NOTHING_YET else f"has those up to {last}"
        raise CheckpointInvalid(
            f"{self._where} is {which} than the checkpoint: that is at micro-batch {batch_id}, and the directory {has}"
        )

    @property
    def _where(self) -> str:
        return str(self._directory.path)
