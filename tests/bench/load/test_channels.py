"""What answers mean, however they are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.bench.load.channels import IdempotentChannel, KafkaChannel, LoadChannel, MetadataChannel, NatsChannel
from duramen.codec.batch import check
from duramen.codec.kafka.header import encode_response, read_request_header
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.produce import PartitionResponse, TopicResponse, decode_request
from duramen.codec.kafka.produce import encode_response as encode_produced
from duramen.codec.kafka.versions import APIS, ApiKey

_VERSION = APIS[ApiKey.PRODUCE].high


def _answer(partitions: int, offset: int, error_code: int = 0, failed: int = 0, message: str | None = None) -> bytes:
    topics = [
        TopicResponse(
            "stream",
            [
                PartitionResponse(index, error_code if index == failed else 0, offset, message=message)
                for index in range(partitions)
            ],
        )
    ]
    return encode_response(ApiKey.PRODUCE, _VERSION, 1, encode_produced(_VERSION, topics))


def _take(channel: LoadChannel, data: bytes, cuts: list[int]) -> int:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return sum(channel.take(data[start:end]) for start, end in itertools.pairwise(places))


@given(st.integers(1, 300), st.integers(1, 20), st.lists(st.integers(0), max_size=10))
def test_kafka_counts_answers(partitions: int, answers: int, cuts: list[int]) -> None:
    channel = KafkaChannel(_VERSION, "stream", 10, range(partitions))
    data = b"".join(_answer(partitions, offset) for offset in range(answers))
    assert _take(channel, data, cuts) == answers


@given(st.integers(1, 300), st.integers(0, 3), st.data())
def test_kafka_finds_an_error_wherever_it_is(partitions: int, before: int, data: st.DataObject) -> None:
    channel = KafkaChannel(_VERSION, "stream", 10, range(partitions))
    answers = [_answer(partitions, 0)] * before
    failed = data.draw(st.integers(0, partitions - 1))
    # Kafka says no more than the number of some errors: such an answer is as long as any other.
    answers.append(_answer(partitions, 0, error_code=7, failed=failed))
    with pytest.raises(RequestInvalid, match="REQUEST_TIMED_OUT"):
        channel.take(b"".join(answers))


def test_kafka_sends_one_sound_record_to_each_partition() -> None:
    frame = memoryview(KafkaChannel(_VERSION, "stream", 1000, (3, 4)).frames(1))[4:]
    request = decode_request(_VERSION, frame, read_request_header(frame).end)
    assert request.acks == -1
    (topic,) = request.topics
    assert [data.partition for data in topic.partitions] == [3, 4]
    for data in topic.partitions:
        assert data.records is not None
        assert check(data.records).records == 1


def test_kafka_numbers_the_records_of_an_idempotent_producer() -> None:
    channel = IdempotentChannel(_VERSION, "stream", 100, 77)
    sent = b"".join((channel.frames(1), channel.frames(2)))
    size = len(sent) // 3
    for number in range(3):
        frame = memoryview(sent[size * number : size * (number + 1)])[4:]
        ((data,),) = (
            topic.partitions for topic in decode_request(_VERSION, frame, read_request_header(frame).end).topics
        )
        assert data.records is not None
        head = check(data.records)
        assert (head.producer_id, head.producer_epoch, head.base_sequence) == (77, 0, number)


@given(st.integers(1, 50), st.lists(st.integers(0), max_size=10))
def test_nats_counts_acknowledgements(answers: int, cuts: list[int]) -> None:
    channel = NatsChannel("a.b", "_INBOX.x", 10)
    payloads = [b'{"stream":"s","seq":%d}' % number for number in range(answers)]
    data = b"".join(b"MSG _INBOX.x 1 %d\r\n%b\r\n" % (len(payload), payload) for payload in payloads)
    assert _take(channel, data, cuts) == answers


def test_nats_answers_a_ping() -> None:
    channel = NatsChannel("a.b", "_INBOX.x", 10)
    assert channel.take(b"PING\r\n") == 0
    assert channel.reply == b"PONG\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b'MSG _INBOX.x 1 44\r\n{"error":{"code":503,"description":"stopping"}}\r\n'.replace(b" 44", b" 47"),
        b"HMSG _INBOX.x 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"-ERR 'Maximum Payload Violation'\r\n",
    ],
)
def test_nats_refusals_are_errors(data: bytes) -> None:
    with pytest.raises(RequestInvalid):
        NatsChannel("a.b", "_INBOX.x", 10).take(data)


@given(st.integers(1, 130), st.lists(st.integers(0), max_size=10))
def test_metadata_requests_take_turns_and_answers_are_counted(answers: int, cuts: list[int]) -> None:
    version = APIS[ApiKey.METADATA].high
    channel = MetadataChannel(version, [["a", "b"], ["c"]])
    frames = [memoryview(channel.frames(1))[4:] for _ in range(3)]
    asked = [
        REQUESTS[ApiKey.METADATA].decode(version, frame, read_request_header(frame).end)["topics"] for frame in frames
    ]
    assert [[topic["name"] for topic in topics] for topics in asked] == [["a", "b"], ["c"], ["a", "b"]]

    def answer(error_code: int) -> bytes:
        body = RESPONSES[ApiKey.METADATA].encode(version, {"topics": [{"name": "a", "error_code": error_code}]})
        return encode_response(ApiKey.METADATA, version, 1, body)

    assert _take(channel, answer(0) * answers, cuts) == answers
    channel.check()
    refused = MetadataChannel(version, [["a"]])
    assert refused.take(answer(3)) == 1
    with pytest.raises(RequestInvalid, match="a was not found: UNKNOWN_TOPIC_OR_PARTITION"):
        refused.check()
