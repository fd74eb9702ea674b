"""What each API needs is data beside its handler, and whoever lacks it gets Kafka's refusal in the right place."""

from typing import Any
from uuid import uuid4

import pytest
from tests.doors.kafka.by_hand import ByHand

from duramen.base.principal import ANONYMOUS, Principal
from duramen.codec.batch import BatchInput, encode
from duramen.codec.kafka import fetch, produce
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.produce import PartitionData, ProduceRequest, TopicData
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.doors.kafka.handlers import HANDLERS
from duramen.doors.kafka.request.metrics import error_codes
from duramen.service.admission import Service
from duramen.service.authorize import CLUSTER_NAME, Access, Operation, ResourceType

TOPIC, GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER, TRANSACTION = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
THERE, OTHER = "there", "other"
OF_A_TOPIC = {"name": THERE, "partitions": [{"partition_index": 0, "offset": 0}]}
COMMITTED = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
MEMBER = {"group_id": "g", "member_id": "m", "group_instance_id": None}
MINE = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
RESOURCE: dict[str, Any] = {"resource_name": THERE, "configs": [], "configuration_keys": None}

REFUSED: list[tuple[ApiKey, int, Message, set[ErrorCode]]] = [
    (ApiKey.LIST_OFFSETS, 9, {"replica_id": -1, "isolation_level": 0, "topics": [
        {"name": THERE, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}, {TOPIC}),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"topics": [
        {"topic": THERE, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}, {TOPIC}),
    (ApiKey.METADATA, 9, {"topics": [{"name": THERE}, {"name": "new"}]}, {TOPIC}),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {
        "topics": [{"name": THERE}], "response_partition_limit": 10, "cursor": None}, {TOPIC}),
    (ApiKey.CREATE_TOPICS, 7, {"timeout_ms": 1, "validate_only": False, "topics": [
        {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}]}, {TOPIC}),
    (ApiKey.DELETE_TOPICS, 5, {"topic_names": [THERE, "not there"], "timeout_ms": 1}, {TOPIC}),
    (ApiKey.DELETE_RECORDS, 2, {"topics": [OF_A_TOPIC], "timeout_ms": 1}, {TOPIC}),
    (ApiKey.CREATE_PARTITIONS, 3, {"timeout_ms": 1, "validate_only": False, "topics": [
        {"name": THERE, "count": 3, "assignments": None}]}, {TOPIC}),
    (ApiKey.DESCRIBE_CONFIGS, 4, {"include_synonyms": False, "include_documentation": False, "resources": [
        {"resource_type": kind, **RESOURCE} for kind in (2, 4, 8, 32)]}, {TOPIC, CLUSTER, GROUP}),
    (ApiKey.ALTER_CONFIGS, 2, {"validate_only": False, "resources": [
        {"resource_type": kind, **RESOURCE} for kind in (2, 4, 32)]}, {TOPIC, CLUSTER, GROUP}),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"validate_only": False, "resources": [
        {"resource_type": kind, **RESOURCE} for kind in (2, 4, 32)]}, {TOPIC, CLUSTER, GROUP}),
    (ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}, {CLUSTER}),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": [
        {"path": "/", "topics": [{"name": THERE, "partitions": [0]}]}]}, {CLUSTER}),
    (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]}, {GROUP}),
    (ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["t"]}, {TRANSACTION}),
    (ApiKey.FIND_COORDINATOR, 6, {"key_type": 2, "coordinator_keys": ["g:t:0"]}, {CLUSTER}),
    (ApiKey.JOIN_GROUP, 9, {**MEMBER, "session_timeout_ms": 1, "rebalance_timeout_ms": 1, "protocol_type": "consumer",
        "protocols": [], "reason": None}, {GROUP}),
    (ApiKey.SYNC_GROUP, 5, {**MEMBER, "generation_id": 1, "protocol_type": "consumer", "protocol_name": "range",
        "assignments": []}, {GROUP}),
    (ApiKey.HEARTBEAT, 4, {**MEMBER, "generation_id": 1}, {GROUP}),
    (ApiKey.LEAVE_GROUP, 5, {"group_id": "g", "members": []}, {GROUP}),
    (ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g"], "include_authorized_operations": False}, {GROUP}),
    (ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]}, {GROUP}),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["g"], "include_authorized_operations": False}, {GROUP}),
    (ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": ["g"], "include_authorized_operations": False}, {GROUP}),
    (ApiKey.OFFSET_COMMIT, 8, {**MEMBER, "generation_id_or_member_epoch": -1, "topics": [
        {"name": THERE, "partitions": [COMMITTED]}]}, {GROUP}),
    (ApiKey.OFFSET_FETCH, 8, {"require_stable": False, "groups": [{"group_id": "g", "topics": None}]}, {GROUP}),
    (ApiKey.OFFSET_FETCH, 5, {"group_id": "g", "topics": [{"name": THERE, "partition_indexes": [0]}]}, {GROUP}),
    (ApiKey.OFFSET_DELETE, 0, {"group_id": "g", "topics": [OF_A_TOPIC]}, {GROUP}),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, {"groups": [{"group_id": "g", "topics": None}]}, {GROUP}),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": "g", "topics": []}, {GROUP}),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": "g", "topics": []}, {GROUP}),
    (ApiKey.INIT_PRODUCER_ID, 4, {**MINE, "transaction_timeout_ms": 1}, {TRANSACTION}),
    (ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1}, {CLUSTER}),
    (ApiKey.ADD_OFFSETS_TO_TXN, 3, {**MINE, "group_id": "g"}, {TRANSACTION}),
    (ApiKey.END_TXN, 3, {**MINE, "committed": True}, {TRANSACTION}),
    (ApiKey.TXN_OFFSET_COMMIT, 3, {**MINE, **MEMBER, "generation_id": -1, "topics": [
        {"name": THERE, "partitions": [COMMITTED]}]}, {TRANSACTION}),
    (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": THERE, "partition_indexes": [0]}]}, {TOPIC}),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["t"]}, {TRANSACTION}),
    (ApiKey.ELECT_LEADERS, 2, {"election_type": 0, "topic_partitions": None, "timeout_ms": 1}, {CLUSTER}),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout_ms": 1, "topics": []}, {CLUSTER}),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout_ms": 1, "topics": None}, {CLUSTER}),
    (ApiKey.DESCRIBE_QUORUM, 2, {"topics": []}, {CLUSTER}),
    (ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 1}, {CLUSTER}),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}, {CLUSTER}),
    (ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [
        {"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}], "validate_only": False}, {CLUSTER}),
    (ApiKey.SHARE_FETCH, 1, {"group_id": "g", "member_id": "m", "share_session_epoch": 0, "max_wait_ms": 0,
        "min_bytes": 0, "max_bytes": 1, "max_records": 1, "batch_size": 1, "topics": [], "forgotten_topics_data": [],
        }, {GROUP}),
    (ApiKey.BEGIN_BATCH, 0, {"query_id": "q", "run_id": "r", "batch_id": 0}, {TRANSACTION}),
]  # fmt: skip


class Only:
    """An authorizer that allows nothing but what is said, to anybody."""

    def __init__(self, *allowed: tuple[Access, str]) -> None:
        self.allowed = {*allowed}
        self.asked: list[tuple[Principal, Access, str | None]] = []

    def allows(self, principal: Principal, access: Access, name: str | None) -> bool:
        self.asked.append((principal, access, name))
        return (access, name) in self.allowed


class World(ByHand):
    """A door with an authorizer."""

    def __init__(self, only: Only) -> None:
        super().__init__(service=lambda broker: Service(broker, authorizer=only))
        self.topic_id = self.manual.create(THERE, 1).id
        self.manual.create(OTHER, 1)

    def ask(self, api: ApiKey, version: int, message: Message) -> Message:
        """The answer to a request."""
        connection = self.connect()
        connection.send(api, version, REQUESTS[api].encode(version, message))
        answer = connection.answer(api, version)
        assert answer is not None
        return RESPONSES[api].decode(version, *answer)


def test_every_api_says_what_it_needs() -> None:
    assert set(HANDLERS) == {api.key for api in APIS.values()}
    free = {key for key, handler in HANDLERS.items() if not handler.rules.needs}
    assert free == {ApiKey.API_VERSIONS}
    assert HANDLERS[ApiKey.API_VERSIONS].rules.open_because


@pytest.mark.parametrize(("api", "version", "message", "codes"), REFUSED)
def test_a_refusal_is_kafkas(api: ApiKey, version: int, message: Message, codes: set[ErrorCode]) -> None:
    only = Only()
    world = World(only)
    assert error_codes(world.ask(api, version, message)) == codes
    assert only.asked
    assert {principal for principal, _, _ in only.asked} == {ANONYMOUS}
    assert {stream.name for stream in world.manual.broker.streams} == {THERE, OTHER}


def test_topics_are_refused_one_by_one() -> None:
    describe = Access(Operation.DESCRIBE, ResourceType.TOPIC)
    world = World(Only((describe, THERE)))
    asked: Any = {"topics": [{"name": OTHER}, {"name": THERE}], "allow_auto_topic_creation": True}
    answer = world.ask(ApiKey.METADATA, 9, asked)
    assert [(one["name"], one["error_code"]) for one in answer["topics"]] == [(OTHER, TOPIC), (THERE, 0)]
    everything = world.ask(ApiKey.METADATA, 9, {"topics": None})
    assert [one["name"] for one in everything["topics"]] == [THERE]
    missing = world.ask(ApiKey.METADATA, 12, {"topics": [
        {"name": None, "topic_id": topic_id} for topic_id in (world.topic_id, uuid4())]})  # fmt: skip
    assert [one["error_code"] for one in missing["topics"]] == [0, ErrorCode.UNKNOWN_TOPIC_ID]


def test_batches_are_refused_by_topic_and_by_transactional_id() -> None:
    batch = memoryview(encode([BatchInput(1, None, b"a")]))
    write = Operation.WRITE
    allowed = {(Access(write, ResourceType.TOPIC), THERE), (Access(write, ResourceType.TRANSACTIONAL_ID), "mine")}
    for transactional_id, codes in ((None, [0, TOPIC]), ("t", [TRANSACTION, TRANSACTION])):
        world = World(Only(*allowed))
        topics = [TopicData(name, [PartitionData(0, memoryview(bytearray(batch)))]) for name in (THERE, OTHER)]
        request = ProduceRequest(transactional_id, -1, 1_000, topics)
        connection = world.connect()
        connection.send(ApiKey.PRODUCE, 9, b"".join(produce.encode_request(9, request)))
        answer = connection.answer(ApiKey.PRODUCE, 9)
        assert answer is not None
        assert [one.partitions[0].error_code for one in produce.decode_response(9, *answer)] == codes
        assert world.manual.values(OTHER) == []


def test_fetches_are_refused_by_topic_also_where_it_is_named_by_its_id() -> None:
    world = World(Only((Access(Operation.READ, ResourceType.TOPIC), OTHER)))
    other_id = world.manual.broker.streams.get(OTHER).id
    wanted = [FetchTopic(id_, [FetchPartition(0, 0, 1 << 20, -1)]) for id_ in (world.topic_id, other_id)]
    connection = world.connect()
    body = fetch.encode_request(13, FetchRequest(-1, 0, 0, 1 << 20, 0, 0, -1, wanted))
    connection.send(ApiKey.FETCH, 13, body)
    answer = connection.answer(ApiKey.FETCH, 13)
    assert answer is not None
    assert [one.error_code for one in fetch.decode_response(13, *answer)[1]] == [TOPIC, 0]


def test_who_may_create_topics_in_the_cluster_may_create_any() -> None:
    asked: Any = {"timeout_ms": 1, "validate_only": False, "topics": [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for name in ("a", "b")
    ]}  # fmt: skip
    create = Operation.CREATE
    for allowed, codes in (
        ((Access(create, ResourceType.CLUSTER), CLUSTER_NAME), [0, 0]),
        ((Access(create, ResourceType.TOPIC), "a"), [0, TOPIC]),
    ):
        answer = World(Only(allowed)).ask(ApiKey.CREATE_TOPICS, 7, asked)
        assert [one["error_code"] for one in answer["topics"]] == codes


def test_everybody_hears_of_the_nodes_and_the_versions() -> None:
    world = World(Only())
    assert not error_codes(world.ask(ApiKey.API_VERSIONS, 0, {}))
    described = world.ask(ApiKey.DESCRIBE_CLUSTER, 1, {"include_cluster_authorized_operations": True})
    assert not described["error_code"]
    assert described["cluster_authorized_operations"] == 0
    assert world.ask(ApiKey.LIST_GROUPS, 4, {"states_filter": []})["groups"] == []
