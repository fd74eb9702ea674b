"""The state machine of share states on rows in memory: what is fenced durably, and what is only remembered."""

from uuid import UUID

import pytest

from duramen.base.errors import FencedLeaderEpoch
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.shard import Decision
from duramen.coordinators.share.requests import ChangeStates, ReadState, StateChange, Was, WriteState, key_of
from duramen.coordinators.share.shard import ForgetStates, Renew, ShareCommand, ShareStateShard
from duramen.coordinators.share.state import changes, find_state, find_updates
from duramen.groups.share_fencing import ANYBODY
from duramen.groups.share_records import ShareKey, encode_key
from duramen.sim.machine.views import MemoryStateStore

KEY = ShareKey("g", UUID(int=1), 0)
NOW_MS = 1_000_000


class Keeper:
    """A shard with its rows. What is decided is in them once it is `stored`."""

    def __init__(self, *, alone: bool = False) -> None:
        self.rows = MemoryStateStore()
        self.offset = 0
        self._alone = alone
        self.lead()
        self.do(ChangeStates(StateChange.BEGIN, 0, 0, ((key_of(KEY), 0, 1),)))

    def lead(self) -> None:
        """Another node leads."""
        self.shard = ShareStateShard(alone=self._alone, updates_per_snapshot=3)
        assert list(self.shard.loaded(self.rows)) == []

    def decide(self, command: ShareCommand) -> Decision:
        return self.shard.decide(command, self.rows, NOW_MS)

    def stored(self, decision: Decision) -> None:
        for key, value in decision.records:
            record = DecodedRecord(self.offset, NOW_MS, key, value, ())
            self.offset += 1
            changed = changes([record], self.rows)
            self.rows.write(
                [(row, found) for row, found in changed.items() if found is not None],
                [row for row, found in changed.items() if found is None],
            )
            self.shard.apply(record)

    def do(self, command: ShareCommand) -> Decision:
        decision = self.decide(command)
        self.stored(decision)
        return decision

    def write(self, leader_epoch: int, sequence: int, start: int) -> None:
        self.do(WriteState(key_of(KEY), 0, 0, leader_epoch, sequence, ((start, ()),)))

    @property
    def start_offset(self) -> int:
        state = find_state(self.rows, KEY)
        assert state is not None
        return state.start_offset


def test_the_fence_of_a_reader_is_stored_before_it_is_answered_however_often_that_fails() -> None:
    keeper = Keeper()
    for _ in range(2):
        assert len(keeper.decide(ReadState(key_of(KEY), 5)).records) == 1
    assert keeper.decide(ReadState(key_of(KEY), ANYBODY)).records == ()
    decision = keeper.do(ReadState(key_of(KEY), 5))
    assert isinstance(decision.response, Was)
    assert decision.response.leader_epoch == 5
    assert keeper.decide(ReadState(key_of(KEY), 5)).records == ()
    keeper.lead()
    with pytest.raises(FencedLeaderEpoch):
        keeper.write(4, 9, 3)


def test_who_is_alone_fences_in_memory() -> None:
    keeper = Keeper(alone=True)
    assert keeper.decide(ReadState(key_of(KEY), 5)).records == ()
    with pytest.raises(FencedLeaderEpoch):
        keeper.write(4, 9, 3)


def test_an_older_change_does_not_come_behind_a_newer_one() -> None:
    keeper = Keeper()
    keeper.write(1, 7, 3)
    keeper.write(1, 7, 3)  # it may come again
    with pytest.raises(FencedLeaderEpoch):
        keeper.write(1, 6, 2)
    assert keeper.start_offset == 3


def test_so_many_updates_are_followed_by_a_snapshot_also_where_another_leads_meanwhile() -> None:
    keeper = Keeper()
    found = []
    for sequence in range(6):
        keeper.write(1, sequence, sequence + 1)
        found.append(len(find_updates(keeper.rows, KEY)))
        keeper.lead()
    assert found == [1, 2, 3, 0, 1, 2]
    keeper.do(Renew(KEY))
    assert (find_updates(keeper.rows, KEY), keeper.start_offset) == ([], 6)
    keeper.do(ForgetStates((KEY,)))
    assert find_state(keeper.rows, KEY) is None
    assert keeper.decide(Renew(KEY)).records == []


def test_a_record_that_cannot_be_read_is_left_out() -> None:
    keeper = Keeper()
    keeper.stored(Decision([(encode_key(KEY, update=True), b"\0\1"), (encode_key(KEY), b"?"), (b"?", None)], None))
    keeper.write(1, 0, 4)
    assert keeper.start_offset == 4
