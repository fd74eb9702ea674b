"""Batches in the form that `compression.type` asks for: the same records, in the order in which they came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import BatchCorrupt, BatchTooLarge, OutOfOrderSequence
from duramen.codec.batch import CODEC_MASK, BatchInput, batches, check, encode, header, recompress, records
from duramen.codec.compression import CODECS
from duramen.codec.crc import crc32c
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.storage.scan import read_slice

TYPES = ("uncompressed", *CODECS[1:])
RECORDS = st.lists(
    st.builds(
        BatchInput, st.integers(0, 1 << 40), st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
    ), min_size=1, max_size=20,
)  # fmt: skip


@given(
    new=RECORDS, before=st.integers(0, 4), after=st.integers(0, 4), level=st.none() | st.integers(1, 9),
    producer=st.tuples(st.integers(-1, 9), st.integers(0, 3), st.integers(0, 99)),
)  # fmt: skip
def test_a_batch_keeps_everything_but_its_codec(
    new: list[BatchInput], before: int, after: int, level: int | None, producer: tuple[int, int, int]
) -> None:
    producer_id, epoch, sequence = producer
    batch = encode(
        new, codec=before, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, base_offset=7
    )
    again = recompress(bytes(batch), after, level, limit_bytes=1 << 20)
    assert list(records(again)) == list(records(batch))
    old, found = header(batch), check(again)
    assert found.attributes & CODEC_MASK == after
    assert old._replace(length=0, crc=0, attributes=0) == found._replace(length=0, crc=0, attributes=0)


def test_lz4_frames_have_independent_blocks() -> None:
    """Kafka's Java clients read no others."""
    for level in (None, 1, 9, 12):
        batch = recompress(bytes(encode([BatchInput(1, None, bytes(1 << 20))])), 3, level, limit_bytes=1 << 22)
        assert batch[61:65] == bytes.fromhex("04224d18")
        assert batch[65] & 0b1110_0000 == 0b0110_0000


def test_what_would_grow_too_large_is_refused() -> None:
    batch = encode([BatchInput(1, None, bytes(1 << 20))], codec=4)
    with pytest.raises(BatchCorrupt, match="more than 1000 bytes"):
        recompress(bytes(batch), 0, None, limit_bytes=1000)


def _codecs(hand: ManualBroker, name: str) -> list[int]:
    answer, _ = hand.fetch((name, 0, 0))
    hand.settle()
    found = answer.value[0].slice
    assert found is not None
    data: CallbackResult[bytes] = CallbackResult()
    read_slice(hand.store, found, data)
    hand.settle()
    return [one.attributes & CODEC_MASK for _, one in batches(data.value)]


@pytest.mark.parametrize("wanted", TYPES)
def test_every_batch_gets_the_form_of_its_stream(any_hand: ManualBroker, wanted: str) -> None:
    hand = any_hand
    hand.create("again", compression_type=wanted)
    answers = [hand.produce("again", b"%d" % codec * 50, codec=codec) for codec in range(5)]
    hand.settle()
    assert [answer.value for answer in answers] == list(range(5))
    assert set(_codecs(hand, "again")) == {TYPES.index(wanted)}
    assert hand.values("again") == [b"%d" % codec * 50 for codec in range(5)]


@given(
    codecs=st.lists(st.integers(0, 4), min_size=1, max_size=12), form=st.sampled_from(TYPES), seed=st.integers(0, 99)
)
def test_batches_stay_in_the_order_in_which_they_came(codecs: list[int], form: str, seed: int) -> None:
    hand = ManualBroker(seed=seed)
    hand.create("again", partitions=2, compression_type=form)
    answers = [
        hand.produce(
            "again", b"%d" % at, codec=codec, partition=at % 2, producer_id=5, producer_epoch=0, base_sequence=at // 2
        )
        for at, codec in enumerate(codecs)
    ]  # fmt: skip
    # One that came before is sent again while those behind it wait.
    repeated = hand.produce("again", b"0", codec=codecs[0], producer_id=5, producer_epoch=0, base_sequence=0)
    hand.settle()
    assert [answer.value for answer in answers] == [at // 2 for at in range(len(codecs))]
    if len(codecs) <= 10:
        assert repeated.value == 0
    for partition in range(2):
        assert hand.values("again", partition) == [b"%d" % at for at in range(partition, len(codecs), 2)]


def test_what_waits_is_appended_when_the_form_changes(synced: ManualBroker) -> None:
    synced.create("again", compression_type="gzip")
    first = [synced.produce("again", b"x" * 99) for _ in range(3)]
    done: CallbackResult[None] = CallbackResult()
    synced.broker.configure_stream("again", {"compression.type": "producer"}, done)
    synced.settle()
    then = synced.produce("again", b"y" * 99, codec=4)
    synced.settle()
    assert [answer.value for answer in (*first, then)] == [0, 1, 2, 3]
    assert _codecs(synced, "again")[-1] == 4


def test_errors_are_answered_each_for_its_own_batch(synced: ManualBroker) -> None:
    synced.create("again", compression_type="uncompressed", max_message_bytes=1000)
    broken = encode([BatchInput(synced.clock.wall_ms(), None, b"x" * 400)], codec=4)
    broken[70] ^= 0xFF
    whole = bytearray(broken)
    whole[17:21] = crc32c(memoryview(whole)[21:]).to_bytes(4, "big")
    damaged: CallbackResult[int] = CallbackResult()
    partition = synced.broker.streams.get("again").partition(0)
    partition.append(whole, damaged)
    grown = synced.produce("again", bytes(5000), codec=4)
    fine = synced.produce("again", b"fine", codec=1, producer_id=3, producer_epoch=0, base_sequence=0)
    gap = synced.produce("again", b"gap", codec=1, producer_id=3, producer_epoch=0, base_sequence=7)
    synced.settle()
    assert isinstance(damaged.error, BatchCorrupt)
    assert isinstance(grown.error, BatchTooLarge)
    assert fine.value == 0
    assert isinstance(gap.error, OutOfOrderSequence)
    assert synced.values("again") == [b"fine"]


def test_a_stream_that_is_deleted_meanwhile_refuses_what_waits(synced: ManualBroker) -> None:
    synced.create("again", compression_type="gzip")
    waiting = [synced.produce("again", b"x" * 99) for _ in range(2)]
    synced.delete("again")
    synced.settle()
    assert all(answer.there for answer in waiting)
