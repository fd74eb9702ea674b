"""The measurements of Spark measure: short runs of them, with our source alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_spark_is_measured(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "duramen", "bench", "spark", "--rounds", "1", "--scale", "0.01", "--output", tmp_path],
        check=True,
    )
    targets = json.loads((tmp_path / "spark.json").read_text())["targets"]
    assert [one["target"] for one in targets][:1] == ["Spark, batch count and sum, records of 16 + 100 bytes"]
    assert all("rows/s" in one["short"] for one in targets[:8])
    assert all("ms" in one["measured"] for one in targets[8:10])
