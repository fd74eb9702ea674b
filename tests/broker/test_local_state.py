"""Batches that wait for the state of a log: all are told, and none is counted for ever, whichever node leads."""

from collections.abc import Callable, Sequence
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import DuramenError, NotLeader, StorageFull
from duramen.broker.local_state import LocalState

_STEPS: Final = st.lists(st.sampled_from(("accept", "store", "fail", "apply", "end", "truncate")), max_size=40)
_RECORDS: Final = 2
_ENDED: Final = NotLeader("another node leads")

Outcome = tuple[int, DuramenError | None]


class Batches:
    """A log whose leader accepts batches, and the outcomes of each."""

    def __init__(self) -> None:
        self.state = LocalState()
        self.end_offset = 0
        self.outcomes: list[list[Outcome]] = []
        self.accepted: list[tuple[int, Callable[[int, DuramenError | None], None]]] = []
        self.stored: dict[int, int] = {}  # batches of this leadership, by their end offsets

    def accept(self) -> None:
        outcomes: list[Outcome] = []
        done = self.state.once_applied(_RECORDS, 10, lambda offset, error: outcomes.append((offset, error)))
        self.accepted.append((len(self.outcomes), done))
        self.outcomes.append(outcomes)

    def store(self) -> None:
        if self.accepted:
            number, done = self.accepted.pop(0)
            base_offset, self.end_offset = self.end_offset, self.end_offset + _RECORDS
            self.stored[number] = self.end_offset
            done(base_offset, None)

    def fail(self) -> None:
        if self.accepted:
            self.accepted.pop(0)[1](-1, StorageFull("the disk is full"))

    def apply(self) -> None:
        self.state.applied_offset = self.end_offset
        self.state.acknowledge()
        assert all(self.outcomes[number] for number in self.stored)

    def end(self) -> None:
        self.state.end_leadership(_ENDED)
        assert all(self.outcomes[number] for number in self.stored)
        self.stored.clear()

    def truncate(self) -> None:
        self.end()
        self.end_offset = self.state.applied_offset


@given(_STEPS)
def test_each_batch_is_told_once_and_counts_until_then(steps: Sequence[str]) -> None:
    batches = Batches()
    for step in steps:
        getattr(batches, step)()
        waiting = sum(not outcomes for outcomes in batches.outcomes)
        assert (batches.state.accepted_records, batches.state.accepted_bytes) == (_RECORDS * waiting, 10 * waiting)
    while batches.accepted:
        batches.store()
    batches.apply()
    assert [len(outcomes) for outcomes in batches.outcomes] == [1] * len(batches.outcomes)
    assert (batches.state.accepted_records, batches.state.accepted_bytes) == (0, 0)


def test_a_batch_of_an_earlier_leadership_does_not_hold_back_later_ones() -> None:
    batches = Batches()
    for step in (batches.accept, batches.store, batches.accept, batches.end, batches.store, batches.truncate):
        step()
    batches.accept()
    batches.store()
    batches.apply()
    assert [type(outcomes[0][1]) for outcomes in batches.outcomes] == [NotLeader, NotLeader, type(None)]
