"""Records with times that Python's datetime has no room for: a table takes them as any others."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.translation.world import World

from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.tables.reader import read_file
from duramen.spark.tables.registry import open_table
from duramen.spark.tables.storage import TableLocation

MOMENTS_MS = (-62135596800001, -62135596800000, 1_700_000_000_000, 253402300799999, 253402300800000, (1 << 62))
LAST_MS = ((1 << 63) - 1) // 1000
"""What a column of microseconds has room for."""

DAY_MS = 86_400_000


Rows = list[tuple[int, int, int | None]]


def rows(world: World, table_format: str, **changes: object) -> Rows:
    """Offset, time in milliseconds, and day of each row."""
    declaration = world.declaration(format=table_format, **changes)
    table = open_table(declaration)
    schema = table.schema()
    found = pa.Table.from_batches(
        [batch for file in table.scan() for batch in read_file(TableLocation(declaration.storage), file, schema)]
    )
    times = found.column("_timestamp").cast(pa.int64()).to_pylist()
    days = found.column("_date").cast(pa.int32()).to_pylist()
    offsets = found.column("_offset").to_pylist()
    return sorted((offset, us // 1000, day) for offset, us, day in zip(offsets, times, days, strict=True))


@pytest.mark.parametrize(("table_format", "upsert"), [("delta", False), ("delta", True), ("iceberg", False)])
def test_a_table_has_them(
    node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path, table_format: str, upsert: bool
) -> None:
    StreamAdmin(cluster).create_stream(stream_name, 1, {"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    world = World(node.kafka, cluster, stream_name, tmp_path / "table")
    partitioned: dict[str, Any] = {"partition_by": ("_date",), "upsert": upsert}
    wanted: Rows = []
    for half in range(2):
        with Producer(cluster) as producer:
            for number, moment_ms in enumerate(MOMENTS_MS):
                key = b"%d-%d" % (half, number)
                producer.produce(stream_name, b'{"a": 1}', key=key, partition=0, timestamp_ms=moment_ms)
        world.round(format=table_format, **partitioned)
        stored = [min(moment_ms, LAST_MS) for moment_ms in MOMENTS_MS]
        days: list[int | None] = [ms // DAY_MS for ms in stored]
        for index in (-1,) if table_format == "delta" else (0, -2, -1):
            days[index] = None  # a day that the format's library has no room for
        first = len(wanted)
        wanted += [(first + index, *row) for index, row in enumerate(zip(stored, days, strict=True))]
        assert rows(world, table_format, **partitioned) == wanted
    cleaned = open_table(world.declaration(format=table_format, **partitioned)).compact()
    assert cleaned.read == 2 * len({day for *_, day in wanted})
    assert rows(world, table_format, **partitioned) == wanted
