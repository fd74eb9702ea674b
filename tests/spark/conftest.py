"""One Spark session for all tests, whose Python workers cannot import what executors must do without."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import duramen.spark
from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess

BLOCKED = Path(__file__).parent / "blocked"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # The JVM and the Python workers get the environment as it is when the JVM starts.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(BLOCKED), os.environ.get("PYTHONPATH")])))
        patch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))  # set by the session, put back here
        session = duramen.spark.session(
            "tests",
            "local[2]",
            config={
                # Java and Python wait 15 s for one another, which is not long enough on a machine that is busy.
                "spark.python.authenticate.socketTimeout": "120s",
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            },
        )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def cluster(node: NodeProcess) -> Iterator[BrokerCluster]:
    with BrokerCluster(node.kafka) as cluster:
        yield cluster


@pytest.fixture
def stream(cluster: BrokerCluster, stream_name: str) -> str:
    """A stream of four partitions."""
    StreamAdmin(cluster).create_stream(stream_name, 4)
    return stream_name


@pytest.fixture
def read(spark: SparkSession, node: NodeProcess, stream_name: str) -> Callable[..., DataFrame]:
    """Reads the test's stream as a batch, with options by their names; `.` is written `__`."""

    def load(**options: object) -> DataFrame:
        reader = spark.read.format("duramen").option("kafka.bootstrap.servers", node.kafka)
        if not options.keys() & {"subscribe", "subscribePattern", "assign"}:
            reader = reader.option("subscribe", stream_name)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), str(value))
        return reader.load()

    return load
