"""The table of consistency of clusters in the guide of keyed streams: each level has the anomalies that it allows.

A writer sets `a` and then `b` to the same number, again and again, while leaders are killed and cut off.
"""

from typing import Final, Literal

import pytest
from tests.broker.views.replicated import NODES, KeyedReplicas

from duramen.base.errors import DuramenError, SnapshotNotReached, SnapshotStartOver, SnapshotTooOld
from duramen.codec.batch import BatchInput, DecodedRecord, encode
from duramen.sim.broker import CallbackResult

Level = Literal["global causal", "single-key causal", "eventual"]
Numbers = dict[bytes, int]

LOST: Final = "an acknowledged record is lost"
BACK: Final = "a key goes back to an older value"
MIXED: Final = "a state that never existed"
ALLOWED: Final[dict[Level, set[str]]] = {
    "global causal": set(),
    "single-key causal": {MIXED},
    "eventual": {LOST, MIXED},
}


def numbers(records: list[DecodedRecord]) -> Numbers:
    return {record.key or b"": int(record.value or b"0") for record in records}


class Reader:
    """Goes on where it was, at whichever node, and notes what it should not have seen."""

    def __init__(self, world: KeyedReplicas) -> None:
        self.seen: set[str] = set()
        self._world = world
        self._newest: Numbers = {}
        self._state: Numbers = {}
        self._at = 0

    def read_whole(self, node_id: int) -> None:
        """A snapshot, or what has changed since the last one where that can be had."""
        view = self._world.view(node_id)
        if view is None or view.bounds.position < max(self._at, view.bounds.s0):
            return
        at, state = view.bounds.position, dict(self._state)
        try:
            found = self._world.shown(node_id, at, self._at)
        except SnapshotStartOver:
            state, found = {}, self._world.shown(node_id, at)
        except (SnapshotNotReached, SnapshotTooOld):
            return
        self._state, self._at = state | numbers(list(found.values())), at
        self._look(self._state)

    def read_records(self, node_id: int) -> None:
        """Record by record from where it was."""
        end = self._world.partition(node_id).log.high_watermark
        for offset, record in sorted(self._world.stored(node_id, self._at, end).items()):
            self._state |= numbers([record])
            self._at = offset + 1
            self._look(self._state)

    def begin_anew(self) -> None:
        """A reader that has nothing takes its place."""
        self._at, self._state, self._newest = 0, {}, {}

    def _look(self, state: Numbers) -> None:
        self._world.learn()
        if state not in states(self._world):
            self.seen.add(MIXED)
        for key, number in state.items():
            if number < self._newest.get(key, 0):
                self.seen.add(BACK)
            self._newest[key] = max(number, self._newest.get(key, 0))


def states(world: KeyedReplicas) -> list[Numbers]:
    """All that the stream was."""
    found: list[Numbers] = [{}]
    for offset in sorted(world.committed):
        found.append(found[-1] | numbers([world.committed[offset]]))
    return found


def write(world: KeyedReplicas, key: bytes, number: int, *, everywhere: bool) -> CallbackResult[int]:
    """Set a key, and go on once that is acknowledged or refused."""
    answer: CallbackResult[int] = CallbackResult()
    for node_id in NODES:
        partition = world.partition(node_id)
        if partition.leads and (node_id == world.leader or not everywhere):
            now_ms = world.several.hands[node_id].clock.wall_ms()
            partition.append(
                encode([BatchInput(now_ms, key, b"%d" % number)]), answer, all_replicas=everywhere
            )  # fmt: skip
            break
    world.several.settle()
    if everywhere and not answer.there:
        world.advance(1000)
    world.learn()
    return answer


def kill_a_leader(world: KeyedReplicas) -> None:
    """The leader's power fails, or it is cut off for a while and goes on alone."""
    leader, chance = world.leader, world.random
    if leader is None:
        return
    if chance.random() < 0.5:
        world.several.restart(leader, crash=chance.randrange(1 << 30))
    elif not world.several.unheard:
        world.several.cut.add(leader)
        world.several.fence(leader)


def seen_at(level: Level, seed: int, steps: int) -> set[str]:
    """What a reader sees while leaders are killed now and then."""
    world = KeyedReplicas(seed, least=1 if level == "eventual" else 2)
    chance, reader = world.random, Reader(world)
    acknowledged: dict[int, bytes] = {}
    for number in range(1, steps):
        for key in (b"a", b"b"):
            answer = write(world, key, number, everywhere=level != "eventual")
            if answer.there and not isinstance(answer.calls[0][-1], DuramenError):
                acknowledged[answer.value] = b"%s %d" % (key, number)
        draw = chance.random()
        if draw < 0.4:
            world.advance(chance.choice((500, 1000, 4000)))
        elif draw < 0.55:
            kill_a_leader(world)
        elif draw < 0.75:
            for node_id in sorted(world.several.unheard):
                world.several.heal(node_id)
                world.several.hear(node_id)
        elif draw < 0.85:
            reader.begin_anew()
        node_id = chance.choice(NODES)
        if level == "global causal":
            reader.read_whole(node_id)
        else:
            reader.read_records(node_id)
    for node_id in NODES:
        world.several.heal(node_id)
        world.several.hear(node_id)
    world.advance(5000)
    kept = {offset: b"%s %s" % (one.key, one.value) for offset, one in world.committed.items()}
    if any(kept.get(offset) != what for offset, what in acknowledged.items()):
        reader.seen.add(LOST)
    return reader.seen


@pytest.mark.long
@pytest.mark.parametrize("level", list(ALLOWED))
def test_a_level_of_consistency_has_the_anomalies_that_it_allows(level: Level) -> None:
    seen = set[str]().union(*(seen_at(level, seed, 60) for seed in range(12)))
    assert seen == ALLOWED[level]
