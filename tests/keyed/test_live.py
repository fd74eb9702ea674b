"""Readers of a live topic against a stream that is a list: what they have at each end of a pass is a state."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.keyed.model import BASE, KERNELS, Entry, World
from tests.keyed.test_view import take_step

from duramen.base.errors import OffsetOutOfRange
from duramen.codec.batch import CONTROL, batches, checked_body, header, records
from duramen.keyed.kernel import Kernel
from duramen.keyed.live_batches import empty_batches, live_batches
from duramen.keyed.live_passes import LivePass

kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda one: one.name)


class Reader:
    """A client of the live topic: it knows offsets, and what records have made of its state."""

    def __init__(self, world: World, chance: Random) -> None:
        self.world = world
        self.chance = chance
        self.boundaries = self.restarts = 0
        self.begin()

    def begin(self) -> None:
        """From the log's start."""
        self.state: dict[bytes, int] = {}
        self.pass_ = LivePass(BASE, from_start=True)
        self.at = BASE
        self.held = True

    def read(self) -> None:
        """A page of the pass, or the beginning of the next one."""
        view, mine = self.world.view, self.pass_
        mine.fetched(self.at)
        try:
            mine.check(view.bounds, BASE)
        except OffsetOutOfRange:
            assert not self.held
            self.restarts += 1
            before = self.pass_
            self.begin()
            if self.chance.random() < 0.5:
                self.pass_ = before  # on the same connection
                self.read()
            return
        if mine.end < view.s0 or mine.end <= self.at:
            mine.ends(view.live_end, view.position)
        stop = self.chance.choice((mine.end, min(mine.end, self.at + self.chance.randrange(1, 40))))
        if self.at < stop:
            self._take(stop)
        if self.at == mine.end:
            self.boundaries += 1
            assert self.state == self.world.committed(mine.end)

    def _take(self, stop: int) -> None:
        world, end = self.world, self.pass_.end
        visible = world.view.live_records(end, self.at, stop)
        data = world.read(self.at, world.end)
        made, reached, following = live_batches(
            world.kernel, data, visible, self.at, stop, self.chance.choice((1, 1000))
        )
        following = min(following, stop)
        made += empty_batches(reached, following, 3)
        there, last = world.there(), self.at
        for place, head in batches(memoryview(made)):
            batch = made[place : place + head.size]
            checked_body(memoryview(batch), 0, header(batch))
            assert not head.attributes & ~7
            assert (head.producer_id, head.producer_epoch, head.base_sequence) == (-1, -1, -1)
            assert not head.attributes & CONTROL
            assert last < head.next_offset
            last = head.next_offset
            for record in records(batch):
                if record.offset >= self.at:
                    assert visible.bits[record.offset - visible.base >> 3] >> (record.offset - visible.base & 7) & 1
                    self._apply(there[record.offset])
        assert last == following
        self.at = following
        self.pass_.at = following

    def _apply(self, entry: Entry) -> None:
        key, offset, tombstone = entry.key, entry.offset, entry.tombstone
        if tombstone:
            self.state.pop(key, None)
        else:
            self.state[key] = offset


def run(chance: Random, kernel: Kernel, steps: int) -> tuple[int, int]:
    """Chance writes, commits, compacts and reads. Returns how often readers came to an end, and had to start over."""
    world = World(chance, kernel, keys=chance.choice((3, 20, 200)), page_records=chance.choice((1, 7, 64, 4096)))
    world.has_live_topic = True
    readers = [Reader(world, chance) for _ in range(3)]
    for step in range(steps):
        take_step(world, chance.choice((0, 1, 4, 5, 6, 6, 7, 8, 9, 10, 14, 15)), step)
        for reader in readers:
            if chance.random() < 0.1:
                reader.held = False
            if chance.random() < 0.3:
                reader.read()
        world.held = min((one.pass_.needs for one in readers if one.held), default=None)
    return sum(one.boundaries for one in readers), sum(one.restarts for one in readers)


@kernels
@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(15))
def test_the_state_at_every_boundary_is_one_that_existed(kernel: Kernel, chance: Random) -> None:
    run(Random(chance.random()), kernel, 80)


@pytest.mark.long
@kernels
def test_the_state_at_every_boundary_is_one_that_existed_for_long(kernel: Kernel) -> None:
    ends = restarts = 0
    for seed in range(60):
        found = run(Random(seed), kernel, 200)
        ends, restarts = ends + found[0], restarts + found[1]
    assert ends > 400
    assert restarts > 4
