"""The format finds its way into any session; `duramen.spark.session` finds Java, and leaves alone what it is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.jvm import local_files

import duramen.spark
from duramen.base.errors import DependencyMissing
from duramen.client import BrokerCluster, Producer
from duramen.node.process import NodeProcess
from duramen.spark.launching.java import Java, find_java
from duramen.spark.launching.sessions import JAVA_OPTIONS, java_options, tuning

PLAIN = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
for format_ in ("duramen", "DURAMEN"):
    reader = spark.read.format(format_).option("kafka.bootstrap.servers", sys.argv[1])
    print(reader.load(sys.argv[2]).count())
print("duramen" in sys.modules)
"""


@pytest.mark.long
def test_a_plain_session_knows_the_format(
    node: NodeProcess, cluster: BrokerCluster, stream: str, tmp_path: Path
) -> None:
    with Producer(cluster) as producer:
        for number in range(100):
            producer.produce(stream, b"%d" % number)
    # As in an environment that was activated, with a Java.
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "JAVA_HOME": find_java().home,
    }
    finished = subprocess.run(
        [sys.executable, "-c", PLAIN, node.kafka, stream],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == ["100", "100", "False"]


def test_the_tuning_is_there_and_ours_goes_before(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.streaming.checkpoint.fileChecksum.enabled") == "false"
    assert spark.conf.get("spark.sql.shuffle.partitions") == str(os.cpu_count())
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert duramen.spark.session(tuned=False) is spark.active()


@pytest.mark.long
def test_files_have_no_checksums_beside_them_and_old_ones_go(spark: SparkSession, tmp_path: Path) -> None:
    made = tmp_path / "made"
    files = local_files(spark)
    files.setWriteChecksum(True)
    spark.range(3).write.csv(str(made))
    assert list(made.glob(".*.crc"))
    assert duramen.spark.session() is spark.active()
    spark.range(5).write.mode("overwrite").csv(str(made))
    assert not list(made.glob(".*.crc"))
    assert spark.read.csv(str(made)).count() == 5


QUICK = "-Djdk.lang.Process.launchMechanism=VFORK"
COLLECTOR = "-XX:+UseParallelGC"


def java(version: str) -> Java:
    return Java("/opt/java", version, "PATH", "")


@pytest.mark.skipif(sys.platform != "linux", reason="the option is there on Linux only")
@pytest.mark.parametrize(("version", "wanted"), [("17.0.15", True), ("24.0.1", True), ("25", False)])
def test_programs_are_started_quickly_where_java_can(version: str, *, wanted: bool) -> None:
    assert (QUICK in java_options(java(version))) == wanted


def test_java_has_options_where_it_is_started_and_does_all_of_the_work() -> None:
    assert tuning("local[2]", java("25"))[JAVA_OPTIONS] == COLLECTOR
    assert JAVA_OPTIONS not in tuning("local[2]", None)
    assert JAVA_OPTIONS not in tuning("spark://127.0.0.1:7077", java("25"))


@pytest.mark.parametrize("said", ["-XX:+UseZGC", "-Xmx2g -XX:+UseSerialGC -ea", "-XX:+UseG1GC"])
def test_who_chooses_a_garbage_collector_has_that_one(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    assert JAVA_OPTIONS not in tuning("local[2]", java("25"), {"spark.driver.defaultJavaOptions": said})
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", said)
    assert JAVA_OPTIONS not in tuning("local[2]", java("25"))


def test_other_options_leave_the_garbage_collector_to_us() -> None:
    assert java_options(java("25"), "-XX:-UseG1GC -XX:+PrintGCDetails") == COLLECTOR


def test_no_pyspark_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(DependencyMissing, match=r"PySpark is not installed: pip install 'duramen\[spark\]'"):
        duramen.spark.session()


def test_an_old_pyspark_is_one_clear_error_whatever_is_asked(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(
        "import pyspark.sql.datasource as there\n"
        "del there.DataSourceArrowWriter\n"
        "import pyspark_duramen\n"
        "source = pyspark_duramen.DefaultSource({})\n"
        "for ask in (source.schema, lambda: source.writer(None, False), lambda: source.streamWriter(None, False)):\n"
        "    try:\n"
        "        ask()\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    finished = subprocess.run(
        [sys.executable, str(tmp_path / "old.py")], capture_output=True, text=True, check=True, timeout=60
    )
    assert len(finished.stdout.splitlines()) == 3
    for line in finished.stdout.splitlines():
        assert line.startswith("DependencyMissing PySpark ")
        assert line.endswith("is too old: the format duramen needs 4.0 or newer")
