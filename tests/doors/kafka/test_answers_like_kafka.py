"""Answers that were not Apache Kafka's until the same requests were sent to both (tests/differential)."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.doors.kafka.asking import Asking

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

TOPIC, GROUP = 2, 32


@pytest.fixture
def asking(node: NodeProcess) -> Iterator[Asking]:
    """A raw connection."""
    with Asking(node) as connection:
        yield connection


def _create(asking: Asking, name: str, **configs: str) -> None:
    entries = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": entries}
    (made,) = asking.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic]})["topics"]
    assert made["error_code"] == 0


def _quota(asking: Asking, entity: list[tuple[str, str | None]], key: str = "producer_byte_rate") -> Any:
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
    entry = {"entity": parts, "ops": [{"key": key, "value": 1e9, "remove": False}]}
    (answer,) = asking.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": True})["entries"]
    return answer


def test_an_entity_is_answered_with_each_type_once_and_its_last_name(asking: Asking) -> None:
    answer = _quota(asking, [("user", "a"), ("user", "b")])
    assert (answer["error_code"], answer["entity"]) == (0, [{"entity_type": "user", "entity_name": "b"}])


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("group", -1, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", -1, None)], ErrorCode.INVALID_REQUEST),
        ([("user", -1, None), ("group", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", -1, None)], ErrorCode.INVALID_REQUEST),
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_of_quotas_is_judged_component_by_component(asking: Asking, components: Any, code: ErrorCode) -> None:
    asked = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
    answer = asking.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": asked, "strict": False})
    assert answer["error_code"] == code


def test_what_is_named_twice_is_answered_once(asking: Asking, stream_name: str) -> None:
    _create(asking, stream_name)
    gone = asking.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["no-such", "no-such"]})["results"]
    assert [one["group_id"] for one in gone] == ["no-such"]
    topics = [{"topic": stream_name, "partitions": [0]}, {"topic": stream_name, "partitions": [0, 5]}]
    (directory,) = asking.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": topics})["results"]
    (topic,) = directory["topics"]
    assert [one["partition_index"] for one in topic["partitions"]] == [0]


@pytest.mark.parametrize("api", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
@pytest.mark.parametrize(
    ("topic", "config", "code"),
    [
        ("there-is-none", "no.such.config", ErrorCode.INVALID_CONFIG),
        ("there-is-none", "retention.ms", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", "no.such.config", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_wrong_config_is_told_before_a_topic_that_is_not_there(
    asking: Asking, api: ApiKey, topic: str, config: str, code: ErrorCode
) -> None:
    entry = {"name": config, "value": "1", "config_operation": 0}
    wish = {"resources": [{"resource_type": TOPIC, "resource_name": topic, "configs": [entry]}]}
    (answer,) = asking.ask(api, 1, wish)["responses"]
    assert answer["error_code"] == code


def test_records_are_deleted_where_no_policy_forbids_it(asking: Asking, stream_name: str) -> None:
    _create(asking, stream_name, cleanup_policy="")
    partition = {"partition_index": 0, "offset": 1}
    wish = {"topics": [{"name": stream_name, "partitions": [partition]}], "timeout_ms": 1000}
    (topic,) = asking.ask(ApiKey.DELETE_RECORDS, 2, wish)["topics"]
    assert topic["partitions"][0]["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_who_leaves_is_told_no_interval(asking: Asking, stream_name: str) -> None:
    _create(asking, stream_name)
    for api, more in (
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, {"rebalance_timeout_ms": 1000, "topic_partitions": []}),
        (ApiKey.SHARE_GROUP_HEARTBEAT, {}),
    ):
        group = f"{stream_name}-{api.name}"
        asking.ask(ApiKey.FIND_COORDINATOR, 3, {"key": group, "key_type": 0})
        asking.ask(ApiKey.FIND_COORDINATOR, 3, {"key": group, "key_type": 2})
        beat = {"group_id": group, "member_id": "m", "member_epoch": 0, "subscribed_topic_names": [stream_name], **more}
        assert asking.ask(api, 1, beat)["heartbeat_interval_ms"] > 0
        gone = asking.ask(api, 1, {"group_id": group, "member_id": "m", "member_epoch": -1})
        assert (gone["error_code"], gone["heartbeat_interval_ms"]) == (0, 0)
        asking.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [group]})


def test_a_share_session_does_not_begin_with_acknowledgements_of_any_kind(asking: Asking) -> None:
    unknown = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [9]}
    said = {"partition_index": 0, "acknowledgement_batches": [unknown]}
    wish = {
        "group_id": "g", "member_id": "m", "share_session_epoch": 0, "max_records": 1,
        "topics": [{"topic_id": UUID(int=1), "partitions": [said]}],
    }  # fmt: skip
    assert asking.ask(ApiKey.SHARE_FETCH, 1, wish)["error_code"] == ErrorCode.INVALID_REQUEST


def test_a_group_s_config_goes_back_to_the_node_s_and_that_to_the_default(new_node: Any) -> None:
    node = new_node({"group.share.session.timeout.ms": 50_000}).start()
    with Asking(node) as asking:
        asked = {"resource_type": GROUP, "resource_name": "g", "configuration_keys": ["share.session.timeout.ms"]}
        (found,) = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [asked], "include_synonyms": True})["results"]
    name = "group.share.session.timeout.ms"
    assert [(one["name"], one["value"]) for one in found["configs"][0]["synonyms"]] == [
        (name, "50000"),
        (name, "45000"),
    ]


def test_a_page_that_begins_in_an_absent_topic_has_the_next_one_whole(asking: Asking, stream_name: str) -> None:
    _create(asking, stream_name)
    wish = {"topics": [{"name": ".."}, {"name": stream_name}], "cursor": {"topic_name": "..", "partition_index": 1}}
    topics = asking.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, wish)["topics"]
    assert [len(topic["partitions"]) for topic in topics] == [0, 1]


def test_producers_are_not_looked_for_under_a_name_that_no_topic_can_have(asking: Asking) -> None:
    wish = {"topics": [{"name": "a/b", "partition_indexes": [0]}]}
    (topic,) = asking.ask(ApiKey.DESCRIBE_PRODUCERS, 0, wish)["topics"]
    assert topic["partitions"][0]["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_offsets_of_a_share_group_without_a_name_are_not_deleted(asking: Asking) -> None:
    answer = asking.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": "", "topics": [{"topic_name": "x"}]})
    assert answer["error_code"] == ErrorCode.INVALID_GROUP_ID


def test_a_group_of_the_consumer_protocol_is_told_its_own_interval(asking: Asking, stream_name: str) -> None:
    _create(asking, stream_name)
    name = "consumer.heartbeat.interval.ms"
    for value, code in (("4999", ErrorCode.INVALID_CONFIG), ("9000", 0)):
        entry = {"name": name, "config_operation": 0, "value": value}
        wish = {"resources": [{"resource_type": GROUP, "resource_name": stream_name, "configs": [entry]}]}
        (altered,) = asking.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, wish)["responses"]
        assert altered["error_code"] == code, altered["error_message"]
    asked = {"resource_type": GROUP, "resource_name": stream_name, "configuration_keys": [name]}
    (found,) = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [asked]})["results"]
    assert [(one["value"], one["config_source"]) for one in found["configs"]] == [("9000", 8)]
    asking.ask(ApiKey.FIND_COORDINATOR, 3, {"key": stream_name, "key_type": 0})
    beat = {
        "group_id": stream_name, "member_id": "m", "member_epoch": 0, "subscribed_topic_names": [stream_name],
        "rebalance_timeout_ms": 1000, "topic_partitions": [],
    }  # fmt: skip
    assert asking.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat)["heartbeat_interval_ms"] == 9000
    asking.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {"group_id": stream_name, "member_id": "m", "member_epoch": -1})
    asking.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [stream_name]})


def test_an_entity_that_is_named_again_is_answered_once_and_keeps_what_was_said_first(
    asking: Asking, stream_name: str
) -> None:
    entity = [{"entity_type": "client-id", "entity_name": stream_name}]
    entries: list[dict[str, Any]] = [
        {"entity": entity, "ops": [{"key": "producer_byte_rate", "value": value, "remove": False}]}
        for value in (1e9, 2e9)
    ]
    answers = asking.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})["entries"]
    assert [(one["error_code"], one["entity"]) for one in answers] == [(ErrorCode.INVALID_REQUEST, entity)]
    component = {"entity_type": "client-id", "match_type": 0, "match": stream_name}
    found = asking.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [component], "strict": True})["entries"]
    assert [one["values"] for one in found] == [[{"key": "producer_byte_rate", "value": 1e9}]]
    entries[0]["ops"][0]["remove"] = True
    asking.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries[:1], "validate_only": False})


def _policy(asking: Asking, name: str, operation: int, value: str) -> int:
    entry = {"name": "cleanup.policy", "value": value, "config_operation": operation}
    wish = {"resources": [{"resource_type": TOPIC, "resource_name": name, "configs": [entry]}]}
    (answer,) = asking.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, wish)["responses"]
    code: int = answer["error_code"]
    return code


def test_an_empty_value_is_none_of_a_list_s(asking: Asking, stream_name: str) -> None:
    _create(asking, stream_name)
    put, append = 0, 2
    wrong = [(append, ""), (put, "delete,"), (put, "delete,,compact"), (put, ",")]
    assert {_policy(asking, stream_name, *change) for change in wrong} == {ErrorCode.INVALID_CONFIG}
    right = [(append, "compact,"), (put, "compact, delete"), (put, " "), (put, "")]
    assert {_policy(asking, stream_name, *change) for change in right} == {0}


def test_a_config_without_a_setting_of_the_node_still_has_its_default(asking: Asking, stream_name: str) -> None:
    name = "unclean.leader.election.enable"
    _create(asking, stream_name, unclean_leader_election_enable="true")
    asked = {"resource_type": TOPIC, "resource_name": stream_name, "configuration_keys": [name]}
    (found,) = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [asked], "include_synonyms": True})["results"]
    synonyms = [(one["name"], one["value"], one["source"]) for one in found["configs"][0]["synonyms"]]
    assert synonyms == [(name, "true", 1), (name, "false", 5)]


def test_offsets_that_a_share_group_does_not_have_are_answered_without_the_id_of_their_topic(
    asking: Asking, stream_name: str
) -> None:
    names = [stream_name, f"{stream_name}-2"]
    for name in names:
        _create(asking, name)
    began = [{"topic_name": names[0], "partitions": [{"partition_index": 0, "start_offset": 0}]}]
    asking.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": stream_name, "topics": began})
    wish = {"group_id": stream_name, "topics": [{"topic_name": name} for name in names]}
    answers = asking.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, wish)["responses"]
    found = [(one["error_code"], one["topic_id"] == UUID(int=0)) for one in answers]
    assert found == [(0, False), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)]
