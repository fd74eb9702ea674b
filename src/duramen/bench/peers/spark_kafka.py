"""Spark's own Kafka source: a PySpark for which there is a connector, and the connector's jars from Maven Central.

No connector for the PySpark that Duramen uses can be had from there yet, so this one has an environment of its own in
the user's cache.
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

__all__ = ["CONNECTOR_VERSION", "Connector", "fetch_connector"]

CONNECTOR_VERSION: Final = "4.2.0"
"""Of PySpark and of the connector."""

_JARS: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    # The one of the connector's own version is not there.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
_FETCH_S: Final = 900.0


class Connector(NamedTuple):
    """An interpreter that has that PySpark, and the connector's jars."""

    python: Path
    jars: Sequence[Path]


def fetch_connector() -> Connector:
    """The connector, fetched once (about 500 MB) and kept in the user's cache. Raises DependencyMissing."""
    cache = cache_directory()
    home, done = cache / f"spark-kafka-{CONNECTOR_VERSION}", "complete"
    if not (home / done).exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise DependencyMissing("Spark's Kafka source is fetched with Maven (mvn): install it, or leave kafka out")
        # An environment knows its own path: made in place, and marked when it is whole.
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        for artifact in _JARS:
            _run([maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={home / 'jars'}"])
        _run([sys.executable, "-m", "venv", str(home / "venv")])
        _run([str(_python(home)), "-m", "pip", "install", "--quiet", f"pyspark=={CONNECTOR_VERSION}"])
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
