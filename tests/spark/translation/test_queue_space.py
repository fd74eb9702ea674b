"""A table of a queue space: its operations as rows."""

from pathlib import Path

import pytest
from tests.spark.translation.world import World

import duramen
from duramen.base.errors import ConfigInvalid
from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess


def test_the_operations_of_a_space_are_rows_of_its_table(
    node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    table = {"table.format": "delta", "table.location": str(tmp_path / "table")}
    admin = StreamAdmin(cluster)
    admin.create_stream(stream_name, 1, {"kind": "queues", **table})
    world = World(node.kafka, cluster, stream_name, tmp_path / "table")
    with duramen.connect(node.http) as client:
        queues = client.queues(stream_name)
        first, second = queues.enqueue("ann", ["one", "two"])
        queues.edit("ann", [(first, "new")])
        queues.delete("ann", [second])
    world.to_the_end(decode="none")
    rows = world.rows(decode="none")
    assert [row["_key"] for row in rows] == [b"ann"] * 4
    assert [row["_value"] for row in rows] == [b"one", b"two", b"new", None]
    operations = [{one["key"]: one["value"] for one in row["_headers"] or []} for row in rows]
    assert [one.get("duramen-queue-op") for one in operations] == [None, None, b"edit", b"delete"]
    with pytest.raises(ConfigInvalid, match=r"takes no table\.upsert\.by"):
        admin.set_stream_configs(stream_name, {"table.upsert.by": "key"})
