"""Administration through the admin clients of the three libraries."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.clients import CONFLUENT, Place, Record
from tests.untyped import untyped

from duramen.base.catalogue.catalogue import BROKER, STREAM
from duramen.node.process import NodeProcess

_S = 60


def _done(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(_S)


def _refused(futures: dict[Any, Any]) -> tuple[str, str]:
    """The name of the error, and what it says to people."""
    with pytest.raises(KafkaException) as raised:
        _done(futures)
    return raised.value.args[0].name(), raised.value.args[0].str()


# -- confluent-kafka ----------------------------------------------------------------------------------


def test_confluent_creates_grows_and_deletes(admin: AdminClient, stream_name: str) -> None:
    _done(admin.create_topics([NewTopic(stream_name, 3, 1)]))
    assert len(admin.list_topics(stream_name, _S).topics[stream_name].partitions) == 3
    code, text = _refused(admin.create_topics([NewTopic(stream_name, 3, 1)]))
    assert code == "TOPIC_ALREADY_EXISTS"
    assert stream_name in text
    _done(admin.create_partitions([NewPartitions(stream_name, 5)]))
    partitions = admin.list_topics(stream_name, _S).topics[stream_name].partitions
    assert {index: (found.leader, found.replicas, found.isrs) for index, found in partitions.items()} == {
        index: (1, [1], [1]) for index in range(5)
    }
    for count in (5, 4):
        assert _refused(admin.create_partitions([NewPartitions(stream_name, count)]))[0] == "INVALID_PARTITIONS"
    _done(admin.delete_topics([stream_name]))
    assert stream_name not in admin.list_topics(timeout=_S).topics
    assert _refused(admin.delete_topics([stream_name]))[0] == "UNKNOWN_TOPIC_OR_PART"
    assert _refused(admin.create_partitions([NewPartitions(stream_name, 9)]))[0] == "UNKNOWN_TOPIC_OR_PART"


def test_confluent_only_asks_whether_it_would_work(admin: AdminClient, stream_name: str) -> None:
    _done(admin.create_topics([NewTopic(stream_name, 3, 1)], validate_only=True))
    assert stream_name not in admin.list_topics(timeout=_S).topics
    _done(admin.create_topics([NewTopic(stream_name, 3, 1)]))
    _done(admin.create_partitions([NewPartitions(stream_name, 9)], validate_only=True))
    assert len(admin.list_topics(stream_name, _S).topics[stream_name].partitions) == 3


@pytest.mark.parametrize(
    ("partitions", "replicas", "config", "code"),
    [
        (0, 1, {}, "INVALID_PARTITIONS"),
        (100_000, 1, {}, "INVALID_PARTITIONS"),
        (1, 2, {}, "INVALID_REPLICATION_FACTOR"),
        (1, 1, {"no.such.config": "1"}, "INVALID_CONFIG"),
        (1, 1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
        (1, 1, {"max.message.bytes": "-1"}, "INVALID_CONFIG"),
        (1, 1, {"cleanup.policy": "burn"}, "INVALID_CONFIG"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    admin: AdminClient, stream_name: str, partitions: int, replicas: int, config: dict[str, str], code: str
) -> None:
    found, text = _refused(admin.create_topics([NewTopic(stream_name, partitions, replicas, config=config)]))
    assert found == code
    for name, value in config.items():
        assert name in text
        assert value in text or name == "no.such.config"
    assert stream_name not in admin.list_topics(timeout=_S).topics


@pytest.mark.parametrize("name", ["..", ".", "a b", "a/b", "ü", "x" * 250, "__consumer_offsets", "__mine"])
def test_names_that_cannot_be(admin: AdminClient, name: str) -> None:
    assert _refused(admin.create_topics([NewTopic(name, 1, 1)]))[0] in ("TOPIC_EXCEPTION", "TOPIC_ALREADY_EXISTS")


def _describe(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = _done(admin.describe_configs([ConfigResource(kind, name)]))
    return found


def test_confluent_describes_and_changes_configs(admin: AdminClient, stream_name: str) -> None:
    _done(admin.create_topics([NewTopic(stream_name, 1, 1, config={"retention.ms": "1000"})]))
    found = _describe(admin, ResourceType.TOPIC, stream_name)
    assert set(found) == set(STREAM)
    assert found["retention.ms"].value == "1000"
    assert ConfigSource(found["retention.ms"].source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert not found["retention.ms"].is_default
    assert [(one.name, one.value) for one in found["retention.ms"].synonyms.values()][:1] == [("retention.ms", "1000")]
    assert found["segment.bytes"].is_default
    resource = ConfigResource(ResourceType.TOPIC, stream_name)
    for entry in (
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ):
        resource.add_incremental_config(entry)
    _done(admin.incremental_alter_configs([resource]))
    found = _describe(admin, ResourceType.TOPIC, stream_name)
    assert found["retention.ms"].value == str(STREAM["retention.ms"].default)
    assert found["max.message.bytes"].value == "2000000"
    assert found["cleanup.policy"].value in ("compact,delete", "delete,compact")
    wrong = ConfigResource(ResourceType.TOPIC, stream_name)
    wrong.add_incremental_config(ConfigEntry("retention.ms", "x", incremental_operation=AlterConfigOpType.SET))
    code, text = _refused(admin.incremental_alter_configs([wrong]))
    assert code == "INVALID_CONFIG"
    assert "retention.ms" in text


@pytest.mark.filterwarnings("ignore:alter_configs")
def test_confluent_sets_whole_configs(admin: AdminClient, stream_name: str) -> None:
    _done(admin.create_topics([NewTopic(stream_name, 1, 1, config={"retention.ms": "1000"})]))
    _done(admin.alter_configs([ConfigResource(ResourceType.TOPIC, stream_name, set_config={"segment.ms": "7000"})]))
    found = _describe(admin, ResourceType.TOPIC, stream_name)
    assert (found["retention.ms"].value, found["segment.ms"].value) == ("604800000", "7000")


def test_confluent_describes_the_node(node: NodeProcess, admin: AdminClient) -> None:
    found = _describe(admin, ResourceType.BROKER, "1")
    assert set(found) == {*BROKER, "listeners", "advertised.listeners"}
    assert {found[name].value for name in ("listeners", "advertised.listeners")} == {f"PLAINTEXT://{node.kafka}"}
    dynamic = {name for name, setting in BROKER.items() if setting.dynamic}
    assert {name for name, entry in found.items() if not entry.is_read_only} == dynamic
    assert found["group.initial.rebalance.delay.ms"].value == "0"
    cluster = admin.describe_cluster(request_timeout=_S).result(_S)
    assert [f"{one.host}:{one.port}" for one in cluster.nodes] == [node.kafka]
    assert cluster.cluster_id
    assert cluster.controller.id == 1


def test_confluent_describes_topics(admin: AdminClient, stream_name: str) -> None:
    _done(admin.create_topics([NewTopic(stream_name, 2, 1)]))
    found = _done(admin.describe_topics(TopicCollection([stream_name]), request_timeout=_S))
    assert (found.name, found.is_internal, len(found.partitions)) == (stream_name, False, 2)


# -- kafka-python -------------------------------------------------------------------------------------


@pytest.fixture
def kafka_python(node: NodeProcess) -> Iterator[Any]:
    """kafka-python's admin client."""
    client = untyped("kafka").KafkaAdminClient(bootstrap_servers=node.kafka)
    yield client
    client.close()


def test_kafka_python_administers(node: NodeProcess, kafka_python: Any, stream_name: str) -> None:
    admin_module, errors = untyped("kafka.admin"), untyped("kafka.errors")
    config = {"retention.ms": "5000"}
    kafka_python.create_topics({stream_name: {"num_partitions": 3, "replication_factor": 1, "configs": config}})
    assert stream_name in kafka_python.list_topics()
    with pytest.raises(errors.TopicAlreadyExistsError):
        kafka_python.create_topics({stream_name: {"num_partitions": 3}})
    kafka_python.create_partitions({stream_name: 4})
    (topic,) = kafka_python.describe_topics([stream_name])
    assert [len(topic["partitions"]), topic["name"]] == [4, stream_name]
    with pytest.raises(errors.InvalidPartitionsError):
        kafka_python.create_partitions({stream_name: 2})
    resource = admin_module.ConfigResource("TOPIC", stream_name)
    changed = kafka_python.describe_configs([resource])["topic"][stream_name]
    assert {name: found["value"] for name, found in changed.items()} == config
    kafka_python.alter_configs([admin_module.ConfigResource("TOPIC", stream_name, {"retention.ms": "7000"})])
    changed = kafka_python.describe_configs([resource])["topic"][stream_name]
    assert {name: found["value"] for name, found in changed.items()} == {"retention.ms": "7000"}
    cluster = kafka_python.describe_cluster()
    assert [f"{one['host']}:{one['port']}" for one in cluster["brokers"]] == [node.kafka]
    kafka_python.delete_topics([stream_name])
    assert stream_name not in kafka_python.list_topics()
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        kafka_python.delete_topics([stream_name])


def test_kafka_python_sets_whole_configs_and_sees_log_directories(
    node: NodeProcess, kafka_python: Any, stream_name: str
) -> None:
    admin_module = untyped("kafka.admin")
    kafka_python.create_topics({stream_name: {"num_partitions": 2, "configs": {"retention.ms": "5000"}}})
    whole = admin_module.ConfigResource("TOPIC", stream_name, {"segment.ms": "7000"})
    kafka_python.alter_configs([whole], incremental=False)
    described = kafka_python.describe_configs([admin_module.ConfigResource("TOPIC", stream_name)])["topic"]
    # It sends what was set before along.
    values = {name: found["value"] for name, found in described[stream_name].items()}
    assert values == {"retention.ms": "5000", "segment.ms": "7000"}
    CONFLUENT.produce(node.kafka, stream_name, [Record(bytes(5000), partition=1)])
    text = str(kafka_python.describe_log_dirs({stream_name: [0, 1]}))
    assert stream_name in text


# -- aiokafka -----------------------------------------------------------------------------------------


def _with_aiokafka(node: NodeProcess, test: Callable[[Any, Any], Awaitable[None]]) -> None:
    async def main() -> None:
        module = untyped("aiokafka.admin")
        client = module.AIOKafkaAdminClient(bootstrap_servers=node.kafka)
        await client.start()
        try:
            await test(module, client)
        finally:
            await client.close()

    asyncio.run(main())


def test_aiokafka_sets_whole_configs(node: NodeProcess, stream_name: str) -> None:
    async def test(module: Any, client: Any) -> None:
        config = untyped("aiokafka.admin.config_resource")
        await client.create_topics([module.NewTopic(stream_name, 1, 1, topic_configs={"retention.ms": "5000"})])
        resource = config.ConfigResource(config.ConfigResourceType.TOPIC, stream_name, {"segment.ms": "7000"})
        (answer,) = await client.alter_configs([resource])
        assert [found[0] for found in answer.resources] == [0]
        (answer,) = await client.describe_configs([config.ConfigResource(config.ConfigResourceType.TOPIC, stream_name)])
        values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert (values["retention.ms"], values["segment.ms"]) == ("604800000", "7000")

    _with_aiokafka(node, test)


def test_aiokafka_administers(node: NodeProcess, stream_name: str) -> None:
    async def test(module: Any, client: Any) -> None:
        new = module.NewTopic(stream_name, 2, 1, topic_configs={"retention.ms": "5000"})
        answer = await client.create_topics([new])
        assert [found[1] for found in answer.topic_errors] == [0]
        answer = await client.create_topics([new])
        assert [found[1] for found in answer.topic_errors] == [36]
        assert stream_name in await client.list_topics()
        await client.create_partitions({stream_name: module.NewPartitions(total_count=3)})
        (topic,) = await client.describe_topics([stream_name])
        assert len(topic["partitions"]) == 3
        resource_type = untyped("aiokafka.admin.config_resource").ConfigResourceType.TOPIC
        resource = untyped("aiokafka.admin.config_resource").ConfigResource(resource_type, stream_name)
        (answer,) = await client.describe_configs([resource])
        (found,) = answer.resources
        assert {entry[0]: entry[1] for entry in found[4]}["retention.ms"] == "5000"
        cluster = await client.describe_cluster()
        assert [f"{one['host']}:{one['port']}" for one in cluster["brokers"]] == [node.kafka]
        answer = await client.delete_topics([stream_name])
        assert [found[1] for found in answer.topic_error_codes] == [0]
        assert stream_name not in await client.list_topics()

    _with_aiokafka(node, test)


# -- creating by asking -------------------------------------------------------------------------------


def test_a_stream_is_created_when_it_is_first_written(node: NodeProcess, admin: AdminClient, stream_name: str) -> None:
    assert stream_name not in admin.list_topics(timeout=_S).topics
    assert CONFLUENT.produce(node.kafka, stream_name, [Record(b"x")]) == [Place(0, 0)]
    assert stream_name in admin.list_topics(timeout=_S).topics


def test_asking_creates_nothing_where_that_is_off(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node({"auto.create.topics.enable": False, "num.partitions": 4}).start()
    admin = AdminClient({"bootstrap.servers": node.kafka})
    assert admin.list_topics("absent", _S).topics["absent"].error is not None
    assert "absent" not in admin.list_topics(timeout=_S).topics
    _done(admin.create_topics([NewTopic("present")]))
    assert len(admin.list_topics("present", _S).topics["present"].partitions) == 4
    assert node.stop() == 0
