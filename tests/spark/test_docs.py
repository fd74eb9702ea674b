"""Every example of the page for users is run, in order, as it stands there."""

import re
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess

PAGE = Path(__file__).parents[2] / "docs" / "doors" / "spark.md"
PARTITIONS = 4


def examples_of_page(node: NodeProcess, directory: Path) -> str:
    """All examples as one program, in which the reader's node and directory are the test's."""
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(examples) == 8
    return "\n".join(examples).replace("127.0.0.1:9092", node.kafka).replace('"lake/', f'"{directory}/')


@pytest.mark.long
def test_examples_run(spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, tmp_path: Path) -> None:
    StreamAdmin(cluster).create_stream("flights", PARTITIONS)
    StreamAdmin(cluster).create_stream("flights-late", 1)
    (tmp_path / "examples.py").write_text(examples_of_page(node, tmp_path), encoding="utf-8")
    names = runpy.run_path(str(tmp_path / "examples.py"))
    assert names["spark"] is spark
    late = spark.read.format("duramen").option("kafka.bootstrap.servers", node.kafka).load("flights-late")
    assert late.count() == sum(number % 90 > 60 for number in range(1000))
