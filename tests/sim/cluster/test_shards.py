"""Simulated clusters with coordinators of two kinds beside the broker's keep their promises, and find planted bugs."""

from collections.abc import Callable, Sized
from itertools import chain
from typing import Any, Final

import pytest
from tests.sim.cluster.modes import hunt, keeps_promises
from tests.sim.planted import Bug, Place

from duramen.coordinators.runtime import shard_replica
from duramen.coordinators.runtime.active import ActiveShard
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.replication.machine import ReplicaMachine
from duramen.replication.replica import ANY_CHECKPOINT

Original = Callable[..., Any]

SEEDS: Final = (4,)
CHECKPOINT_RECORDS: Final = 12
LONG_SEEDS: Final = range(1, 201)
NEARBY: Final = range(1, 41)


def _cut_early(_: Original) -> Original:
    def cut_offset(lowest_checkpoint: int, own_floor: int) -> int:
        return max(lowest_checkpoint, own_floor + CHECKPOINT_RECORDS)

    return cut_offset


def _answer_stored(right: Original) -> Original:
    def _stored(self: ActiveShard, number: int, new: Sized, producer: Any, base_offset: int, error: Any) -> None:
        if error is None:
            for pending in self._on_their_way.pop(number, ()):
                self._answer(pending, ShardAnswer(pending.decision.response, base_offset + len(new)))
        else:
            right(self, number, new, producer, base_offset, error)

    return _stored


def _count_lacking(right: Original) -> Original:
    def state_moved(
        self: ReplicaMachine, applied_offset: int, checkpoint_offset: int, joins: Any = ANY_CHECKPOINT
    ) -> None:
        right(self, max(applied_offset, self.history.end_offset), checkpoint_offset, joins)

    return state_moved


BUGS: Final = (
    Bug("cut-early", "", (Place(shard_replica, "cut_offset", _cut_early),), "cut at the newer checkpoint"),
    Bug("answer-stored", "", (Place(ActiveShard, "_stored", _answer_stored),), "answer before it is applied"),
    Bug(
        "count-lacking", "", (Place(ReplicaMachine, "state_moved", _count_lacking),), "count where the state lacks rows"
    ),
)

FOUND_BY: Final = {"cut-early": 1, "answer-stored": 1, "count-lacking": 4}


@pytest.mark.parametrize("seed", SEEDS)
def test_shards_keep_their_promises(seed: int) -> None:
    keeps_promises(seed, shards=True)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_seed_that_found_a_bug_finds_it_again(bug: Bug) -> None:
    assert hunt(bug, chain([FOUND_BY[bug.name]], NEARBY), shards=True) is not None


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_shards_of_many_clusters_keep_their_promises(seed: int) -> None:
    test_shards_keep_their_promises(seed)
