"""Lag on a cluster: each partition of each group is told by one node, as the partition's leader knows it."""

import random
from collections.abc import Mapping

import pytest
from tests.broker.several import Several

from duramen.codec.batch import BatchInput, check, encode
from duramen.coordinators.group import remote_lag as lag_elsewhere
from duramen.coordinators.group.coordinator import CommitMember
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.groups.records import CommittedOffset, OffsetKey, partition_for
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionState
from duramen.sim.broker import CallbackResult

GROUP = "g"
NODES = (1, 2, 3)
Lags = Mapping[tuple[str, ...], tuple[float, float | None]]


class Lagging:
    """A stream of three partitions, each on one node and nowhere else, and a group that reads it."""

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self.several = Several(3, settings)
        self.several.ensure_offsets()
        created: CallbackResult[None] = CallbackResult()
        self.several.broker(1).create_stream(Definition("a", 3), created)
        self.several.settle()
        for index, node in enumerate(NODES):
            place = self.several.place("a", index)
            before = self.several.partitions[place]
            alone = PartitionState((node,), (node,), node, before.leader_epoch + 1, before.partition_epoch + 1)
            self.several.partitions[place] = alone
            self.several._say(place)
            self.several._tell(place)
        self.several.advance(1000)
        self.times: list[list[int]] = [[], [], []]
        self.committed: dict[int, int] = {}

    @property
    def home(self) -> int:
        """Who coordinates the group."""
        leader = self.several.partitions[self.several.place(OFFSETS_STREAM, partition_for(GROUP, 2))].leader
        assert leader is not None
        return leader

    def move(self, node: int) -> None:
        """Another coordinates it from now on."""
        self.several.elect(self.several.place(OFFSETS_STREAM, partition_for(GROUP, 2)), node)
        self.several.advance(1000)

    def write(self, index: int) -> None:
        """A record more; then half a second goes by."""
        hand = self.several.hands[NODES[index]]
        batch = encode([BatchInput(hand.clock.wall_ms(), None, b"x")])
        stored: list[int] = []
        partition = hand.broker.streams.get("a").partition(index)
        partition.store(batch, check(batch), lambda offset, _: stored.append(offset))
        self.several.settle()
        assert stored == [len(self.times[index])]
        self.times[index].append(hand.clock.wall_ms())
        self.several.advance(500)

    def commit(self, index: int, offset: int) -> None:
        """The group has read so far."""
        done: CallbackResult[object] = CallbackResult()
        committed = (OffsetKey(GROUP, "a", index), CommittedOffset(offset, -1, "", 0))
        self.several.broker(self.home).groups.commit(GROUP, CommitMember("", None, -1), [committed], done)
        self.several.settle()
        assert done.value == [None]
        self.committed[index] = offset

    def told_by(self, node: int) -> Lags:
        """What the metrics of a node show, once the others have answered it, or it is too late."""
        measures = self.several.broker(node).measures
        for _ in measures.update():
            pass
        asked: CallbackResult[None] = CallbackResult()
        measures.ask(asked)
        self.several.settle()
        if not asked.there:
            self.several.advance(3000)
        assert asked.value is None
        lags = self.several.broker(node).lags
        seconds = dict(lags.seconds())
        return {labels: (records, seconds.get(labels)) for labels, records in lags.records()}

    def told(self) -> Lags:
        """What the metrics of all nodes show, none of it twice."""
        found: dict[tuple[str, ...], tuple[float, float | None]] = {}
        for node in NODES:
            more = self.told_by(node)
            assert not found.keys() & more.keys()
            found.update(more)
        return found

    def lags(self) -> Lags:
        """What it is."""
        return {(GROUP, "a", str(index)): self.lag(index) for index in self.committed}

    def lag(self, index: int) -> tuple[float, float]:
        """What it is of a partition."""
        times, offset = self.times[index], self.committed[index]
        now_ms = self.several.hands[NODES[index]].clock.wall_ms()
        return max(0, len(times) - offset), (now_ms - times[offset]) / 1000 if offset < len(times) else 0


@pytest.mark.parametrize("seed", range(10))
def test_every_partition_is_told_once_and_as_it_is(seed: int) -> None:
    lagging, draws = Lagging(), random.Random(f"{seed}/lag")
    for _ in range(25):
        index = draws.randrange(3)
        match draws.randrange(4):
            case 0 | 1:
                lagging.write(index)
            case 2:
                lagging.commit(index, draws.randrange(len(lagging.times[index]) + 1))
            case 3 if draws.random() < 0.4:
                lagging.move(draws.choice(NODES))
        first, exact = lagging.told(), lagging.lags()
        assert {labels: records for labels, (records, _) in first.items()} == {
            labels: records for labels, (records, _) in exact.items()
        }
        for labels, (_, seconds) in first.items():
            assert seconds is not None
            assert seconds >= (exact[labels][1] or 0)
        assert lagging.told() == exact  # what had to be read for it was read meanwhile


def test_what_a_leader_said_last_is_told_for_a_minute() -> None:
    lagging = Lagging()
    lagging.move(1)
    for _ in range(3):
        lagging.write(2)
    lagging.commit(2, 1)
    labels = (GROUP, "a", "2")
    assert lagging.told_by(1)[labels] == lagging.lag(2) == (2, 1)
    lagging.several.cut = {3}
    lagging.several.advance(2000)
    assert lagging.told_by(1)[labels] == lagging.lag(2) == (2, 3)
    lagging.several.heal(3)
    lagging.commit(2, 2)
    lagging.several.cut = {3}
    assert lagging.told_by(1)[labels] == (1, None)  # when that one was written only its leader knows
    lagging.several.advance(61_000, 1000)
    assert lagging.told_by(1) == {}
    lagging.several.heal(3)
    assert lagging.told_by(1)[labels] == lagging.lag(2)


def test_a_coordinator_that_is_cut_off_for_a_session_tells_nothing() -> None:
    lagging = Lagging()
    lagging.move(1)
    lagging.write(1)
    lagging.commit(1, 0)
    several = lagging.several
    several.fence(1)
    several.advance(1000)
    replicas = several.placed[1].replicas
    assert replicas is not None
    assert lagging.home != 1
    assert lagging.told_by(1)[GROUP, "a", "1"] == lagging.lag(1)  # it does not know
    replicas.on_controller_session(alive=False)
    for node in (2, 3):
        replicas.unreachable(node)
    several.advance(1000)
    assert lagging.told_by(1) == {}
    assert lagging.told_by(lagging.home) == lagging.lags()


def test_a_start_that_has_moved_counts() -> None:
    lagging = Lagging()
    lagging.move(1)
    for _ in range(4):
        lagging.write(1)
    lagging.commit(1, 0)
    assert lagging.told() == lagging.lags()
    deleted: CallbackResult[int] = CallbackResult()
    lagging.several.broker(2).streams.get("a").partition(1).delete_before(3, lambda at, _: deleted(at))
    lagging.several.settle()
    assert deleted.value == 3
    assert lagging.told_by(1)[GROUP, "a", "1"] == (1, None)
    lagging.committed[1] = 3
    assert lagging.told() == lagging.lags()


def test_leaders_read_their_disks_for_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_elsewhere, "_MOST_LOOKUPS", 1)
    monkeypatch.setattr(lag_elsewhere, "_AT_ONCE", 1)
    lagging = Lagging()
    for _ in range(3):
        lagging.write(1)
        lagging.write(2)
    for index, node in ((1, 2), (2, 3)):
        lagging.several.restart(node)
        lagging.several.elect(lagging.several.place("a", index), node)
        lagging.several.hands[node].files.cold = True
    lagging.several.advance(1000)
    lagging.move(1)
    lagging.commit(1, 2)
    lagging.commit(2, 2)
    first = lagging.told_by(1)
    assert first[GROUP, "a", "1"] == lagging.lag(1)
    records, seconds = first[GROUP, "a", "2"]
    exact = lagging.lag(2)
    assert seconds is not None
    assert (records, seconds >= exact[1]) == (exact[0], True)
    assert seconds > exact[1], "nothing was to be read"
    assert lagging.told_by(1) == lagging.lags()


def test_a_partition_that_comes_to_be_led_here_is_told_once_while_others_are_asked() -> None:
    lagging = Lagging()
    several = lagging.several
    lagging.move(1)
    created: CallbackResult[None] = CallbackResult()
    several.broker(1).create_stream(Definition("b", 1), created)
    several.advance(1000)
    place = several.place("b")
    several.elect(place, 2)
    several.advance(1000)
    done: CallbackResult[object] = CallbackResult()
    committed = (OffsetKey(GROUP, "b", 0), CommittedOffset(0, -1, "", 0))
    several.broker(1).groups.commit(GROUP, CommitMember("", None, -1), [committed], done)
    several.settle()
    assert lagging.told_by(1) == {(GROUP, "b", "0"): (0, 0)}
    several.elect(place, 1)
    several.advance(1000)
    for _ in several.broker(1).measures.update():
        pass
    assert list(several.broker(1).lags.records()) == [((GROUP, "b", "0"), 0)]


def test_what_is_not_asked_for_is_counted() -> None:
    lagging = Lagging({"metrics.partitions.max": 2})
    for index in range(3):
        lagging.commit(index, 0)
    assert len(lagging.told()) == 2
    assert lagging.several.broker(lagging.home).lags.left_out == 1
