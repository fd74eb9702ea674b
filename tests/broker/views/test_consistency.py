"""The table of consistency in the guide of keyed streams: each level has the anomalies that it allows, and no other.

A writer sets `a` and then `b` to the same number, again and again, while the power fails. So `b` is never ahead.
Another one sets a key in two partitions of a stream and in another stream to the same number, in a transaction.
"""

from random import Random
from typing import Final, Literal

import pytest
from tests.broker.views.test_live import Connection, LiveReader
from tests.broker.views.test_views import Keyed
from tests.coordinators.transaction.transacting import Writer, broker_for, committed_values

from duramen.base.errors import OffsetOutOfRange, SnapshotStartOver
from duramen.keyed.view import VisibleRecords
from duramen.sim.broker import CallbackResult
from duramen.storage.segment.reader import Blocked

Level = Literal["whole snapshots", "single-key causal", "eventual"]
Numbers = dict[bytes, int]

LOST: Final = "an acknowledged record is lost"
BACK: Final = "a key goes back to an older value"
MIXED: Final = "a state that never existed"
TORN: Final = "a transaction in part"
ALLOWED: Final[dict[Level, set[str]]] = {
    "whole snapshots": set(),
    "single-key causal": {MIXED, TORN},
    "eventual": {LOST, BACK, MIXED, TORN},
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

    @property
    def state(self) -> Numbers:
        """What it has."""
        return self._state

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


class Transfers:
    """A writer of transactions over three partitions, and a reader that begins anew each time."""

    def __init__(self, level: Level) -> None:
        durability = "os" if level == "eventual" else "sync"
        self.whole = level == "whole snapshots"
        self.hand = broker_for()
        self.places = [("accounts", 0), ("accounts", 1), ("totals", 0)]
        self.hand.create("accounts", 2, keyed="true", durability=durability)
        self.hand.create("totals", keyed="true", durability=durability)

    def transfer(self, number: int, chance: Random) -> set[str]:
        """One transaction; what a reader sees whose reads fall between its steps."""
        writer = Writer(self.hand, "transfers", 2)
        for place in self.places:
            written = writer.write_keyed(*place, (b"k", b"%d" % number))
            self.hand.settle()
            assert written.error is None
        before = [self._read(place) for place in self.places]
        first = chance.randrange(len(self.places) + 1)
        old = before[:first] if not self.whole else []
        writer.settle_end(commit=chance.random() < 0.8)
        if chance.random() < 0.2:
            self.hand.crash(chance.randrange(1 << 30))
        after = self._snapshot if self.whole else lambda: [self._read(place) for place in self.places[len(old) :]]
        seen = [*old, *after()]
        return {TORN} if len(set(seen)) > 1 else set()

    def _read(self, place: tuple[str, int]) -> bytes | None:
        return next(iter(committed_values(self.hand, *place)[::-1]), None)

    def _snapshot(self) -> list[bytes | None]:
        broker = self.hand.broker
        views = [broker.views.get(broker.streams.get(name), index) for name, index in self.places]
        taken: CallbackResult[list[int]] = CallbackResult()
        broker.snapshot_vectors.aim(views, taken)
        self.hand.settle()
        found: list[bytes | None] = []
        for (name, index), view, at in zip(self.places, views, taken.value, strict=True):
            shown: CallbackResult[VisibleRecords] = CallbackResult()
            view.shown(at, None, 0, at, shown)
            self.hand.settle()
            plan = broker.streams.get(name).partition(index).log.plan_read(0, 1 << 20)
            assert plan is None or not isinstance(plan, Blocked)
            records = [] if plan is None else list(self.hand.read(plan))
            found.append(next((one.value for one in records if one.offset in shown.value.offsets()), None))
        return found


@pytest.mark.parametrize("level", list(ALLOWED))
def test_transactions_are_seen_in_part_where_that_is_allowed(level: Level) -> None:
    transfers, chance, seen = Transfers(level), Random(4), set[str]()
    for number in range(40):
        seen |= transfers.transfer(number, chance)
    assert seen == {TORN} & ALLOWED[level]


@pytest.mark.parametrize("level", list(ALLOWED))
def test_a_level_of_consistency_has_the_anomalies_that_it_allows(level: Level) -> None:
    seen = set[str]().union(*(seen_at(level, seed, 60) for seed in range(3)))
    assert seen == ALLOWED[level] - {TORN}


@pytest.mark.long
@pytest.mark.parametrize("level", list(ALLOWED))
def test_a_level_has_no_other_anomaly_in_many_lives(level: Level) -> None:
    for seed in range(100, 130):
        assert seen_at(level, seed, 150) <= ALLOWED[level]


def test_a_deletion_is_missed_by_who_reads_records_alone() -> None:
    keyed = Keyed(snapshot_retention_ms=0, delete_retention_ms=1_000)
    keyed.produce((b"gone", b"1"), (b"kept", b"1"))
    states: list[Numbers] = [{}, {b"gone": 1}, {b"gone": 1, b"kept": 1}, {b"kept": 1}]
    recorded, whole, live = Reader(keyed, states), Reader(keyed, states), LiveReader(keyed)
    recorded.read_records()
    whole.read_whole()
    live.read_pass()
    keyed.produce((b"gone", None))
    for number in range(60):
        keyed.produce((b"kept", b"%d" % number))
        states += [{b"kept": number}]
        keyed.hand.advance(20_000)
    end = len(keyed.written)
    assert all(record.key != b"gone" for record in keyed.stored())
    recorded.read_records()
    assert recorded.state == {b"gone": 1, b"kept": 59}
    whole.read_whole()
    assert whole.seen == set()
    live.connection = Connection()
    with pytest.raises(OffsetOutOfRange):
        live.fetch()
    live.start_over(reconnect=False)
    live.read_pass()
    assert live.state == keyed.state(end) == {b"kept": b"59"}
