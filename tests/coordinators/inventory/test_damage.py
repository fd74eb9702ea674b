"""Damaged rows of a shard of the inventory whose log is cut."""

from collections.abc import Callable
from typing import Final

import pytest
from tests.coordinators.inventory.node import ACCOUNT, InventoryNode, at

from duramen.base.errors import CoordinatorLoading, DuramenError, StateDamaged
from duramen.coordinators.inventory.shard import INVENTORY_STREAM
from duramen.coordinators.runtime.layout import row_prefix

NAMES: Final = tuple(f"topic-{number}" for number in range(60))
LOST: Final = 2


def damaged() -> InventoryNode:
    """A node of whose last shard all rows are damaged, in checkpoints too."""
    node = InventoryNode(checkpoint_records=5)
    for name in NAMES:
        node.create("acme/dev", name)
    stream = node.hand.broker.streams.find(INVENTORY_STREAM)
    assert stream is not None
    log = stream.partition(LOST).log
    assert log.start_offset > 0
    node.hand.rows.damage(checkpoints=2, rows=(row_prefix(log.id, 0), row_prefix(log.id + 1, 0)))
    return node


def outcome(call: Callable[[], object]) -> type[DuramenError] | None:
    try:
        call()
    except DuramenError as error:
        return type(error)
    return None


@pytest.mark.parametrize("restart", [False, True])
def test_an_inventory_that_has_lost_a_shard_says_so_at_once(*, restart: bool) -> None:
    node = damaged()
    if restart:
        node.crash(1)

    def find(name: str) -> type[DuramenError] | None:
        return outcome(lambda: node.inventory.find(ACCOUNT, at(f"acme/dev/{name}")))

    assert {find(name) for name in NAMES} <= {None, CoordinatorLoading, StateDamaged}
    node.hand.advance(10_000)
    # A name may be in any shard.
    assert {find(name) for name in NAMES} == {StateDamaged}
    created = node.create("acme/dev", *(f"new-{number}" for number in range(20)))
    assert created.created
    assert {type(one.error) for one in created.problems} == {StateDamaged}
    assert len(node.hand.broker.coordinators.losses) == 1
    assert sum(f"partition {LOST} of {INVENTORY_STREAM}" in one for one in node.hand.reports) == 1
