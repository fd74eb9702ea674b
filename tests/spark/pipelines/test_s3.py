"""`duramen pipeline run` from S3 into S3, in both formats; what is there is there once."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.cli.command import run
from tests.spark.tables.s3 import s3_with_a_lake

from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.tables.iceberg.catalog import IcebergEntry
from duramen.spark.tables.port import Storage
from duramen.spark.tables.storage import TableLocation

PIPELINE = """\
pipeline: lake
brokers: {brokers}
sources:
  numbers: {{stream: {stream}, options: {{startingOffsets: earliest}}, json: "n BIGINT"}}
  there: {{stream: {stream}, options: {{startingOffsets: earliest}}}}
  names: {{table: "s3://lake/{stream}/names", options: &s3 {{{options}}}}}
  signs: {{table: "s3://lake/{stream}/signs", format: iceberg, options: &iced {{{options}, {catalog}}}}}
steps:
  named: {{sql: "SELECT n, name, sign FROM numbers JOIN names USING (n) JOIN signs USING (n)"}}
  newest: {{sql: "SELECT n % 10 AS digit, max(n) AS n, count(*) AS count FROM numbers GROUP BY 1"}}
sinks:
  delta: {{from: numbers, delta: "s3://lake/{stream}/delta", options: *s3}}
  copied: {{from: there, delta: "s3://lake/{stream}/copied", options: *s3}}
  named: {{from: named, delta: "s3://lake/{stream}/named", options: *s3}}
  newest: {{from: newest, delta: "s3://lake/{stream}/newest", keys: digit, options: *s3}}
  iceberg: {{from: numbers, iceberg: "s3://lake/{stream}/iceberg", options: *iced}}
"""


@pytest.mark.long
def test_a_pipeline_writes_tables_on_s3(
    node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    StreamAdmin(cluster).create_stream(stream_name, 2)
    file = tmp_path / "lake.yaml"
    catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.db"}
    with s3_with_a_lake() as options:
        to_s3 = {
            "AWS_ENDPOINT_URL": options["s3.endpoint"], "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag",
        }  # fmt: skip
        names = pa.table({"n": list(range(100)), "name": [f"/{number % 3}" for number in range(100)]})
        write_deltalake(f"s3://lake/{stream_name}/names", names, partition_by=["name"], storage_options=to_s3)
        signed = Storage(f"s3://lake/{stream_name}/signs", options | catalog)
        signs = pa.table({"n": list(range(100)), "sign": ["+", "-"] * 50})
        IcebergEntry(signed, TableLocation(signed)).create(signs.schema, {}).append(signs)
        said, more = (", ".join(f'{name}: "{value}"' for name, value in one.items()) for one in (options, catalog))
        file.write_text(PIPELINE.format(brokers=node.kafka, stream=stream_name, options=said, catalog=more))
        for turn in range(3):
            if turn < 2:  # the third run finds nothing new
                with Producer(cluster) as producer:
                    for number in range(50 * turn, 50 * (turn + 1)):
                        producer.produce(stream_name, b'{"n": %d}' % number, partition=number % 2)
            ended = run(
                "pipeline", "run", "--once", "--restarts", "50", "--master", "local[2]", str(file), timeout_s=500
            )
            assert ended.code == 0, ended.err + ended.out
        rows = DeltaTable(f"s3://lake/{stream_name}/delta", storage_options=to_s3).to_pyarrow_table().to_pylist()
        assert sorted(row["n"] for row in rows) == list(range(100))
        copied = DeltaTable(f"s3://lake/{stream_name}/copied", storage_options=to_s3).to_pyarrow_table().to_pylist()
        assert sorted(row["value"] for row in copied) == sorted(b'{"n": %d}' % number for number in range(100))
        named = DeltaTable(f"s3://lake/{stream_name}/named", storage_options=to_s3).to_pyarrow_table().to_pylist()
        assert sorted((row["n"], row["name"], row["sign"]) for row in named) == [
            (n, f"/{n % 3}", "+-"[n % 2]) for n in range(100)
        ]
        newest = DeltaTable(f"s3://lake/{stream_name}/newest", storage_options=to_s3).to_pyarrow_table().to_pylist()
        assert sorted((row["digit"], row["n"], row["count"]) for row in newest) == [(n, 90 + n, 10) for n in range(10)]
        iced = Storage(f"s3://lake/{stream_name}/iceberg", options | catalog)
        found = IcebergEntry(iced, TableLocation(iced)).load().scan().to_arrow().to_pylist()
        assert sorted(row["n"] for row in found) == list(range(100))
