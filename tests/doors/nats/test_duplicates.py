"""The table of message ids, against a dict."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from duramen.doors.nats.duplicates import ENTRY_BYTES, Allowance, DuplicateTable, fingerprint

_PRINT = st.integers(0, 40).map(lambda number: number << 58 & (1 << 64) - 1) | st.integers(0, (1 << 64) - 1)
_LIMIT = 60


class Table(RuleBasedStateMachine):
    """The table with tiny blocks, so that they split and end, against fingerprint -> (time, partition, offset)."""

    def __init__(self) -> None:
        super().__init__()
        self.allowance = Allowance(_LIMIT)
        self.table = DuplicateTable(self.allowance, block_entries=4)
        self.model: dict[int, tuple[int, int, int]] = {}
        self.reserved = 0

    @rule()
    def reserve(self) -> None:
        assert self.table.reserve() == (len(self.model) + self.reserved < _LIMIT)
        self.reserved = min(self.reserved + 1, _LIMIT - len(self.model))

    @rule()
    def give_back(self) -> None:
        if self.reserved:
            self.table.give_back()
            self.reserved -= 1

    @rule(
        print_=_PRINT,
        partition=st.integers(0, 100_000),
        offset=st.integers(0, 1 << 62),
        time_ms=st.integers(0, 1 << 41),
    )
    def add(self, print_: int, partition: int, offset: int, time_ms: int) -> None:
        if self.reserved:
            self.table.add(print_, partition, offset, time_ms)
            self.reserved -= 1
            self.model[print_] = (time_ms, partition, offset)

    @rule(prints=st.lists(_PRINT, max_size=30, unique=True), time_ms=st.integers(0, 1 << 41))
    def add_many(self, prints: list[int], time_ms: int) -> None:
        for print_ in prints:
            if self.table.reserve():
                self.reserved += 1
                self.add(print_, 1, print_ >> 2, time_ms)

    @rule(print_=_PRINT, since_ms=st.integers(0, 1 << 41), data=st.data())
    def find(self, print_: int, since_ms: int, data: st.DataObject) -> None:
        known_one = data.draw(st.booleans())
        if self.model and known_one:
            print_ = data.draw(st.sampled_from(sorted(self.model)))
        known = self.model.get(print_)
        expected = known[1:] if known is not None and known[0] >= since_ms else None
        assert self.table.find(print_, since_ms) == expected

    @rule(since_ms=st.integers(0, 1 << 41), share=st.integers(1, 5))
    def purge(self, since_ms: int, share: int) -> None:
        for _ in range(2 * share):
            self.table.purge(since_ms, share)
        self.model = {print_: kept for print_, kept in self.model.items() if kept[0] >= since_ms}

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.model.clear()

    @invariant()
    def adds_up(self) -> None:
        assert len(self.table) == len(self.model)
        assert self.allowance.left == _LIMIT - len(self.model) - self.reserved
        assert all(self.table.find(print_, 0) == known[1:] for print_, known in self.model.items())


TestTable = Table.TestCase
TestTable.settings = settings(stateful_step_count=60)


def test_takes_what_it_says_in_memory() -> None:
    prints = [fingerprint(b"key", b"%d" % number) for number in range(50_000)]
    tracemalloc.start()
    try:
        table = DuplicateTable(Allowance(1 << 60))
        for number, print_ in enumerate(prints):
            table.reserve()
            table.add(print_, 3, number, 1_700_000_000_000)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < ENTRY_BYTES * len(table)


@given(st.binary(), st.binary())
def test_fingerprints_depend_on_the_key(one: bytes, other: bytes) -> None:
    assert 0 <= fingerprint(b"key", one) < 1 << 64
    assert fingerprint(b"key", one) != fingerprint(b"another", one)
    if one != other:
        assert fingerprint(b"key", one) != fingerprint(b"key", other)


def test_room_can_be_taken_beyond_the_bound_where_the_log_says_so() -> None:
    table = DuplicateTable(Allowance(1))
    assert table.reserve()
    assert not table.reserve()
    assert table.reserve(always=True)
    table.add(1, 0, 0, 5)
    table.add(2, 0, 1, 5)
    table.purge(6)
    assert table.reserve()


@pytest.mark.parametrize("share", range(1, 8))
def test_two_rounds_of_purges_forget_everything_wherever_they_begin(share: int) -> None:
    for begun in range(17):
        table = DuplicateTable(Allowance(100), block_entries=2)
        for number in range(40):
            table.reserve()
            table.add(number << 50, 0, number, 1)
        for _ in range(begun):
            table.purge(0, 40)
        for _ in range(2 * share):
            table.purge(2, share)
        assert len(table) == 0
