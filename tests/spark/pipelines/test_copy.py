"""A pipeline's sink that takes a stream as it is: the same table, written by the tasks that read."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.spark.pipelines.running import run_once

from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.pipelines.copy import copied_source
from duramen.spark.pipelines.definition.loader import load
from duramen.spark.pipelines.definition.problems import Problems

COPY = """\
pipeline: copy
brokers: {brokers}
sources:
  There:
    stream: {stream}
    options: {{startingOffsets: earliest, maxOffsetsPerTrigger: 50}}
steps:
  same: {{sql: "SELECT * FROM there"}}
sinks:
  copied: {{from: there, delta: copied}}
  rows: {{from: same, delta: rows}}
"""
SOME = """\
pipeline: some
brokers: 127.0.0.1:1
sources:
  it: SOURCE
steps:
  same: {sql: SELECT * FROM it}
sinks:
  out: {SINK}
"""


def produce(cluster: BrokerCluster, stream: str, count: int, first: int = 0) -> None:
    with Producer(cluster) as producer:
        for number in range(first, first + count):
            producer.produce(stream, b"%d" % number, key=None if number % 3 else b"k", partition=number % 2)


@pytest.mark.long
def test_is_what_rows_through_spark_are(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    StreamAdmin(cluster).create_stream(stream_name, 2)
    produce(cluster, stream_name, 120)
    file = tmp_path / "copy.yaml"
    file.write_text(COPY.format(brokers=node.kafka, stream=stream_name))
    seen = run_once(spark, file).last
    assert seen is not None
    by_name = {query.query: query for query in seen.queries}
    # 50, 50 and 20 records, in micro-batches of their own.
    for name in ("copied", "rows"):
        figures = by_name[name].batch
        assert figures is not None
        assert (figures.batch_id, figures.rows, figures.lag_records) == (2, 20, 0)
        assert figures.rows_per_s > 0
    produce(cluster, stream_name, 30, 120)
    run_once(spark, file)
    tables = [DeltaTable(str(tmp_path / name)) for name in ("copied", "rows")]
    copied, rows = (
        sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: (row["partition"], row["offset"]))
        for table in tables
    )
    assert len(copied) == 150
    assert copied == rows
    assert tables[0].schema() == tables[1].schema()


@pytest.mark.parametrize(
    ("source", "sink", "is_copied"),
    [
        ("stream: s", "from: it, delta: out", True),
        ("stream: s", "from: IT, delta: out", True),
        ("stream: s", "from: same, delta: out", False),
        ("stream: s", "from: it, iceberg: out", False),
        ("stream: s", "from: it, stream: other", False),
        ("stream: s", "from: it, delta: out, keys: [key], mode: append", False),
        ("{stream: s, json: 'a INT'}", "from: it, delta: out", False),
        ("{stream: s, watermark: {column: timestamp, delay: 1 minute}}", "from: it, delta: out", False),
    ],
)
def test_only_streams_as_they_are_are_copied(tmp_path: Path, source: str, sink: str, *, is_copied: bool) -> None:
    file = tmp_path / "some.yaml"
    told = source if source.startswith("{") else f"{{{source}}}"
    file.write_text(SOME.replace("SOURCE", told).replace("SINK", sink))
    declared = load(file, Problems())
    assert declared is not None
    found = copied_source(declared, declared.sinks[0])
    assert (found is not None) is is_copied
