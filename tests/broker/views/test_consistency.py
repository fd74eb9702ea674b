"""The table of consistency in the guide of keyed streams: each level has the anomalies that it allows, and no other.

A writer sets `a` and then `b` to the same number, again and again, while the power fails. So `b` is never ahead.
"""

from random import Random
from typing import Final, Literal

import pytest
from tests.broker.views.test_views import Keyed

from duramen.base.errors import SnapshotStartOver

Level = Literal["whole snapshots", "single-key causal", "eventual"]
Numbers = dict[bytes, int]

LOST: Final = "an acknowledged record is lost"
BACK: Final = "a key goes back to an older value"
MIXED: Final = "a state that never existed"
ALLOWED: Final[dict[Level, set[str]]] = {
    "whole snapshots": set(),
    "single-key causal": {MIXED},
    "eventual": {LOST, BACK, MIXED},
}


class Reader:
    """Goes on where it was, and notes what it should not have seen."""

    def __init__(self, keyed: Keyed, states: list[Numbers]) -> None:
        self.seen: set[str] = set()
        self._keyed = keyed
        self._states = states
        self._newest: Numbers = {}
        self._at = 0
        self._state: Numbers = {}

    def read_whole(self) -> None:
        """A snapshot, or what has changed since the last one where that can be had."""
        at = self._keyed.view.bounds.position
        state = dict(self._state)
        try:
            records = self._keyed.shown(at, self._at)
        except SnapshotStartOver:
            state, records = {}, self._keyed.shown(at)
        for record in records:
            state[record.key or b""] = int(record.value or b"0")
        self._state, self._at = state, at
        self._look(state)

    def read_records(self) -> None:
        """Record by record from where it was; from the beginning where that is not there any more."""
        end = self._keyed.hand.broker.streams.get("users").partition(0).log.high_watermark
        if self._at > end:
            self._at, self._state = 0, {}
        for record in self._keyed.stored():
            if record.offset >= self._at:
                self._state[record.key or b""] = int(record.value or b"0")
                self._at = record.offset + 1
                self._look(self._state)

    def begin_anew(self) -> None:
        """A reader that has nothing takes its place."""
        self._at, self._state, self._newest = 0, {}, {}

    def _look(self, state: Numbers) -> None:
        if state not in self._states:
            self.seen.add(MIXED)
        for key, number in state.items():
            if number < self._newest.get(key, 0):
                self.seen.add(BACK)
            self._newest[key] = max(number, self._newest.get(key, 0))


def seen_at(level: Level, seed: int, steps: int) -> set[str]:
    """What a reader sees while a node that is written to loses its power now and then."""
    chance = Random(seed)
    keyed = Keyed(seed, durability="os" if level == "eventual" else "sync")
    states: list[Numbers] = [{}]
    reader = Reader(keyed, states)
    for number in range(1, steps):
        for key in (b"a", b"b"):
            keyed.produce((key, b"%d" % number))
            states.append({**states[-1], key: number})
        if chance.random() < 0.5:
            keyed.hand.advance(chance.choice((100, 1100, 30_000)))
        if chance.random() < 0.2:
            acknowledged = len(keyed.written)
            keyed.hand.crash(chance.randrange(1 << 30))
            end = keyed.hand.broker.streams.get("users").partition(0).log.high_watermark
            if end < acknowledged:
                reader.seen.add(LOST)
                del keyed.written[end:]
                states.append({key: int(value or b"0") for key, value in keyed.state(end).items()})
        if chance.random() < 0.1:
            reader.begin_anew()
        if level == "whole snapshots":
            reader.read_whole()
        else:
            reader.read_records()
    return reader.seen


@pytest.mark.parametrize("level", list(ALLOWED))
def test_a_level_of_consistency_has_the_anomalies_that_it_allows(level: Level) -> None:
    seen = set[str]().union(*(seen_at(level, seed, 60) for seed in range(3)))
    assert seen == ALLOWED[level]


@pytest.mark.long
@pytest.mark.parametrize("level", list(ALLOWED))
def test_a_level_has_no_other_anomaly_in_many_lives(level: Level) -> None:
    for seed in range(100, 130):
        assert seen_at(level, seed, 150) <= ALLOWED[level]
