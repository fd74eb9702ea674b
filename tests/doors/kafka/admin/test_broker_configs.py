"""The configs of a broker: what DescribeConfigs tells of them, and which are changed while it runs."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.doors.kafka.asking import Asking
from tests.loopback import second_host
from tests.untyped import untyped

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

TOPIC, BROKER = 2, 4
CONFLUENT = untyped("confluent_kafka.admin")
SET, DELETE, APPEND, SUBTRACT = range(4)


def _configs(asking: Asking, name: str, *keys: str, kind: int = BROKER) -> dict[str, Message]:
    resource: dict[str, Any] = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    wish = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    (found,) = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, wish)["results"]
    assert found["error_code"] == 0, found["error_message"]
    return {one["name"]: one for one in found["configs"]}


def test_where_a_node_listens_and_what_its_clients_are_told(new_node: Callable[..., NodeProcess]) -> None:
    host = second_host()
    settings = {"kafka.listen": f"127.0.0.1:0,{host}:0", "kafka.advertise": "log.example:19092"}
    node = new_node(settings).start()
    with Asking(node) as asking:
        found = _configs(asking, "1", "listeners", "advertised.listeners")
    first, second = found["listeners"]["value"].split(",")
    assert first == f"PLAINTEXT://{node.kafka}"
    assert re.fullmatch(rf"PLAINTEXT://{re.escape(host)}:\d+", second)
    assert found["advertised.listeners"]["value"] == "PLAINTEXT://log.example:19092"
    for name, one in found.items():
        assert (one["read_only"], one["config_source"], one["config_type"]) == (True, 4, 7)
        assert [synonym["name"] for synonym in one["synonyms"]] == [name]
        assert one["documentation"]


def _alter(asking: Asking, name: str, *changes: tuple[str, int, str | None], only_check: bool = False) -> Message:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    wish = {
        "resources": [{"resource_type": BROKER, "resource_name": name, "configs": configs}],
        "validate_only": only_check,
    }
    (found,) = asking.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, wish)["responses"]
    return dict(found)


def _synonyms(config: Message) -> list[tuple[str, str, int]]:
    return [(one["name"], one["value"], one["source"]) for one in config["synonyms"]]


def test_defaults_of_topics_are_changed_while_the_node_runs_and_stay_changed(
    new_node: Callable[..., NodeProcess], stream_name: str
) -> None:
    node = new_node({"log.retention.ms": 5000}).start()
    with Asking(node) as asking:
        asking.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [_topic(stream_name)], "timeout_ms": 5000})
        assert _alter(asking, "", ("log.retention.ms", SET, "6000"))["error_code"] == 0
        assert (
            _alter(asking, "1", ("log.retention.ms", SET, "7000"), ("message.max.bytes", SET, "99"))["error_code"] == 0
        )
        assert _alter(asking, "1", ("log.retention.ms", SET, "9"), only_check=True)["error_code"] == 0
        layers = [("log.retention.ms", "7000", 2), ("log.retention.ms", "6000", 3), ("log.retention.ms", "5000", 4)]
        layers.append(("log.retention.ms", "604800000", 5))
        _expect(asking, stream_name, layers)
        batch_limit = _configs(asking, stream_name, "max.message.bytes", kind=TOPIC)["max.message.bytes"]
        assert (batch_limit["value"], batch_limit["config_source"]) == ("99", 2)
    node.stop()
    with Asking(node.start()) as asking:
        _expect(asking, stream_name, layers)
        assert _alter(asking, "1", ("log.retention.ms", DELETE, None))["error_code"] == 0
        _expect(asking, stream_name, layers[1:])
        (of_all,) = _configs(asking, "").values()
        assert (of_all["name"], of_all["value"], of_all["config_source"]) == ("log.retention.ms", "6000", 3)
        assert _alter(asking, "", ("log.retention.ms", DELETE, None))["error_code"] == 0
        _expect(asking, stream_name, layers[2:])
        assert _configs(asking, "") == {}


def _topic(name: str) -> Message:
    return {"name": name, "num_partitions": 2, "replication_factor": 1}


def _expect(asking: Asking, topic: str, layers: list[tuple[str, str, int]]) -> None:
    """The node's setting and the topic's config have these values, the first of them in force."""
    setting = _configs(asking, "1", "log.retention.ms")["log.retention.ms"]
    assert (_synonyms(setting), setting["read_only"]) == (layers, False)
    assert (setting["value"], setting["config_source"]) == layers[0][1:]
    config = _configs(asking, topic, "retention.ms", kind=TOPIC)["retention.ms"]
    assert _synonyms(config) == layers
    assert (config["value"], config["config_source"]) == layers[0][1:]


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("log.retention.check.interval.ms", SET, "5"), ErrorCode.INVALID_REQUEST),
        (("kafka.listen", SET, "127.0.0.1:1"), ErrorCode.INVALID_REQUEST),
        (("listeners", SET, "PLAINTEXT://:1"), ErrorCode.INVALID_REQUEST),
        (("advertised.listeners", DELETE, None), ErrorCode.INVALID_REQUEST),
        (("log.retention.mss", SET, "5"), ErrorCode.INVALID_REQUEST),
        (("log.retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("log.retention.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG),
        (("compression.type", SET, "rar"), ErrorCode.INVALID_CONFIG),
        (("log.retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_not_changed_is_refused_by_name(
    node: NodeProcess, name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    with Asking(node) as asking:
        # What is all right beside it is not changed either.
        found = _alter(asking, name, ("log.roll.ms", SET, "5"), change)
        assert found["error_code"] == code
        assert change[0] in found["error_message"]
        kept = _configs(asking, "1", "log.retention.ms", "log.roll.ms")
        assert {one["config_source"] for one in kept.values()} == {5}


def test_taking_back_a_bound_of_replication_that_there_never_was_does_nothing(node: NodeProcess) -> None:
    idle = ("leader.replication.throttled.rate", DELETE, None)
    with Asking(node) as asking:
        before = {name: one["value"] for name, one in _configs(asking, "1").items()}
        for name in ("1", ""):
            assert _alter(asking, name, idle)["error_code"] == ErrorCode.NONE
        assert {name: one["value"] for name, one in _configs(asking, "1").items()} == before
        refused = _alter(asking, "1", idle, ("log.retention.mss", DELETE, None))
        assert refused["error_code"] == ErrorCode.INVALID_REQUEST


def test_a_list_is_appended_to_and_subtracted_from(new_node: Callable[..., NodeProcess]) -> None:
    with Asking(new_node().start()) as asking:

        def policy() -> str:
            return str(_configs(asking, "1", "log.cleanup.policy")["log.cleanup.policy"]["value"])

        assert _alter(asking, "1", ("log.cleanup.policy", APPEND, "compact"))["error_code"] == 0
        assert policy() == "compact,delete"
        assert _alter(asking, "1", ("log.cleanup.policy", SUBTRACT, "delete"))["error_code"] == 0
        assert policy() == "compact"
        assert _alter(asking, "", ("log.cleanup.policy", SUBTRACT, "delete"))["error_code"] == 0
        assert _configs(asking, "")["log.cleanup.policy"]["value"] == ""


def test_alter_configs_takes_back_what_it_does_not_name(new_node: Callable[..., NodeProcess]) -> None:
    with Asking(new_node().start()) as asking:
        assert _alter(asking, "", ("log.retention.ms", SET, "6"), ("log.roll.ms", SET, "7"))["error_code"] == 0
        whole = {"resource_type": BROKER, "resource_name": "", "configs": [{"name": "log.roll.ms", "value": "8"}]}
        (found,) = asking.ask(ApiKey.ALTER_CONFIGS, 2, {"resources": [whole], "validate_only": False})["responses"]
        assert found["error_code"] == 0
        assert {name: one["value"] for name, one in _configs(asking, "").items()} == {"log.roll.ms": "8"}


KEPT = {
    "num.io.threads": "16", "log.cleaner.threads": "2", "max.connections.per.ip.overrides": "host:5",
    "metric.reporters": "a.B,c.D", "sasl.kerberos.ticket.renew.window.factor": "0.7",
    "sasl.kerberos.min.time.before.relogin": "5", "follower.replication.throttled.rate": "1000",
    "log.retention.hours": "24", "listener.name.outside.max.connections": "9", "controlled.shutdown.enable": "false",
}  # fmt: skip


def test_what_only_kafka_s_brokers_have_is_kept_and_shown_by_confluent(
    new_node: Callable[..., NodeProcess],
) -> None:
    node = new_node().start()
    admin = AdminClient({"bootstrap.servers": node.kafka})

    def alter(operation: str, changes: Mapping[str, str | None]) -> None:
        kind = CONFLUENT.AlterConfigOpType[operation]
        entries = [CONFLUENT.ConfigEntry(key, value, incremental_operation=kind) for key, value in changes.items()]
        wish = CONFLUENT.ConfigResource(CONFLUENT.ConfigResource.Type.BROKER, "1", incremental_configs=entries)
        (future,) = admin.incremental_alter_configs([wish]).values()
        future.result(60)

    def shown() -> dict[str, Any]:
        (future,) = admin.describe_configs([CONFLUENT.ConfigResource(BROKER, "1")]).values()
        found: dict[str, Any] = future.result(60)
        return found

    assert not shown().keys() & KEPT.keys()
    alter("SET", KEPT)
    for _ in ("now", "after a restart"):
        found = shown()
        assert {name: found[name].value for name in KEPT} == KEPT
        assert {found[name].source for name in KEPT} == {2}
        node.stop()
        log = node.log_path.read_text()
        assert "WARNING" in log
        assert "without effect: Duramen has nothing that num.io.threads" in log
        node.restart()
        admin = AdminClient({"bootstrap.servers": node.kafka})
    with Asking(node) as asking:
        for name, value in KEPT.items():
            (one,) = _configs(asking, "1", name).values()
            assert "Without effect here" in one["documentation"]
            assert not one["read_only"]
            assert _synonyms(one) == [(name, value, 2)]
    alter("APPEND", {"metric.reporters": "e.F"})
    assert shown()["metric.reporters"].value == "a.B,c.D,e.F"
    alter("DELETE", dict.fromkeys(KEPT))
    assert not shown().keys() & KEPT.keys()


def test_what_only_kafka_s_brokers_have_is_kept_for_kafka_python(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    library = untyped("kafka.admin")
    client = library.KafkaAdminClient(bootstrap_servers=node.kafka)
    try:
        wish = library.ConfigResource(library.ConfigResourceType.BROKER, "1", {"num.network.threads": "5"})
        client.alter_configs([wish], raise_on_unknown=False)
        with Asking(node) as asking:
            assert _alter(asking, "", ("num.network.threads", SET, "6"))["error_code"] == 0
            (one,) = _configs(asking, "1", "num.network.threads").values()
            assert _synonyms(one) == [("num.network.threads", "5", 2), ("num.network.threads", "6", 3)]
            (one,) = _configs(asking, "", "num.network.threads").values()
            assert (one["value"], one["config_source"]) == ("6", 3)
    finally:
        client.close()


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize(
    ("config", "value", "code", "why"),
    [
        ("ssl.keystore.password", "hunter2", ErrorCode.INVALID_REQUEST, "keeps no secrets"),
        ("listener.name.outside.ssl.keystore.location", "/k", ErrorCode.INVALID_REQUEST, "no TLS"),
        ("listener.name.outside.plain.sasl.jaas.config", "x", ErrorCode.INVALID_REQUEST, "keeps no secrets"),
        ("ssl.client.auth", "required", ErrorCode.INVALID_REQUEST, "no TLS"),
        ("sasl.enabled.mechanisms", "PLAIN", ErrorCode.INVALID_REQUEST, "no authentication"),
        ("sasl.oauthbearer.client.credentials.client.secret", "x", ErrorCode.INVALID_REQUEST, "keeps no secrets"),
        ("delegation.token.secret.key", "x", ErrorCode.INVALID_REQUEST, "keeps no secrets"),
        ("authorizer.class.name", "a.B", ErrorCode.INVALID_REQUEST, "no authorizer"),
        ("super.users", "User:ann", ErrorCode.INVALID_REQUEST, "no authorizer"),
        ("unclean.leader.election.enable", "false", ErrorCode.INVALID_REQUEST, "ElectLeaders"),
        ("transaction.state.log.min.isr", "3", ErrorCode.INVALID_REQUEST, "min.insync.replicas"),
        ("create.topic.policy.class.name", "a.B", ErrorCode.INVALID_REQUEST, "no Java classes"),
        ("num.io.threads", "many", ErrorCode.INVALID_CONFIG, "a whole number"),
        ("num.io.threads", "2147483648", ErrorCode.INVALID_CONFIG, "at most 2147483647"),
        ("controlled.shutdown.enable", "maybe", ErrorCode.INVALID_CONFIG, "true or false"),
        ("max.connections.per.ip.overrides", "x" * 5000, ErrorCode.INVALID_CONFIG, "at most 4096"),
        ("metric.reporters", "http://ann:hunter2@host", ErrorCode.INVALID_CONFIG, "an address with a password"),
        ("num.io.thread", "16", ErrorCode.INVALID_REQUEST, "did you mean num.io.threads?"),
    ],
)
def test_what_is_secret_or_promises_safety_is_not_kept(
    node: NodeProcess, name: str, config: str, value: str, code: ErrorCode, why: str
) -> None:
    with Asking(node) as asking:
        found = _alter(asking, name, ("background.threads", SET, "5"), (config, SET, value))
        assert (found["error_code"], why in found["error_message"]) == (code, True), found["error_message"]
        assert "hunter2" not in found["error_message"]
        assert not _configs(asking, "1", config, "background.threads")


def test_replicas_are_in_the_one_directory_that_there_is(node: NodeProcess, stream_name: str) -> None:
    library = untyped("kafka.admin")
    client = library.KafkaAdminClient(bootstrap_servers=node.kafka)
    try:
        client.create_topics([library.NewTopic(stream_name, 2, 1)])
        own = str(node.data_dir)
        wanted = {
            (stream_name, 0, 1): own, (stream_name, 1, 1): f"{own}/../elsewhere", (stream_name, 2, 1): f"{own}/",
            ("there-is-none", 0, 1): own,
        }  # fmt: skip
        found = client.alter_replica_log_dirs(wanted)
    finally:
        client.close()
    codes = {(at.topic, at.partition): error.errno for at, error in found.items()}
    assert codes == {
        (stream_name, 0): ErrorCode.NONE, (stream_name, 1): ErrorCode.LOG_DIR_NOT_FOUND,
        (stream_name, 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("there-is-none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }  # fmt: skip
