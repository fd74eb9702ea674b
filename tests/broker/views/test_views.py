"""Views of keyed streams at work on a node: snapshots are states that existed, whatever happens to the node."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest

from duramen.base.errors import (
    ConfigInvalid,
    DuramenError,
    SnapshotNotReached,
    SnapshotStartOver,
    SnapshotTooOld,
    StreamNotKeyed,
)
from duramen.broker.views.running_view import RunningView
from duramen.broker.views.views import KeyedViews
from duramen.codec.batch import TRANSACTIONAL, BatchInput, DecodedRecord, encode, header
from duramen.codec.markers import encode_marker
from duramen.keyed.view import VisibleRecords
from duramen.metadata.features import MetadataFeature
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.storage.segment.reader import Blocked

SETTINGS = {"log.cleaner.backoff.ms": 1000}
QUICK = {
    "segment_bytes": 700,
    "min_cleanable_dirty_ratio": 0,
    "snapshot_retention_ms": 5_000,
    "delete_retention_ms": 8_000,
}
State = dict[bytes, bytes]


class Keyed:
    """A node with a keyed stream, and what was acknowledged in it."""

    def __init__(self, seed: int = 0, *, settings: Mapping[str, object] | None = None, **config: Any) -> None:
        self.hand = ManualBroker({**SETTINGS, **(settings or {})}, seed=seed)
        self.hand.create("users", keyed="true", **{**QUICK, **config})
        self.written: list[tuple[bytes, bytes | None]] = []

    def produce(self, *records: tuple[bytes, bytes | None]) -> DuramenError | None:
        now_ms = self.hand.clock.wall_ms()
        batch = encode([BatchInput(now_ms, key, value) for key, value in records])
        answer: CallbackResult[int] = CallbackResult()
        self.hand.broker.streams.get("users").partition(0).append(batch, answer)
        self.hand.settle()
        assert answer.there
        if isinstance(answer.calls[0][-1], DuramenError):
            return answer.calls[0][-1]
        assert answer.value == len(self.written)
        self.written += records
        return None

    def configure(self, keyed: str) -> None:
        changed: CallbackResult[None] = CallbackResult()
        self.hand.broker.configure_stream("users", {"keyed": keyed}, changed)
        self.hand.settle()
        assert changed.error is None

    @property
    def view(self) -> RunningView:
        return self.hand.broker.views.get(self.hand.broker.streams.get("users"), 0)

    def state(self, at: int) -> State:
        """By definition."""
        found: State = {}
        for key, value in self.written[:at]:
            found.pop(key, None)
            if value is not None:
                found[key] = value
        return found

    def stored(self) -> Iterator[DecodedRecord]:
        log = self.hand.broker.streams.get("users").partition(0).log
        offset = 0
        while True:
            plan = log.plan_read(offset, 1 << 20)
            if plan is None:
                return
            if isinstance(plan, Blocked):
                self.hand.store.unblock(plan, lambda _: None)
                self.hand.settle()
                continue
            found = [record for record in self.hand.read(plan) if record.offset >= offset]
            yield from found
            offset = plan.next_offset

    def shown(self, at: int, since: int | None = None) -> list[DecodedRecord]:
        """The records that the view shows. Raises why there is no such snapshot."""
        answer: CallbackResult[VisibleRecords] = CallbackResult()
        self.view.shown(at, since, 0, at, answer)
        self.hand.settle()
        offsets = set(answer.value.offsets())
        return [record for record in self.stored() if record.offset in offsets]

    def check(self, at: int, since: int | None = None) -> None:
        """The snapshot, or the state at `since` with the changes, is the state at `at`; each key comes once."""
        found = self.shown(at, since)
        keys = [record.key for record in found]
        assert len(keys) == len(set(keys))
        assert [record.offset for record in found] == sorted(record.offset for record in found)
        state = {} if since is None else self.state(since)
        for record in found:
            assert record.key is not None
            state.pop(record.key, None)
            if record.value is not None:
                state[record.key] = record.value
        assert state == self.state(at), (at, since, self.view.bounds)


def run(seed: int, steps: int) -> Keyed:
    chance = Random(seed)
    keyed = Keyed(seed)
    hand = keyed.hand
    for _ in range(steps):
        step = chance.random()
        if step < 0.6:
            records = [
                (b"k%d" % chance.randrange(12), None if chance.random() < 0.25 else b"v%d" % chance.randrange(10**6))
                for _ in range(chance.randrange(1, 9))
            ]
            keyed.produce(*records)
        elif step < 0.85:
            hand.advance(chance.choice((100, 1100, 4000, 30_000)))
        elif step < 0.9:
            hand.restart()
        elif step < 0.95:
            hand.crash(chance.randrange(1 << 30))
        else:
            keyed.configure("false")
            keyed.configure("true")
        bounds = keyed.view.bounds
        assert bounds.position == len(keyed.written)
        if bounds.s0 > bounds.position:
            continue
        at = chance.randint(bounds.s0, bounds.position)
        keyed.check(at)
        horizon = keyed.view.bounds.horizon  # as of now, which has made its way into what was just read
        if horizon <= at:
            keyed.check(at, chance.randint(horizon, at))
    return keyed


@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_is_a_state_that_existed(seed: int) -> None:
    keyed = run(seed, 60)
    assert keyed.hand.broker.streams.get("users").partition(0).log.cleaned_offset > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_a_snapshot_is_a_state_that_existed_in_many_lives(seed: int) -> None:
    run(seed, 250)


def test_compaction_keeps_what_snapshots_within_the_retention_show() -> None:
    keyed = Keyed(snapshot_retention_ms=3_600_000)
    for number in range(100):
        keyed.produce((b"k", b"%d" % number * 30))
    keyed.hand.advance(60_000)
    keyed.check(10)
    log = keyed.hand.broker.streams.get("users").partition(0).log
    assert log.cleaned_offset == 0
    keyed.hand.advance(3_700_000)
    assert log.cleaned_offset > 50
    with pytest.raises(SnapshotTooOld):
        keyed.shown(10)
    keyed.check(100)


def test_who_was_away_for_longer_than_tombstones_are_kept_starts_over() -> None:
    keyed = Keyed()
    keyed.produce((b"a", b"1"), (b"b", b"2"))
    for number in range(40):
        keyed.produce((b"a", None), (b"c%d" % number, b"x" * 30))
        keyed.hand.advance(1000)
    keyed.hand.advance(60_000)
    with pytest.raises(SnapshotStartOver):
        keyed.shown(82, 1)
    keyed.check(82)


def test_who_was_away_for_a_shorter_time_does_not_start_over() -> None:
    keyed = Keyed(snapshot_retention_ms=0, delete_retention_ms=3_600_000)
    for number in range(20):
        keyed.produce((b"a", None), (b"c%d" % number, b"x" * 30))
        keyed.hand.advance(5_000)
    for life in (keyed.hand.advance, lambda _: keyed.hand.restart(), lambda _: keyed.hand.crash()):
        life(1000)
        assert keyed.view.bounds.horizon == 0
        keyed.shown(40, 1)
    keyed.hand.advance(4_000_000)
    with pytest.raises(SnapshotStartOver):
        keyed.shown(40, 1)


def test_a_view_that_is_restored_goes_on_where_it_was() -> None:
    keyed = Keyed()
    keyed.produce(*((b"k%d" % number, b"v") for number in range(50)))
    keyed.hand.restart()
    assert keyed.view.facts.keys == 50
    assert keyed.hand.reports == []
    keyed.check(50)


def test_a_damaged_checkpoint_is_said_and_the_view_built_anew() -> None:
    keyed = Keyed()
    keyed.produce((b"a", b"1"), (b"a", b"2"))
    keyed.hand.stop()
    files = keyed.hand.files
    [directory] = files.names("keyed")
    for name in files.names(f"keyed/{directory}"):
        files.open(f"keyed/{directory}/{name}").write([b"?"], 20)
    keyed.hand.start()
    assert any("rebuilt" in report for report in keyed.hand.reports)
    keyed.check(2)


def test_nothing_is_left_of_a_view_when_the_stream_is_not_keyed_any_more_or_gone() -> None:
    keyed = Keyed()
    keyed.produce((b"a", b"1"))
    keyed.hand.restart()
    keyed.configure("false")
    assert keyed.hand.files.names("keyed") == []
    with pytest.raises(StreamNotKeyed):
        keyed.shown(1)
    keyed.configure("true")
    keyed.check(1)
    keyed.hand.delete("users")
    assert keyed.hand.files.names("keyed") == []


def test_s0_follows_the_retention_without_writes() -> None:
    keyed = Keyed(snapshot_retention_ms=1000)
    keyed.produce((b"a", b"1"))
    keyed.hand.advance(10_000)
    assert keyed.view.bounds.s0 == 1


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"cleanup_policy": "delete"}, "cleanup.policy=compact"),
        ({"cleanup_policy": "compact,delete"}, "cleanup.policy=compact"),
        ({"durability": "memory"}, "durability is memory"),
    ],
)
def test_what_contradicts_keyed_is_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        ManualBroker().create("users", keyed="true", **config)


def test_a_stream_that_is_not_compacted_is_not_made_keyed() -> None:
    hand = ManualBroker()
    hand.create("users")
    changed: CallbackResult[None] = CallbackResult()
    hand.broker.configure_stream("users", {"keyed": "true"}, changed)
    hand.settle()
    assert isinstance(changed.error, ConfigInvalid)


def test_records_without_a_key_are_refused_by_name() -> None:
    hand = ManualBroker()
    partition = hand.create("users", keyed="true").partition(0)
    keyless: CallbackResult[int] = CallbackResult()
    partition.append(encode([BatchInput(1, None, b"v")]), keyless)
    assert "needs a key" in str(keyless.calls[0][1])


def test_a_snapshot_of_the_future_is_not_reached() -> None:
    with pytest.raises(SnapshotNotReached):
        Keyed().shown(1)


def test_what_transactions_wrote_before_the_stream_was_keyed_counts_at_their_markers() -> None:
    hand = ManualBroker(SETTINGS)
    stream = hand.create("users", cleanup_policy="compact")
    log = stream.partition(0).log
    pieces = [
        encode([BatchInput(1, b"a", b"1"), BatchInput(1, b"b", b"2")], producer_id=7, producer_epoch=0,
               base_sequence=0, attributes=TRANSACTIONAL),
        encode([BatchInput(1, b"c", b"3")]),
        encode_marker(7, 0, commit=True, coordinator_epoch=0, now_ms=hand.clock.wall_ms()),
    ]  # fmt: skip
    for piece in pieces:
        hand.store.append(log, bytearray(piece), header(piece), hand.store.node_epoch, None)
        hand.settle()
    changed: CallbackResult[None] = CallbackResult()
    hand.broker.configure_stream("users", {"keyed": "true"}, changed)
    hand.settle()
    view = hand.broker.views.get(hand.broker.streams.get("users"), 0)
    assert (view.facts.position, view.facts.problem) == (4, "")
    for at, offsets in ((3, [2]), (4, [0, 1, 2])):
        answer: CallbackResult[VisibleRecords] = CallbackResult()
        view.shown(at, None, 0, at, answer)
        hand.settle()
        assert answer.value.offsets() == offsets


def test_a_cluster_refuses_keyed_streams_below_the_feature_level() -> None:
    hand = ManualBroker()
    level = [MetadataFeature.KEYED - 1]
    views = KeyedViews(
        hand.broker.streams,
        hand.store,
        hand.clock,
        hand.deadlines,
        hand.randomness,
        hand.reports.append,
        alone=False,
        limit_bytes=1 << 30,
        feature_level=lambda: level[0],
    )
    with pytest.raises(ConfigInvalid, match=r"feature level 4, and the cluster is at 3.*duramen cluster upgrade"):
        views.check_config({"keyed": "TRUE"})
    views.check_config({"keyed": "false"})
    level[0] = MetadataFeature.KEYED
    views.check_config({"keyed": "true"})
