"""Writing with Spark: `df.write.format("duramen")` and `df.writeStream`, with the columns of Spark's Kafka sink.

Every task writes to the brokers by itself, with an idempotent producer of its own: within a task no record is
stored twice. A task that Spark runs again, and a micro-batch that is repeated after a failure, write their records
again: at least once, as Spark's Kafka sink.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from duramen.base.errors import OptionInvalid
from duramen.client import Producer
from duramen.codec.batch import Headers
from duramen.codec.compression import CODECS
from duramen.spark.options import Options
from duramen.spark.plainly import said_plainly
from duramen.spark.reading import cluster_of

__all__ = ["BatchWriter", "StreamWriter", "Written"]

_TEXT_OR_BINARY: Final = (StringType, BinaryType)
_NO_HEADERS: Final[Headers] = ()


class Written(WriterCommitMessage):
    """How many records one task wrote."""

    def __init__(self, records: int) -> None:
        self.records = records


class _Writing:
    """What both writers do. It is pickled and sent to the executors."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises OptionInvalid where options or columns do not fit."""
        self._options = options
        self._codec = CODECS.index(options.one_of("kafka.compression.type", CODECS))
        options.one_of("kafka.acks", ("all", "-1"))
        if not options.flag("kafka.enable.idempotence"):
            raise OptionInvalid("kafka.enable.idempotence: the sink is always idempotent within a task; leave it out")
        if options.given("topic") and options.given("path"):
            raise OptionInvalid(f"{options.text('path')!r} is short for topic: give only one of them")
        self._topic = options.text("topic") or options.text("path")
        columns = {field.name: field.dataType for field in schema.fields}
        _check(columns, has_topic=bool(self._topic))

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write rows, and wait until all of them are acknowledged. Raises what the broker says."""
        batch_bytes = self._options.number("kafka.batch.size") or 1
        cluster = cluster_of(self._options)
        cluster.forget_all()  # partitions may have been added since the last task of this process
        with Producer(cluster, codec=self._codec, batch_bytes=batch_bytes) as producer:
            for batch in batches:
                self._write(producer, batch)
        return Written(producer.acknowledged)

    def _write(self, producer: Producer, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        nothing: Sequence[None] = [None] * batch.num_rows

        def column(name: str) -> Sequence[Any]:
            return batch.column(names.index(name)).to_pylist() if name in names else nothing

        topics: Sequence[str | None] = [self._topic] * batch.num_rows if self._topic else column("topic")
        for topic, partition, key, value, headers in zip(
            topics, column("partition"), map(_bytes, column("key")), map(_bytes, column("value")), column("headers"),
            strict=True,
        ):  # fmt: skip
            if topic is None:
                raise OptionInvalid("a row has no topic; set the option topic, or fill the column")
            producer.produce(
                topic, value, key=key, partition=partition, headers=_headers(headers) if headers else _NO_HEADERS
            )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _headers(headers: Sequence[Mapping[str, Any]]) -> Headers:
    return [(header["key"].encode(), _bytes(header["value"])) for header in headers]


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


class BatchWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises OptionInvalid."""
        self._writing = _Writing(options, schema)

    @said_plainly()
    def write(self, iterator: Iterator[Any]) -> Written:
        """One task's rows."""
        return self._writing.write(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises OptionInvalid."""
        self._writing = _Writing(options, schema)

    @said_plainly()
    def write(self, iterator: Iterator[Any]) -> Written:
        """One task's rows of a micro-batch."""
        return self._writing.write(iterator)
