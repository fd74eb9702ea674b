"""Produce, written by hand, against Kafka's specification, two other implementations and hostile bytes."""

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codec.kafka.oracles import through_kafka_python, through_kio, written_by_kafka_python
from tests.codec.kafka.specification import drawn
from tests.examples import examples
from tests.mutation import mutate

from duramen.base.errors import RequestInvalid
from duramen.codec.kafka import produce
from duramen.codec.kafka.leaders import LeaderHint, NodeEndpoint
from duramen.codec.kafka.produce import PartitionData, PartitionResponse, ProduceRequest, TopicData, TopicResponse
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.codec.varint import encode_uvarint

API = APIS[ApiKey.PRODUCE]
SPECIFIED = range(3, API.high + 1)
FLEXIBLE = range(produce.FLEXIBLE, API.high + 1)
NAMES_LEADERS = 10

TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
RESPONSES = st.lists(
    st.builds(
        TopicResponse,
        st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
        st.lists(
            st.builds(
                PartitionResponse,
                st.integers(0, 1 << 30),
                st.sampled_from([0, 3, 45]),
                st.integers(-1, 1 << 62),
                st.integers(-1, 1 << 45),
                st.integers(-1, 1 << 62),
                TEXT,
                st.lists(st.tuples(st.integers(0, 1 << 30), TEXT), max_size=2),
                st.none() | st.builds(LeaderHint, st.integers(0, 1 << 30), st.integers(0, 1 << 30)),
            ),
            max_size=3,
        ),
    ),
    max_size=3,
)
ENDPOINTS = st.lists(
    st.builds(
        NodeEndpoint,
        st.integers(0, 1 << 30),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
        st.integers(0, 65535),
        TEXT,
    ),
    max_size=3,
    unique_by=lambda one: one.node_id,
)


def as_decoded(message: dict[str, Any]) -> ProduceRequest:
    """What our decoder has to make of a message of the specification."""
    return ProduceRequest(
        message["transactional_id"],
        message["acks"],
        message["timeout_ms"],
        [
            TopicData(
                topic["name"], [PartitionData(part["index"], part["records"]) for part in topic["partition_data"]]
            )
            for topic in message["topic_data"]
        ],
    )


@pytest.mark.parametrize("version", SPECIFIED)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_requests_as_kafka_python_writes_them(version: int, data: st.DataObject) -> None:
    message = data.draw(drawn(API, "request", version))
    encoded = written_by_kafka_python(API.key, "request", version, message)
    assert produce.decode_request(version, memoryview(encoded), 0) == as_decoded(message)
    assert produce.decode_request(version, memoryview(b"head" + encoded), 4) == as_decoded(message)


@pytest.mark.parametrize("version", FLEXIBLE)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_our_requests_as_others_read_them(version: int, data: st.DataObject) -> None:
    request = as_decoded(data.draw(drawn(API, "request", version)))
    # The client never leaves records out.
    for topic in request.topics:
        topic.partitions[:] = [part for part in topic.partitions if part.records is not None]
    encoded = b"".join(produce.encode_request(version, request))
    _, theirs = through_kafka_python(API.key, "request", version, encoded)
    assert theirs == encoded
    assert through_kio(API.key, "request", version, encoded) == encoded
    assert produce.decode_request(version, memoryview(encoded), 0) == request


@pytest.mark.parametrize("version", SPECIFIED)
@settings(max_examples=examples(30))
@given(topics=RESPONSES, throttle_ms=st.integers(0, 1 << 30), endpoints=ENDPOINTS)
def test_our_responses_as_others_read_them(
    version: int, topics: list[TopicResponse], throttle_ms: int, endpoints: list[NodeEndpoint]
) -> None:
    encoded = produce.encode_response(version, topics, throttle_ms, endpoints)
    read, _ = through_kafka_python(API.key, "response", version, encoded)
    assert read.throttle_time_ms == throttle_ms
    if version >= NAMES_LEADERS:
        assert [(one.node_id, one.host, one.port, one.rack) for one in read.node_endpoints or ()] == endpoints
        leaders = [one.current_leader for topic in read.responses for one in topic.partition_responses]
        assert [None if one is None or one.leader_id < 0 else (one.leader_id, one.leader_epoch) for one in leaders] == [
            part.leader for _, partitions in topics for part in partitions
        ]
    assert [
        (
            topic.name,
            [
                (part.index, part.error_code, part.base_offset, part.log_append_time_ms, part.log_start_offset)
                + (
                    (
                        part.error_message,
                        [(one.batch_index, one.batch_index_error_message) for one in part.record_errors],
                    )
                    if version >= 8
                    else ()
                )
                for part in topic.partition_responses
            ],
        )
        for topic in read.responses
    ] == [
        (
            name,
            [
                tuple(part[:4])
                + ((part.start_offset,) if version >= 5 else (-1,))
                + (part[5:7] if version >= 8 else ())
                for part in partitions
            ],
        )
        for name, partitions in topics
    ]
    assert through_kio(API.key, "response", version, encoded) == encoded


@pytest.mark.parametrize("version", FLEXIBLE)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_responses_as_kafka_python_writes_them(version: int, data: st.DataObject) -> None:
    message = data.draw(drawn(API, "response", version))
    encoded = written_by_kafka_python(API.key, "response", version, message)
    assert produce.decode_response(version, memoryview(encoded), 0) == [
        TopicResponse(
            topic["name"],
            [
                PartitionResponse(
                    part["index"],
                    part["error_code"],
                    part["base_offset"],
                    part["log_append_time_ms"],
                    part["log_start_offset"],
                    part["error_message"],
                    [(one["batch_index"], one["batch_index_error_message"]) for one in part["record_errors"]],
                )
                for part in topic["partition_responses"]
            ],
        )
        for topic in message["responses"]
    ]


@pytest.mark.parametrize("version", range(3))
def test_old_requests_are_read_so_that_they_can_be_refused(version: int) -> None:
    encoded = b"\xff\xff\0\0\x75\x30" + b"\0\0\0\x01\0\x01t" + b"\0\0\0\x01\0\0\0\x07\0\0\0\x03abc"
    assert produce.decode_request(version, memoryview(encoded), 0) == ProduceRequest(
        None, -1, 30_000, [TopicData("t", [PartitionData(7, memoryview(b"abc"))])]
    )


@settings(max_examples=examples(300))
@given(version=st.integers(0, API.high), junk=st.binary(max_size=80))
def test_arbitrary_bytes_are_a_request_or_refused(version: int, junk: bytes) -> None:
    _read_or_refuse(version, junk)


@settings(max_examples=examples(400))
@given(data=st.data(), version=st.sampled_from(SPECIFIED), seed=st.integers(0, 1 << 32))
def test_mutated_requests_and_responses_are_read_or_refused(data: st.DataObject, version: int, seed: int) -> None:
    chance = random.Random(seed)
    kind = chance.choice(("request", "response"))
    message = data.draw(drawn(API, kind, version))
    encoded = bytearray(written_by_kafka_python(API.key, kind, version, message))
    for _ in range(chance.randint(1, 4)):
        mutate(encoded, chance)
    _read_or_refuse(version, bytes(encoded))


def _read_or_refuse(version: int, data: bytes) -> None:
    with contextlib.suppress(RequestInvalid):
        request = produce.decode_request(version, memoryview(data), 0)
        assert sum(len(part.records or b"") for topic in request.topics for part in topic.partitions) <= len(data)
    with contextlib.suppress(RequestInvalid):
        produce.decode_response(version, memoryview(data), 0)


@pytest.mark.parametrize("version", [3, 9])
def test_many_small_arrays_together_are_bounded(version: int) -> None:
    """A hundred megabytes of empty partitions would be gigabytes of objects."""
    if version < produce.FLEXIBLE:
        topic = b"\0\x01t" + (600).to_bytes(4, "big") + b"\0\0\0\x07\xff\xff\xff\xff" * 600
        data = b"\xff\xff" + b"\0\x01\0\0\0\x01" + (1000).to_bytes(4, "big") + topic * 1000
    else:
        topic = b"\x02t" + encode_uvarint(601) + b"\0\0\0\x07\0\0" * 600 + b"\0"
        data = b"\0" + b"\0\x01\0\0\0\x01" + encode_uvarint(1001) + topic * 1000 + b"\0"
    with pytest.raises(RequestInvalid, match="cannot have 600 elements"):
        produce.decode_request(version, memoryview(data), 0)
