"""Share groups on three brokers, whatever happens to them."""

from collections.abc import Callable

import pytest
from tests.coordinators.share.shared_world import SharedWorld

from duramen.coordinators.share import shard as share_shard
from duramen.groups.share_fencing import StateFence

SEEDS = 20
STEPS = 200


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_what_was_acknowledged_does_not_come_again_and_counts_hold(seed: int) -> None:
    assert SharedWorld(seed).run(STEPS)["delivered"]


def _read_by(fence: StateFence, leader_epoch: int) -> StateFence:
    """Nobody is kept from writing by who reads, and nobody waits for what is on its way."""
    del leader_epoch
    return fence


def _written_by(fence: StateFence, state_epoch: int, leader_epoch: int, sequence: int, updates: int) -> StateFence:
    """Everybody writes."""
    del state_epoch
    return fence._replace(
        leader_epoch=max(leader_epoch, fence.leader_epoch), sequence=sequence, updates=fence.updates + updates
    )


def _is_found(seeds: range) -> bool:
    for seed in seeds:
        try:
            SharedWorld(seed).run(STEPS)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize(("name", "planted"), [("read_by", _read_by), ("written_by", _written_by)])
def test_a_keeper_that_does_not_fence_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, planted: Callable[..., StateFence]
) -> None:
    monkeypatch.setattr(share_shard, name, planted)
    assert _is_found(range(1, 61))
