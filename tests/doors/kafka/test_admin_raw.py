"""Admin requests as no client sends them: named twice, half given, out of bounds; Apache Kafka 4's answers are ours."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.doors.kafka.asking import Asking, codes

from duramen.base.catalogue.catalogue import STREAM
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def asking(node: NodeProcess) -> Iterator[Asking]:
    """A raw connection."""
    with Asking(node) as connection:
        yield connection


def _new(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, **more}


def _create(asking: Asking, *topics: dict[str, object], version: int = 7, validate_only: bool = False) -> list[Message]:
    wish = {"topics": topics, "timeout_ms": 5000, "validate_only": validate_only}
    found: list[Message] = asking.ask(ApiKey.CREATE_TOPICS, version, wish)["topics"]
    return found


def _assigned(*brokers: list[int]) -> dict[str, object]:
    placed = [{"partition_index": at, "broker_ids": ids} for at, ids in enumerate(brokers)]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": placed}


def _configs(asking: Asking, name: str, kind: int = TOPIC, keys: list[str] | None = None, **more: object) -> Message:
    asked = {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}], **more}
    (found,) = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked)["results"]
    return dict(found)


def _values(asking: Asking, name: str, *keys: str) -> list[Any]:
    found = {one["name"]: one["value"] for one in _configs(asking, name, keys=list(keys))["configs"]}
    return [found[key] for key in keys]


def _incremental(
    asking: Asking, *changes: tuple[str, int, str | None], name: str, kind: int = TOPIC, **more: object
) -> Message:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    wish = {"resources": [{"resource_type": kind, "resource_name": name, "configs": configs}], **more}
    (found,) = asking.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, wish)["responses"]
    return dict(found)


def _alter(asking: Asking, name: str, configs: dict[str, str | None], version: int = 2, **more: object) -> Message:
    entries = [{"name": key, "value": value} for key, value in configs.items()]
    wish = {"resources": [{"resource_type": TOPIC, "resource_name": name, "configs": entries}], **more}
    (found,) = asking.ask(ApiKey.ALTER_CONFIGS, version, wish)["responses"]
    return dict(found)


# -- CreateTopics, CreatePartitions, DeleteTopics -------------------------------------------------------


def test_a_topic_named_twice_has_one_answer_and_is_not_made(asking: Asking, stream_name: str) -> None:
    (found,) = _create(asking, _new(stream_name), _new(stream_name, num_partitions=2))
    assert found["error_code"] == ErrorCode.INVALID_REQUEST
    assert codes(
        asking.ask(ApiKey.METADATA, 12, {"topics": [{"name": stream_name}], "allow_auto_topic_creation": False})[
            "topics"
        ]
    ) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes(_create(asking, _new(stream_name))) == [0]
    grown = {"topics": [{"name": stream_name, "count": 2}, {"name": stream_name, "count": 3}], "timeout_ms": 5000}
    assert codes(asking.ask(ApiKey.CREATE_PARTITIONS, 3, grown)["results"]) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_counts_of_minus_one_are_the_node_s(asking: Asking, stream_name: str, version: int) -> None:
    (found,) = _create(asking, _new(stream_name, num_partitions=-1, replication_factor=-1), version=version)
    assert found["error_code"] == 0
    if version >= 5:
        assert (found["num_partitions"], found["replication_factor"]) == (1, 1)
        assert {one["name"] for one in found["configs"]} == set(STREAM)
    assert (found["topic_id"] != UUID(int=0)) == (version >= 7)


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": -2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        (_assigned([1]) | {"replication_factor": 1}, ErrorCode.INVALID_REQUEST),
        (_assigned([1]) | {"num_partitions": 1}, ErrorCode.INVALID_REQUEST),
        (_assigned([7]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (_assigned([1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (_assigned([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (_assigned([1], [1]), ErrorCode.NONE),
        ({"configs": [{"name": "retention.ms", "value": None}]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [{"name": "retention.ms", "value": "x"}]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [{"name": "no.such", "value": "1"}]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [{"name": "cleanup.policy", "value": "burn"}]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [{"name": "cleanup.policy", "value": ""}]}, ErrorCode.NONE),
        ({"configs": [{"name": "cleanup.policy", "value": "delete , compact"}]}, ErrorCode.NONE),
    ],
)  # fmt: skip
def test_what_is_asked_for_at_creation(asking: Asking, stream_name: str, wish: dict[str, Any], code: ErrorCode) -> None:
    topic = _new(stream_name, **wish)
    for validate_only in (True, True, False):
        (found,) = _create(asking, topic, validate_only=validate_only)
        assert found["error_code"] == code, found
        assert (found["error_message"] is None) == (code == 0)


@pytest.mark.parametrize("gap", [[1], [0, 0], [0, 2]])
def test_assignments_are_numbered_from_0(asking: Asking, stream_name: str, gap: list[int]) -> None:
    placed = [{"partition_index": index, "broker_ids": [1]} for index in gap]
    wish = _new(stream_name, num_partitions=-1, replication_factor=-1, assignments=placed)
    assert codes(_create(asking, wish)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def test_partitions_are_added_with_assignments_that_fit(asking: Asking, stream_name: str) -> None:
    _create(asking, _new(stream_name))

    def grow(count: int, *brokers: list[int]) -> int:
        wish = {"name": stream_name, "count": count, "assignments": [{"broker_ids": ids} for ids in brokers]}
        (found,) = asking.ask(ApiKey.CREATE_PARTITIONS, 3, {"topics": [wish], "timeout_ms": 5000})["results"]
        return int(found["error_code"])

    wrongs: list[list[list[int]]] = [[[1], [1]], [[9]], [[]], []]
    for wrong in wrongs:
        assert grow(2, *wrong) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(-1) == grow(0) == grow(1) == ErrorCode.INVALID_PARTITIONS
    assert grow(2, [1]) == 0


def test_topics_are_deleted_by_id_or_by_name_but_not_by_both(asking: Asking, stream_name: str) -> None:
    names = [f"{stream_name}-{index}" for index in range(3)]
    ids = {one["name"]: one["topic_id"] for one in _create(asking, *map(_new, names))}

    def delete(*topics: Mapping[str, object]) -> dict[Any, int]:
        found = asking.ask(ApiKey.DELETE_TOPICS, 6, {"topics": topics, "timeout_ms": 5000})["responses"]
        return {one["name"] or one["topic_id"]: one["error_code"] for one in found}

    unknown = uuid4()
    assert delete({"name": None, "topic_id": unknown}) == {unknown: ErrorCode.UNKNOWN_TOPIC_ID}
    assert delete({"name": names[0], "topic_id": ids[names[0]]}) == {names[0]: ErrorCode.INVALID_REQUEST}
    assert delete({"name": None}) == {UUID(int=0): ErrorCode.INVALID_REQUEST}
    twice = {"name": names[0]}
    assert delete(twice, twice) == {names[0]: ErrorCode.INVALID_REQUEST}
    both = delete({"name": names[0]}, {"name": None, "topic_id": ids[names[0]]})
    assert both == {names[0]: ErrorCode.INVALID_REQUEST, ids[names[0]]: ErrorCode.INVALID_REQUEST}
    assert delete({"name": None, "topic_id": ids[names[0]]}, {"name": names[1]}) == {names[0]: 0, names[1]: 0}
    wish = {"topic_names": [names[2], "absent"], "timeout_ms": 5000}
    found = asking.ask(ApiKey.DELETE_TOPICS, 5, wish)["responses"]
    assert codes(found) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# -- Metadata, DescribeCluster, DescribeTopicPartitions -------------------------------------------------


def test_metadata_by_name_and_by_id(asking: Asking, stream_name: str) -> None:
    (made,) = _create(asking, _new(stream_name))
    unknown, topic_id = uuid4(), made["topic_id"]

    def metadata(version: int, *topics: dict[str, object], **more: object) -> list[Message]:
        found: list[Message] = asking.ask(ApiKey.METADATA, version, {"topics": topics, **more})["topics"]
        return found

    found = metadata(
        12, {"name": None, "topic_id": topic_id}, {"name": None, "topic_id": unknown}, {"name": stream_name}
    )
    assert [(one["error_code"], one["name"]) for one in found] == [
        (0, stream_name), (ErrorCode.UNKNOWN_TOPIC_ID, None), (0, stream_name),
    ]  # fmt: skip
    for version in (10, 11):
        refused = metadata(version, {"name": None, "topic_id": topic_id}, {"name": stream_name})
        assert codes(refused) == [ErrorCode.INVALID_REQUEST] * 2
    assert len(metadata(12, {"name": stream_name}, {"name": stream_name})) == 1
    for may_create in (True, False):
        assert codes(metadata(12, {"name": "a b"}, allow_auto_topic_creation=may_create)) == [
            ErrorCode.INVALID_TOPIC_EXCEPTION
        ]
    (allowed,) = metadata(12, {"name": stream_name}, include_topic_authorized_operations=True)
    assert allowed["topic_authorized_operations"] == sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
    everything = {"topics": [], "include_cluster_authorized_operations": True}
    assert asking.ask(ApiKey.METADATA, 10, everything)["cluster_authorized_operations"] == 8096
    assert stream_name in {one["name"] for one in asking.ask(ApiKey.METADATA, 0, {"topics": []})["topics"]}


def test_the_cluster_is_described_to_who_asks_for_brokers(asking: Asking) -> None:
    wanted = {"include_cluster_authorized_operations": True}
    found = asking.ask(ApiKey.DESCRIBE_CLUSTER, 1, wanted)
    assert (found["error_code"], found["controller_id"], found["cluster_authorized_operations"]) == (0, 1, 8096)
    for endpoint, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        assert asking.ask(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": endpoint})["error_code"] == code


def test_topic_partitions_come_in_pages(asking: Asking, stream_name: str) -> None:
    names = sorted(f"{stream_name}-{letter}" for letter in "cab")
    _create(asking, *(_new(name, num_partitions=3) for name in names))

    def page(limit: int, cursor: tuple[str, int] | None = None, wanted: list[str] | None = None) -> Message:
        topics = [{"name": name} for name in ([*names, "a b", names[0] + "x"] if wanted is None else wanted)]
        where = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
        asked = {"topics": topics, "response_partition_limit": limit, "cursor": where}
        return asking.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)

    def following(answer: Message) -> tuple[str, int] | None:
        after = answer["next_cursor"]
        return None if after is None else (after["topic_name"], after["partition_index"])

    for limit in (1, 2, 3, 4, 100):
        seen: list[tuple[str, int]] = []
        errors: dict[str, int] = {}
        cursor = None
        while True:
            answer = page(limit, cursor)
            found = [(one["name"], part["partition_index"]) for one in answer["topics"] for part in one["partitions"]]
            assert 0 < len(found) <= limit
            seen += found
            errors |= {one["name"]: one["error_code"] for one in answer["topics"] if one["error_code"]}
            if (cursor := following(answer)) is None:
                break
        assert seen == [(name, index) for name in names for index in range(3)]
        assert errors == {
            "a b": ErrorCode.INVALID_TOPIC_EXCEPTION, names[0] + "x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }  # fmt: skip
    assert len(page(0)["topics"][-1]["partitions"]) == len(page(-5)["topics"][-1]["partitions"]) == 1
    # Other tests may have left more than a page.
    pages = [page(2000, wanted=[])]
    while (cursor := following(pages[-1])) is not None:
        pages.append(page(2000, cursor, []))
    assert list(dict.fromkeys(one["name"] for answer in pages for one in answer["topics"])) == sorted(
        one["name"] for one in asking.ask(ApiKey.METADATA, 12, {"topics": None})["topics"]
    )
    for wrong in ((names[0], -1), ("a", 0), ("zzz", 0)):
        assert codes(page(9, wrong, [names[0]])["topics"]) == [ErrorCode.INVALID_REQUEST]
    assert page(9, (names[0], 100), [names[0]])["topics"][0]["partitions"] == []


# -- configs --------------------------------------------------------------------------------------------


def test_configs_are_described_with_source_type_synonyms_and_documentation(asking: Asking, stream_name: str) -> None:
    _create(asking, _new(stream_name, configs=[{"name": "retention.ms", "value": "1000"}]))
    whole = _configs(asking, stream_name, include_synonyms=True, include_documentation=True)["configs"]
    assert {one["name"] for one in whole} == set(STREAM)
    assert _configs(asking, stream_name, keys=[])["configs"] != []
    by_name = {one["name"]: one for one in whole}
    assert all(one["documentation"] for one in whole)
    types = {"cleanup.policy": 7, "retention.ms": 5, "segment.bytes": 3, "preallocate": 1, "compression.type": 2}
    types |= {"min.cleanable.dirty.ratio": 6, "leader.replication.throttled.replicas": 7}
    assert {name: by_name[name]["config_type"] for name in types} == types
    synonyms = [(one["name"], one["value"], one["source"]) for one in by_name["retention.ms"]["synonyms"]]
    assert synonyms == [("retention.ms", "1000", 1), ("log.retention.ms", "604800000", 5)]
    bare = _configs(asking, stream_name, keys=["retention.ms", "foo"])["configs"]
    assert [(one["name"], one["synonyms"], one["documentation"]) for one in bare] == [("retention.ms", [], None)]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "9", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (BROKER, "", ErrorCode.NONE),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "9", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
        (64, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_configs(asking: Asking, kind: int, name: str, code: ErrorCode) -> None:
    found = _configs(asking, name, kind)
    assert (found["error_code"], found["configs"]) == (code, [])


def test_lists_are_appended_to_and_subtracted_from(asking: Asking, stream_name: str) -> None:
    _create(asking, _new(stream_name))
    key = "cleanup.policy"
    steps = [
        (APPEND, "compact", "compact,delete"),
        (APPEND, "compact", "compact,delete"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (APPEND, "delete", "delete"),
    ]
    for operation, value, expected in steps:
        assert _incremental(asking, (key, operation, value), name=stream_name)["error_code"] == 0
        assert _values(asking, stream_name, key) == [expected]
    replicas = "follower.replication.throttled.replicas"
    assert _incremental(asking, (replicas, APPEND, "0:1,1:1"), name=stream_name)["error_code"] == 0
    assert _values(asking, stream_name, replicas) == ["0:1,1:1"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "77"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "77")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", -1, "77")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", APPEND, "77")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", APPEND, "burn")], ErrorCode.INVALID_CONFIG),
        ([("no.such", SET, "77")], ErrorCode.INVALID_CONFIG),
        ([("no.such", APPEND, "77")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "5"), ("segment.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_changes_that_cannot_be_change_nothing(
    asking: Asking, stream_name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    _create(asking, _new(stream_name))
    for validate_only in (True, False):
        found = _incremental(asking, *changes, name=stream_name, validate_only=validate_only)
        assert found["error_code"] == code
        assert found["error_message"]
    assert all(one["config_source"] == 5 for one in _configs(asking, stream_name)["configs"])


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "retention.ms"), (GROUP, "share.record.lock.duration.ms")])
def test_what_is_not_there_can_be_deleted(asking: Asking, stream_name: str, kind: int, name: str) -> None:
    """As in Apache Kafka: MirrorMaker 2 does so with every config of the other cluster's topic that is a default."""
    _create(asking, _new(stream_name))
    changes = (("no.such", DELETE, None), (name, SET, "20000"), ("remote.storage.enable", DELETE, None))
    assert _incremental(asking, *changes, name=stream_name, kind=kind)["error_code"] == 0
    assert [one["value"] for one in _configs(asking, stream_name, kind)["configs"] if one["name"] == name] == ["20000"]


def test_each_resource_has_its_own_answer(asking: Asking, stream_name: str) -> None:
    _create(asking, _new(stream_name), _new(f"{stream_name}-2"))

    def wish(name: str, value: str) -> dict[str, object]:
        configs = [{"name": "retention.ms", "config_operation": SET, "value": value}]
        return {"resource_type": TOPIC, "resource_name": name, "configs": configs}

    asked = {"resources": [wish(stream_name, "x"), wish(f"{stream_name}-2", "8"), wish("absent", "7"), wish("", "7")]}
    found = asking.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)["responses"]
    assert {one["resource_name"]: one["error_code"] for one in found} == {
        stream_name: ErrorCode.INVALID_CONFIG, f"{stream_name}-2": 0, "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "": ErrorCode.INVALID_REQUEST,
    }  # fmt: skip
    for api, version in ((ApiKey.INCREMENTAL_ALTER_CONFIGS, 1), (ApiKey.ALTER_CONFIGS, 2)):
        twice = asking.ask(api, version, {"resources": [wish(stream_name, "7"), wish(stream_name, "8")]})["responses"]
        assert codes(twice) == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_sets_back_what_it_does_not_name(asking: Asking, stream_name: str, version: int) -> None:
    _create(asking, _new(stream_name, configs=[{"name": "retention.ms", "value": "1000"}]))
    assert _alter(asking, stream_name, {"segment.ms": "99"}, version, validate_only=True)["error_code"] == 0
    assert _values(asking, stream_name, "retention.ms", "segment.ms") == ["1000", "604800000"]
    assert _alter(asking, stream_name, {"segment.ms": "99"}, version)["error_code"] == 0
    assert _values(asking, stream_name, "retention.ms", "segment.ms") == ["604800000", "99"]
    for configs, code in (
        ({"segment.ms": None}, ErrorCode.INVALID_REQUEST),
        ({"no.such": "1"}, ErrorCode.INVALID_CONFIG),
    ):
        assert _alter(asking, stream_name, dict(configs), version)["error_code"] == code
    assert _values(asking, stream_name, "segment.ms") == ["99"]
    assert _alter(asking, stream_name, {}, version)["error_code"] == 0
    assert _values(asking, stream_name, "segment.ms") == ["604800000"]
    assert _alter(asking, "absent", {}, version)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_levels_of_loggers_are_changed_while_the_node_runs(new_node: Callable[..., NodeProcess]) -> None:
    with Asking(new_node().start()) as asking:

        def level(name: str) -> str:
            found = {one["name"]: one for one in _configs(asking, "1", LOGGER)["configs"]}
            assert found[name]["config_source"] == 6
            return str(found[name]["value"])

        def change(*changes: tuple[str, int, str | None], **more: object) -> int:
            return int(_incremental(asking, *changes, name="1", kind=LOGGER, **more)["error_code"])

        assert level("root") == level("duramen.kafka") == "INFO"
        assert change(("duramen.kafka", SET, "WARN"), validate_only=True) == 0
        assert level("duramen.kafka") == "INFO"
        assert change(("duramen.kafka", SET, "WARN")) == 0
        assert (level("root"), level("duramen.kafka")) == ("INFO", "WARN")
        assert change(("duramen.kafka", DELETE, None)) == 0
        assert level("duramen.kafka") == "INFO"
        assert change(("duramen.kafka", SET, "LOUD")) == ErrorCode.INVALID_CONFIG
        assert change(("no.such", SET, "WARN")) == ErrorCode.INVALID_CONFIG
        assert change(("duramen.kafka", APPEND, "WARN")) == ErrorCode.INVALID_REQUEST
        assert change(("root", DELETE, None)) == ErrorCode.INVALID_REQUEST


# -- DescribeLogDirs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
def test_the_log_directory_is_described(asking: Asking, stream_name: str, version: int) -> None:
    _create(asking, _new(stream_name, num_partitions=2))

    def describe(topics: list[dict[str, object]] | None) -> Message:
        answer = asking.ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})
        (found,) = answer["results"]
        assert (answer.get("error_code", 0), found["error_code"]) == (0, 0)
        assert (Path(found["log_dir"]) / "wal").is_dir()
        if version >= 4:
            assert 0 < found["usable_bytes"] < found["total_bytes"]
        return dict(found)

    asked: list[dict[str, object]] = [
        {"topic": stream_name, "partitions": [0, 7]}, {"topic": "absent", "partitions": [0]}
    ]  # fmt: skip
    (topic,) = describe(asked)["topics"]
    assert topic["name"] == stream_name
    size = {"partition_size": 0, "offset_lag": 0, "is_future_key": False}
    assert topic["partitions"] == [{"partition_index": 0, **size}]
    assert describe([])["topics"] == []
    assert stream_name in {one["name"] for one in describe(None)["topics"]}
