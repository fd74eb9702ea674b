"""The same cuts where the log has lost the markers that tables tell of, against the same cluster of lists."""

import random
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.spark.read.test_transaction_boundaries import ATS, LIMITS, RANDOMS, Places, Reader, World, batch_of

from duramen.client.transaction_states import EndedAt, MarkedUpTo
from duramen.spark.read.joint_boundaries import Cold, cut_jointly, together
from duramen.spark.read.splits import Floors
from duramen.spark.read.transaction_boundaries import cut


class JointReader(Reader):
    """Reads logs that begin anywhere; before that, tables know of the transactions that they have rows of.

    Those of the streams `upserted` end where these were whole, and have lost any of their rows. Their logs lose a
    marker once all others of its transaction are there.
    """

    def __init__(self, world: World, upserted: Collection[str]) -> None:
        super().__init__(world, dict.fromkeys(ATS, 0), Floors())
        self.starts: Places = dict.fromkeys(ATS, 0)
        self.tables: dict[str, Places] = {name: {at: 0 for at in ATS if at.topic == name} for name in upserted}

    def upsert(self) -> None:
        for name, filled in self.tables.items():
            ends, marked = self.world.ends(), self.world.look(dict.fromkeys(ATS, 0))
            self.tables[name] = cut(filled, {at: ends[at] for at in filled}, {at: marked[at] for at in filled})

    def lose(self) -> None:
        world = self.world
        for at, start in self.starts.items():
            most = world.seen[at]
            if at.topic in self.tables:
                ended = world.marked(at, start).ended
                held = [one.offset for one in ended if not self.is_over(one.sequence)]
                most = min([most, self.tables[at.topic][at], *held])
            self.starts[at] = world.random.randint(start, max(start, most))

    def is_over(self, sequence: int) -> bool:
        """Whether all markers of a transaction are seen."""
        [transaction] = [one for one, (its, _) in self.world.decided.items() if its == sequence]
        return all(
            sequence in {one.sequence for one in self.world.marked(at, 0).ended}
            for at in ATS
            if (transaction, at) in self.world.first
        )

    def step(self, most: int | None) -> bool:
        world, begin = self.world, self.begin
        ends = world.ends()
        self.upsert()
        looked = {at: max(begin[at], start) for at, start in self.starts.items()}
        marked = world.look(looked)
        whole = {at: world.marked(at, begin[at]) for at in ATS}
        jumping = {name for name in self.tables if any(at.topic == name and looked[at] > begin[at] for at in ATS)}
        jumps = {at: max(begin[at], self.tables[at.topic][at]) for at in ATS if at.topic in jumping}
        newest = {
            name: max((one.sequence for at in jumps for one in whole[at].ended if one.offset < jumps[at]), default=-1)
            for name in jumping
        }
        self.lose()
        ended = {
            at: [
                one
                for one in whole[at].ended
                if one.commit and one.offset < self.starts[at] and (at not in jumps or world.random.random() < 0.3)
            ]
            for at in ATS
        }
        end = cut_jointly(begin, ends, marked, Cold({}, ended, jumps, newest), most)
        assert all(begin[at] <= end[at] <= max(ends[at], jumps.get(at, 0)) for at in ATS)
        for name in jumping:
            mine = [at for at in jumps if at.topic == name]
            assert all(end[at] >= jumps[at] for at in mine) or all(end[at] == begin[at] for at in mine)
        if end == begin:
            return False
        self.batches.append(batch_of(world, begin, end, world.look(begin), Floors()))
        self.begin = end
        return True


@pytest.mark.parametrize("upserted", [(), ("s",), ("t",), ("s", "t")])
@settings(max_examples=examples(100))
@given(source=RANDOMS, most=LIMITS, rounds=st.integers(0, 40))
def test_a_batch_has_a_transaction_wholly_or_not(
    source: random.Random, most: int | None, rounds: int, *, upserted: Collection[str]
) -> None:
    world = World(source)
    reader = JointReader(world, upserted)
    for _ in range(rounds):
        world.step()
        world.step()
        reader.step(most)
    reader.finish()
    assert reader.judge() == {one for one, (_, commit) in world.decided.items() if commit}


def test_ends_of_tables_that_know_too_little_are_taken_as_they_are() -> None:
    one, other = ATS[:2]
    marked = {one: MarkedUpTo(9, [], []), other: MarkedUpTo(9, [], [EndedAt(5, 7, 0, 1, True)])}
    ended = {other: [EndedAt(2, 7, 1, 0, True)]}
    assert cut_jointly({one: 0, other: 0}, {one: 9, other: 9}, marked, Cold({one: 4}, ended, {}, {})) == {
        one: 4,
        other: 9,
    }


def test_what_was_decided_later_than_all_before_an_end_is_not_looked_at() -> None:
    one, other = ATS[:2]
    marked = {one: MarkedUpTo(9, [], [EndedAt(1, 7, 0, 3, True)]), other: MarkedUpTo(0, [], [])}
    ended = {other: [EndedAt(4, 8, 0, 5, True), EndedAt(5, 7, 0, 3, True), EndedAt(6, 8, 0, 6, True)]}
    found = together(marked, ended, {one: 0, other: 0}, {one: 9, other: 2})
    assert [marker.sequence for marker in found[other].ended] == [3]
    assert cut_jointly({one: 0, other: 0}, {one: 9, other: 2}, marked, Cold({}, ended, {}, {})) == {one: 1, other: 0}
