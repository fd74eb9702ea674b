"""Fetch, written by hand, against Kafka's specification, two other implementations and hostile bytes."""

import contextlib
import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codec.kafka.oracles import through_kafka_python, through_kio, written_by_kafka_python
from tests.codec.kafka.specification import drawn
from tests.examples import examples
from tests.mutation import mutate

from duramen.base.errors import RequestInvalid
from duramen.codec.kafka import fetch
from duramen.codec.kafka.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionAnswer,
    PartitionRecords,
    TopicAnswer,
)
from duramen.codec.kafka.leaders import LeaderHint, NodeEndpoint
from duramen.codec.kafka.versions import APIS, ApiKey

API = APIS[ApiKey.FETCH]
VERSIONS = range(API.low, API.high + 1)
WITH_IDS = range(13, API.high + 1)

OFFSETS = st.integers(-1, 1 << 62)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
ANSWERS = st.builds(
    PartitionAnswer, st.integers(0, 1 << 30), st.sampled_from([0, 1, 3, 6, 100]), OFFSETS, OFFSETS, OFFSETS,
    st.integers(0, 40), st.none() | st.lists(st.tuples(OFFSETS, OFFSETS), max_size=3), st.integers(-1, 1 << 30),
    st.none() | st.builds(LeaderHint, st.integers(0, 1 << 30), st.integers(0, 1 << 30)),
)  # fmt: skip
ENDPOINTS = (NodeEndpoint(1, "one", 9092, None), NodeEndpoint(7, "seven", 1, "a"))
NAMES_LEADERS = 16


def topic_key(topic: dict[str, Any]) -> str | UUID:
    """A topic's id where the version has ids, else its name."""
    found: str | UUID = topic["topic_id"] if "topic_id" in topic else topic["topic"]
    return found


def as_decoded(message: dict[str, Any]) -> FetchRequest:
    """What our decoder has to make of a message of the specification."""
    return FetchRequest(
        message.get("replica_state", message).get("replica_id", -1),
        message["max_wait_ms"],
        message["min_bytes"],
        message["max_bytes"],
        message["isolation_level"],
        message.get("session_id", 0),
        message.get("session_epoch", -1),
        [
            FetchTopic(
                topic_key(topic),
                [
                    FetchPartition(
                        part["partition"],
                        part["fetch_offset"],
                        part["partition_max_bytes"],
                        part.get("current_leader_epoch", -1),
                    )
                    for part in topic["partitions"]
                ],
            )
            for topic in message["topics"]
        ],
        message.get("rack_id", ""),
        [(topic_key(topic), topic["partitions"]) for topic in message.get("forgotten_topics_data", ())],
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_requests_as_kafka_python_writes_them(version: int, data: st.DataObject) -> None:
    message = data.draw(drawn(API, "request", version))
    encoded = written_by_kafka_python(API.key, "request", version, message)
    assert fetch.decode_request(version, memoryview(encoded), 0) == as_decoded(message)
    assert fetch.decode_request(version, memoryview(b"head" + encoded), 4) == as_decoded(message)


@pytest.mark.parametrize("version", WITH_IDS)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_our_requests_as_others_read_them(version: int, data: st.DataObject) -> None:
    request = as_decoded(data.draw(drawn(API, "request", version)))
    if version >= 15:
        request = request._replace(replica_id=-1)  # a client is no replica, and has no field to say so
    encoded = fetch.encode_request(version, request)
    assert fetch.decode_request(version, memoryview(encoded), 0) == request
    read, _ = through_kafka_python(API.key, "request", version, encoded)
    assert [
        (topic.topic_id, [(part.partition, part.fetch_offset) for part in topic.partitions]) for topic in read.topics
    ] == [(topic.topic, [part[:2] for part in topic.partitions]) for topic in request.topics]
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes, read.rack_id) == (*request[1:4], request.rack_id)
    assert fetch.decode_request(version, memoryview(through_kio(API.key, "request", version, encoded)), 0) == request


@st.composite
def answers(draw: st.DrawFn, version: int) -> tuple[list[TopicAnswer], list[bytes]]:
    """Answers, and the records of the partitions that have any."""
    key = st.uuids() if version >= 13 else st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    topics = draw(st.lists(st.builds(TopicAnswer, key, st.lists(ANSWERS, max_size=3)), max_size=3))
    sizes = [part.size for topic in topics for part in topic.partitions if part.size]
    return topics, [draw(st.binary(min_size=size, max_size=size)) for size in sizes]


def joined(pieces: list[bytes], records: list[bytes]) -> bytes:
    """The response as it leaves: records between the pieces."""
    assert len(pieces) == len(records) + 1
    return pieces[0] + b"".join(bytes(part) for pair in zip(records, pieces[1:], strict=True) for part in pair)


def leader_in(part: Any) -> LeaderHint | None:
    """The leader that a partition of an answer names."""
    named = part.current_leader
    return None if named is None or named.leader_id < 0 else LeaderHint(named.leader_id, named.leader_epoch)


def _known(version: int, part: PartitionAnswer) -> PartitionAnswer:
    """What of an answer has a place in that version."""
    if version < 5:
        part = part._replace(start_offset=-1)
    if version < 11:
        part = part._replace(preferred_replica=-1)
    return part if version >= NAMES_LEADERS else part._replace(leader=None)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(30))
@given(data=st.data(), error_code=st.sampled_from([0, 70]))
def test_our_responses_as_others_read_them(version: int, data: st.DataObject, error_code: int) -> None:
    topics, records = data.draw(answers(version))
    encoded = joined(fetch.encode_response(version, topics, fetch.ResponseHead(error_code, 77, 5, ENDPOINTS)), records)
    read, _ = through_kafka_python(API.key, "response", version, encoded)
    assert (read.error_code, read.session_id) == ((error_code, 77) if version >= 7 else (0, 0))
    assert read.throttle_time_ms == 5
    left = iter(records)
    assert [
        (
            topic.topic_id if version >= 13 else topic.topic,
            [
                PartitionAnswer(
                    part.partition_index,
                    part.error_code,
                    part.high_watermark,
                    part.last_stable_offset,
                    part.log_start_offset,
                    len(part.records),
                    part.aborted_transactions
                    and [(one.producer_id, one.first_offset) for one in part.aborted_transactions],
                    part.preferred_read_replica,
                    leader_in(part) if version >= NAMES_LEADERS else None,
                )
                for part in topic.partitions
            ],
        )
        for topic in read.responses
    ] == [(name, [_known(version, part) for part in partitions]) for name, partitions in topics]
    if version >= NAMES_LEADERS:
        assert [(one.node_id, one.host, one.port, one.rack) for one in read.node_endpoints] == list(ENDPOINTS)
    for topic in read.responses:
        for part in topic.partitions:
            if part.records:
                assert bytes(part.records) == next(left)
    assert through_kio(API.key, "response", version, encoded) == encoded


@pytest.mark.parametrize("version", WITH_IDS)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_our_responses_as_our_client_reads_them(version: int, data: st.DataObject) -> None:
    topics, records = data.draw(answers(version))
    encoded = joined(fetch.encode_response(version, topics), records)
    left = iter(records)
    assert fetch.decode_response(version, memoryview(encoded), 0) == (
        0,
        [
            PartitionRecords(
                name, part.partition, part.error_code, part.high_watermark, part.start_offset,
                memoryview(next(left) if part.size else b""), tuple(part.aborted or ()),
            )
            for name, partitions in topics
            for part in partitions
        ],
    )  # fmt: skip


@pytest.mark.parametrize("version", WITH_IDS)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_responses_as_kafka_python_writes_them(version: int, data: st.DataObject) -> None:
    message = data.draw(drawn(API, "response", version))
    encoded = written_by_kafka_python(API.key, "response", version, message)
    code, parts = fetch.decode_response(version, memoryview(encoded), 0)
    assert code == message["error_code"]
    assert parts == [
        PartitionRecords(
            topic["topic_id"],
            part["partition_index"],
            part["error_code"],
            part["high_watermark"],
            part["log_start_offset"],
            memoryview(part["records"] or b""),
            tuple((one["producer_id"], one["first_offset"]) for one in part["aborted_transactions"] or ()),
        )
        for topic in message["responses"]
        for part in topic["partitions"]
    ]


@settings(max_examples=examples(300))
@given(version=st.sampled_from(VERSIONS), junk=st.binary(max_size=120))
def test_arbitrary_bytes_are_read_or_refused(version: int, junk: bytes) -> None:
    _read_or_refuse(version, junk)


@settings(max_examples=examples(400))
@given(data=st.data(), version=st.sampled_from(VERSIONS), seed=st.integers(0, 1 << 32))
def test_mutated_requests_and_responses_are_read_or_refused(data: st.DataObject, version: int, seed: int) -> None:
    chance = random.Random(seed)
    kind = chance.choice(("request", "response"))
    encoded = bytearray(written_by_kafka_python(API.key, kind, version, data.draw(drawn(API, kind, version))))
    for _ in range(chance.randint(1, 4)):
        mutate(encoded, chance)
    _read_or_refuse(version, bytes(encoded))


def _read_or_refuse(version: int, data: bytes) -> None:
    with contextlib.suppress(RequestInvalid):
        fetch.decode_request(version, memoryview(data), 0)
    if version in WITH_IDS:
        with contextlib.suppress(RequestInvalid):
            fetch.decode_response(version, memoryview(data), 0)


@pytest.mark.parametrize("tagged", [(), (0,), (1,), (2,), (0, 2)])
def test_partitions_may_have_tagged_fields_which_are_skipped(tagged: tuple[int, ...]) -> None:
    partitions = [FetchPartition(index, 10 + index, 1000 + index, 3) for index in range(3)]
    topics = [FetchTopic(UUID(int=1), partitions), FetchTopic(UUID(int=2), partitions[:1])]
    wanted = FetchRequest(-1, 500, 1, 1 << 20, 0, 7, 8, topics, forgotten=[])
    body = fetch.encode_request(16, wanted)
    size = 32
    start = body.index(UUID(int=1).bytes) + 17
    parts = [body[start + (size + 1) * index :][: size + 1] for index in range(3)]
    for index in tagged:
        parts[index] = parts[index][:size] + b"\x02\x05\x03abc\x06\x00"
    changed = body[:start] + b"".join(parts) + body[start + 3 * (size + 1) :]
    assert fetch.decode_request(16, memoryview(b"head" + changed), 4) == wanted


def test_many_small_arrays_together_are_bounded() -> None:
    topic = b"\0\x01t" + (600).to_bytes(4, "big") + bytes(16) * 600
    data = bytes(4 + 13) + (1000).to_bytes(4, "big") + topic * 1000
    with pytest.raises(RequestInvalid, match="cannot have 600 elements"):
        fetch.decode_request(4, memoryview(data), 0)
