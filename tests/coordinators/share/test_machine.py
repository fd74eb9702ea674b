"""A share group on a broker whose power fails whenever hypothesis likes: what was acknowledged is gone, all else comes.

The model knows, of every record, whether its acknowledgement was answered and how often it was delivered.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.coordinators.share.test_shares import LIMITS, Shares
from tests.examples import examples

from duramen.coordinators.share.partition import ACCEPT, GAP, REJECT, RELEASE, Acknowledged
from duramen.sim.broker import CallbackResult

OWNERS = st.sampled_from(["m", "n"])
MOST_DELIVERIES = 4
LOCK_MS = 30_000
IDLE = Shares()


class SharingMachine(RuleBasedStateMachine):
    """Records are written, acquired, answered for or not; the node is stopped, or loses its power."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = IDLE
        self.end = 0
        self.over: set[int] = set()  # acknowledged, rejected or given up, and that was answered
        self.maybe_over: set[int] = set()  # the same, and nobody heard whether
        self.least: dict[int, int] = {}  # deliveries that a crash does not take back
        self.most: dict[int, int] = {}
        self.held: dict[int, tuple[str, int]] = {}  # by whom and until when

    @initialize(per_snapshot=st.integers(0, 4))
    def begin(self, per_snapshot: int) -> None:
        self.shares = Shares(
            {
                "share.coordinator.snapshot.update.records.per.snapshot": per_snapshot,
                "share.coordinator.state.topic.num.partitions": 2,
            }
        )
        self.shares.configure({"share.delivery.count.limit": str(MOST_DELIVERIES)})
        for _ in range(4):
            self.write(5)

    def _now_ms(self) -> int:
        return self.shares.hand.clock.monotonic_ms()

    @rule(count=st.integers(1, 5))
    def write(self, count: int) -> None:
        self.shares.write(*[b"x"] * count)
        self.end += count

    @rule(owner=OWNERS, most=st.integers(1, 8), strict=st.booleans())
    def acquire(self, owner: str, most: int, *, strict: bool) -> None:
        taken = self.shares.take(owner, max_records=most, strict=strict)
        count = 0
        for first, last, deliveries in taken:
            for offset in range(first, last + 1):
                count += 1
                assert offset not in self.over
                assert offset not in self.held
                assert self.least.get(offset, 0) < deliveries <= self.most.get(offset, 0) + 1
                self.maybe_over.discard(offset)
                self.most[offset] = deliveries
                self.held[offset] = (owner, self._now_ms() + LOCK_MS)
        assert not strict or count <= most

    @rule(
        owner=OWNERS,
        type_=st.sampled_from([ACCEPT, RELEASE, REJECT, GAP]),
        size=st.integers(1, 4),
        pick=st.integers(0, 9),
        heard=st.booleans(),
    )
    def answer_for(self, owner: str, type_: int, size: int, pick: int, *, heard: bool) -> None:
        mine = sorted(offset for offset, (whose, _) in self.held.items() if whose == owner)
        if not mine:
            return
        first = mine[pick % len(mine)]
        last = first
        while last + 1 in mine and last - first + 1 < size:
            last += 1
        answer: CallbackResult[Any] = CallbackResult()
        shares = self.shares
        said = [Acknowledged(first, last, [type_])]
        shares.hand.broker.sharing.acknowledge(shares.key(), owner, said, answer)
        if not heard:
            shares.hand.crash(random.Random(pick).randint(0, 99))
            assert not answer.there
        else:
            shares.hand.settle()
            assert answer.error is None
        for offset in range(first, last + 1):
            over = type_ != RELEASE or self.most[offset] >= MOST_DELIVERIES
            if heard:
                del self.held[offset]
                self.least[offset] = self.most[offset]
                if over:
                    self.over.add(offset)
            elif over:
                self.maybe_over.add(offset)
        if not heard:
            self.held = {}

    @rule(owner=OWNERS, types=st.lists(st.sampled_from([ACCEPT, RELEASE, REJECT]), min_size=1, max_size=4))
    def work(self, owner: str, types: list[int]) -> None:
        """What a consumer does all day: take, and answer for one after the other."""
        self.acquire(owner, 8, strict=False)
        for type_ in types:
            self.answer_for(owner, type_, 1, 0, heard=True)

    @rule(later_ms=st.sampled_from([1, LOCK_MS // 2, LOCK_MS]))
    def time_goes_by(self, later_ms: int) -> None:
        self.shares.hand.advance(later_ms)
        for offset, (_, until_ms) in list(self.held.items()):
            if until_ms <= self._now_ms():
                del self.held[offset]
                self.least[offset] = self.most[offset]
                if self.most[offset] >= MOST_DELIVERIES:
                    self.over.add(offset)

    @rule(owner=OWNERS)
    def the_session_ends(self, owner: str) -> None:
        released: CallbackResult[None] = CallbackResult()
        self.shares.hand.broker.sharing.release(owner, [self.shares.key()], released)
        self.shares.hand.settle()
        assert released.there
        for offset, (whose, _) in list(self.held.items()):
            if whose == owner:
                del self.held[offset]
                self.least[offset] = self.most[offset]
                if self.most[offset] >= MOST_DELIVERIES:
                    self.over.add(offset)

    @rule(clean=st.booleans(), seed=st.integers(0, 99), rows=st.booleans())
    def the_node_comes_back(self, clean: bool, seed: int, rows: bool) -> None:
        hand = self.shares.hand
        if clean:
            hand.restart()
        else:
            hand.crash(seed)
        if rows:
            hand.stop()
            hand.rows.clear()
            hand.start()
        self.held = {}

    @rule()
    def the_log_is_cut(self) -> None:
        self.time_goes_by(0)
        self.shares.hand.broker.share_nodes.tidy()
        self.shares.hand.settle()

    @invariant()
    def nothing_is_over_that_nobody_is_done_with(self) -> None:
        found = self.shares.offset()
        assert found is not None
        if found.start_offset >= 0:
            assert set(range(found.start_offset)) <= self.over | self.maybe_over

    def teardown(self) -> None:
        """At the end everything that nobody is done with is delivered."""
        self.shares.hand.restart()
        left = set(range(self.end)) - self.over
        got: set[int] = set()
        while True:
            taken = self.shares.take("z", max_records=LIMITS.max_records)
            if not taken:
                break
            got |= {offset for first, last, _ in taken for offset in range(first, last + 1)}
        assert left - self.maybe_over <= got <= left


SharingMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestSharing = SharingMachine.TestCase


@pytest.mark.parametrize("seed", range(12))
def test_a_long_life(seed: int) -> None:
    """The same by chance: longer than hypothesis likes its examples."""
    chance = random.Random(seed)
    machine = SharingMachine()
    machine.begin(chance.randint(0, 8))
    for _ in range(60):
        owner = chance.choice("mn")
        types = [chance.choice((ACCEPT, RELEASE, REJECT)) for _ in range(chance.randint(1, 6))]
        steps: list[Callable[[], None]] = [
            partial(machine.write, chance.randint(1, 5)),
            partial(machine.work, owner, types),
            partial(machine.work, owner, types),
            partial(machine.acquire, owner, chance.randint(1, 9), strict=chance.random() < 0.5),
            partial(machine.answer_for, owner, types[0], 3, chance.randint(0, 9), heard=chance.random() < 0.7),
            partial(machine.time_goes_by, chance.choice((1, LOCK_MS // 2, LOCK_MS))),
            partial(machine.the_session_ends, owner),
            partial(machine.the_node_comes_back, chance.random() < 0.3, chance.randint(0, 99), chance.random() < 0.5),
            machine.the_log_is_cut,
        ]
        chance.choice(steps)()
        machine.nothing_is_over_that_nobody_is_done_with()
    machine.teardown()
