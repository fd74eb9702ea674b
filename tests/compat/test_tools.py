"""The command-line tools of Apache Kafka, run by class from Maven's jars."""

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from tests.compat.building import Missing, kafka_jars, tool
from tests.compat.conftest import settings
from tests.compat.results import Results
from tests.compat.staging import unique

from duramen.node.process import NodeProcess

pytestmark = pytest.mark.long

_CLIENT: Final = "Apache Kafka's tools"
_VERSION: Final = "4.1.1"
_WAIT_S: Final = 240.0
_TOOLS: Final = "org.apache.kafka.tools."
_CONFIGS: Final = "kafka.admin.ConfigCommand"
_GROUPS: Final = f"{_TOOLS}consumer.group.ConsumerGroupCommand"


class Tools:
    """Runs tools against a node."""

    def __init__(self, node: NodeProcess, directory: Path, results: Results) -> None:
        self.node = node
        self.directory = directory
        self.results = results
        self._java = [tool("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
        self._path = f"{kafka_jars(_VERSION)}/*"

    def __call__(self, name: str, *arguments: str, given: str = "") -> str:
        """Run a tool to its end; what it prints. Raises AssertionError where it fails."""
        server = "--broker-list" if name.endswith("TransactionalMessageCopier") else "--bootstrap-server"
        where = [] if name.endswith(("ProducerPerformance", "ClusterTool")) else [server, self.node.kafka]
        done = subprocess.run(
            [*self._java, self._path, name, *where, *arguments], input=given, capture_output=True, text=True,
            timeout=_WAIT_S, check=False, cwd=self.directory,
        )  # fmt: skip
        assert done.returncode == 0, f"exit {done.returncode}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        return done.stdout


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """The tools, and a node."""
    directory = tmp_path_factory.mktemp("tools")
    results = Results(_CLIENT, _VERSION, "Java")
    with NodeProcess(directory / "data", settings()) as node:
        try:
            yield Tools(node, directory, results)
        except Missing as missing:
            pytest.skip(str(missing))
    results.write()


def _made(run: Tools, partitions: int = 1) -> str:
    topic = unique("topic")
    run(f"{_TOOLS}TopicCommand", "--create", "--topic", topic, "--partitions", str(partitions))
    return topic


def _fill(run: Tools, topic: str, count: int) -> None:
    lines = "".join(f"key {number}:value {number}\n" for number in range(count))
    properties = ["--property", "parse.key=true", "--property", "key.separator=:"]
    run(f"{_TOOLS}ConsoleProducer", "--topic", topic, *properties, given=lines)


def _topics(run: Tools) -> None:
    command, topic = f"{_TOOLS}TopicCommand", _made(run, 3)
    assert topic in run(command, "--list").split()
    said = run(command, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in said
    assert "Leader: 1" in said
    run(command, "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in run(command, "--describe", "--topic", topic)
    run(command, "--delete", "--topic", topic)
    assert topic not in run(command, "--list").split()


def _topic_configs(run: Tools) -> None:
    of_it = ["--entity-type", "topics", "--entity-name", _made(run)]
    run(_CONFIGS, *of_it, "--alter", "--add-config", "retention.ms=1000000,cleanup.policy=[compact,delete]")
    said = run(_CONFIGS, *of_it, "--describe")
    assert "retention.ms=1000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000000" in said
    assert "cleanup.policy=compact,delete " in said
    run(_CONFIGS, *of_it, "--alter", "--delete-config", "retention.ms")
    said = run(_CONFIGS, *of_it, "--describe")
    assert "retention.ms" not in said
    assert "cleanup.policy=compact,delete " in said
    assert "  retention.ms=604800000 " in run(_CONFIGS, *of_it, "--describe", "--all")
    with pytest.raises(AssertionError, match=r"InvalidConfigurationException: no\.such is not a config"):
        run(_CONFIGS, *of_it, "--alter", "--add-config", "no.such=1")


def _broker_configs(run: Tools) -> None:
    of_it = ["--entity-type", "brokers", "--entity-name", "1"]
    assert "  group.initial.rebalance.delay.ms=0 " in run(_CONFIGS, *of_it, "--describe", "--all")
    assert run(_CONFIGS, *of_it, "--describe").splitlines() == ["Dynamic configs for broker 1 are:"]
    with pytest.raises(AssertionError, match=r"num\.partitions cannot be changed"):
        run(_CONFIGS, *of_it, "--alter", "--add-config", "num.partitions=2")
    run(_CONFIGS, *of_it, "--alter", "--add-config", "num.io.threads=16")
    assert "  num.io.threads=16 " in run(_CONFIGS, *of_it, "--describe")
    run(_CONFIGS, *of_it, "--alter", "--delete-config", "num.io.threads")
    of_it[1] = "broker-loggers"
    run(_CONFIGS, *of_it, "--alter", "--add-config", "duramen.kafka=WARN")
    assert "  duramen.kafka=WARN " in run(_CONFIGS, *of_it, "--describe")
    run(_CONFIGS, *of_it, "--alter", "--delete-config", "duramen.kafka")
    assert "  duramen.kafka=INFO " in run(_CONFIGS, *of_it, "--describe")


def _client_quotas(run: Tools) -> None:
    client = unique("client")
    of_it, of_all = ["--entity-type", "clients", "--entity-name", client], ["--entity-type", "clients"]
    run(_CONFIGS, *of_it, "--alter", "--add-config", "producer_byte_rate=1000000,consumer_byte_rate=2000000")
    line = f"Quota configs for client-id '{client}' are consumer_byte_rate=2000000.0, producer_byte_rate=1000000.0"
    assert run(_CONFIGS, *of_it, "--describe").splitlines() == [line]
    run(_CONFIGS, *of_all, "--entity-default", "--alter", "--add-config", "producer_byte_rate=5000000")
    default = "Quota configs for the default client-id are producer_byte_rate=5000000.0"
    assert {line, default} <= set(run(_CONFIGS, *of_all, "--describe").splitlines())
    run(_CONFIGS, *of_it, "--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate")
    run(_CONFIGS, *of_all, "--entity-default", "--alter", "--delete-config", "producer_byte_rate")
    assert run(_CONFIGS, *of_all, "--describe") == ""


def _console(run: Tools) -> None:
    topic = _made(run)
    _fill(run, topic, 20)
    said = run(
        f"{_TOOLS}consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "20",
        "--property", "print.key=true", "--property", "print.offset=true",
    )  # fmt: skip
    assert said.splitlines() == [f"Offset:{at}\tkey {at}\tvalue {at}" for at in range(20)]


def _groups(run: Tools) -> None:
    topic, group = _made(run), unique("group")
    _fill(run, topic, 10)
    arguments = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", "4"]
    run(f"{_TOOLS}consumer.ConsoleConsumer", *arguments)
    assert group in run(_GROUPS, "--list").split()
    row = next(line for line in run(_GROUPS, "--describe", "--group", group).splitlines() if topic in line).split()
    assert row[:6] == [group, topic, "0", "4", "10", "6"]
    assert "Empty" in run(_GROUPS, "--describe", "--group", group, "--state")
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"]
    assert topic in run(_GROUPS, *reset)
    row = next(line for line in run(_GROUPS, "--describe", "--group", group).splitlines() if topic in line).split()
    assert row[3] == "0"
    assert "successful" in run(_GROUPS, "--delete-offsets", "--group", group, "--topic", topic).lower()
    run(_GROUPS, "--delete", "--group", group)
    assert group not in run(_GROUPS, "--list").split()


def _verifiable(run: Tools) -> None:
    topic = _made(run)
    said = run(f"{_TOOLS}VerifiableProducer", "--topic", topic, "--max-messages", "500", "--acks", "-1")
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 500
    said = run(
        f"{_TOOLS}VerifiableConsumer", "--topic", topic, "--group-id", unique("group"), "--max-messages", "500",
        "--reset-policy", "earliest",
    )  # fmt: skip
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(event.get("count", 0) for event in events if event["name"] == "records_consumed") == 500
    assert any(event["name"] == "offsets_committed" and event["success"] for event in events)


def _copier(run: Tools) -> None:
    source, target = _made(run), _made(run)
    _fill(run, source, 200)
    run(
        f"{_TOOLS}TransactionalMessageCopier", "--input-topic", source, "--output-topic", target, "--input-partition",
        "0", "--transactional-id", unique("id"), "--consumer-group", unique("group"), "--transaction-size",
        "20", "--max-messages", "200", "--enable-random-aborts",
    )  # fmt: skip
    said = run(
        f"{_TOOLS}consumer.ConsoleConsumer", "--topic", target, "--from-beginning", "--max-messages", "200",
        "--isolation-level", "read_committed",
    )  # fmt: skip
    assert said.splitlines() == [f"value {at}" for at in range(200)]


def _performance(run: Tools) -> None:
    topic = _made(run, 2)
    said = run(
        f"{_TOOLS}ProducerPerformance", "--topic", topic, "--num-records", "5000", "--record-size", "100",
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={run.node.kafka}", "compression.type=lz4",
    )  # fmt: skip
    assert "5000 records sent" in said
    said = run(f"{_TOOLS}ConsumerPerformance", "--topic", topic, "--messages", "5000", "--timeout", "60000")
    assert ", 5000, " in said


def _offsets(run: Tools) -> None:
    topic = _made(run)
    _fill(run, topic, 10)
    for time, offset in (("-1", "10"), ("-2", "0"), ("earliest", "0"), ("latest", "10")):
        said = run(f"{_TOOLS}GetOffsetShell", "--topic", topic, "--time", time)
        assert said.split() == [f"{topic}:0:{offset}"], time


def _delete_records(run: Tools) -> None:
    topic = _made(run)
    _fill(run, topic, 10)
    file = run.directory / "delete.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}))
    said = run(f"{_TOOLS}DeleteRecordsCommand", "--offset-json-file", str(file))
    assert f"partition: {topic}-0\tlow_watermark: 4" in said
    assert run(f"{_TOOLS}GetOffsetShell", "--topic", topic, "--time", "-2").split() == [f"{topic}:0:4"]


def _log_dirs(run: Tools) -> None:
    topic = _made(run)
    _fill(run, topic, 10)
    said = run(f"{_TOOLS}LogDirsCommand", "--describe", "--topic-list", topic)
    found = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    (broker,) = found["brokers"]
    sizes = {one["partition"]: one["size"] for one in broker["logDirs"][0]["partitions"]}
    assert sizes[f"{topic}-0"] > 0


def _transactions(run: Tools) -> None:
    name = f"{_TOOLS}TransactionsCommand"
    source, target, identity = _made(run), _made(run), unique("id")
    _fill(run, source, 20)
    run(
        f"{_TOOLS}TransactionalMessageCopier", "--input-topic", source, "--output-topic", target, "--input-partition",
        "0", "--transactional-id", identity, "--consumer-group", unique("group"), "--transaction-size", "20",
        "--max-messages", "20",
    )  # fmt: skip
    assert identity in run(name, "list")
    assert "CompleteCommit" in run(name, "describe", "--transactional-id", identity)
    assert "ProducerId" in run(name, "describe-producers", "--topic", target, "--partition", "0")


def _cluster(run: Tools) -> None:
    assert "Cluster ID: " in run(f"{_TOOLS}ClusterTool", "cluster-id", "--bootstrap-server", run.node.kafka)


def _endpoints(run: Tools) -> None:
    said = run(
        f"{_TOOLS}ClusterTool", "list-endpoints", "--include-fenced-brokers", "--bootstrap-server", run.node.kafka
    )
    host, _, port = run.node.kafka.rpartition(":")
    assert [line.split()[:3] for line in said.splitlines()[1:]] == [["1", host, port]]


def _metadata_quorum(run: Tools) -> None:
    name = f"{_TOOLS}MetadataQuorumCommand"
    said = run(name, "describe", "--status")
    assert "LeaderId:               1\n" in said
    assert '"id": 1' in said
    assert any(
        line.split()[0] == "1" and "Leader" in line for line in run(name, "describe", "--replication").splitlines()
    )


def _leader_election(run: Tools) -> None:
    stream = _made(run)
    name = f"{_TOOLS}LeaderElectionCommand"
    said = run(name, "--election-type", "preferred", "--topic", stream, "--partition", "0")
    assert "Valid replica already elected for partitions" in said
    run(name, "--election-type", "unclean", "--all-topic-partitions")


def _reassign_partitions(run: Tools) -> None:
    stream = _made(run)
    name = f"{_TOOLS}reassign.ReassignPartitionsCommand"
    directory = str(run.node.data_dir)
    partition = {"topic": stream, "partition": 0, "replicas": [1], "log_dirs": [directory]}
    plan = {"version": 1, "partitions": [partition]}
    file = run.directory / "plan.json"
    file.write_text(json.dumps(plan), encoding="utf-8")
    assert "No partition reassignments found" in run(name, "--list")
    assert "Successfully started partition reassignment" in run(
        name, "--execute", "--reassignment-json-file", str(file)
    )
    assert "is completed" in run(name, "--verify", "--reassignment-json-file", str(file))


def _versions(run: Tools) -> None:
    said = run(f"{_TOOLS}BrokerApiVersionsCommand")
    assert "Produce(0): 0 to 12" in said
    assert "UNSUPPORTED" in said


def _features(run: Tools) -> None:
    assert "Feature:" in run(f"{_TOOLS}FeatureCommand", "describe")


TOOLS: Final[Sequence[tuple[str, Callable[[Tools], None], Sequence[int]]]] = (
    ("kafka-topics: create, list, describe, alter, delete", _topics, ()),
    ("kafka-configs, topics: alter, describe, a default again, an unknown one refused", _topic_configs, (44,)),
    ("kafka-configs, brokers: describe; what a start reads is not altered; loggers are", _broker_configs, (44,)),
    ("kafka-configs, clients: quotas of one and of all", _client_quotas, (48, 49)),
    ("console producer and consumer", _console, ()),
    ("kafka-consumer-groups: list, describe, reset and delete offsets, delete", _groups, (47,)),
    ("verifiable producer and consumer", _verifiable, ()),
    ("transactional message copier, with random aborts", _copier, (26,)),
    ("producer and consumer performance", _performance, ()),
    ("kafka-get-offsets", _offsets, ()),
    ("kafka-delete-records", _delete_records, ()),
    ("kafka-log-dirs", _log_dirs, (35,)),
    ("kafka-transactions: list, describe, producers", _transactions, (61, 65, 66)),
    ("kafka-cluster: id", _cluster, ()),
    ("kafka-cluster: endpoints, fenced ones too", _endpoints, (60,)),
    ("kafka-metadata-quorum: status and replication", _metadata_quorum, (55,)),
    ("kafka-leader-election: preferred, unclean", _leader_election, (43,)),
    ("kafka-reassign-partitions: list, execute, verify", _reassign_partitions, (34, 45, 46)),
    ("kafka-broker-api-versions", _versions, ()),
    ("kafka-features", _features, ()),
)


@pytest.mark.parametrize("shown", TOOLS, ids=lambda one: one[0])
def test_it_works(tools: Tools, shown: tuple[str, Callable[[Tools], None], Sequence[int]]) -> None:
    name, run, needs = shown
    tools.results.show(name, partial(run, tools), tools.node, needs)
