"""Spark with other connectors: a PySpark version that they support, and their jars from Maven Central.

They do not support Duramen's PySpark yet, so each such Spark has an environment of its own in the user's cache.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from duramen.base.errors import DependencyMissing
from duramen.spark.cache import cache_directory

__all__ = ["CONNECTOR_VERSION", "Connector", "fetch_connector", "fetch_formats"]

CONNECTOR_VERSION: Final = "4.2.0"
"""Of PySpark and of the connector."""

_CLIENTS: Final = (
    # The ones of the connectors' own versions are not there.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
_KAFKA: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    *_CLIENTS,
)
_FORMATS_SPARK: Final = "4.0.1"
_FORMATS: Final = (
    "io.delta:delta-spark_2.13:4.0.0",
    "io.delta:delta-storage:4.0.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
    # Of the catalog that lies beside an Iceberg table.
    "org.xerial:sqlite-jdbc:3.47.1.0",
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{_FORMATS_SPARK}",
    *_CLIENTS,
)
_FETCH_S: Final = 900.0


class Connector(NamedTuple):
    """An interpreter that has that PySpark, and the connector's jars."""

    python: Path
    jars: Sequence[Path]


def fetch_connector() -> Connector:
    """Spark's own Kafka source, fetched once (about 500 MB) and kept in the user's cache. Raises DependencyMissing."""
    return _fetch("spark-kafka", CONNECTOR_VERSION, _KAFKA)


def fetch_formats() -> Connector:
    """The same with Delta's and Iceberg's own readers and writers too, for the newest Spark that Delta has one for."""
    return _fetch("spark-lakehouse", _FORMATS_SPARK, _FORMATS)


def _fetch(name: str, version: str, artifacts: Sequence[str]) -> Connector:
    home, done = cache_directory() / f"{name}-{version}", "complete"
    if not (home / done).exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise DependencyMissing("connectors of Spark are fetched with Maven (mvn), which is not installed")
        # An environment knows its own path: made in place, and marked when it is whole.
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        for artifact in artifacts:
            _run([maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={home / 'jars'}"])
        _run([sys.executable, "-m", "venv", str(home / "venv")])
        _run([str(_python(home)), "-m", "pip", "install", "--quiet", f"pyspark=={version}"])
        (home / done).touch()
    return Connector(_python(home), sorted((home / "jars").glob("*.jar")))


def _python(home: Path) -> Path:
    return home / "venv" / "bin" / "python"


def _run(command: Sequence[str]) -> None:
    what = " ".join(command[:4])
    with tempfile.TemporaryFile("w+") as said:
        try:
            ran = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, timeout=_FETCH_S, check=False)
        except subprocess.TimeoutExpired:
            raise DependencyMissing(f"`{what}` did not end within {_FETCH_S:g} s") from None
        if ran.returncode != 0:
            said.seek(0)
            lines = [line for line in said.read().splitlines() if "ERROR" in line]
            raise DependencyMissing(f"`{what}` failed: {lines[0] if lines else 'it does not say why'}")
