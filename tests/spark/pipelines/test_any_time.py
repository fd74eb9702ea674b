"""Times that Python's datetime has no room for go through a pipeline as any others, into every kind of sink."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.pipelines.running import run_once

from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.pipelines.tables import delta_frame, iceberg_frame
from duramen.spark.tables.port import Storage

MOMENTS_MS = (-62135596800001, 1_700_000_000_000, 253402300800000)
VALUES = (
    b'{"at": 1767225600000, "text": "a"}',
    b'{"at": "0000-12-31T23:59:59.999Z", "text": "\xff\xfe"}',
    b'{"at": "9999-12-31T23:59:59.999999Z", "text": "c"}',
)
FILE = """\
pipeline: any
brokers: {brokers}
sources:
  there:
    stream: {stream}
    options: {{startingOffsets: earliest}}
steps:
  read:
    sql: >-
      SELECT timestamp AS stored, CAST(value AS STRING) AS text, offset,
      from_json(CAST(value AS STRING), 'at TIMESTAMP').at AS at,
      CAST(from_json(CAST(value AS STRING), 'at TIMESTAMP').at AS TIMESTAMP_NTZ) AS local,
      DATE '9999-12-31' + CAST(offset AS INT) AS day, DATE '0001-01-01' - CAST(offset AS INT) AS ancient
      FROM there
sinks:
  copied: {{from: there, delta: copied}}
  delta: {{from: read, delta: delta}}
  keyed: {{from: read, delta: keyed, keys: [at, day]}}
  iceberg: {{from: read, iceberg: iceberg}}
  seen: {{from: read, console: true}}
"""
WANTED = {
    (0, MOMENTS_MS[0] * 1000, 1767225600000_000_000, 1767225600000_000_000, 2932896, -719162),
    (1, MOMENTS_MS[1] * 1000, -62135596800001000, -62135596800001000, 2932897, -719163),
    (2, MOMENTS_MS[2] * 1000, 253402300799999999, 253402300799999999, 2932898, -719164),
}


def plain(frame: DataFrame) -> set[tuple[int, ...]]:
    return {tuple(row) for row in frame.selectExpr(
        "offset", "unix_micros(stored)", "unix_micros(at)", "unix_micros(CAST(local AS TIMESTAMP))", "unix_date(day)",
        "unix_date(ancient)"
    ).collect()}  # fmt: skip


@pytest.mark.long
def test_a_pipeline_stores_them_as_spark_does(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    StreamAdmin(cluster).create_stream(stream_name, 1, {"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    with Producer(cluster) as producer:
        for moment_ms, value in zip(MOMENTS_MS, VALUES, strict=True):
            producer.produce(stream_name, value, timestamp_ms=moment_ms)
    file = tmp_path / "any.yaml"
    file.write_text(FILE.format(brokers=node.kafka, stream=stream_name))
    # A machine that is busy may keep Spark's Python workers from starting in time.
    seen = run_once(spark, file, restarts=3)
    copied = delta_frame(spark, Storage(str(tmp_path / "copied")))
    assert [row[0] for row in copied.orderBy("offset").selectExpr("unix_millis(timestamp)").collect()] == [*MOMENTS_MS]
    for name in ("delta", "keyed"):
        assert plain(delta_frame(spark, Storage(str(tmp_path / name)))) == WANTED, name
    assert plain(iceberg_frame(spark, Storage(str(tmp_path / "iceberg")))) == WANTED
    shown = sorted((row["offset"], row["day"], row["ancient"]) for row in seen.rows_of["seen"])
    assert shown == [
        (0, "9999-12-31", "0001-01-01"),
        (1, "+10000-01-01", "0000-12-31"),
        (2, "+10000-01-02", "0000-12-30"),
    ]
