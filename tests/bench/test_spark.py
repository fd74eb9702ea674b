"""The measurement of Spark measures: a short run of it, with our source alone."""

from pathlib import Path

import pytest

from duramen.bench.spark import measure_spark


@pytest.mark.long
def test_our_source_reads_all_there_is(tmp_path: Path) -> None:
    outcome = measure_spark(tmp_path, records=20_000, rounds=1, runs=1, peer=False)
    assert outcome.met is None
    assert "rows/s" in outcome.short
