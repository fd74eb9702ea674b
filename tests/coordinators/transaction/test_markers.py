"""Which transactions ended in a stretch, and which are open: pieces, restarts, cold reads, damage, older markers."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinators.transaction.transacting import Writer, broker_for
from tests.examples import examples

from duramen.base.errors import CoordinatorLoading, DuramenError, LogDamaged
from duramen.codec.batch import CONTROL, TRANSACTIONAL, BatchInput, encode, header
from duramen.coordinators.transaction.markers import MarkedTransactions, TransactionEnd, find_marked
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.storage.log.replication import Replicated

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "commit", "abort"]), st.integers(0, 2)),
        st.tuples(st.sampled_from(["plain", "settle", "restart", "crash", "copy"]), st.just(0)),
    ),
    max_size=40,
)


def marked(hand: ManualBroker, offset: int = 0, most: int = 100) -> MarkedTransactions:
    answer: CallbackResult[MarkedTransactions | DuramenError] = CallbackResult()
    find_marked(hand.store, hand.broker.streams.get("a").partition(0), offset, most, answer)
    hand.settle()
    if isinstance(answer.value, DuramenError):
        raise answer.value
    return answer.value


@settings(max_examples=examples(40))
@given(STEPS, st.integers(0, 30), st.integers(1, 5))
def test_against_a_list(steps: list[tuple[str, int]], start: int, most: int) -> None:
    hand = broker_for()
    hand.create("a")
    writers = [Writer(hand, f"t{index}", 2) for index in range(3)]
    ended: list[tuple[int, int, int, bool]] = []  # offset, producer, first offset, commits
    opened: dict[int, int] = {}
    end = 0
    for what, index in steps:
        writer = writers[index]
        producer = writer.identity.producer_id
        if what == "write":
            writer.write("a", 0, b"v")
            hand.settle()
            opened.setdefault(producer, end)
            end += 1
        elif what in ("commit", "abort") and producer in opened:
            writer.settle_end(commit=what == "commit")
            ended.append((end, producer, opened.pop(producer), what == "commit"))
            end += 1
        elif what == "plain":
            hand.produce("a", b"v")
            hand.settle()
            end += 1
        elif what in ("restart", "crash"):
            hand.settle()
            (hand.restart if what == "restart" else hand.crash)()
        elif what == "copy":
            hand.advance(60_000)
            for one in writers:  # what is open for so long is aborted, and its producer fenced
                if one.identity.producer_id in opened:
                    ended.append((end, one.identity.producer_id, opened.pop(one.identity.producer_id), False))
                    end += 1
                    one.initialise()
        found = marked(hand)
        assert found.high_watermark == found.next_offset == end
        assert dict(found.open) == opened
        assert [(one.offset, one.producer_id, one.first_offset, one.commit) for one in found.ended] == ended
    sequences = [one.sequence for one in marked(hand).ended]
    assert sequences == sorted(set(sequences))
    offset, pieces = start, list[TransactionEnd]()
    while offset < end:
        piece = marked(hand, offset, most)
        assert len(piece.ended) <= most
        assert piece.next_offset > offset
        offset = piece.next_offset
        pieces += piece.ended
    assert pieces == [one for one in marked(hand).ended if one.offset >= start]


def test_a_marker_of_an_older_version_says_that_its_transaction_may_begin_anywhere() -> None:
    hand = broker_for()
    hand.create("a")
    log = hand.broker.streams.get("a").partition(0).log
    write = encode([BatchInput(0, None, b"v")], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0,
                   base_sequence=0)  # fmt: skip
    old = encode(
        [BatchInput(0, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 3))],
        attributes=TRANSACTIONAL | CONTROL, producer_id=7, producer_epoch=0, base_sequence=-1,
    )  # fmt: skip
    hand.produce("a", b"v")
    for batch in (write, old):
        hand.store.append(log, batch, header(batch), hand.store.node_epoch, None)
    hand.settle()
    assert marked(hand).ended == [TransactionEnd(2, 7, 0, -1, True)]


def test_offsets_far_off_are_answered() -> None:
    hand = broker_for()
    hand.create("a")
    for offset in (-(1 << 63), -1, 0, 5, (1 << 63) - 1):
        found = marked(hand, offset)
        assert (found.high_watermark, found.ended, found.open) == (0, [], [])
        assert found.next_offset >= 0


def test_nothing_is_said_before_it_is_known_what_is_open() -> None:
    hand = broker_for()
    hand.create("a")
    hand.produce("a", b"v")
    hand.settle()
    log = hand.broker.streams.get("a").partition(0).log
    log.replicated = Replicated(0, 1)
    with pytest.raises(CoordinatorLoading):
        marked(hand)
    log.replicated.high_watermark = 1
    assert marked(hand).high_watermark == 1


def test_a_log_without_markers_is_not_read_and_damage_is_told() -> None:
    hand = broker_for()
    hand.create("a")
    writer = Writer(hand, "t", 2)
    log = hand.broker.streams.get("a").partition(0).log
    for _ in range(2):
        hand.produce("a", b"v")
    hand.settle()
    log.damage = [(0, 1)]
    assert marked(hand).next_offset == 2, "nothing had to be read"
    writer.write("a", 0, b"v")
    writer.settle_end(commit=True)
    with pytest.raises(LogDamaged):
        marked(hand)
    assert [one.offset for one in marked(hand, 2).ended] == [3]
