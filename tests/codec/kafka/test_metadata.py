"""Metadata of many topics by name: the short ways of the codec beside the schemas."""

import random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.mutation import mutate

from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.metadata import TopicsByName, encode_topic, read_named, topic_end
from duramen.codec.kafka.schema import EncodedElements
from duramen.codec.kafka.versions import APIS, ApiKey

API = APIS[ApiKey.METADATA]
REQUEST, RESPONSE = REQUESTS[ApiKey.METADATA], RESPONSES[ApiKey.METADATA]
VERSIONS = st.integers(API.low, API.high)
NULL_ID = UUID(int=0)
NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=140))
NODES = st.lists(st.integers(0, 9), max_size=3).map(tuple)


def request(version: int, names: list[str], *flags: bool) -> bytes:
    options = dict(zip(("allow_auto_topic_creation", "include_cluster_authorized_operations",
                        "include_topic_authorized_operations"), flags, strict=True))  # fmt: skip
    return REQUEST.encode(version, {"topics": [{"name": name, "topic_id": NULL_ID} for name in names], **options})


@given(VERSIONS, NAMES, st.booleans(), st.booleans(), st.booleans(), st.binary(max_size=3))
def test_requests_by_name_are_read_as_the_schema_does(
    version: int, names: list[str], creates: bool, of_cluster: bool, of_topics: bool, behind: bytes
) -> None:
    body = b"head" + request(version, names, creates, of_cluster, of_topics) + behind
    short = read_named(version, body, 4)
    assert (short is not None) == (version >= API.flexible)
    if short is not None:
        message, _ = REQUEST.decode_request(version, body, 4)
        assert isinstance(short["topics"], TopicsByName)
        assert short == {**message, "topics": [topic["name"] for topic in message["topics"]]}


@given(st.integers(API.flexible, API.high), NAMES, st.randoms())
def test_damaged_requests_are_left_to_the_schema(version: int, names: list[str], chance: random.Random) -> None:
    body = bytearray(request(version, names, True, True, True))
    mutate(body, chance)
    short = read_named(version, body, 0)
    if short is not None:
        message, _ = REQUEST.decode_request(version, body, 0)
        named = dict.fromkeys(topic["name"] for topic in message["topics"])
        assert short == {**message, "topics": list(named)}


def test_requests_by_id_and_for_all_topics_are_left_to_the_schema() -> None:
    for topics in (None, [{"name": None, "topic_id": UUID(int=7)}], [{"name": None, "topic_id": NULL_ID}]):
        assert read_named(API.high, REQUEST.encode(API.high, {"topics": topics}), 0) is None


@given(VERSIONS, NAMES, st.integers(-1, 9), NODES, NODES, NODES, st.integers(-(1 << 31), (1 << 31) - 1))
def test_topics_are_encoded_as_the_schema_does(
    version: int, names: list[str], leader: int, replicas: tuple[int, ...], isr: tuple[int, ...],
    offline: tuple[int, ...], operations: int,
) -> None:  # fmt: skip
    partition = {
        "error_code": 5 if leader < 0 else 0, "partition_index": 0, "leader_id": leader, "leader_epoch": 3,
        "replica_nodes": replicas, "isr_nodes": isr, "offline_replicas": offline,
    }  # fmt: skip
    ids = [UUID(int=number + 1) for number, _ in enumerate(names)]
    topics = [
        {"error_code": 0, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": [partition],
         "topic_authorized_operations": operations}
        for name, topic_id in zip(names, ids, strict=True)
    ]  # fmt: skip
    end = topic_end(version, operations, tuple(partition.items()))
    encoded = EncodedElements(
        encode_topic(version, name, topic_id.bytes, end) for name, topic_id in zip(names, ids, strict=True)
    )
    assert encoded == [RESPONSE.encode_element(version, "topics", topic) for topic in topics]
    assert RESPONSE.encode(version, {"topics": encoded}) == RESPONSE.encode(version, {"topics": topics})
