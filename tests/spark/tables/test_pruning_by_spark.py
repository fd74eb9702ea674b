"""The same of Spark's own Delta and Iceberg: no filter of theirs loses a row of tables that we wrote."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.spark.tables.predicates import EVERY, KINDS, Comparison, make, one_by_one

from duramen.base.errors import DependencyMissing
from duramen.bench.peers.spark_kafka import fetch_formats
from duramen.spark.launching.java import find_java

pytestmark = pytest.mark.long

_RUN_S = 3000.0
_EACH = 5
"""Each is a job of Spark's: not all comparisons of all values."""


def condition(one: Comparison) -> str:
    """A comparison in Spark's SQL, with a value of the column's own type."""
    kind = KINDS[one.column][0].simpleString()
    if one.operator.startswith("IS"):
        return f"{one.column} {one.operator}"
    if isinstance(one.value, str):
        said = f"decode(X'{one.value.encode().hex()}', 'UTF-8')"
    elif isinstance(one.value, bytes):
        said = f"X'{one.value.hex()}'"
    elif kind == "date":
        said = f"date_from_unix_date({one.value})"
    elif kind.startswith("timestamp"):
        said = f"CAST(timestamp_micros({one.value}) AS {kind})"
    else:
        said = f"CAST('{one.value}' AS {kind})"
    return f"{one.column} {one.operator} {said}"


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_no_filter_loses_a_row(tmp_path: Path, table_format: str) -> None:
    try:
        connector = fetch_formats()
    except DependencyMissing as missing:
        pytest.skip(str(missing))
    lake = tmp_path / "lake"
    make(lake, table_format, list(one_by_one()))
    asked = tmp_path / "conditions.json"
    asked.write_text(json.dumps([condition(one) for one in EVERY[::_EACH]]))
    done = subprocess.run(
        [str(connector.python), str(Path(__file__).parent / "spark_filters.py"), ",".join(map(str, connector.jars)),
         str(tmp_path / "warehouse"), str(lake), table_format, str(asked)],
        capture_output=True, text=True, timeout=_RUN_S, check=False, cwd=tmp_path,
        env=os.environ | {"JAVA_HOME": str(find_java().home), "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == []
