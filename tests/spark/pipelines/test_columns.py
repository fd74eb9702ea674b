"""What `validate` says of a column is what a run does with it: over odd names, and all types that Spark has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.spark.pipelines.running import problems_of, run_once

from duramen.base.errors import TableUnsupported
from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.pipelines.batches import SinkTable, TableBatchWriter
from duramen.spark.pipelines.checkpoints import PipelineCheckpoint
from duramen.spark.pipelines.delta import DeltaSink
from duramen.spark.pipelines.iceberg import IcebergSink
from duramen.spark.pipelines.tables import delta_frame, iceberg_frame
from duramen.spark.tables.port import Storage

NAMES = (
    "a.b", "a`b", "`", "a.", "..", ".a", "a b", "a,b", "a;b", "a{b", "a}b", "a(b", "a)b", "a=b", "a\nb", "a\tb", 'a"b',
    "a'b", "a\\b", "a/b", "a%20b", "ä", "日本", "😀", "a:b", "1a", "select", "_c", "#", "a-b", "a[b]", "x" * 300, " ",
    "a\x00b", "a\x01b", "element", "list.element", "key_value", "a$b", "a*b", "a@b", "c0", "",
)  # fmt: skip
KINDS = {
    "tiny": "1Y", "small": "1S", "whole": "1", "long": "1L", "real": "CAST(1 AS FLOAT)", "double": "1D",
    "decimal": "CAST(1 AS DECIMAL(38,18))", "text": "'s'", "char": "CAST('s' AS CHAR(3))", "raw": "X'00'",
    "varchar": "CAST('s' AS VARCHAR(3))", "collated": "'s' COLLATE UTF8_LCASE", "flag": "true",
    "day": "DATE'2020-01-01'", "at": "TIMESTAMP'2020-01-01'", "local": "TIMESTAMP_NTZ'2020-01-01'",
    "days": "INTERVAL '1' DAY", "years": "INTERVAL '1' YEAR", "months": "INTERVAL '1' MONTH",
    "calendar": "make_interval(1, 2, 3)", "clock": "TIME'12:00:00'", "null": "NULL", "nothing": "array()",
    "nulls": "array(NULL)", "array": "array(1)", "lists": "array(array(1))", "a_map": "map('a', 1)",
    "empty_map": "map()",
    "null_map": "map('a', NULL)", "by_number": "map(1, array('x'))", "by_struct": "map(struct(1), 1)",
    "struct": "struct(1 AS a, 'x' AS b)", "null_inside": "struct(NULL AS a)", "no_fields": "struct()",
    "dot_inside": "named_struct('a.b', 1, '`', 2)", "twice_inside": "named_struct('a', 1, 'A', 2)",
    "variant": "parse_json('1')", "list_of_days": "array(INTERVAL '1' DAY)", "list_of_clocks": "array(TIME'12:00:00')",
    "point": "ST_GeomFromWKB(X'0101000000000000000000F03F0000000000000040')",
}  # fmt: skip
TOGETHER = {"a.b": "1", "a": "struct(1 AS b)"}
"""Columns that pass alone, and in an Iceberg table not beside each other."""


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def said(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{kind} AS {quoted(name)}" for name, kind in columns.items())


CASES = [*({name: "1"} for name in NAMES), *({name: kind} for name, kind in KINDS.items()), TOGETHER]


class Shape:
    """A micro-batch as far as its columns."""

    def __init__(self, schema: StructType) -> None:
        self.schema = schema


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_what_is_refused_before_is_refused_and_the_rest_is_written(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    def table(where: str) -> SinkTable[Any]:
        storage = Storage(str(tmp_path / where))
        return DeltaSink(storage, "p/s", None) if table_format == "delta" else IcebergSink(storage, "p/s")

    everything = spark.sql(f"SELECT {', '.join(map(said, CASES))}").schema.fields
    taken: dict[str, str] = {}
    for number, columns in enumerate(CASES):
        batch: Any = Shape(StructType([everything.pop(0) for _ in columns]))
        there = table(f"case-{number}")
        try:
            there.require_types(there.columns(batch))
        except TableUnsupported:
            with pytest.raises(TableUnsupported):
                TableBatchWriter(there, _checkpoint(tmp_path / f"of-{number}"))(batch, 0)
            assert not (tmp_path / f"case-{number}").exists()
        else:
            taken |= columns if columns != TOGETHER else {}
    rows = spark.sql(f"SELECT {said(taken)}")
    TableBatchWriter(table("all"), _checkpoint(tmp_path / "of-all"))(rows, 0)
    read = delta_frame if table_format == "delta" else iceberg_frame
    found = read(spark, Storage(str(tmp_path / "all")))
    assert found.columns == list(taken)
    assert found.count() == 1
    assert {"a.b", "a`b", "`"} < taken.keys()
    assert not {"a\x00b", "days", "years", "clock", "nulls", "no_fields"} & taken.keys()


def _checkpoint(directory: Path) -> PipelineCheckpoint:
    (directory / "offsets").mkdir(parents=True)
    (directory / "metadata").write_text('{"id":"one"}')
    return PipelineCheckpoint(directory)


FILE = """\
pipeline: odd
brokers: {brokers}
sources:
  there: {{stream: {stream}, options: {{startingOffsets: earliest}}}}
steps:
  step:
    sql: |
      SELECT {columns} FROM there
sinks:
  out: {{from: step, {table_format}: '{table}'}}
"""


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_validate_and_run_agree(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path, table_format: str
) -> None:
    StreamAdmin(cluster).create_stream(stream_name, 1)
    with Producer(cluster) as producer:
        producer.produce(stream_name, b"1", partition=0)
    for number, columns in enumerate(CASES):
        directory = tmp_path / str(number)
        directory.mkdir()
        file = directory / "odd.yaml"
        if any(set(name) & set("\n\x00\x01\t") for name in columns):
            continue  # a file cannot say them in a line
        file.write_text(
            FILE.format(brokers=node.kafka, stream=stream_name, columns=said(columns), table_format=table_format,
                        table=f"table-{number}")
        )  # fmt: skip
        if not problems_of(spark, file):
            run_once(spark, file, restarts=2)
            read = delta_frame if table_format == "delta" else iceberg_frame
            assert read(spark, Storage(str(directory / f"table-{number}"))).count() == 1, columns
