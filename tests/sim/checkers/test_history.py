"""The model of one log: what it lets go by, and what it does not."""

import pytest

from duramen.codec.batch import BatchInput, encode, header, stamp
from duramen.codec.batch_filter import rebuild
from duramen.codec.markers import encode_marker
from duramen.sim.checkers.compacted import CompactedHistory
from duramen.sim.checkers.history import End, HistoryFacts, LogHistory, SentRecords
from duramen.sim.machine.trace import BrokenPromise


def transactional() -> LogHistory:
    """Records up to 30, of which 17 began a transaction that is open."""
    history = LogHistory("stream", 0, 1)
    history.transactional = True
    history.visible(30, "sync")
    history.stable(17, 0)
    return history


def restarted(history: LogHistory, start_offset: int, stable_offset: int) -> None:
    history.started(2, "power loss", HistoryFacts(start_offset, 30, "sync"))
    history.stable(stable_offset, start_offset)


def test_a_last_stable_offset_at_a_start_goes_back_with_it() -> None:
    history = transactional()
    history.stable(22, 22)
    restarted(history, 0, 17)


def test_a_last_stable_offset_does_not_go_back_while_a_process_runs() -> None:
    history = transactional()
    history.stable(22, 22)
    with pytest.raises(BrokenPromise, match="was 22, and is 17"):
        history.stable(17, 0)


def test_what_was_decided_is_decided_for_good() -> None:
    history = transactional()
    history.stable(25, 22)
    with pytest.raises(BrokenPromise, match="was 25, and is 17"):
        restarted(history, 0, 17)


def test_a_last_stable_offset_is_not_before_the_start_that_is_durable() -> None:
    history = transactional()
    history.stable(22, 22)
    history.start_asked = history.start_bound = 22
    with pytest.raises(BrokenPromise, match="was 22, and is 17"):
        restarted(history, 22, 17)
    with pytest.raises(BrokenPromise, match="its start was 22"):
        restarted(history, 0, 17)


@pytest.mark.parametrize("end", ["power loss", "kill"])
def test_a_batch_that_the_start_lies_within_goes_whole_with_a_cut_there(end: End) -> None:
    history = LogHistory("stream", 0, 1)
    batch = SentRecords(1, bytes(100), 4)
    history.send(batch, 1)
    history.acknowledged(batch, 10, "sync")
    history.start_asked = 11
    history.started(2, end, HistoryFacts(11, 14, "sync"))
    assert history.knows(11)
    history.cut_begins(11)
    history.cut(HistoryFacts(10, 10, "sync"))
    assert not history.knows(11)


@pytest.mark.parametrize("lets_go", [False, True])
def test_a_cut_within_a_batch_that_was_let_go_before_its_turn_came_ends_where_it_was_asked_to(lets_go: bool) -> None:
    history = LogHistory("stream", 0, 1)
    history.lets_go = lets_go
    batch = SentRecords(1, bytes(100), 4)
    history.send(batch, 1)
    history.acknowledged(batch, 10, "sync")
    history.cut_begins(12)
    if not lets_go:
        with pytest.raises(BrokenPromise, match="it was cut to 10 and ends at 12"):
            history.cut(HistoryFacts(12, 12, "sync"))
        return
    history.cut(HistoryFacts(12, 12, "sync"))
    assert not history.knows(12)


def test_a_start_within_a_batch_goes_back_with_a_cut_there_that_nobody_was_told_of() -> None:
    history = LogHistory("stream", 0, 1)
    batch = SentRecords(1, bytes(100), 4)
    history.send(batch, 1)
    history.acknowledged(batch, 10, "sync")
    history.start_asked = history.start_bound = 13
    with pytest.raises(BrokenPromise, match="its start was 13"):
        history.started(2, "kill", HistoryFacts(10, 14, "sync"))
    history.cut_begins(13)
    history.started(2, "kill", HistoryFacts(10, 10, "sync"))
    assert not history.knows(13)
    assert history.start_bound == 10


def test_a_batch_that_was_let_go_whole_may_be_stored_anew() -> None:
    history = LogHistory("stream", 0, 1)
    batch = SentRecords(1, bytes(100), 4)
    history.send(batch, 1)
    history.acknowledged(batch, 10, "os")
    history.start_asked = 14
    history.started(2, "power loss", HistoryFacts(14, 14, "os"))
    history.send(batch, 2)
    history.acknowledged(batch, 14, "os")
    assert batch.base_offset == 14


def test_of_a_marker_in_a_compacted_log_nothing_may_be_left_but_its_offset() -> None:
    marker = encode_marker(4, 0, commit=True, coordinator_epoch=0, now_ms=1000)
    stamp(marker, 7, 1)
    emptied = rebuild(header(marker), bytes(marker), [])
    assert CompactedHistory("stream", 0, 1).read(7, emptied) == 8
    history = CompactedHistory("stream", 0, 1)
    batch = SentRecords(1, bytes(encode([BatchInput(1000, b"key", b"value", ((b"n", b"1/0"),))])), 1)
    history.send(batch, 1)
    history.acknowledged(batch, 7, "sync")
    with pytest.raises(BrokenPromise, match="a batch was at offset 7"):
        history.read(7, emptied)
