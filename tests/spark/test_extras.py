"""What an extra names is enough for its pages: each alone, with the oldest and newest Python and PySpark."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.spark.environments import NEWEST, OLDEST, ROOT, Python, make_environment
from tests.spark.test_docs import examples_of_page

from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.launching.java import find_java

EXAMPLES = ROOT / "examples" / "pipelines"
APPEND = """\
pipeline: append
brokers: {brokers}
sources:
  flights: {{stream: flights, options: {{startingOffsets: earliest}}, json: "carrier STRING, dep_delay INT"}}
steps:
  late: {{sql: "SELECT carrier, dep_delay FROM flights WHERE dep_delay > 10"}}
sinks:
  late: {{from: late, delta: late}}
"""


def run(python: Path, *words: str, directory: Path, **also: str) -> str:
    """What a program of an environment prints, which must end well."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON"))}
    environment |= {"JAVA_HOME": find_java().home, "XDG_CACHE_HOME": str(directory / "cache"), **also}
    ran = subprocess.run(
        [str(python), *words], cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=560
    )
    assert ran.returncode == 0, ran.stdout[-3_000:] + ran.stderr[-5_000:]
    return ran.stdout


def findings(python: Path, directory: Path) -> dict[str, str]:
    """What `duramen doctor` says of each thing that it looks at."""
    said = json.loads(run(python, "-m", "duramen", "doctor", "--format", "json", directory=directory))
    return {one["name"]: one["state"] for one in said}


@pytest.mark.long
@pytest.mark.parametrize(("python", "pyspark"), [(OLDEST, "pyspark==4.0.*"), (NEWEST, "pyspark")])
def test_spark_runs_the_examples_of_its_page(
    new_node: Callable[..., NodeProcess], tmp_path: Path, python: Python, pyspark: str
) -> None:
    made = make_environment(tmp_path / "environment", python, pyspark, extras="spark")
    states = findings(made, tmp_path)
    assert {states[name] for name in ("pyarrow", "numpy", "pandas", "java")} == {"ok"}
    assert states["deltalake"] == "note"
    node = new_node().start()
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream("flights", 4)
        StreamAdmin(cluster).create_stream("flights-late", 1)
    (tmp_path / "examples.py").write_text(examples_of_page(node, tmp_path), encoding="utf-8")
    run(made, "examples.py", directory=tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("python", "pyspark"), [(OLDEST, "pyspark==4.2.*"), (NEWEST, "pyspark")])
def test_spark_and_tables_run_pipelines(
    new_node: Callable[..., NodeProcess], tmp_path: Path, python: Python, pyspark: str
) -> None:
    made = make_environment(tmp_path / "environment", python, pyspark, extras="spark,tables")
    assert "missing" not in findings(made, tmp_path).values()
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    node = new_node().start()
    (tmp_path / "append.yaml").write_text(APPEND.format(brokers=node.kafka))
    with BrokerCluster(node.kafka) as cluster, Producer(cluster) as producer:
        StreamAdmin(cluster).create_stream("flights", 2)
        for number in range(100):
            flight = {"carrier": "UA", "time_hour": "2013-01-01T05:00:00Z", "dep_delay": number}
            producer.produce("flights", json.dumps(flight).encode())
    for file in ("append.yaml", "examples/hourly_delays.yaml"):
        run(made, "-m", "duramen", "pipeline", "run", "--once", file, directory=tmp_path, BROKERS=node.kafka)
    # Not `to_pyarrow_table`: pyarrow's threads may abort a process that ends while they close files of deltalake.
    count = "import deltalake, sys; print(*(deltalake.DeltaTable(one).count() for one in sys.argv[1:]))"
    assert run(made, "-c", count, "late", "examples/tables/hourly_delays", directory=tmp_path).split() == ["89", "1"]


@pytest.mark.long
@pytest.mark.parametrize("python", [OLDEST, NEWEST])
@pytest.mark.parametrize(
    ("extra", "modules"),
    [
        ("tables", "deltalake, pyiceberg.catalog.sql, fastavro, yaml"),
        ("demo", "confluent_kafka, duramen.demo.flights, matplotlib, nats, pandas"),
        ("bench", "confluent_kafka, matplotlib, nats, psutil"),
    ],
)
def test_an_extra_can_be_installed_alone(tmp_path: Path, python: Python, extra: str, modules: str) -> None:
    made = make_environment(tmp_path / "environment", python, extras=extra)
    run(made, "-c", f"import duramen.cli.commands, {modules}", directory=tmp_path)
    if extra == "demo":  # its data files are read; the package itself needs a setuptools of before 82
        run(made, "-c", "from duramen.demo.flights import find_dataset; find_dataset()", directory=tmp_path)
    assert "missing" not in findings(made, tmp_path).values()
