"""Snapshots over partitions of scripted nodes: each transaction wholly or not at all, whatever ends."""

import random
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from tests.coordinators.transaction.cluster.reading import markers
from tests.coordinators.transaction.cluster.world import World
from tests.coordinators.transaction.cluster.writing import Writer
from tests.examples import examples

from duramen.base.errors import KeyedTransactionRefused, SnapshotNotReached
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM
from duramen.metadata.events import FeatureLevelChanged
from duramen.metadata.features import MetadataFeature
from duramen.metadata.partitions import PartitionId
from duramen.sim.broker import CallbackResult

PLACES = [("a", 0), ("a", 1), ("b", 0)]
LED = [*PLACES, (TRANSACTIONS_STREAM, 0), (TRANSACTIONS_STREAM, 1)]
WITHIN_MS = 5_000
Taken = CallbackResult[Mapping[PartitionId, int]]


class Taking:
    """Writers on three nodes, and who takes snapshots of all that they write to."""

    def __init__(self, seed: int | None) -> None:
        self.world = World(seed=seed)
        self.world.raise_level()
        self.world.create("a", 2)
        self.world.create("b", 1)
        self.writers = [Writer(self.world, f"t{at}", at % 2 * 2) for at in range(4)]
        self.taken: list[Taken] = []

    def take_soon(self, step: int, node_id: int) -> None:
        def take() -> None:
            self.take(node_id)

        self.world.at(step, take)

    def take(self, node_id: int) -> Taken:
        node, answer = self.world.node(node_id), Taken()
        vectors = node.broker.transactions.vectors if node.up else None
        if vectors is not None:  # else it is starting
            partitions = [node.broker.streams.get(name).partition(index) for name, index in PLACES]
            vectors.take(partitions, WITHIN_MS, answer)
            self.taken.append(answer)
        return answer

    def end(self, writer: Writer) -> None:
        """Ask for the end of a transaction, and wait for nothing."""
        leader = self.world.leader(*writer.coordinator)
        if leader is not None and self.world.node(leader).up:
            transactions = self.world.node(leader).broker.transactions
            answer: CallbackResult[Any] = CallbackResult()
            transactions.end(writer.name, writer.identity, commit=True, version=writer.version, done=answer)

    def place(self, name: str, index: int) -> PartitionId:
        return PartitionId(self.world.state.streams[name].id, index)

    def check(self) -> int:
        """How many snapshots were taken, of which none has a transaction in part."""
        commits: dict[int, dict[PartitionId, int]] = {}
        for name, index in PLACES:
            for offset, marker in markers(self.world, name, index):
                if marker.commit:
                    commits.setdefault(marker.sequence, {})[self.place(name, index)] = offset
        found = 0
        for answer in self.taken:
            if not answer.there:
                continue  # the node has ended meanwhile
            if answer.error is not None:
                assert isinstance(answer.error, SnapshotNotReached)
                continue
            found += 1
            for sequence, at in commits.items():
                assert len({offset < answer.value[place] for place, offset in at.items()}) == 1, (sequence, at)
        return found


def run(seed: int) -> int:
    taking, chance = Taking(seed), random.Random(seed)
    world = taking.world
    for _ in range(3):
        for writer in taking.writers:
            for place in chance.sample(PLACES, chance.choice((1, 2, 2, 3))):
                writer.write(*place, b"v")
        for writer in taking.writers:
            world.at(chance.randrange(chance.choice((60, 400))), partial(taking.end, writer))
        for _ in range(3):
            taking.take_soon(61 + chance.randrange(300), chance.choice((1, 2, 3)))
        for _ in range(chance.choice((0, 0, 3))):
            world.at(61 + chance.randrange(500), partial(let_holds_end, world))
        if chance.random() < 0.4:
            world.at(chance.randrange(400), partial(world.kill, chance.choice((1, 2, 3))))
        if chance.random() < 0.3:
            # It leads on as far as it knows.
            world.at(chance.randrange(400), partial(world.cut_off, chance.choice((1, 2, 3))))
        for place in chance.sample(LED, chance.choice((0, 2))):
            world.at(chance.randrange(400), partial(lead, world, place, chance.choice((1, 2, 3))))
        world.settle()
        world.advance(2_000)
        world.deaf.clear()
        world.calm()
        world.advance(10_000)
        for writer in taking.writers:
            writer.end(commit=True)
        world.advance(1_000)
    return taking.check()


def let_holds_end(world: World) -> None:
    """Time goes by, and what coordinators have held back goes on."""
    world.clock.advance(600)
    for node in world.nodes:
        if node.up:
            node.deadlines.fire(world.clock.monotonic_ms())


def lead(world: World, place: tuple[str, int], node_id: int) -> None:
    if world.node(node_id).up:
        world.lead(*place, node_id)


def test_no_snapshot_has_a_transaction_in_part() -> None:
    assert sum(run(seed) for seed in range(examples(4))) > 5


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_no_snapshot_has_a_transaction_in_part_in_many_runs(seed: int) -> None:
    run(seed)


def test_a_snapshot_has_what_was_committed_before_it_was_asked_for() -> None:
    taking = Taking(None)
    for node_id, writer in enumerate(taking.writers[:3], 1):
        for place in PLACES:
            writer.write(*place, b"v")
        writer.end(commit=True)
        answer = taking.take(node_id)
        taking.world.settle()
        for name, index in PLACES:
            assert answer.value[taking.place(name, index)] == taking.world.led(name, index)[1].log.high_watermark
    assert taking.check() == 3


def test_views_that_are_behind_show_an_older_snapshot_or_none() -> None:
    taking = Taking(None)
    answer = taking.take(2)
    taking.world.settle()
    taken = answer.value
    for place in PLACES:
        taking.writers[0].write(*place, b"v")
    taking.writers[0].end(commit=True)
    taking.world.settle()
    vectors = taking.world.node(2).broker.transactions.vectors
    assert vectors is not None
    begin, ahead = dict.fromkeys(taken, 0), {place: offset + 1 for place, offset in taken.items()}
    assert vectors.older(begin, ahead) == taken
    with pytest.raises(SnapshotNotReached):
        vectors.older(ahead, ahead)
    others = taking.world.node(1).broker.transactions.vectors
    assert others is not None
    with pytest.raises(SnapshotNotReached):
        others.older(begin, ahead)


def test_a_transaction_that_ends_meanwhile_waits_and_is_left_out() -> None:
    taking = Taking(None)
    first, second = taking.writers[:2]
    for writer in (first, second):
        for place in PLACES:
            writer.write(*place, b"v")
    taking.end(first)
    taking.world.settle()
    answer = taking.take(1)
    for step in range(0, 200, 10):
        taking.world.at(step, partial(taking.end, second))
    taking.world.settle()
    assert answer.there
    assert taking.check() == 1
    taking.world.advance(100)
    assert [len(markers(taking.world, *place)) for place in PLACES] == [2, 2, 2]


def test_a_node_in_sync_that_does_not_answer_is_waited_for() -> None:
    taking = Taking(None)
    for place in PLACES:
        taking.writers[0].write(*place, b"v")
        taking.writers[1].write(*place, b"v")
    taking.writers[0].end(commit=True)
    taking.world.node(3).end(None)  # and the controller has not noticed
    answer = taking.take(1)
    taking.world.advance(1_000)
    assert not answer.there
    taking.world.cut_off(3)  # now it has
    taking.world.advance(2_000)
    assert answer.value


def test_streams_without_transactions_need_their_leaders_only() -> None:
    taking = Taking(None)
    for place in PLACES:
        taking.world.lead(*place, 1)
    taking.world.advance(1_000)
    taking.world.node(3).end(None)
    answer = taking.take(1)
    taking.world.advance(100)
    assert list(answer.value.values()) == [0, 0, 0]


def test_keyed_streams_take_transactions_once_all_nodes_can_cut_snapshots() -> None:
    taking = Taking(None)
    world = taking.world
    before = MetadataFeature.KEYED_TRANSACTIONS - 1
    for node in world.nodes:
        node.membership.state.apply(FeatureLevelChanged(before))
        assert node.broker.transactions.vectors is None
    world.create("keyed", 1, keyed="true", **{"cleanup.policy": "compact"})
    node, partition = world.led("keyed", 0)
    writer = taking.writers[0]
    admit = node.broker.transactions.admission(writer.name, joins=True)
    answer: CallbackResult[int] = CallbackResult()
    partition.append(writer.batch(0, b"v", b"k"), answer, admit)
    world.settle()
    assert isinstance(answer.error, KeyedTransactionRefused)
    assert "duramen cluster upgrade" in str(answer.error)
    partition.append(writer.batch(0, b"v", b"k"), None, admit)
    assert [one for one in node.reports if "stream keyed" in one] == [f"a transaction was refused: {answer.error}"]
    for node in world.nodes:
        node.membership.state.apply(FeatureLevelChanged(MetadataFeature.KEYED_TRANSACTIONS))
    answer = CallbackResult()
    partition.append(writer.batch(0, b"v", b"k"), answer, admit)
    world.settle()
    assert answer.value == 0
