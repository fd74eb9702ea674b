"""Behaviours: a client's administration."""

from typing import Final

import pytest
from tests.compat.driving import Refused
from tests.compat.staging import Behaviour, Stage, record, values

__all__ = ["ADMINISTERING"]


def _topics(stage: Stage) -> None:
    topic, ask = stage.name("topic"), stage.driver.ask
    ask("create_topic", topic=topic, partitions=3, config={"retention.ms": "123456"})
    assert stage.partitions(topic) == 3
    assert stage.configs(topic)["retention.ms"] == "123456"
    assert ask("partitions", topic=topic) == 3
    with pytest.raises(Refused):
        ask("create_topic", topic=topic, partitions=3, config={})
    ask("delete_topic", topic=topic)
    assert stage.partitions(topic) == 0
    with pytest.raises(Refused):
        ask("delete_topic", topic=topic)


def _metadata(stage: Stage) -> None:
    assert stage.driver.ask("partitions", topic=stage.topic(3)) == 3


def _partitions(stage: Stage) -> None:
    topic = stage.topic(2)
    stage.driver.ask("grow", topic=topic, partitions=5)
    assert stage.partitions(topic) == 5
    with pytest.raises(Refused):
        stage.driver.ask("grow", topic=topic, partitions=4)


def _describe_configs(stage: Stage) -> None:
    topic = stage.topic(config={"cleanup.policy": "compact"})
    found = stage.driver.ask("configs", topic=topic)
    assert found["cleanup.policy"] == "compact"
    assert found["max.message.bytes"] == "1048588"


def _alter_configs(stage: Stage) -> None:
    topic = stage.topic(config={"segment.bytes": "1048576"})
    stage.driver.ask("set_config", topic=topic, name="retention.ms", value="1000000")
    found = stage.configs(topic)
    assert found["retention.ms"] == "1000000"
    assert found["segment.bytes"] == "1048576"
    with pytest.raises(Refused):
        stage.driver.ask("set_config", topic=topic, name="no.such.config", value="1")


def _replace_configs(stage: Stage) -> None:
    topic = stage.topic(config={"segment.bytes": "1048576"})
    stage.driver.ask("replace_configs", topic=topic, config={"retention.ms": "1000000"})
    found = stage.configs(topic)
    assert found["retention.ms"] == "1000000"
    assert found["segment.bytes"] != "1048576"


def _delete_records(stage: Stage) -> None:
    topic = stage.topic()
    stage.driver.ask("produce", topic=topic, records=[record(str(at)) for at in range(10)])
    assert stage.driver.ask("delete_records", topic=topic, partition=0, before=4) in {4, None}
    found = stage.driver.ask("read", topic=topic, partition=0, offset=4, count=1)
    assert values(found) == ["4"]
    assert stage.driver.ask("offset_at", topic=topic, partition=0, timestamp=1) == 4


def _groups(stage: Stage) -> None:
    topic, group, ask = stage.topic(), stage.name("group"), stage.driver.ask
    ask("produce", topic=topic, records=[record(str(at)) for at in range(10)])
    member = stage.driver.join(group, group, topic)
    member.until_read(b"9")
    member.commit()
    assert group in ask("groups")
    assert ask("group", group=group) == {"state": "stable", "members": 1}
    with pytest.raises(Refused):
        ask("delete_group", group=group)
    member.leave()
    assert ask("group", group=group) == {"state": "empty", "members": 0}
    assert ask("committed", group=group, topic=topic, partition=0) == 10
    ask("delete_group", group=group)
    assert group not in ask("groups")


ADMINISTERING: Final = (
    Behaviour("metadata", "partitions of a topic", _metadata),
    Behaviour("admin, topics", "create with configs, refuse a second one, delete", _topics),
    Behaviour("admin, partitions", "add partitions; taking some away is refused", _partitions),
    Behaviour("admin, describe configs", "a topic's own configs and the defaults", _describe_configs),
    Behaviour("admin, change a config", "IncrementalAlterConfigs; an unknown name is refused", _alter_configs),
    Behaviour("admin, replace configs", "AlterConfigs, which sets what is not named back", _replace_configs, (33,)),
    Behaviour("admin, delete records", "the log begins behind them", _delete_records),
    Behaviour("admin, groups", "list, describe, committed offsets, delete", _groups),
)
