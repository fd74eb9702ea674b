"""The usual Produce request in one call: the native reader and its twin, beside the decoders of every request.

Without the native package what needs it is skipped; the twin is tested either way.
"""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.mutation import mutate

from duramen.base.native import is_installed
from duramen.codec.batch import CRC_START, TRANSACTIONAL, BatchInput, check, encode
from duramen.codec.crc import crc32c
from duramen.codec.kafka.header import encode_request, encode_response, read_request_header
from duramen.codec.kafka.hot_produce import HotProduce, encode_answer, read_produce, reader
from duramen.codec.kafka.produce import (
    FLEXIBLE,
    PartitionData,
    PartitionResponse,
    ProduceRequest,
    TopicData,
    TopicResponse,
    decode_request,
)
from duramen.codec.kafka.produce import encode_request as encode_body
from duramen.codec.kafka.produce import encode_response as encode_answer_body
from duramen.codec.kafka.versions import APIS, ApiKey

installed = pytest.mark.skipif(not is_installed(), reason="the native package is not installed")

VERSIONS = st.integers(3, APIS[ApiKey.PRODUCE].high)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TIMES = st.integers(-1, 1 << 42)
RECORDS = st.builds(BatchInput, TIMES, st.none() | st.binary(max_size=9), st.binary(max_size=90), st.just(()))
BATCHES = st.builds(
    encode,
    st.lists(RECORDS, min_size=1, max_size=3),
    codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
    attributes=st.sampled_from([0, 0, 0, 0x08, 0x20, 0x40, 0x80]),
    producer_id=st.sampled_from([-1, 0, 77]),
    producer_epoch=st.sampled_from([0, 0, -1]),
    base_sequence=st.sampled_from([0, 5, -1]),
)  # fmt: skip
ACKS = st.sampled_from([-1, -1, 1, 0, 2])


def plain_body(request: ProduceRequest) -> bytes:
    """The body in the form of the versions 3 to 8."""

    def text(value: str | None) -> bytes:
        encoded = (value or "").encode()
        return struct.pack(">h", -1 if value is None else len(encoded)) + encoded

    parts = [text(request.transactional_id), struct.pack(">hii", request.acks, request.timeout_ms, len(request.topics))]
    for topic in request.topics:
        parts += (text(topic.name), struct.pack(">i", len(topic.partitions)))
        for index, records in topic.partitions:
            data = bytes(records or b"")
            parts += (struct.pack(">ii", index, len(data)), data)
    return b"".join(parts)


def framed(version: int, request: ProduceRequest, client_id: str = "client", correlation_id: int = 7) -> bytes:
    """The whole request."""
    body = b"".join(encode_body(version, request)) if version >= FLEXIBLE else plain_body(request)
    return encode_request(ApiKey.PRODUCE, version, correlation_id, client_id, body)


def to_one(
    batch: bytes | bytearray, topic: str = "topic", partition: int = 3, acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:  # fmt: skip
    """A request of one batch."""
    return ProduceRequest(
        transactional_id, acks, 1000, [TopicData(topic, [PartitionData(partition, memoryview(batch))])]
    )


def resealed(frame: bytes, at: int) -> bytes:
    """With a size and a CRC that fit, where there is a batch at that place."""
    changed = bytearray(frame)
    changed[:4] = (len(changed) - 4).to_bytes(4, "big")
    if len(changed) > at + CRC_START:
        end = at + 12 + int.from_bytes(changed[at + 8 : at + 12], "big")
        changed[at + 17 : at + CRC_START] = crc32c(bytes(changed[at + CRC_START : max(at, end)])).to_bytes(4, "big")
    return bytes(changed)


def read_both(data: bytes) -> HotProduce | None:
    """What the twin reads, which is what the native reader reads, of bytes that can and that cannot be written."""
    found = read_produce(data)
    for way in (reader(), read_produce):
        for buffer in (data, bytearray(data), memoryview(bytearray(data))):
            assert way(buffer) == found
    return found


class TestReading:
    @given(VERSIONS, BATCHES, NAMES, NAMES, st.integers(0, 1 << 30), ACKS, st.binary(max_size=20))
    def test_it_says_what_the_ordinary_decoders_say(
        self, version: int, batch: bytes, topic: str, client_id: str, partition: int, acks: int, behind: bytes
    ) -> None:
        frame = framed(version, to_one(batch, topic, partition, acks), client_id)
        found = read_both(frame + behind)
        if found is None:
            return
        header = read_request_header(frame[4:])
        request = decode_request(version, memoryview(frame)[4:], header.end)
        start, stop = found[7:9]
        assert found[:7] == (len(frame), version, header.correlation_id, client_id, acks, topic, partition)
        assert request == to_one(frame[start:stop], topic, partition, acks)
        assert found[9] == check(frame[start:stop])

    @pytest.mark.parametrize("version", range(3, APIS[ApiKey.PRODUCE].high + 1))
    def test_the_usual_ones_are_read(self, version: int) -> None:
        for records in ([BatchInput(5, None, b"v")], [BatchInput(5, b"k", b"v" * 999)] * 50):
            for codec in (0, 1, 2, 3, *([4] if version >= 7 else [])):
                batch = encode(records, codec=codec, producer_id=9, producer_epoch=1, base_sequence=2)
                assert read_both(framed(version, to_one(batch))) is not None

    @pytest.mark.parametrize("version", [3, 7, 9, 12])
    def test_the_others_are_not(self, version: int) -> None:
        sound = encode([BatchInput(5, None, b"v")])
        late = bytearray(sound)
        late[35:43] = (6).to_bytes(8, "big")
        late[17:21] = crc32c(bytes(late[CRC_START:])).to_bytes(4, "big")
        transactional = encode(
            [BatchInput(5, None, b"v")], attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0
        )
        unusual = [
            to_one(sound, transactional_id="t"),
            to_one(sound, acks=0),
            to_one(sound, acks=3),
            to_one(sound, topic="t" * 127),
            to_one(sound[:-1]),
            to_one(sound + sound),
            to_one(late),
            to_one(transactional),
            ProduceRequest(None, -1, 1, [TopicData("t", [PartitionData(0, memoryview(sound))] * 2)]),
            ProduceRequest(None, -1, 1, [TopicData("t", [PartitionData(0, memoryview(sound))])] * 2),
            ProduceRequest(None, -1, 1, []),
        ]  # fmt: skip
        for request in unusual:
            assert read_both(framed(version, request)) is None
        whole = framed(version, to_one(sound))
        assert [read_both(whole[:size]) for size in range(len(whole))] == [None] * len(whole)
        for old in (0, 2, 13):
            assert read_both(whole[:6] + old.to_bytes(2, "big") + whole[8:]) is None
        assert read_both(whole[:4] + b"\0\x01" + whole[6:]) is None

    @installed
    @given(VERSIONS, BATCHES, NAMES, ACKS, st.integers(), st.booleans())
    @settings(deadline=None, max_examples=examples(2000))
    def test_hostile_bytes_are_the_same_to_both(
        self, version: int, batch: bytes, topic: str, acks: int, seed: int, reseals: bool
    ) -> None:
        frame = bytearray(framed(version, to_one(batch, topic, acks=acks)))
        at = frame.index(batch)
        chance = random.Random(seed)
        for _ in range(chance.randint(1, 4)):
            mutate(frame, chance)
        read_both(resealed(bytes(frame), at) if reseals else bytes(frame))


@given(
    VERSIONS, st.integers(0, 1 << 30), NAMES, st.integers(0, 1 << 30), st.integers(0, 1 << 62), st.integers(0, 1 << 62)
)
def test_the_answer_is_the_ordinary_one(
    version: int, correlation_id: int, topic: str, partition: int, base_offset: int, start_offset: int
) -> None:
    ordinary = [TopicResponse(topic, [PartitionResponse(partition, 0, base_offset, -1, start_offset)])]
    body = encode_answer_body(version, ordinary)
    assert encode_answer(version, correlation_id, topic, partition, base_offset, start_offset) == encode_response(
        ApiKey.PRODUCE, version, correlation_id, body
    )
