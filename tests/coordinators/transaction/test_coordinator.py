"""The coordinator of transactions on doubles: fencing, timeouts, offsets, and a crash at every step of an end."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinators.transaction.transacting import Writer, broker_for, committed_values
from tests.examples import examples

from duramen.base.errors import (
    DuramenError,
    OutOfOrderSequence,
    ProducerFenced,
    ProducerIdUnknown,
    TransactionAbortable,
    TransactionalIdMissing,
    TransactionalIdNotFound,
    TransactionsFull,
    TransactionStateInvalid,
)
from duramen.broker.fetch import FetchResult, PartitionFetch
from duramen.codec.batch import TRANSACTIONAL, BatchInput, check, encode
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM, transaction_partition
from duramen.groups.records import OffsetKey
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.transactions.records import encode_key
from duramen.transactions.values import ProducerIdentity, TransactionState

VERSIONS = pytest.mark.parametrize("version", [0, 2])


@pytest.fixture
def hand() -> ManualBroker:
    broker = broker_for()
    broker.create("a", partitions=3)
    return broker


def committed(hand: ManualBroker, group: str, stream: str = "a") -> int:
    found = hand.broker.groups.committed(OffsetKey(group, stream, 0))
    return -1 if found is None else found.offset


def prepare(writer: Writer, *partitions: tuple[str, int], value: bytes = b"v") -> None:
    """One record in each of the partitions."""
    added = writer.add(*partitions)
    writer.hand.settle()
    assert added.error is None
    answers = [writer.write(*partition, value) for partition in partitions]
    writer.hand.settle()
    assert [answer.error for answer in answers] == [None] * len(answers)


# -- ends ---------------------------------------------------------------------------------------------


@VERSIONS
def test_a_commit_shows_every_partition_at_once_and_an_abort_none(hand: ManualBroker, version: int) -> None:
    writer = Writer(hand, "t", version)
    prepare(writer, ("a", 0), ("a", 1), value=b"one")
    assert committed_values(hand, "a", 0) == []
    ended = writer.end(commit=True)
    hand.worker.run_soon()
    stable = [hand.broker.streams.get("a").partition(index).last_stable_offset for index in range(2)]
    assert (ended.calls, stable) == ([], [0, 0]), "the markers are not synced"
    hand.settle()
    assert committed_values(hand, "a", 0) == committed_values(hand, "a", 1) == [b"one"]
    writer.take_over(ended.value)
    prepare(writer, ("a", 0), ("a", 2), value=b"two")
    writer.settle_end(commit=False)
    assert [committed_values(hand, "a", index) for index in range(3)] == [[b"one"], [b"one"], []]


def test_a_reader_who_waits_is_woken_by_the_end_of_a_transaction(hand: ManualBroker) -> None:
    writer = Writer(hand, "t", 2)
    prepare(writer, ("a", 0))
    answer: CallbackResult[list[FetchResult]] = CallbackResult()
    wanted = PartitionFetch(hand.broker.streams.get("a").partition(0), 0, 1 << 20, isolation=1)
    hand.broker.fetches.fetch([wanted], min_bytes=1, max_bytes=1 << 20, max_wait_ms=60_000, done=answer)
    hand.settle()
    assert not answer.there
    writer.settle_end(commit=True)
    assert (answer.value[0].high_watermark, answer.value[0].last_stable_offset) == (2, 2)
    assert hand.read(answer.value[0].slice)[0].value == b"v"


def test_only_version_2_bumps_the_epoch_at_each_end(hand: ManualBroker) -> None:
    old, new = Writer(hand, "old", 0), Writer(hand, "new", 2)
    for writer, epochs in ((old, [0, 0, 0]), (new, [0, 1, 2])):
        for epoch in epochs:
            assert writer.identity.epoch == epoch
            prepare(writer, ("a", 0))
            writer.settle_end(commit=True)


@VERSIONS
def test_the_same_end_again_gets_the_same_answer_and_another_is_refused(hand: ManualBroker, version: int) -> None:
    writer = Writer(hand, "t", version)
    prepare(writer, ("a", 0))
    first = writer.end(commit=True)
    hand.settle()
    again = writer.end(commit=True)
    hand.settle()
    assert again.value == first.value
    other = writer.end(commit=False)
    hand.settle()
    assert isinstance(other.error, TransactionStateInvalid)
    hand.restart()
    after = writer.end(commit=True)
    hand.settle()
    assert after.value == first.value
    assert committed_values(hand, "a", 0) == [b"v"]


def test_an_exhausted_epoch_gives_way_to_a_new_producer_id(hand: ManualBroker) -> None:
    writer = Writer(hand, "t", 2)
    known = hand.broker.transactions.describe("t")
    hand.broker.transactions._known.put(known._replace(epoch=32766))
    writer.identity = writer.identity._replace(epoch=32766)
    prepare(writer, ("a", 0))
    first = writer.end(commit=True)
    hand.settle()
    assert first.value.epoch == 0
    assert first.value.producer_id != writer.identity.producer_id
    again = writer.end(commit=True)
    assert again.value == first.value
    writer.take_over(first.value)
    prepare(writer, ("a", 0))
    writer.settle_end(commit=True)
    assert committed_values(hand, "a", 0) == [b"v", b"v"]


# -- who may write ------------------------------------------------------------------------------------


@VERSIONS
def test_a_batch_is_checked_before_it_is_appended(hand: ManualBroker, version: int) -> None:
    writer = Writer(hand, "t", version)
    partition = hand.broker.streams.get("a").partition(0)
    batch = encode([BatchInput(0, None, b"v")], attributes=TRANSACTIONAL, producer_id=writer.identity.producer_id,
                   producer_epoch=writer.identity.epoch, base_sequence=0)  # fmt: skip
    bare: CallbackResult[int] = CallbackResult()
    partition.append(bytearray(batch), bare)
    assert isinstance(bare.error, TransactionalIdMissing)
    if version == 0:
        assert isinstance(writer.write("a", 0, b"v").error, TransactionAbortable)
        writer._sequences.clear()
    for identity, error in (
        (ProducerIdentity(writer.identity.producer_id + 7, 0), ProducerIdUnknown),
        (ProducerIdentity(writer.identity.producer_id, 5), ProducerFenced),
    ):
        stranger = Writer.__new__(Writer)
        stranger.hand, stranger.name, stranger.version, stranger._sequences = hand, "t", version, {}
        stranger.identity = identity
        assert isinstance(stranger.write("a", 0, b"v").error, error)
    assert partition.log.end_offset == 0
    prepare(writer, ("a", 0))
    writer.settle_end(commit=True)
    late = encode([BatchInput(0, None, b"late")], attributes=TRANSACTIONAL, producer_id=writer.identity.producer_id,
                  producer_epoch=0, base_sequence=1)  # fmt: skip
    answer: CallbackResult[int] = CallbackResult()
    partition.append(late, answer, hand.broker.transactions.admission("t", joins=False))
    assert isinstance(answer.error, DuramenError)
    assert committed_values(hand, "a", 0) == [b"v"]


def test_a_partition_or_group_that_joins_by_request_is_answered_once_that_is_on_disk(hand: ManualBroker) -> None:
    writer = Writer(hand, "t", 0)
    group: CallbackResult[None] = CallbackResult()
    hand.broker.transactions.add_group(writer.name, writer.identity, "g", group)
    again = writer.add(("a", 0))
    repeated = writer.add(("a", 0))
    hand.worker.run_soon()
    assert (group.calls, again.calls, repeated.calls) == ([], [], []), "their records are not synced"
    hand.settle()
    assert (group.error, again.error, repeated.error) == (None, None, None)


def test_a_producer_that_is_not_known_begins_a_partition_with_sequence_0(hand: ManualBroker) -> None:
    """With KIP-890's second part, as Apache Kafka has it."""
    writer = Writer(hand, "t", 2)
    writer._sequences["a", 0] = 3
    assert isinstance(writer.write("a", 0, b"lost the first").error, OutOfOrderSequence)
    writer._sequences.clear()
    written = [writer.write("a", 0, b"first"), writer.write("a", 0, b"second")]
    hand.settle()
    assert [answer.error for answer in written] == [None, None]
    writer.settle_end(commit=True)
    assert committed_values(hand, "a", 0) == [b"first", b"second"]


@VERSIONS
def test_the_heir_fences_the_zombie_and_its_transaction_is_aborted(hand: ManualBroker, version: int) -> None:
    zombie = Writer(hand, "t", version)
    prepare(zombie, ("a", 0), value=b"zombie")
    heir = Writer(hand, "t", version)
    assert heir.identity.epoch > zombie.identity.epoch + 1
    assert isinstance(zombie.write("a", 0, b"late").error, ProducerFenced)
    assert isinstance(zombie.end(commit=True).error, ProducerFenced)
    prepare(heir, ("a", 0), value=b"heir")
    heir.settle_end(commit=True)
    assert committed_values(hand, "a", 0) == [b"heir"]


def test_a_producer_goes_on_after_an_error_with_what_it_had(hand: ManualBroker) -> None:
    writer = Writer(hand, "t", 0)
    before = writer.identity
    assert writer.initialise(before) == ProducerIdentity(before.producer_id, before.epoch + 1)
    assert writer.initialise(before) == ProducerIdentity(before.producer_id, before.epoch + 1), "the answer was lost"
    heir = Writer(hand, "t", 0)
    with pytest.raises(ProducerFenced):
        writer.initialise(before)
    assert heir.identity.epoch == before.epoch + 2


# -- time ---------------------------------------------------------------------------------------------


@VERSIONS
def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(
    hand: ManualBroker, version: int
) -> None:
    writer = Writer(hand, "t", version)
    prepare(writer, ("a", 0), ("a", 1))
    hand.advance(59_000)
    assert hand.broker.transactions.describe("t").state is TransactionState.ONGOING
    hand.advance(12_000)
    assert hand.broker.transactions.describe("t").state is TransactionState.COMPLETE_ABORT
    partition = hand.broker.streams.get("a").partition(0)
    assert partition.last_stable_offset == partition.log.high_watermark == 2
    with pytest.raises((ProducerFenced, TransactionStateInvalid)):
        writer.settle_end(commit=True)
    assert isinstance(writer.write("a", 0, b"late").error, ProducerFenced)
    assert committed_values(hand, "a", 0) == []
    assert writer.initialise(writer.identity).epoch == 1, "its own epoch was bumped for it"


def test_a_transaction_does_not_stay_open_for_as_long_as_a_clock_was_set_back(hand: ManualBroker) -> None:
    prepare(Writer(hand, "t", 2), ("a", 0))
    hand.clock.jump(-600_000)
    hand.advance(59_000)
    assert hand.broker.transactions.describe("t").state is TransactionState.ONGOING
    hand.advance(22_000)
    assert hand.broker.transactions.describe("t").state is TransactionState.COMPLETE_ABORT


def test_ids_that_nobody_uses_are_forgotten() -> None:
    hand = broker_for(transactional_id_expiration_ms=7_200_000)
    hand.create("a")
    used, unused, open_ = Writer(hand, "used", 2), Writer(hand, "unused", 2), Writer(hand, "open", 2)
    open_.initialise(timeout_ms=900_000)
    hand.advance(3_000_000)
    prepare(used, ("a", 0))
    used.settle_end(commit=True)
    hand.advance(4_300_000)
    with pytest.raises(TransactionalIdNotFound):
        hand.broker.transactions.describe(unused.name)
    hand.restart()
    with pytest.raises(TransactionalIdNotFound):
        hand.broker.transactions.describe(unused.name)
    assert hand.broker.transactions.describe("used").state is TransactionState.COMPLETE_COMMIT


# -- offsets ------------------------------------------------------------------------------------------


@VERSIONS
def test_offsets_count_at_the_commit_and_are_unstable_before(hand: ManualBroker, version: int) -> None:
    writer, key = Writer(hand, "t", version), OffsetKey("g", "a", 0)
    for commit, expected in ((False, -1), (True, 7)):
        held = writer.commit_offset("g", "a", 7)
        hand.settle()
        assert held.value == [None]
        assert hand.broker.groups.unstable(key)
        assert committed(hand, "g") == -1
        hand.crash()
        assert hand.broker.groups.unstable(key)
        writer.settle_end(commit=commit)
        assert not hand.broker.groups.unstable(key)
        assert committed(hand, "g") == expected
        hand.crash()
        assert committed(hand, "g") == expected


def test_of_two_offsets_the_one_further_on_in_the_log_counts(hand: ManualBroker) -> None:
    first, second = Writer(hand, "one", 2), Writer(hand, "two", 2)
    first.commit_offset("g", "a", 1)
    second.commit_offset("g", "a", 2)
    hand.settle()
    second.settle_end(commit=True)
    first.settle_end(commit=True)
    assert committed(hand, "g") == 2
    hand.crash()
    assert committed(hand, "g") == 2


def test_an_old_offset_is_not_forgotten_while_a_transaction_renews_it() -> None:
    hand = broker_for(offsets_retention_minutes=60, transaction_max_timeout_ms=10_000_000)
    hand.create("a")
    old, new = Writer(hand, "old", 2), Writer(hand, "new", 2)
    new.initialise(timeout_ms=10_000_000)
    old.commit_offset("g", "a", 1)
    hand.settle()
    old.settle_end(commit=True)
    new.commit_offset("g", "a", 2)
    hand.settle()
    hand.advance(7_200_000)
    assert committed(hand, "g") == 1
    new.settle_end(commit=True)
    assert committed(hand, "g") == 2
    hand.advance(7_200_000)
    assert committed(hand, "g") == -1


# -- memory -------------------------------------------------------------------------------------------


def test_ids_and_partitions_beyond_their_share_of_memory_are_refused_and_the_others_go_on() -> None:
    hand = broker_for(memory_limit_bytes=128 << 20)
    hand.create("a", partitions=2)
    writer = Writer(hand, "t", 2)
    hand.broker.transactions._known._limit_bytes = 900
    with pytest.raises(TransactionsFull):
        Writer(hand, "another", 2)
    prepare(writer, ("a", 0))
    assert isinstance(writer.write("a", 1, b"v").error, TransactionsFull)
    writer.settle_end(commit=True)
    assert committed_values(hand, "a", 0) == [b"v"]
    hand.restart()
    assert hand.broker.transactions.describe("t").state is TransactionState.COMPLETE_COMMIT


# -- streams that go ----------------------------------------------------------------------------------


def test_a_stream_that_is_deleted_or_made_anew_meanwhile(hand: ManualBroker) -> None:
    hand.create("b")
    hand.create("c")
    writer = Writer(hand, "t", 2)
    prepare(writer, ("a", 0), ("b", 0), ("c", 0))
    hand.delete("b")
    hand.delete("c")
    hand.create("c")
    writer.settle_end(commit=True)
    assert committed_values(hand, "a", 0) == [b"v"]
    assert committed_values(hand, "c", 0) == []
    log = hand.broker.streams.get("c").partition(0).log
    assert log.last_stable_offset == log.high_watermark


# -- crashes ------------------------------------------------------------------------------------------


def outcome(hand: ManualBroker, places: Sequence[tuple[str, int]]) -> list[list[bytes | None]]:
    """What readers see of each partition, and what the group has committed."""
    return [*(committed_values(hand, *place) for place in places), [b"%d" % committed(hand, "g")]]


PLACES = (("a", 0), ("a", 1), ("a", 2), ("other", 0))


@settings(max_examples=examples(80))
@given(
    version=st.sampled_from([0, 2]),
    commit=st.booleans(),
    durability=st.sampled_from(["sync", "sync", "os"]),
    steps=st.just(1) | st.integers(0, 12),
    seed=st.none() | st.integers(0, 1000),
    again=st.integers(0, 3),
)
def test_a_crash_at_any_step_leaves_all_of_a_transaction_or_nothing(
    version: int, commit: bool, durability: str, steps: int, seed: int | None, again: int
) -> None:
    hand = broker_for()
    hand.create("a", partitions=3)
    hand.create("other", durability=durability)
    writer = Writer(hand, "t", version)
    prepare(writer, *PLACES, value=b"before")
    writer.settle_end(commit=True)
    prepare(writer, *PLACES, value=b"v")
    writer.commit_offset("g", "a", 5)
    hand.settle()
    if durability == "os":
        hand.store.flush()
        checkpoint: CallbackResult[object] = CallbackResult()
        hand.store._upkeep.checkpointer.request(checkpoint)
        hand.settle()
    ended = writer.end(commit=commit)
    for at in range(steps):
        if at % 2 == 0:
            hand.worker.run_soon()  # written, and not synced
        else:
            _ = hand.worker.step("sync") or hand.worker.step("disk") or hand.worker.step("read")
    acknowledged = ended.there
    hand.crash(seed)
    for _ in range(again):
        hand.crash(seed)
    state = hand.broker.transactions.describe("t").state
    # A loss of power may take what was not synced of `other`; what is in the write-ahead log stands together.
    places = PLACES if durability == "sync" else PLACES[:3]
    all_of_it = [[b"before", b"v"]] * len(places) + [[b"5"]]
    nothing = [[b"before"]] * len(places) + [[b"-1"]]
    if state is TransactionState.ONGOING:
        assert not acknowledged
        assert outcome(hand, places) == nothing
        retried = writer.end(commit=commit)
        hand.settle()
        assert retried.error is None
    else:
        assert state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert outcome(hand, places) == (all_of_it if commit else nothing)
    retried = writer.end(commit=commit)
    hand.settle()
    assert retried.error is None
    for stream, index in PLACES:
        log = hand.broker.streams.get(stream).partition(index).log
        assert log.last_stable_offset == log.high_watermark, "nothing is left open"
        assert log.end_offset <= 4, "no marker is there twice"


def test_what_no_transactional_id_knows_of_is_aborted_at_the_start(hand: ManualBroker) -> None:
    writer = Writer(hand, "t", 2)
    prepare(writer, ("a", 0))
    writer.commit_offset("g", "a", 5)
    hand.settle()
    removed: CallbackResult[int] = CallbackResult()
    tombstone = encode([BatchInput(hand.clock.wall_ms(), encode_key("t"), None)])
    stream = hand.broker.streams.get(TRANSACTIONS_STREAM)
    stream.partition(transaction_partition("t", 2)).store(tombstone, check(tombstone), removed)
    hand.settle()
    hand.restart()
    log = hand.broker.streams.get("a").partition(0).log
    assert log.last_stable_offset == log.high_watermark == 2
    assert not hand.broker.groups.unstable(OffsetKey("g", "a", 0))
    assert [finding for finding in hand.reports if "it is aborted" in finding]


# -- what is measured -----------------------------------------------------------------------------------


def _counted(hand: ManualBroker) -> tuple[float, float, float]:
    begun, committed, aborted = (
        hand.metrics.counter("duramen_transactions_total", what).value for what in ("begun", "committed", "aborted")
    )
    return begun, committed, aborted


def _measured(hand: ManualBroker, name: str) -> float:
    ((_, value),) = hand.metrics.computed()[name].samples()
    return value


@VERSIONS
def test_transactions_are_counted_and_the_oldest_open_one_is_told(hand: ManualBroker, version: int) -> None:
    one, two = Writer(hand, "t", version), Writer(hand, "u", version)
    assert (_counted(hand), _measured(hand, "duramen_transactions_open")) == ((0, 0, 0), 0)
    assert _measured(hand, "duramen_transaction_longest_open_seconds") == 0
    prepare(one, ("a", 0), ("a", 1))
    hand.advance(3000)
    prepare(two, ("a", 2))
    hand.advance(2000)
    assert (_counted(hand), _measured(hand, "duramen_transactions_open")) == ((2, 0, 0), 2)
    assert _measured(hand, "duramen_transaction_longest_open_seconds") == 5
    one.settle_end(commit=True)
    assert (_counted(hand), _measured(hand, "duramen_transactions_open")) == ((2, 1, 0), 1)
    assert _measured(hand, "duramen_transaction_longest_open_seconds") == 2
    two.settle_end(commit=False)
    assert (_counted(hand), _measured(hand, "duramen_transactions_open")) == ((2, 1, 1), 0)
    prepare(one, ("a", 0))
    hand.advance(900_001)
    hand.settle()
    assert (_counted(hand), _measured(hand, "duramen_transactions_open")) == ((3, 1, 2), 0), "it timed out"
