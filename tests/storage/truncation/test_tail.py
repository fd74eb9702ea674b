"""A log is cut where the index says that the cut lies: it is as if all of it had been read."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import DuramenError, LogDamaged
from duramen.broker.replicas.batches import NO_EPOCH, bytes_of, empty
from duramen.codec.batch import batches, header
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.segment.index import BLOCK_BYTES, ENTRY_BYTES, INDEX_HEADER_BYTES, closed_entries
from duramen.storage.truncation import tail as shortening
from duramen.storage.truncation import truncation as truncating

_SIZES = st.sampled_from([1, 100, 5_000, 20_000, BLOCK_BYTES - 100, BLOCK_BYTES, 2 * BLOCK_BYTES + 7])
_STEPS = st.lists(
    st.one_of(
        st.tuples(_SIZES, st.integers(1, 3), st.integers(0, 10)), st.sampled_from(["restart", "kill", "advance"])
    ),
    min_size=1, max_size=14,
)  # fmt: skip
_Step = tuple[int, int, int] | str


def _filled(steps: Sequence[_Step], producer: int | None) -> StoreOnDoubles:
    """A store whose log nothing of is in memory."""
    store, config = StoreOnDoubles(), LogConfig(segment_bytes=6 * BLOCK_BYTES)
    written = 0
    for step in steps:
        log = store.log(0, config)
        if isinstance(step, tuple):
            size, records, timestamp = step
            values = [bytes([written % 251]) * (size // records) for _ in range(records)]
            by = None if producer is None or written < producer else (7, 0, written - producer)
            store.append(log, *values, timestamp=timestamp, producer=by)
            store.settle()
            written += records
        elif step == "restart":
            store.restart()
        elif step == "kill":
            store.kill()
        else:
            store.advance(1000)
    store.restart()
    return store


def _cut(store: StoreOnDoubles, end_offset: int) -> Log:
    log, answers = store.log(), list[DuramenError | None]()
    store.store.truncate(log, end_offset, store.store.node_epoch, answers.append)
    store.settle()
    assert answers == [None]
    return log


def _cut_as_a_whole(store: StoreOnDoubles, end_offset: int) -> Log:
    """All of the log is read for it."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(truncating, "ending_of", lambda *_: None)
        return _cut(store, end_offset)


def _looks(store: StoreOnDoubles, log: Log) -> object:
    contents = [store.files.content(segment.path + ".log") for segment in log.segments if segment.size]
    states = [(segment.state(), segment.tail(), segment.end_offset, segment.closed) for segment in log.segments]
    return log.end_offset, log.start_offset, states, contents, log.producers.rows(), log.transactions.opened()


def _told(store: StoreOnDoubles, log: Log) -> object:
    return store.values(log), store.findings, [segment.damage for segment in log.segments]


@settings(deadline=None, max_examples=examples(120))
@given(_STEPS, st.one_of(st.none(), st.integers(0, 12)), st.integers(0, 8))
def test_a_log_is_the_same_as_if_all_of_it_had_been_read(
    steps: Sequence[_Step], producer: int | None, back: int
) -> None:
    quick, whole = _filled(steps, producer), _filled(steps, producer)
    end_offset = max(0, quick.log().end_offset - back)
    expected = _cut_as_a_whole(whole, end_offset)
    found = _cut(quick, end_offset)
    assert _looks(quick, found) == _looks(whole, expected)
    for store in (quick, whole):
        store.append(store.log(), b"x" * 100, timestamp=3)
        store.append(store.log(), b"y" * BLOCK_BYTES, timestamp=30)
        store.settle()
    assert _looks(quick, quick.log()) == _looks(whole, whole.log())
    assert _told(quick, quick.log()) == _told(whole, whole.log())
    for again in (StoreOnDoubles.kill, StoreOnDoubles.restart, StoreOnDoubles.crash):
        for store in (quick, whole):
            again(store)
        assert _looks(quick, quick.log()) == _looks(whole, whole.log())
        assert _told(quick, quick.log()) == _told(whole, whole.log())


@settings(deadline=None, max_examples=examples(120))
@given(_STEPS, st.integers(1, 8), st.lists(st.tuples(_SIZES, st.booleans()), max_size=8), st.integers(0, 1 << 30))
def test_nothing_that_is_written_after_it_is_lost(
    steps: Sequence[_Step], back: int, after: Sequence[tuple[int, bool]], seed: int
) -> None:
    store = _filled(steps, None)
    log = _cut(store, max(0, store.log().end_offset - back))
    expected, first = store.values(log), log.end_offset
    for number, (size, advances) in enumerate(after):
        values = [bytes([200 + number]) * size]
        store.append(log, *values, timestamp=20)
        store.settle()
        expected += values
        if advances:
            store.advance(1000)
    store.crash(random.Random(seed))
    assert store.findings == []
    assert store.values(store.log()) == expected
    assert store.log().end_offset == first + len(after)


@pytest.mark.parametrize("end_offset", [2, 3])
def test_what_is_known_of_producers_is_what_is_left_says(end_offset: int) -> None:
    quick, whole = (_filled([(100, 1, 1)] * 3, 0) for _ in range(2))
    (filler,) = empty(3, 5, NO_EPOCH)
    data = bytes_of(filler)
    for store in (quick, whole):
        store.store.append_ordered(store.log(), data, header(data), None)
        store.append(store.log(), b"after")
        store.settle()
        store.restart()
        assert not len(store.log().producers)
    expected = _cut_as_a_whole(whole, end_offset)
    assert _looks(quick, _cut(quick, end_offset)) == _looks(whole, expected)


def _refuse(*_: object) -> None:
    raise AssertionError("all of the log is read")


def _long() -> StoreOnDoubles:
    return _filled([(20_000, 1, 1)] * 36, None)


def test_what_lies_before_the_block_of_the_cut_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _long()
    for module in (truncating, shortening):
        monkeypatch.setattr(module, "cut_files", _refuse)
        monkeypatch.setattr(module, "end_of_cut", _refuse)
    log = _cut(store, 33)
    assert (log.end_offset, log.active.end_offset) == (33, 33)
    assert len(store.values(log)) == 33
    store.append(log, b"z")
    store.settle()
    store.restart()
    assert store.values(store.log(), 33) == [b"z"]


def test_an_index_file_says_nothing_of_what_was_cut_off() -> None:
    """All of it is read where a part of it is damaged; a segment may be closed long before the length it had."""
    quick, whole = _long(), _long()
    closed = quick.log().active.path
    assert whole.log().active.path == closed
    _cut_as_a_whole(whole, 26)
    _cut(quick, 26)
    for store in (quick, whole):
        store.append(store.log(), b"y" * 5 * BLOCK_BYTES)
        store.settle()
        store.restart()
    assert quick.log().segments[-2].path == closed
    expected = INDEX_HEADER_BYTES + ENTRY_BYTES * closed_entries(quick.log().segments[-2].size)
    assert len(quick.files.content(closed + ".index")) == expected
    assert quick.files.content(closed + ".index") == whole.files.content(closed + ".index")


def _damaged(store: StoreOnDoubles, log: Log) -> list[int]:
    """The offsets, one a batch, that cannot be read."""
    found = []
    for offset in range(log.end_offset):
        try:
            plan = store.plan(log, offset, 1)
            assert plan is not None
            store.bytes_of(plan)
        except LogDamaged:
            found.append(offset)
    return found


@pytest.mark.parametrize("batch", [30, 31, 32, 34, 35])
@pytest.mark.parametrize("byte", [7, 15, 60, 19_000], ids=["offset", "epoch", "record", "end"])
def test_what_is_damaged_stays_damaged_and_no_more(batch: int, byte: int) -> None:
    quick, whole = _long(), _long()
    for store in (quick, whole):
        active = store.log().active
        content = store.files.content(active.path + ".log")
        position = next(at for at, head in batches(content) if head.base_offset == batch)
        store.files.corrupt(active.path + ".log", position + byte, 4)
    expected = _cut_as_a_whole(whole, 33)
    found = _cut(quick, 33)
    assert (found.end_offset, found.active.size) == (expected.end_offset, expected.active.size)
    assert _damaged(quick, found) == _damaged(whole, expected) == [batch] * (batch < 33)
    for store in (quick, whole):
        store.kill()  # which makes the cut once more
    assert _damaged(quick, quick.log()) == _damaged(whole, whole.log())


def test_an_index_file_that_is_damaged_is_not_believed() -> None:
    quick, whole = _long(), _long()
    for store in (quick, whole):
        store.files.corrupt(store.log().active.path + ".index", INDEX_HEADER_BYTES + 5, 4)
    expected = _cut_as_a_whole(whole, 33)
    assert _looks(quick, _cut(quick, 33)) == _looks(whole, expected)
