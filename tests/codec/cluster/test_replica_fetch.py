"""The replicas' Fetch: it is Kafka's for who knows Kafka's only, and damaged bytes are refused."""

import struct
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codec.kafka.oracles import through_kafka_python

from duramen.base.errors import RequestInvalid
from duramen.codec.cluster.replica_fetch import (
    Diverging,
    Leader,
    ReplicaAnswer,
    ReplicaAnswerHead,
    ReplicaFetch,
    ReplicaPartition,
    ReplicaTopic,
    ReplicaTopicAnswer,
    decode_answer,
    decode_fetch,
    encode_answer,
    encode_fetch,
)
from duramen.codec.kafka import fetch as kafka_fetch

VERSION = 17
FETCH = 1

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int16 = st.integers(-(1 << 15), (1 << 15) - 1)
partitions = st.builds(ReplicaPartition, int32, int32, int64, int32, int64, int32, int64)
topics = st.builds(ReplicaTopic, st.uuids(), st.lists(partitions, max_size=4))
fetches = st.builds(
    ReplicaFetch, int32, int64, int32, int32, int32, st.lists(topics, max_size=3), int32, int32,
    st.lists(st.tuples(st.uuids(), st.lists(int32, max_size=3)), max_size=2),
)  # fmt: skip


@st.composite
def answers(draw: st.DrawFn) -> ReplicaAnswer:
    records = draw(st.binary(max_size=40))
    return ReplicaAnswer(
        draw(int32), draw(int16), draw(int64), draw(int64), draw(int64), len(records),
        draw(st.none() | st.builds(Diverging, int32, int64)), draw(st.none() | st.builds(Leader, int32, int32)),
        memoryview(records),
    )  # fmt: skip


topic_answers = st.lists(st.builds(ReplicaTopicAnswer, st.uuids(), st.lists(answers(), max_size=3)), max_size=3)
heads = st.builds(ReplicaAnswerHead, int16, int32)


def body_of(topics: list[ReplicaTopicAnswer], head: ReplicaAnswerHead) -> bytes:
    pieces = encode_answer(topics, head)
    records = [bytes(answer.records) for topic in topics for answer in topic.partitions if answer.size]
    assert len(pieces) == len(records) + 1
    return b"".join(piece + more for piece, more in zip(pieces, [*records, b""], strict=True))


@given(fetches)
def test_a_fetch_comes_out_as_it_went_in(fetch: ReplicaFetch) -> None:
    assert decode_fetch(encode_fetch(fetch)) == fetch


@given(topic_answers, heads)
def test_an_answer_comes_out_as_it_went_in(topics: list[ReplicaTopicAnswer], head: ReplicaAnswerHead) -> None:
    assert decode_answer(body_of(topics, head)) == (head, topics)


@given(fetches)
def test_for_kafka_it_is_a_fetch_of_version_17(fetch: ReplicaFetch) -> None:
    theirs = kafka_fetch.decode_request(VERSION, memoryview(encode_fetch(fetch)), 0)
    assert (theirs.max_wait_ms, theirs.min_bytes, theirs.max_bytes) == fetch[2:5]
    assert (theirs.session_id, theirs.session_epoch, list(theirs.forgotten)) == fetch[6:]
    assert [(topic.topic, [(one.partition, one.offset, one.max_bytes, one.leader_epoch) for one in topic.partitions])
            for topic in theirs.topics] == [
        (topic.stream_id, [(one.partition, one.offset, one.max_bytes, one.leader_epoch) for one in topic.partitions])
        for topic in fetch.topics
    ]  # fmt: skip


@given(topic_answers, heads)
def test_for_kafka_it_is_an_answer_of_version_17(topics: list[ReplicaTopicAnswer], head: ReplicaAnswerHead) -> None:
    error_code, theirs = kafka_fetch.decode_response(VERSION, memoryview(body_of(topics, head)), 0)
    assert error_code == head.error_code
    assert [one[:6] for one in theirs] == [
        (topic.stream_id, one.partition, one.error_code, one.high_watermark, one.start_offset, one.records)
        for topic in topics
        for one in topic.partitions
    ]


def test_kafka_python_reads_the_same() -> None:
    stream = UUID(int=3)
    fetch = ReplicaFetch(2, 7, 500, 1, 1000, [ReplicaTopic(stream, [ReplicaPartition(0, 5, 40, 4, 10, 100, 39)])])
    read, _ = through_kafka_python(FETCH, "request", VERSION, encode_fetch(fetch))
    partition = read.topics[0].partitions[0]
    assert (partition.fetch_offset, partition.last_fetched_epoch, partition.log_start_offset) == (40, 4, 10)
    assert (read.replica_state.replica_id, read.replica_state.replica_epoch) == (2, 7)
    answer = ReplicaAnswer(0, 0, 38, 10, 37, 0, Diverging(4, 33), Leader(1, 5))
    body = body_of([ReplicaTopicAnswer(stream, [answer])], ReplicaAnswerHead())
    read, _ = through_kafka_python(FETCH, "response", VERSION, body)
    partition = read.responses[0].partitions[0]
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (4, 33)
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 5)


def test_other_tagged_fields_are_read_over() -> None:
    """A later version may say more: the slow way reads it as well."""
    body = encode_fetch(
        ReplicaFetch(2, 7, 500, 1, 1000, [ReplicaTopic(UUID(int=3), [ReplicaPartition(0, 5, 40, 4, 10, 100, 39)])])
    )
    covered = bytes.fromhex("01904e08") + struct.pack(">q", 39)
    assert covered in body
    more = body.replace(covered, b"\2" + covered[1:] + bytes.fromhex("914e0101"))
    assert decode_fetch(more) == decode_fetch(body)
    without = body.replace(covered, b"\0")
    with pytest.raises(RequestInvalid, match="a partition does not say how far is covered"):
        decode_fetch(without)


@given(
    st.one_of(fetches.map(encode_fetch), st.tuples(topic_answers, heads).map(lambda both: body_of(*both))), st.data()
)
def test_damaged_bytes_are_read_or_refused(whole: bytes, data: st.DataObject) -> None:
    body = bytearray(whole)
    at = data.draw(st.integers(0, len(body) - 1))
    match data.draw(st.sampled_from(["cut", "flip", "more"])):
        case "cut":
            del body[at:]
        case "flip":
            body[at] ^= data.draw(st.integers(1, 255))
        case _:
            body[at:at] = data.draw(st.binary(max_size=9))
    for decode in (decode_fetch, decode_answer):
        with suppress(RequestInvalid):
            decode(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for decode in (decode_fetch, decode_answer):
        with suppress(RequestInvalid):
            decode(body)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "damaged"),
        (bytes(21) + b"\xff\xff\xff\xff\x0f", "an array cannot have"),
        (bytes(21) + b"\1\1\1\0", "it does not say whose it is"),
        (encode_fetch(ReplicaFetch(1, 1, 1, 1, 1, [])) + b"x", "1 bytes too many"),
    ],
)
def test_what_is_wrong_is_said(body: bytes, text: str) -> None:
    with pytest.raises(RequestInvalid, match=text):
        decode_fetch(body)
