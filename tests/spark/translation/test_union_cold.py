"""Streaming queries of tables alone: they end where they should, and have every offset once while tables go on."""

from typing import Any

import pytest
from tests.spark.translation.test_union import Lake
from tests.spark.translation.transacting import query_of
from tests.spark.translation.world import World

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
