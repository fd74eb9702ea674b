"""The same cuts where the log has lost the markers that tables tell of, against the same cluster of lists."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.read.test_cuts import ATS, LIMITS, RANDOMS, Places, Reader, World, batch_of

from duramen.client.marked import Ended, Marked
from duramen.spark.read.joint import Cold, cut_jointly, together
from duramen.spark.read.shares import Floors


class JointReader(Reader):
    """Reads logs that begin anywhere; before that, tables know of the transactions that they have rows of."""

    def __init__(self, world: World, *, jumps: bool) -> None:
        super().__init__(world, dict.fromkeys(ATS, 0), Floors())
        self.jumps = jumps
        self.starts: Places = dict.fromkeys(ATS, 0)

    def step(self, most: int | None) -> bool:
        world, begin = self.world, self.begin
        ends = world.ends()
        looked = {at: max(begin[at], start) for at, start in self.starts.items()}
        marked = world.look(looked)
        self.starts = {at: world.random.randint(start, world.seen[at]) for at, start in self.starts.items()}
        whole = {at: world.marked(at, begin[at]) for at in ATS}
        ended = {at: [one for one in whole[at].ended if one.commit and one.offset < self.starts[at]] for at in ATS}
        jumps = {at: start for at, start in looked.items() if start > begin[at]} if self.jumps else {}
        end = cut_jointly(begin, ends, marked, Cold({}, ended, jumps), most)
        assert all(begin[at] <= end[at] <= max(ends[at], jumps.get(at, 0)) for at in ATS)
        assert all(end[at] >= jump for at, jump in jumps.items()) or all(end[at] == begin[at] for at in jumps)
        if end == begin:
            return False
        self.batches.append(batch_of(world, begin, end, world.look(begin), Floors()))
        self.begin = end
        return True


@pytest.mark.parametrize("jumps", [False, True])
@settings(max_examples=100)
@given(source=RANDOMS, most=LIMITS, rounds=st.integers(0, 40))
def test_a_batch_has_a_transaction_wholly_or_not(
    source: random.Random, most: int | None, rounds: int, *, jumps: bool
) -> None:
    world = World(source)
    reader = JointReader(world, jumps=jumps)
    for _ in range(rounds):
        world.step()
        world.step()
        reader.step(most)
    reader.finish()
    assert reader.judge() == {one for one, (_, commit) in world.decided.items() if commit}


def test_ends_of_tables_that_know_too_little_are_taken_as_they_are() -> None:
    one, other = ATS[:2]
    marked = {one: Marked(9, [], []), other: Marked(9, [], [Ended(5, 7, 0, 1, True)])}
    ended = {other: [Ended(2, 7, 1, 0, True)]}
    assert cut_jointly({one: 0, other: 0}, {one: 9, other: 9}, marked, Cold({one: 4}, ended, {})) == {one: 4, other: 9}


def test_what_was_decided_later_than_all_before_an_end_is_not_looked_at() -> None:
    one, other = ATS[:2]
    marked = {one: Marked(9, [], [Ended(1, 7, 0, 3, True)]), other: Marked(0, [], [])}
    ended = {other: [Ended(4, 8, 0, 5, True), Ended(5, 7, 0, 3, True), Ended(6, 8, 0, 6, True)]}
    found = together(marked, ended, {one: 0, other: 0}, {one: 9, other: 2})
    assert [marker.sequence for marker in found[other].ended] == [3]
    assert cut_jointly({one: 0, other: 0}, {one: 9, other: 2}, marked, Cold({}, ended, {})) == {one: 1, other: 0}
