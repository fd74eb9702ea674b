"""Decisions about streams, and what is seen of them before and after they are durable."""

import errno

import pytest

from duramen.base.errors import (
    NodeStopping,
    StorageFailed,
    StreamDiffers,
    StreamExists,
    StreamNotFound,
)
from duramen.base.ids import METADATA_STREAM_ID, shard_of
from duramen.codec.batch import BatchInput, encode
from duramen.metadata.decisions import PRODUCER_ID_BLOCK, Definition
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.storage.log.log import LogKey


def creating(hand: ManualBroker, name: str, partitions: int = 1, *, idempotent: bool = False) -> CallbackResult[None]:
    """Ask for a stream."""
    answer: CallbackResult[None] = CallbackResult()
    hand.broker.create_stream(Definition(name, partitions), answer, idempotent=idempotent)
    return answer


def names(hand: ManualBroker) -> list[str]:
    """Every stream there is."""
    return [stream.name for stream in hand.broker.streams]


def test_a_stream_is_there_when_it_is_durable() -> None:
    hand = ManualBroker()
    answer = creating(hand, "a", 3)
    assert not answer.there
    assert names(hand) == []
    hand.settle()
    assert answer.value is None
    stream = hand.broker.streams.get("a")
    assert (len(stream.partitions), shard_of(stream.id), stream.internal) == (3, 0, False)
    assert hand.broker.streams.find_id(stream.id) is stream


def test_two_creates_of_one_name_at_once() -> None:
    hand = ManualBroker()
    first, second = creating(hand, "a"), creating(hand, "a")
    hand.settle()
    assert first.value is None
    assert isinstance(second.error, StreamExists)
    assert names(hand) == ["a"]


def test_two_idempotent_creates_of_one_name_at_once() -> None:
    hand = ManualBroker()
    first, second = creating(hand, "a", idempotent=True), creating(hand, "a", idempotent=True)
    other = creating(hand, "a", 2, idempotent=True)
    assert isinstance(other.error, StreamDiffers)
    assert not second.there, "it rests on what is not durable yet"
    hand.settle()
    assert (first.value, second.value) == (None, None)


def test_a_create_a_delete_and_a_create_at_once() -> None:
    hand = ManualBroker()
    creating(hand, "a")
    deleted: CallbackResult[None] = CallbackResult()
    hand.broker.delete_stream("a", deleted)
    again = creating(hand, "a", 5)
    hand.settle()
    assert (deleted.value, again.value) == (None, None)
    assert len(hand.broker.streams.get("a").partitions) == 5


def test_a_decision_that_cannot_be_stored_never_was() -> None:
    hand = ManualBroker()
    hand.create("kept")

    def fail(call: str, _: str, size: int) -> int:
        if call == "sync":
            raise OSError(errno.EIO, "the disk")
        return size

    hand.files.interfere = fail
    answers = [creating(hand, "a"), creating(hand, "a", idempotent=True), creating(hand, "b")]
    hand.settle()
    assert [type(answer.error) for answer in answers] == [StorageFailed] * 3
    assert names(hand) == ["kept"]
    refused = creating(hand, "c")
    hand.settle()
    assert isinstance(refused.error, StorageFailed), "no more writes until the restart"
    hand.files.interfere = None
    hand.crash()
    assert names(hand) == ["kept"]
    hand.create("a")
    assert sorted(names(hand)) == ["a", "kept"]


def test_a_stream_made_again_has_another_id_and_none_of_the_records() -> None:
    hand = ManualBroker()
    first = hand.create("a")
    hand.produce("a", b"old")
    hand.settle()
    hand.delete("a")
    assert (first.deleted, hand.broker.streams.find_id(first.id)) == (True, None)
    second = hand.create("a")
    assert second.id != first.id
    assert hand.values("a") == []
    with pytest.raises(StreamNotFound):
        hand.broker.streams.get("b")


def test_a_batch_that_comes_for_a_deleted_stream_is_refused() -> None:
    hand = ManualBroker()
    partition = hand.create("a").partition(0)
    hand.delete("a")
    answer: CallbackResult[int] = CallbackResult()
    partition.append(encode([BatchInput(0, None, b"late")]), answer)
    hand.settle()
    assert isinstance(answer.error, StreamNotFound)


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_everything_is_there_again(how: str) -> None:
    hand = ManualBroker()
    for number in range(20):
        hand.create(f"s{number}", partitions=1 + number % 4)
    for number in range(0, 20, 5):
        hand.delete(f"s{number}")
    grown: CallbackResult[None] = CallbackResult()
    hand.broker.add_partitions("s1", 7, grown)
    configured: CallbackResult[None] = CallbackResult()
    hand.broker.configure_stream("s2", {"retention.ms": "1000"}, configured)
    hand.settle()
    before = {stream.name: (stream.id, len(stream.partitions)) for stream in hand.broker.streams}
    if how == "restart":
        hand.restart()
    else:
        hand.crash()
    assert {stream.name: (stream.id, len(stream.partitions)) for stream in hand.broker.streams} == before
    assert before["s1"][1] == 7
    assert hand.broker.streams.get("s2").config.integer("retention.ms") == 1000


def test_logs_of_a_stream_whose_deletion_was_cut_short_go_at_the_next_start() -> None:
    hand = ManualBroker()
    log = hand.create("a").partition(0).log
    hand.produce("a", b"x")
    hand.advance(2000)
    assert any(path.startswith(log.directory) for path in hand.files.paths())
    deleted: CallbackResult[None] = CallbackResult()
    hand.broker.delete_stream("a", deleted)
    hand.worker.run_soon()
    hand.worker.start("sync")()
    assert deleted.value is None
    hand.crash()
    hand.settle()
    assert not any(path.startswith(log.directory + "/") for path in hand.files.paths())


def test_configs_take_effect_while_the_node_runs() -> None:
    hand = ManualBroker()
    stream = hand.create("a")
    configured: CallbackResult[None] = CallbackResult()
    hand.broker.configure_stream("a", {"max.message.bytes": "100", "segment.bytes": "200"}, configured)
    hand.settle()
    assert configured.value is None
    assert (stream.max_message_bytes, stream.partition(0).log.config.segment_bytes) == (100, 200)
    back: CallbackResult[None] = CallbackResult()
    hand.broker.configure_stream("a", {"max.message.bytes": None}, back)
    hand.settle()
    assert stream.max_message_bytes == 1_048_588


def test_new_partitions_are_empty_and_the_old_ones_stay() -> None:
    hand = ManualBroker()
    stream = hand.create("a", partitions=2)
    hand.produce("a", b"x", partition=1)
    old = list(stream.partitions)
    grown: CallbackResult[None] = CallbackResult()
    hand.broker.add_partitions("a", 4, grown)
    hand.settle()
    assert stream.partitions[:2] == old
    assert [partition.log.end_offset for partition in stream.partitions] == [0, 1, 0, 0]


# -- producer ids ---------------------------------------------------------------------------------------


def test_producer_ids_are_never_given_twice() -> None:
    hand = ManualBroker()
    given: list[int] = []
    for number in range(PRODUCER_ID_BLOCK * 2 + 5):
        answer: CallbackResult[int] = CallbackResult()
        hand.broker.producer_ids.allocate(answer)
        hand.settle()
        given.append(answer.value)
        if number % 700 == 0:
            hand.crash()
    assert len(set(given)) == len(given)
    assert given == sorted(given)


def test_a_producer_id_is_durable_before_it_is_given() -> None:
    hand = ManualBroker()
    answers: list[CallbackResult[int]] = [CallbackResult() for _ in range(3)]
    for answer in answers:
        hand.broker.producer_ids.allocate(answer)
    assert not any(answer.there for answer in answers)
    hand.settle()
    assert len({answer.value for answer in answers}) == 3


def metadata_end(hand: ManualBroker) -> int:
    log = hand.store.log(LogKey(METADATA_STREAM_ID, 0))
    assert log is not None
    return log.end_offset


def test_a_new_node_takes_part_once() -> None:
    hand = ManualBroker()
    end = metadata_end(hand)
    hand.restart()
    hand.restart()
    assert metadata_end(hand) == end


def test_a_wish_that_is_refused_is_not_taken_for_an_earlier_one_that_waits_for_its_sync() -> None:
    hand = ManualBroker()
    first = creating(hand, "first")
    stopped: CallbackResult[None] = CallbackResult()
    hand.store.stop(stopped)
    second = creating(hand, "second")
    assert isinstance(second.error, NodeStopping)
    hand.settle()
    assert first.there
    assert first.value is None
    assert names(hand) == ["first"]
    hand.files.locks.clear()
    hand.start()
    assert names(hand) == ["first"]
