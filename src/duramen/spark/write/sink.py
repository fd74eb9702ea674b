"""Writing with Spark: `df.write.format("duramen")` and `df.writeStream`, with the columns of Spark's Kafka sink.

Rows go from the tasks to the brokers. On Duramen every batch is written exactly once (see `attempts`). On other brokers
every task writes with an idempotent producer of its own, and Spark's repetitions are written again: at least once, like
Spark's Kafka sink.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from duramen.base.errors import DuramenError, OptionInvalid
from duramen.client import Producer
from duramen.client.producer import OpenTransaction
from duramen.codec.compression import CODECS
from duramen.spark.api import DataSourceStreamArrowWriter
from duramen.spark.options import Options
from duramen.spark.plainly import without_traceback
from duramen.spark.read.reader import cluster_of
from duramen.spark.write import attempts
from duramen.spark.write.attempts import WriteResult, WriteTask
from duramen.spark.write.writer import RowWriter

__all__ = ["SinkBatchWriter", "StreamWriter"]

_log = logging.getLogger("duramen.spark")

_TEXT_OR_BINARY: Final = (StringType, BinaryType)


class _Writing:
    """The common part of both writers. It is pickled and sent to the executors."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises OptionInvalid for invalid options or columns."""
        self._options = options
        self._codec = CODECS.index(options.one_of("kafka.compression.type", CODECS))
        self._exactly_once = options.one_of("exactlyOnce", ("auto", "true", "false"))
        options.one_of("kafka.acks", ("all", "-1"))
        if not options.flag("kafka.enable.idempotence"):
            raise OptionInvalid("kafka.enable.idempotence: the sink is always idempotent within a task; leave it out")
        if options.given("topic") and options.given("path"):
            raise OptionInvalid(f"{options.text('path')!r} is short for topic: give only one of them")
        self._topic = options.text("topic") or options.text("path")
        columns = {field.name: field.dataType for field in schema.fields}
        _check(columns, has_topic=bool(self._topic))

    def write(self, rows: Iterator[pa.RecordBatch], task_of: Callable[[], WriteTask]) -> WriteResult:
        """Write a task's rows, and wait for all acknowledgements. Raises the broker's errors."""
        cluster = cluster_of(self._options)
        cluster.forget_all()  # partitions may have been added since the last task of this process
        if not attempts.is_exactly_once(cluster, self._exactly_once):
            return WriteResult(self._write(None, rows))
        timeout_ms = self._options.number("kafka.transaction.timeout.ms") or 1
        return attempts.write(cluster, task_of(), timeout_ms, rows, self._write)

    def _write(self, transaction: OpenTransaction | None, rows: Iterator[pa.RecordBatch]) -> int:
        cluster = cluster_of(self._options)
        batch_bytes = self._options.number("kafka.batch.size") or 1
        producer = Producer(cluster, transaction=transaction)
        writer = RowWriter(cluster, producer, self._topic, self._codec, batch_bytes)
        for batch in rows:
            writer.write(batch)
        writer.flush()
        return producer.acknowledged

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """The driver's part. `batch` is that of a streaming query, whose checkpoint has its range."""
        digest = b"" if batch is None else attempts.digest_of(self._options.text("checkpointLocation"), batch)
        attempts.commit(cluster_of(self._options), messages, digest)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The driver abandons a micro-batch."""
        attempts.abandon(cluster_of(self._options), messages)

    def give_up(self, query: str) -> None:
        """The driver abandons a `df.write`; if that fails, open transactions are aborted after their timeout."""
        cluster = cluster_of(self._options)
        try:
            if attempts.is_exactly_once(cluster, self._exactly_once):
                attempts.give_up(cluster, query)
        except DuramenError as error:
            _log.warning("the written records are aborted after kafka.transaction.timeout.ms: %s", error)


def _check(columns: Mapping[str, DataType], *, has_topic: bool) -> None:
    if "value" not in columns:
        raise OptionInvalid(f"a column `value` is needed; there are {', '.join(columns)}")
    if not has_topic and "topic" not in columns:
        raise OptionInvalid("neither the option topic nor a column `topic` says which stream to write to")
    for name, kinds in (("key", _TEXT_OR_BINARY), ("value", _TEXT_OR_BINARY), ("topic", (StringType,)),
                        ("partition", (IntegerType,))):  # fmt: skip
        if name in columns and not isinstance(columns[name], kinds):
            expected = " or ".join(kind.typeName() for kind in kinds)
            raise OptionInvalid(f"the column `{name}` is {columns[name].simpleString()}; it must be {expected}")
    if "headers" in columns and not _fits_headers(columns["headers"]):
        found = columns["headers"].simpleString()
        raise OptionInvalid(f"the column `headers` is {found}; it must be array<struct<key:string,value:binary>>")


def _fits_headers(kind: DataType) -> bool:
    element = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(element, StructType) or element.fieldNames() != ["key", "value"]:
        return False
    return isinstance(element["key"].dataType, StringType) and isinstance(element["value"].dataType, BinaryType)


class SinkBatchWriter(DataSourceArrowWriter):
    """`df.write`: a query of its own, with one batch."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises OptionInvalid."""
        self._writing = _Writing(options, schema)
        self._query = f"write-{uuid.uuid4()}"

    @without_traceback()
    def write(self, iterator: Iterator[Any]) -> WriteResult:
        """One task's rows."""
        return self._writing.write(iterator, lambda: attempts.batch_task(self._query))

    @without_traceback()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have written."""
        self._writing.commit(messages, None)

    @without_traceback()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed permanently. Others may still run, without a message."""
        del messages
        self._writing.give_up(self._query)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises OptionInvalid."""
        self._writing = _Writing(options, schema)

    @without_traceback()
    def write(self, iterator: Iterator[Any]) -> WriteResult:
        """One task's rows of a micro-batch."""
        return self._writing.write(iterator, attempts.stream_task)

    @without_traceback()
    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """All tasks of a micro-batch have written."""
        self._writing.commit(messages, batch_id)

    @without_traceback()
    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """A task of a micro-batch has failed permanently."""
        del batch_id
        self._writing.abort(messages)
