"""Who may change a share partition's state: a model of leaders that come, go, and do not hear that they have gone."""

import contextlib
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.examples import examples

from duramen.base.errors import DuramenError, FencedLeaderEpoch, ShareGroupUnknown
from duramen.groups.share_fencing import ANYBODY, StateFence, begun_anew, forgotten, read_by, written_by


class Leader(NamedTuple):
    """One that has read the state, as it knows it; `changes` is how many it has said."""

    epoch: int
    state_epoch: int
    changes: int = 0


class FencingMachine(RuleBasedStateMachine):
    """`log` has, of each change that was taken, who said it; `read` what each leader has seen of that."""

    def __init__(self) -> None:
        super().__init__()
        self.fence = StateFence()
        self.epoch = 0
        self.leaders: dict[int, Leader] = {}
        self.log: list[tuple[int, int]] = []
        self.read: dict[int, int] = {}

    @rule()
    def an_operator_begins_it_anew(self) -> None:
        before = self.fence
        self.fence = begun_anew(before, self.epoch)
        assert self.fence.there
        assert self.fence.leader_epoch >= before.leader_epoch
        assert not before.there or self.fence.snapshot_epoch == before.snapshot_epoch + 1
        self.log = []
        self.read = {}
        if before.there:
            self.leaders = {
                epoch: leader for epoch, leader in self.leaders.items() if leader.state_epoch < self.fence.state_epoch
            }

    @rule()
    def it_is_forgotten(self) -> None:
        self.fence = forgotten(self.fence)
        with pytest.raises(ShareGroupUnknown):
            read_by(self.fence, self.epoch + 1)
        with pytest.raises(ShareGroupUnknown):
            written_by(self.fence, self.fence.state_epoch, self.epoch + 1, 1, 1)
        self.leaders, self.log, self.read = {}, [], {}

    @rule(later=st.integers(0, 2))
    def a_leader_reads(self, later: int) -> None:
        self.epoch += later
        with contextlib.suppress(ShareGroupUnknown, FencedLeaderEpoch):
            self.fence = read_by(self.fence, self.epoch)
            known = self.leaders.get(self.epoch)
            self.leaders[self.epoch] = Leader(self.epoch, self.fence.state_epoch, known.changes if known else 0)
            self.read[self.epoch] = len(self.log)

    @rule(which=st.integers(0, 9), again=st.booleans())
    def a_leader_writes(self, which: int, *, again: bool) -> None:
        if not self.leaders:
            return
        leader = list(self.leaders.values())[which % len(self.leaders)]
        sequence = max(leader.changes, 1) if again else leader.changes + 1
        self.leaders[leader.epoch] = leader._replace(changes=sequence)
        newest = leader.epoch == max(self.read, default=ANYBODY) and leader.state_epoch == self.fence.state_epoch
        try:
            self.fence = written_by(self.fence, leader.state_epoch, leader.epoch, sequence, 1)
        except DuramenError:
            assert not newest
        else:
            self.log.append((leader.epoch, sequence))

    @rule()
    def anybody_may_look(self) -> None:
        with contextlib.suppress(ShareGroupUnknown):
            assert read_by(self.fence, ANYBODY) == self.fence

    @invariant()
    def nothing_of_an_older_leader_comes_behind_what_a_newer_one_has_read(self) -> None:
        for epoch, length in self.read.items():
            assert all(said >= epoch for said, _ in self.log[length:])

    @invariant()
    def what_one_leader_says_comes_in_order(self) -> None:
        for epoch in {said for said, _ in self.log}:
            mine = [sequence for said, sequence in self.log if said == epoch]
            assert mine == sorted(mine)


FencingMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestFencing = FencingMachine.TestCase


def test_a_change_may_come_again_until_the_next_one_has_come() -> None:
    fence = read_by(begun_anew(StateFence(), 0), 3)
    fence = written_by(fence, 0, 3, 7, 1)
    fence = written_by(fence, 0, 3, 7, 1)
    fence = written_by(fence, 0, 3, 9, 2)
    assert (fence.sequence, fence.updates) == (9, 4)
    with pytest.raises(FencedLeaderEpoch, match="change 7 comes after change 9"):
        written_by(fence, 0, 3, 7, 1)
    with pytest.raises(FencedLeaderEpoch, match="epoch 3 has read the state, after 2"):
        written_by(fence, 0, 2, 11, 1)
    assert written_by(fence, 0, 4, 1, 1).sequence == 1


def test_a_state_that_was_begun_anew_is_not_changed_by_who_has_read_the_old_one() -> None:
    fence = begun_anew(read_by(begun_anew(StateFence(), 0), 3), 3)
    assert fence.state_epoch == 1
    with pytest.raises(FencedLeaderEpoch, match="it is in epoch 1, not 0"):
        written_by(fence, 0, 3, 1, 1)
