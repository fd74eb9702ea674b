"""Tables as Spark's own Delta and Iceberg read them: the same rows as ours, with deletes, and after compaction."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.tables.filling import Job, Keyed, rows
from tests.spark.tables.plainly import plain

from duramen.base.errors import DependencyMissing
from duramen.bench.peers.spark_kafka import fetch_formats
from duramen.spark.launching.java import find_java
from duramen.spark.tables.port import Declaration, Storage

pytestmark = pytest.mark.long

_RUN_S = 1200.0

LOG: dict[int, list[Keyed]] = {
    0: [
        (b"k", b'{"a": 1, "country": "DE", "l": [{"x": 1}]}'), (None, b"bad"),
        (b"k", b'{"a": 2.5, "n": {"y": true}}'), (b"gone", b'{"a": 4}'), (b"gone", None),
    ],
    1: [(b"q", b'{"a": 7, "country": "\xc3\xa4/% "}'), (b"q", b'{"a": 8}'), (b"r", b'{"a": 9, "later": "x"}')],
}  # fmt: skip
PARTITIONED: dict[str, Any] = {"partition_by": ("_date", "country")}
TABLES: dict[str, dict[str, Any]] = {
    "delta/plain": {},
    "delta/parts": PARTITIONED,
    "delta/upserted": {"upsert": True},
    "iceberg/iced": {},
    "iceberg/iced_parts": PARTITIONED,
}


def filled(lake: Path) -> Iterator[tuple[str, Job]]:
    """Each table twice: as rounds left it, and compacted."""
    for table, changes in TABLES.items():
        table_format, name = table.split("/")
        for suffix in ("", "_compacted"):
            storage = Storage(str(lake / f"{name}{suffix}"))
            job = Job.of(Declaration(table_format, storage, "flights", "id", decode="json")._replace(**changes))
            while job.plan(LOG)[1]:
                job.fill(LOG, 1)
            if suffix:
                # With values of their own few of these rows have files to be put together with.
                assert job.table.compact().written or changes
            yield f"{table}{suffix}", job


def test_spark_s_own_delta_and_iceberg_read_what_we_wrote(tmp_path: Path) -> None:
    try:
        connector = fetch_formats()
    except DependencyMissing as missing:
        pytest.skip(str(missing))
    jobs = dict(filled(tmp_path / "lake"))
    done = subprocess.run(
        [str(connector.python), str(Path(__file__).parent / "spark_reader.py"), ",".join(map(str, connector.jars)),
         str(tmp_path / "warehouse"), str(tmp_path / "lake"), *jobs],
        capture_output=True, text=True, timeout=_RUN_S, check=False, cwd=tmp_path,
        env=os.environ | {"JAVA_HOME": str(find_java().home), "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for table, job in jobs.items():
        ours = [{name: plain(value) for name, value in row.items()} for row in rows(job.table)]
        assert found[table] == json.loads(json.dumps(ours)), table
        if "upserted" in table:
            assert [row["_offset"] for row in found[table]] == [2, 1, 2]
        else:
            assert len(found[table]) == 8
