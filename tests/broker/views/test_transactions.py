"""Transactions on keyed streams: each counts at its marker, and snapshots over partitions have it wholly or not."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from tests.broker.views.test_views import QUICK, SETTINGS
from tests.coordinators.transaction.transacting import Writer, broker_for

from duramen.base.errors import SnapshotNotReached
from duramen.base.ports import Lane
from duramen.broker.views.running_view import RunningView
from duramen.codec.batch import BatchInput, encode
from duramen.keyed.view import VisibleRecords
from duramen.sim.broker import CallbackResult
from duramen.sim.machine.clock import ManualWorker
from duramen.storage.segment.reader import Blocked

State = dict[bytes, bytes]


class Told:
    """A partition as it was written: of each record its offset, and at which offset it counts; None: it does not."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes, bytes | None, int | None]] = []

    def newest(self, at: int) -> dict[bytes, tuple[int, bytes | None]]:
        found: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, key, value, counts in sorted(self.records, key=lambda one: one[0]):
            if counts is not None and counts < at:
                found[key] = offset, value
        return found

    def state(self, at: int) -> State:
        return {key: value for key, (_, value) in self.newest(at).items() if value is not None}


class Streams:
    """A node with two keyed streams, writers of transactions and others, and what came of all they did."""

    def __init__(self, seed: int, *, version: int, **config: Any) -> None:
        self.chance = Random(seed)
        self.hand = broker_for(**{key.replace(".", "_"): value for key, value in SETTINGS.items()})
        self.places = [("orders", 0), ("orders", 1), ("customers", 0)]
        self.hand.create("orders", 2, keyed="true", **{**QUICK, **config})
        self.hand.create("customers", 1, keyed="true", **{**QUICK, **config})
        self.told = {place: Told() for place in self.places}
        self.writers = [Writer(self.hand, f"writer-{number}", version) for number in range(3)]
        self.open: dict[Writer, list[tuple[tuple[str, int], int, bytes, bytes | None]]] = {}
        self.ended: list[dict[tuple[str, int], int]] = []

    def views(self) -> list[RunningView]:
        broker = self.hand.broker
        return [broker.views.get(broker.streams.get(name), index) for name, index in self.places]

    def end_of(self, place: tuple[str, int]) -> int:
        return self.hand.broker.streams.get(place[0]).partition(place[1]).log.end_offset

    def some(self) -> tuple[bytes, bytes | None]:
        chance = self.chance
        return b"k%d" % chance.randrange(9), None if chance.random() < 0.2 else b"v%d" % chance.randrange(10**6)

    def write(self) -> None:
        place, record = self.chance.choice(self.places), self.some()
        answer: CallbackResult[int] = CallbackResult()
        batch = encode([BatchInput(self.hand.clock.wall_ms(), *record)])
        self.hand.broker.streams.get(place[0]).partition(place[1]).append(batch, answer)
        self.hand.settle()
        self.told[place].records.append((answer.value, *record, answer.value))

    def write_in_transaction(self) -> None:
        writer = self.chance.choice(self.writers)
        place, wishes = self.chance.choice(self.places), [self.some() for _ in range(self.chance.choice((1, 1, 3)))]
        joined = writer.add(place)
        self.hand.settle()
        assert joined.error is None
        answer = writer.write_keyed(*place, *wishes)
        self.hand.settle()
        self.open.setdefault(writer, []).extend((place, answer.value + at, *record) for at, record in enumerate(wishes))

    def end(self, *, commit: bool) -> None:
        if not self.open:
            return
        writer = self.chance.choice(list(self.open))
        written = self.open.pop(writer)
        markers = {place: self.end_of(place) for place, *_ in written}
        writer.settle_end(commit=commit)
        for place, *record in written:
            self.told[place].records.append((*record, markers[place] if commit else None))  # type: ignore[arg-type]
        if commit:
            self.ended.append(markers)

    def vector(self) -> Mapping[tuple[str, int], int]:
        taken: CallbackResult[list[int]] = CallbackResult()
        self.hand.broker.snapshot_vectors.aim(self.views(), taken)
        self.hand.settle()
        return dict(zip(self.places, taken.value, strict=True))

    def shown(self, place: tuple[str, int], at: int, since: int | None = None) -> dict[bytes, tuple[int, bytes | None]]:
        """Offset and value of what the view shows, by key; each once."""
        view, answer = self.views()[self.places.index(place)], CallbackResult[VisibleRecords]()
        view.shown(at, since, 0, at, answer)
        self.hand.settle()
        offsets = set(answer.value.offsets())
        found: dict[bytes, tuple[int, bytes | None]] = {}
        offset = view.partition.log.start_offset
        while (plan := view.partition.log.plan_read(offset, 1 << 20)) is not None:
            if isinstance(plan, Blocked):
                self.hand.store.unblock(plan, lambda _: None)
                self.hand.settle()
                continue
            for record in self.hand.read(plan):
                if record.offset in offsets and record.offset >= offset:
                    assert record.key not in found
                    found[record.key or b""] = record.offset, record.value
            offset = plan.next_offset
        return found

    def check(self) -> None:
        vector = self.vector()
        for markers in self.ended:
            assert len({offset < vector[place] for place, offset in markers.items()}) == 1, (markers, vector)
        place = self.chance.choice(self.places)
        bounds = self.views()[self.places.index(place)].bounds
        assert bounds.position == self.end_of(place) == vector[place]
        at = self.chance.choice((vector[place], self.chance.randint(min(bounds.s0, bounds.position), bounds.position)))
        told = self.told[place]
        if at >= bounds.s0:
            found = self.shown(place, at)
            assert {key: value for key, (_, value) in found.items() if value is not None} == told.state(at)
            assert found.items() <= told.newest(at).items()
        horizon = self.views()[self.places.index(place)].bounds.horizon
        if bounds.s0 <= at and horizon <= at:
            since = self.chance.randint(horizon, at)
            state = told.state(since)
            for key, (_, value) in self.shown(place, at, since).items():
                state.pop(key, None)
                if value is not None:
                    state[key] = value
            assert state == told.state(at)


def run(seed: int, steps: int, **config: Any) -> Streams:
    streams = Streams(seed, version=seed % 2 * 2, **config)
    chance, hand = streams.chance, streams.hand
    for _ in range(steps):
        step = chance.random()
        if step < 0.3:
            streams.write()
        elif step < 0.6:
            streams.write_in_transaction()
        elif step < 0.8:
            streams.end(commit=chance.random() < 0.7)
        elif step < 0.95:
            hand.advance(chance.choice((100, 1100, 4000, 9_000)))
        else:
            hand.restart()
        streams.check()
    return streams


@pytest.mark.parametrize("seed", range(2))
def test_snapshots_have_what_is_committed_below_them(seed: int) -> None:
    streams = run(seed, 120)
    assert len(streams.ended) > 5
    assert max(view.partition.log.cleaned_offset for view in streams.views()) > 0


@pytest.mark.long
@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("seed", range(100, 125))
def test_snapshots_have_what_is_committed_in_many_lives(seed: int, durability: str) -> None:
    run(seed, 400, durability=durability)


def test_an_open_transaction_holds_nothing_back() -> None:
    streams = Streams(1, version=2)
    writer = streams.writers[0]
    writer.write_keyed("customers", 0, (b"ann", b"Ulm"))
    streams.hand.settle()
    streams.places = [("customers", 0)]
    streams.told = {("customers", 0): Told()}
    for _ in range(3):
        streams.write()
    assert [offset for offset, _ in sorted(streams.shown(("customers", 0), 4).values())] == sorted(
        offset for offset, _ in streams.told["customers", 0].newest(4).values()
    )
    writer.settle_end(commit=True)
    assert streams.shown(("customers", 0), 5, 4) == {b"ann": (0, b"Ulm")}


def turn(worker: ManualWorker) -> bool:
    """One thing that is to be done; False where there is nothing."""
    if worker.actions:
        worker.actions.popleft()()
        return True
    lane: Lane | None = next((lane for lane, jobs in worker.jobs.items() if jobs), None)
    if lane is not None:
        worker.start(lane)()
    return lane is not None


def test_of_markers_that_come_one_by_one_no_vector_has_some() -> None:
    streams = Streams(1, version=2, durability="os")
    hand = streams.hand
    for name, index in streams.places:
        streams.writers[0].write_keyed(name, index, (b"k", b"v"))
        hand.settle()
    hand.create("ledger", keyed="true")
    hand.create("bulk")
    streams.writers[0].write_keyed("ledger", 0, (b"k", b"v"))
    hand.settle()
    streams.places.append(("ledger", 0))
    views = streams.views()
    before = [view.partition.log.high_watermark for view in views]
    ended = streams.writers[0].end(commit=True)
    for _ in range(6):
        hand.produce("bulk", bytes(900_000))  # behind which markers wait that come later
    seen, torn = set[int](), 0
    going_on = True
    while going_on:
        taken: CallbackResult[list[int]] = CallbackResult()
        forget = hand.broker.snapshot_vectors.aim(views, taken)
        marked = [view.partition.log.high_watermark > old for view, old in zip(views, before, strict=True)]
        if taken.there:
            seen.add(sum(marked))
        else:
            torn += 1
            forget()
        going_on = turn(hand.worker)
    assert torn
    assert ended.error is None
    assert seen == {0, 4}


def test_views_that_are_behind_show_an_older_vector_or_none() -> None:
    streams = Streams(1, version=2)
    for place in streams.places:
        streams.writers[0].write_keyed(*place, (b"k", b"v"))
        streams.hand.settle()
    streams.writers[0].settle_end(commit=True)
    vectors, views = streams.hand.broker.snapshot_vectors, streams.views()
    taken: CallbackResult[list[int]] = CallbackResult()
    vectors.aim(views, taken)
    assert vectors.newest(views, taken.value) == taken.value == [2, 2, 2]
    ahead = [3, 2, 2]
    assert vectors.newest(views, ahead) == taken.value
    with pytest.raises(SnapshotNotReached):
        vectors.newest(views[:2], ahead[:2])
