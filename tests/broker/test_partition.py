"""What a leader checks of a producer's batch, and what can be asked about a partition's log."""

import random

import pytest
from tests.broker.several import Several

from duramen.base.errors import (
    BatchCorrupt,
    BatchInvalid,
    BatchTooLarge,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    ProducerFenced,
    StorageFull,
    TimestampInvalid,
    UnknownLeaderEpoch,
)
from duramen.broker.offset_search import OffsetFound
from duramen.broker.partition import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Partition,
)
from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode, encode_record, seal, set_max_timestamp
from duramen.metadata.decisions import Definition
from duramen.sim.broker import CallbackResult, ManualBroker


@pytest.fixture
def hand(any_hand: ManualBroker) -> ManualBroker:
    """With each durability: what is asked and answered is the same."""
    return any_hand


def append(hand: ManualBroker, batch: bytearray, name: str = "a", partition: int = 0) -> CallbackResult[int]:
    """Append a batch and let it be acknowledged or refused."""
    answer: CallbackResult[int] = CallbackResult()
    hand.broker.streams.get(name).partition(partition).append(batch, answer)
    hand.settle()
    return answer


def at(hand: ManualBroker, *offsets_ms: int, key: bytes | None = None, codec: int = 0) -> bytearray:
    """A batch of a record for each time, given from now on."""
    now_ms = hand.clock.wall_ms()
    return encode((BatchInput(now_ms + offset_ms, key, b"v") for offset_ms in offsets_ms), codec=codec)


def claiming(hand: ManualBroker, batch: bytearray, offset_ms: int) -> bytearray:
    """A batch whose header says that its newest record is of that time, given from now on."""
    set_max_timestamp(batch, hand.clock.wall_ms() + offset_ms)
    return batch


def found(hand: ManualBroker, partition: Partition, timestamp: int) -> tuple[int, int]:
    """The offset and timestamp that are found."""
    answer: CallbackResult[int] = CallbackResult()
    done: OffsetFound = answer
    partition.find_offset(timestamp, done)
    hand.settle()
    assert answer.error is None
    offset, time_ms, _ = answer.calls[0]
    return offset, time_ms


# -- appending ----------------------------------------------------------------------------------------


def test_a_batch_that_is_refused_leaves_the_log_as_it_was(hand: ManualBroker) -> None:
    partition = hand.broker.streams.get("a").partition(0)
    damaged = at(hand, 0)
    damaged[-1] ^= 1
    for batch, error in (
        (damaged, BatchCorrupt),
        (bytearray(), BatchCorrupt),
        (at(hand, 0) + at(hand, 0), BatchInvalid),
        (encode([BatchInput(0, None, b"v")], attributes=TRANSACTIONAL), BatchInvalid),
        (encode([BatchInput(hand.clock.wall_ms(), None, bytes(1_048_588))]), BatchTooLarge),
        (at(hand, 3_600_001), TimestampInvalid),
    ):  # fmt: skip
        assert isinstance(append(hand, batch).error, error)
    assert (partition.log.end_offset, partition.stream.records_in.value, partition.stream.bytes_in.value) == (0, 0, 0)
    assert append(hand, at(hand, 3_600_000)).value == 0


def test_without_an_answer_wanted_a_refusal_is_silent(hand: ManualBroker) -> None:
    partition = hand.broker.streams.get("a").partition(0)
    partition.append(bytearray(b"?"), None)
    partition.append(at(hand, 0), None)
    hand.settle()
    assert partition.log.high_watermark == 1


def test_max_message_bytes_is_the_stream_s(hand: ManualBroker) -> None:
    hand.create("small", max_message_bytes=200)
    assert append(hand, encode([BatchInput(0, None, bytes(100))]), "small").value == 0
    assert isinstance(append(hand, encode([BatchInput(0, None, bytes(200))]), "small").error, BatchTooLarge)


def test_how_far_back_a_timestamp_may_lie(hand: ManualBroker) -> None:
    hand.create("recent", message_timestamp_before_max_ms=1000)
    assert append(hand, at(hand, -1000), "recent").value == 0
    assert isinstance(append(hand, at(hand, -1001), "recent").error, TimestampInvalid)
    assert append(hand, at(hand, -1 << 40)).value == 0


def test_log_append_time(hand: ManualBroker) -> None:
    hand.create("mine", message_timestamp_type="LogAppendTime")
    now_ms = hand.clock.wall_ms()
    for codec in range(5):
        assert (
            append(hand, encode([BatchInput(5, None, b"v"), BatchInput(6, None, b"w")], codec=codec), "mine").value >= 0
        )
    answer, _ = hand.fetch(("mine", 0, 0))
    assert {record.timestamp for record in hand.read(answer.value[0].slice)} == {now_ms}


def test_a_compacted_stream_needs_keys(hand: ManualBroker) -> None:
    hand.create("keyed", cleanup_policy="compact")
    for codec in range(5):
        assert append(hand, at(hand, 0, key=b"k", codec=codec), "keyed").value == codec
        assert isinstance(append(hand, at(hand, 0, codec=codec), "keyed").error, BatchInvalid)


def test_records_of_a_compacted_stream_have_to_be_readable(hand: ManualBroker) -> None:
    hand.create("keyed", cleanup_policy="compact")
    for codec in range(5):
        batch = seal(b"no record at all", 1, 0, 0) if not codec else _sealed_junk(codec)
        assert isinstance(append(hand, batch, "keyed").error, BatchCorrupt)


def test_a_bomb_is_refused_where_it_would_have_to_be_looked_into(hand: ManualBroker) -> None:
    hand.create("keyed", cleanup_policy="compact")
    bomb = seal(bytes(100 << 20), 1, 0, 0, codec=4)
    assert len(bomb) < 20_000
    assert isinstance(append(hand, bomb, "keyed").error, BatchCorrupt)
    assert append(hand, bomb).value == 0
    answer: CallbackResult[int] = CallbackResult()
    hand.broker.streams.get("a").partition(0).find_offset(0, answer)
    hand.settle()
    assert isinstance(answer.error, BatchCorrupt)


def _sealed_junk(codec: int) -> bytearray:
    return seal(b"no record at all", 1, 0, 0, codec=codec)


# -- idempotent producers -----------------------------------------------------------------------------


def sequenced(first: int, records: int = 1, *, producer: int = 7, epoch: int = 0, value: bytes = b"v") -> bytearray:
    """A batch of an idempotent producer."""
    return encode(
        (BatchInput(0, None, value) for _ in range(records)),
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=first,
    )


def test_a_repetition_gets_the_first_offset(hand: ManualBroker) -> None:
    append(hand, at(hand, 0))
    assert append(hand, sequenced(0, 3)).value == 1
    assert append(hand, sequenced(3, 2)).value == 4
    assert append(hand, sequenced(0, 3)).value == 1
    assert append(hand, sequenced(3, 2)).value == 4
    assert len(hand.values("a")) == 6


def test_a_repetition_of_what_is_not_synced_yet_waits_for_that(hand: ManualBroker) -> None:
    partition = hand.broker.streams.get("a").partition(0)
    answers: list[CallbackResult[int]] = [CallbackResult(), CallbackResult()]
    for answer in answers:
        partition.append(sequenced(0), answer)
        hand.worker.run_soon()
    assert not any(answer.there for answer in answers)
    hand.settle()
    assert [answer.value for answer in answers] == [0, 0]


def test_the_last_five_batches_are_remembered(hand: ManualBroker) -> None:
    for first in range(6):
        append(hand, sequenced(first))
    for first in range(1, 6):
        assert append(hand, sequenced(first)).value == first
    assert isinstance(append(hand, sequenced(0)).error, OutOfOrderSequence)


def test_a_gap_is_refused(hand: ManualBroker) -> None:
    append(hand, sequenced(0))
    assert isinstance(append(hand, sequenced(2)).error, OutOfOrderSequence)
    assert append(hand, sequenced(1)).value == 1


def test_sequences_wrap_around(hand: ManualBroker) -> None:
    last = (1 << 31) - 1
    forget(hand, 7)
    assert append(hand, sequenced(last - 1, 3)).value == 0
    assert append(hand, sequenced(1)).value == 3
    assert append(hand, sequenced(last - 1, 3)).value == 0


def test_epochs(hand: ManualBroker) -> None:
    append(hand, sequenced(0, epoch=1))
    assert isinstance(append(hand, sequenced(5, epoch=2)).error, OutOfOrderSequence)
    assert append(hand, sequenced(0, epoch=2)).value == 1
    assert isinstance(append(hand, sequenced(1, epoch=1)).error, ProducerFenced)


def test_producers_and_partitions_are_told_apart(hand: ManualBroker) -> None:
    assert append(hand, sequenced(0)).value == 0
    assert append(hand, sequenced(0, producer=8)).value == 1
    assert append(hand, sequenced(0), partition=1).value == 0


def forget(hand: ManualBroker, producer_id: int) -> None:
    """Producers up to that id may have written to the partition."""
    hand.store.forget_producers(hand.broker.streams.get("a").partition(0).log, producer_id)
    hand.settle()


def test_a_producer_that_is_forgotten_begins_anywhere(hand: ManualBroker) -> None:
    append(hand, sequenced(0))
    hand.advance(hand.settings.integer("producer.id.expiration.ms") + 600_000)
    assert append(hand, sequenced(500)).value == 1
    assert append(hand, sequenced(501)).value == 2
    assert append(hand, sequenced(500, producer=6)).value == 3


def test_a_producer_that_was_never_known_begins_at_zero(hand: ManualBroker) -> None:
    append(hand, sequenced(0))
    assert isinstance(append(hand, sequenced(1, producer=8)).error, OutOfOrderSequence)
    assert append(hand, sequenced(0, producer=8)).value == 1
    assert append(hand, sequenced(1, producer=8)).value == 2


def test_nothing_is_taken_before_a_batch_that_was_refused(hand: ManualBroker) -> None:
    partition = hand.broker.streams.get("a").partition(0)
    forget(hand, 7)
    partition.note_refused(sequenced(500), NotEnoughReplicas("too few"))
    assert isinstance(append(hand, sequenced(501)).error, NotEnoughReplicas)
    assert append(hand, sequenced(0, producer=8)).value == 0
    assert append(hand, sequenced(500)).value == 1
    assert append(hand, sequenced(501)).value == 2


def test_a_producer_that_is_known_is_not_told_of_a_gap_that_a_refusal_made(hand: ManualBroker) -> None:
    """On OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka raises its epoch, and sends again what is in the log already."""
    partition = hand.broker.streams.get("a").partition(0)
    assert append(hand, sequenced(0)).value == 0
    partition.note_refused(sequenced(0), NotEnoughReplicas("too few for a repetition"))
    partition.note_refused(sequenced(1), NotEnoughReplicas("too few"))
    assert isinstance(append(hand, sequenced(2)).error, NotEnoughReplicas)
    assert [append(hand, sequenced(first)).value for first in range(3)] == [0, 1, 2]
    assert isinstance(append(hand, sequenced(9)).error, OutOfOrderSequence)


def test_of_several_that_were_refused_the_first_comes_first(hand: ManualBroker) -> None:
    partition = hand.broker.streams.get("a").partition(0)
    forget(hand, 7)
    for first in ((1 << 31) - 1, 0, 1):
        partition.note_refused(sequenced(first))
    assert isinstance(append(hand, sequenced(0)).error, NotLeader)
    assert append(hand, sequenced((1 << 31) - 1)).value == 0
    assert append(hand, sequenced(0)).value == 1


@pytest.mark.parametrize("how", ["a new epoch", "ten minutes"])
def test_what_was_refused_is_not_waited_for_for_ever(hand: ManualBroker, how: str) -> None:
    partition = hand.broker.streams.get("a").partition(0)
    forget(hand, 7)
    partition.note_refused(sequenced(500))
    hand.advance(600_000 if how == "ten minutes" else 599_000)
    epoch = 1 if how == "a new epoch" else 0
    assert append(hand, sequenced(0 if epoch else 501, epoch=epoch)).value == 0
    assert append(hand, sequenced(1 if epoch else 502, epoch=epoch)).value == 1


def test_small_batches_do_not_overtake_a_large_one_on_a_full_disk() -> None:
    hand = ManualBroker()
    hand.create("a")
    partition = hand.broker.streams.get("a").partition(0)
    hand.files.free_bytes = 0
    filled = 0
    while append(hand, sequenced(filled, producer=8, value=bytes(300_000))).error is None:
        filled += 1

    def send(first: int, value: bytes) -> CallbackResult[int]:
        answer: CallbackResult[int] = CallbackResult()
        partition.append(sequenced(first, value=value), answer)
        return answer

    answers = [send(0, bytes(700_000)), send(1, b"1"), send(2, b"2")]
    hand.settle()
    assert isinstance(answers[0].error, StorageFull)
    assert all(answer.error is not None for answer in answers)
    hand.files.free_bytes = 1 << 40
    hand.advance(10_000)
    answers = [send(0, bytes(700_000)), send(1, b"1"), send(2, b"2")]
    hand.advance(10_000)
    assert [answer.value for answer in answers] == [filled, filled + 1, filled + 2]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_producers_are_remembered_over_restarts(synced: ManualBroker, how: str) -> None:
    append(synced, sequenced(0, 2))
    append(synced, sequenced(2, 2))
    if how == "restart":
        synced.restart()
    else:
        synced.crash()
    assert append(synced, sequenced(2, 2)).value == 2
    assert isinstance(append(synced, sequenced(5)).error, OutOfOrderSequence)
    assert append(synced, sequenced(4)).value == 4
    assert len(synced.values("a")) == 5


def test_idle_producers_are_forgotten() -> None:
    hand = ManualBroker({"producer.id.expiration.ms": 1000, "log.retention.check.interval.ms": 500})
    hand.create("a")
    append(hand, sequenced(0))
    hand.advance(900)
    assert isinstance(append(hand, sequenced(5)).error, OutOfOrderSequence)
    hand.advance(1000)
    assert append(hand, sequenced(5)).value == 1


# -- offsets by time ----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("place", ["memory", "segments", "after a restart", "from a cold disk"])
def test_offsets_by_time(synced: ManualBroker, codec: int, place: str) -> None:
    """Inside a batch, between batches and between segments, whatever the order of timestamps."""
    synced.create("t", segment_bytes=600)
    partition = synced.broker.streams.get("t").partition(0)
    chance = random.Random(codec)
    now_ms = synced.clock.wall_ms()
    times: list[int] = []
    for number in range(40):
        batch = [number * 100 + chance.randrange(-150, 150) for _ in range(chance.randint(1, 5))]
        times += batch
        append(synced, at(synced, *batch, codec=codec), "t")
    if place != "memory":
        synced.advance(2000)
        assert len(partition.log.segments) > 3
    if place in ("after a restart", "from a cold disk"):
        synced.restart()
        synced.files.cold = place == "from a cold disk"
        partition = synced.broker.streams.get("t").partition(0)
    for wanted in [*chance.sample(times, 20), *(time_ms + 1 for time_ms in chance.sample(times, 20)), -10_000, 0]:
        expected = next(((at, now_ms + time_ms) for at, time_ms in enumerate(times) if time_ms >= wanted), (-1, -1))
        assert found(synced, partition, now_ms + wanted) == expected
    assert found(synced, partition, now_ms + max(times) + 1) == (-1, -1)
    assert found(synced, partition, MAX_TIMESTAMP) == (times.index(max(times)), now_ms + max(times))


def test_the_special_values(hand: ManualBroker) -> None:
    partition = hand.broker.streams.get("a").partition(0)
    for timestamp, expected in (
        (LATEST, (0, -1)),
        (EARLIEST, (0, -1)),
        (EARLIEST_LOCAL, (0, -1)),
        (MAX_TIMESTAMP, (-1, -1)),
        (LATEST_TIERED, (-1, -1)),
    ):
        assert found(hand, partition, timestamp) == expected
    append(hand, at(hand, 0, 9, 3))
    assert found(hand, partition, LATEST) == (3, -1)
    assert found(hand, partition, MAX_TIMESTAMP) == (1, hand.clock.wall_ms() + 9)


def test_what_is_not_synced_is_not_found(synced: ManualBroker) -> None:
    partition = synced.broker.streams.get("a").partition(0)
    append(synced, at(synced, 0))
    partition.append(at(synced, 50), None)
    now_ms = synced.clock.wall_ms()
    latest, by_time, newest = CallbackResult[int](), CallbackResult[int](), CallbackResult[int]()
    partition.find_offset(LATEST, latest)
    partition.find_offset(now_ms + 50, by_time)
    assert (latest.calls[0][:2], by_time.calls[0][:2]) == ((1, -1), (-1, -1))
    # The newest of all is known, but not to be told before it is durable.
    partition.find_offset(MAX_TIMESTAMP, newest)
    assert not newest.there
    synced.settle()
    assert newest.calls[0][:2] == (1, now_ms + 50)


def test_records_that_contradict_their_batch_are_told_when_they_are_looked_at(hand: ManualBroker) -> None:
    """A batch is stored as it came; who has to look into it finds the damage, and the node goes on."""
    now_ms = hand.clock.wall_ms()
    for codec in range(5):
        append(hand, seal(b"no record at all", 1, now_ms, now_ms, codec=codec))
    partition = hand.broker.streams.get("a").partition(0)
    answer: CallbackResult[int] = CallbackResult()
    partition.find_offset(now_ms, answer)
    hand.settle()
    assert isinstance(answer.error, BatchCorrupt)


# -- leader epochs ------------------------------------------------------------------------------------


def test_where_epochs_end(synced: ManualBroker) -> None:
    partition = synced.broker.streams.get("a").partition(0)
    first = partition.leader_epoch
    append(synced, at(synced, 0, 0, 0))
    synced.restart()
    synced.restart()
    partition = synced.broker.streams.get("a").partition(0)
    now = partition.leader_epoch
    assert now == first + 2
    append(synced, at(synced, 0, 0))
    assert partition.end_of_epoch(now) == (now, 5)
    assert partition.end_of_epoch(first) == (first, 3)
    assert partition.end_of_epoch(first + 1) == (first, 3), "nothing was written in the epoch between"
    assert partition.end_of_epoch(now + 1) == (-1, -1), "an epoch that is still to come"
    assert partition.end_of_epoch(first - 1) == (first - 1, 0), "before the first: all of this log is newer"
    assert partition.end_of_epoch(-1) == (-1, -1)


def test_an_epoch_in_which_nothing_was_written_ends_where_the_log_does(hand: ManualBroker) -> None:
    append(hand, at(hand, 0))
    hand.restart()
    partition = hand.broker.streams.get("a").partition(0)
    assert partition.end_of_epoch(partition.leader_epoch) == (partition.leader_epoch, 1)
    empty = hand.broker.streams.get("a").partition(1)
    assert empty.end_of_epoch(empty.leader_epoch) == (empty.leader_epoch, 0)
    assert empty.end_of_epoch(0) == (0, 0)


def test_what_is_not_known_to_be_committed_counts(synced: ManualBroker) -> None:
    """The leader before may have shown it: a consumer that has read it would take a smaller end for a cut."""
    partition = synced.broker.streams.get("a").partition(0)
    append(synced, at(synced, 0))
    partition.append(at(synced, 0), None)
    assert partition.log.high_watermark == 1
    assert partition.end_of_epoch(partition.leader_epoch) == (partition.leader_epoch, 2)


def test_a_client_that_names_another_epoch(hand: ManualBroker) -> None:
    partition = hand.broker.streams.get("a").partition(0)
    partition.check_epoch(-1)
    partition.check_epoch(partition.leader_epoch)
    for older in (partition.leader_epoch - 1, -2):
        with pytest.raises(FencedLeaderEpoch):
            partition.check_epoch(older)
    with pytest.raises(UnknownLeaderEpoch):
        partition.check_epoch(partition.leader_epoch + 1)


@pytest.mark.parametrize("synced", [False, True])
def test_a_time_is_not_looked_for_before_the_log_start_even_inside_of_a_batch(
    hand: ManualBroker, *, synced: bool
) -> None:
    now_ms = hand.clock.wall_ms()
    times = [(10, 20, 30), (15, 25), (30, 40)]
    for batch in times:
        append(hand, encode([BatchInput(now_ms + time_ms, b"k", b"v") for time_ms in batch]))
    partition = hand.broker.streams.get("a").partition(0)
    gone: CallbackResult[int] = CallbackResult()
    partition.delete_before(2, gone)
    hand.settle()
    if synced and partition.log.durability != "memory":
        hand.restart()
        partition = hand.broker.streams.get("a").partition(0)
    for wanted, offset in ((0, 2), (10, 2), (30, 2), (31, 6), (40, 6), (41, -1)):
        answer: CallbackResult[int] = CallbackResult()
        partition.find_offset(now_ms + wanted, answer)
        hand.settle()
        assert answer.value == offset, wanted
    gone = CallbackResult()
    partition.delete_before(4, gone)
    hand.settle()
    answer = CallbackResult()
    partition.find_offset(now_ms + 20, answer)
    hand.settle()
    assert answer.value == 4


def test_a_largest_timestamp_that_is_not_there_leads_on(hand: ManualBroker) -> None:
    now_ms = hand.clock.wall_ms()
    append(hand, claiming(hand, at(hand, 0, 0), 50))
    append(hand, encode([BatchInput(now_ms + 40, b"k", b"v")]))
    answer: CallbackResult[int] = CallbackResult()
    hand.broker.streams.get("a").partition(0).find_offset(now_ms + 30, answer)
    hand.settle()
    assert answer.value == 2


# -- the largest timestamp ------------------------------------------------------------------------------


def believed(hand: ManualBroker, batch: bytearray, name: str = "a") -> int:
    """The largest timestamp of the log after the batch, from now on."""
    answer = append(hand, batch, name)
    assert answer.error is None
    return hand.broker.streams.get(name).partition(0).log.segments[-1].max_timestamp - hand.clock.wall_ms()


@pytest.mark.parametrize("claim_ms", [-1_000_000_000, -1, 0, 1, 3_600_000, 3_600_001, 1 << 60])
def test_a_single_record_s_time_is_its_own_whatever_the_batch_claims(hand: ManualBroker, claim_ms: int) -> None:
    assert believed(hand, claiming(hand, at(hand, 0), claim_ms)) == 0


def test_a_single_record_that_is_too_late_is_refused_whatever_the_batch_claims(hand: ManualBroker) -> None:
    assert isinstance(append(hand, claiming(hand, at(hand, 3_600_001), 0)).error, TimestampInvalid)


@pytest.mark.parametrize("codec", range(5))
def test_where_records_are_looked_at_the_largest_timestamp_is_theirs(hand: ManualBroker, codec: int) -> None:
    hand.create("keys", cleanup_policy="compact")
    hand.create("near", message_timestamp_before_max_ms=5000)
    for name in ("keys", "near"):
        assert believed(hand, claiming(hand, at(hand, -4, -2, -3, key=b"k", codec=codec), 0), name) == -2
        assert believed(hand, claiming(hand, at(hand, -4, -1, -3, key=b"k", codec=codec), -4), name) == -1
    # A claim that is too late is looked at, and found to be none.
    assert believed(hand, claiming(hand, at(hand, -4, 5, -3, codec=codec), 3_600_001)) == 5


def test_a_record_without_a_time_makes_none(hand: ManualBroker) -> None:
    answer = append(hand, claiming(hand, encode([BatchInput(-1, None, b"v")]), 0))
    assert (answer.error, hand.broker.streams.get("a").partition(0).log.segments[-1].max_timestamp) == (None, -1)


def test_a_single_record_that_is_cut_off_is_refused(hand: ManualBroker) -> None:
    endless = seal(b"\x80" * 11, 1, 0, 0)
    assert isinstance(append(hand, endless).error, BatchInvalid)
    far = seal(encode_record(1, 0, None, b"v"), 1, (1 << 63) - 1, 0)
    assert isinstance(append(hand, far).error, BatchInvalid)


@pytest.mark.parametrize("place", ["memory", "segments", "after a restart", "from a cold disk"])
def test_the_newest_of_what_is_left_after_a_deletion(synced: ManualBroker, place: str) -> None:
    """Records before an offset are deleted, the newest by time among them, inside batches and segments too."""
    synced.create("t", segment_bytes=600)
    partition = synced.broker.streams.get("t").partition(0)
    chance = random.Random(7)
    now_ms = synced.clock.wall_ms()
    times: list[int] = []
    for _ in range(30):
        batch = [chance.randrange(-1000, 1000) for _ in range(chance.randint(1, 5))]
        times += batch
        append(synced, at(synced, *batch, codec=chance.randrange(5)), "t")
    if place != "memory":
        synced.advance(2000)
    for before in range(0, len(times) + 1, 3):
        deleted: CallbackResult[int] = CallbackResult()
        partition.delete_before(before, deleted)
        synced.settle()
        assert deleted.value == before
        if place in ("after a restart", "from a cold disk"):
            synced.restart()
            synced.files.cold = place == "from a cold disk"
            partition = synced.broker.streams.get("t").partition(0)
        left = times[before:]
        expected = (before + left.index(max(left)), now_ms + max(left)) if left else (-1, -1)
        assert found(synced, partition, MAX_TIMESTAMP) == expected


def test_the_newest_of_what_is_left_at_a_follower_that_leads() -> None:
    several = Several()
    created: CallbackResult[None] = CallbackResult()
    several.broker(1).create_stream(Definition("t", 1), created)
    several.settle()
    place = several.place("t")
    leader = several.partitions[place].leader or 1
    now_ms = several.hands[leader].clock.wall_ms()
    partition = several.broker(leader).streams.get("t").partition(0)
    for offset_ms in (900, 100, 500, 300):
        partition.append(encode([BatchInput(now_ms + offset_ms, None, b"v")]), None)
        several.advance(1000)
    deleted: CallbackResult[int] = CallbackResult()
    partition.delete_before(1, deleted)
    several.advance(1000)
    assert deleted.value == 1
    follower = next(node for node in (1, 2, 3) if node != leader)
    several.restart(follower)
    several.advance(1000)
    several.elect(place, follower)
    several.advance(1000)
    newest: CallbackResult[int] = CallbackResult()
    several.broker(follower).streams.get("t").partition(0).find_offset(MAX_TIMESTAMP, newest)
    several.advance(1000)
    assert newest.calls == [(2, now_ms + 500, None)]
