"""Streaming queries of tables alone: they end where they should, and have every offset once while tables go on."""

from typing import Any

import pytest
from tests.spark.translation.test_union import Lake
from tests.spark.translation.transacting import query_of
from tests.spark.translation.world import World

from duramen.client import Admin, Cluster
from duramen.node.process import NodeProcess

NONE: dict[str, Any] = {"decode": "none"}


@pytest.mark.parametrize("upsert", [False, True], ids=["appended", "upserted"])
def test_available_now_ends_though_the_table_goes_on(node: NodeProcess, world: World, *, upsert: bool) -> None:
    kind: dict[str, Any] = {"upsert": upsert, **NONE}
    Lake(node, world, **{"table.decode": "none"} | ({"table.upsert.by": "key"} if upsert else {}))

    def fill() -> None:
        world.produce([b"1"] * 8, keys=[b"%d" % number for number in range(8)])
        world.to_the_end(**kind)

    fill()
    query = query_of(world, startingOffsets="earliest", tier="cold")
    running = query.run_to_now()
    assert len(next(running)) == 8
    fill()
    assert list(running) == []


def test_a_table_that_is_behind_its_query_is_waited_for(node: NodeProcess, world: World, cluster: Cluster) -> None:
    """A checkpoint of a query that read the log too: what the table lacks of it does not come once more."""
    Admin(cluster).create_stream(f"{world.stream}-other", 2)
    other = World(node.kafka, cluster, f"{world.stream}-other", world.location.with_name("other"))
    worlds = (world, other)
    for one in worlds:
        Lake(node, one, **{"table.decode": "none"})
        one.produce([b"1"] * 8)
        one.to_the_end(**NONE)
        one.produce([b"2"] * 8)
    both = query_of(*worlds, startingOffsets="earliest", failOnDataLoss="false")
    assert sum(map(len, both.run())) == 32
    other.to_the_end(**NONE)
    other.produce([b"3"] * 8)
    other.to_the_end(**NONE)
    for fail in ("true", "false"):
        cold = query_of(*worlds, tier="cold", failOnDataLoss=fail)
        cold.at = both.at
        assert [row[::3] for found in cold.run_to_now(3) for row in found] == [(other.stream, "3")] * 8
    world.produce([b"3"] * 8)
    world.to_the_end(**NONE)
    assert [row[::3] for found in cold.run_to_now() for row in found] == [(world.stream, "3")] * 8
