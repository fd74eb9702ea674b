"""Sizes and times as people write them, wherever a stream's config or a setting is given."""

import http.client
import json
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic
from tests.cli.command import Run, run

from duramen.node.process import NodeProcess


def configs(node: NodeProcess, name: str) -> dict[str, str]:
    """A topic's configs as a Kafka admin client sees them."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    admin = AdminClient({"bootstrap.servers": node.kafka})
    found = admin.describe_configs([resource])[resource].result(60)
    return {entry.name: entry.value for entry in found.values()}


def test_at_the_kafka_door(node: NodeProcess, stream_name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    topic = NewTopic(stream_name, 1, 1, config={"retention.ms": "7d", "retention.bytes": "1GiB"})
    admin.create_topics([topic])[stream_name].result(60)
    found = configs(node, stream_name)
    assert (found["retention.ms"], found["retention.bytes"]) == ("604800000", "1073741824")
    resource = ConfigResource(ResourceType.TOPIC, stream_name)
    resource.add_incremental_config(ConfigEntry("flush.ms", "5s", incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([resource])[resource].result(60)
    assert configs(node, stream_name)["flush.ms"] == "5000"


def test_over_http_and_from_the_command_line(duramen: Run, node: NodeProcess, stream_name: str) -> None:
    body = json.dumps({"name": stream_name, "config": {"retention.ms": "12h", "segment.bytes": "64MiB"}}).encode()
    connection = http.client.HTTPConnection(node.http, timeout=60)
    connection.request("POST", "/v1/streams", body, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 201
    connection.close()
    assert configs(node, stream_name)["retention.ms"] == "43200000"
    assert configs(node, stream_name)["segment.bytes"] == str(64 << 20)
    assert duramen("stream", "alter", stream_name, "--config", "retention.ms=2d").code == 0
    assert configs(node, stream_name)["retention.ms"] == "172800000"


def test_in_the_file_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "duramen.toml").write_text('[wal.max]\nbytes = "2 GiB"\n')
    ended = run("config", "show", "--format", "json", cwd=tmp_path, also={"DURAMEN_LOG_RETENTION_MS": "30d"})
    shown = {one["name"]: one["value"] for one in json.loads(ended.out)["settings"]}
    assert (shown["wal.max.bytes"], shown["log.retention.ms"]) == (2 << 30, 30 * 86_400_000)


def test_as_an_option(duramen_alone: Run) -> None:
    refused = duramen_alone("serve", "--memory-limit-bytes", "1 GiB", "--log-roll-ms", "2 fortnights")
    assert refused.code == 2
    assert "log.roll.ms: '2 fortnights' does not fit; it must be a time such as 30000 or 30s" in refused.err
