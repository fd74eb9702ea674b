"""Configs in force, with the sources and synonyms that admin clients show."""

from duramen.base.catalogue import BROKER, STREAM
from duramen.base.settings import Settings
from duramen.broker.configs import StreamConfig, broker_entries


def entry(config: StreamConfig, name: str) -> tuple[object, str, list[tuple[str, object, str]]]:
    """Value, source and synonyms of one config."""
    found = next(entry for entry in config.entries() if entry.setting.name == name)
    return found.value, found.source, list(found.synonyms)


def test_a_default_is_the_broker_s() -> None:
    config = StreamConfig(Settings(BROKER), {})
    assert entry(config, "retention.ms") == (
        604_800_000,
        "default",
        [("log.retention.ms", 604_800_000, "default")],
    )


def test_the_broker_s_setting_comes_before_its_default() -> None:
    config = StreamConfig(Settings(BROKER, options={"log.retention.ms": 5}), {})
    assert entry(config, "retention.ms") == (
        5,
        "broker",
        [("log.retention.ms", 5, "broker"), ("log.retention.ms", 604_800_000, "default")],
    )


def test_the_stream_s_own_comes_first() -> None:
    config = StreamConfig(Settings(BROKER, options={"log.retention.ms": 5}), {"retention.ms": "9"})
    assert entry(config, "retention.ms") == (
        9,
        "stream",
        [
            ("retention.ms", 9, "stream"),
            ("log.retention.ms", 5, "broker"),
            ("log.retention.ms", 604_800_000, "default"),
        ],
    )


def test_what_only_streams_have() -> None:
    settings = Settings(BROKER)
    assert entry(StreamConfig(settings, {}), "nats.ack") == ("publish", "default", [("nats.ack", "publish", "default")])
    assert entry(StreamConfig(settings, {"nats.ack": "never"}), "nats.ack") == (
        "never",
        "stream",
        [("nats.ack", "never", "stream")],
    )


def test_every_config_and_setting_has_an_entry() -> None:
    settings = Settings(BROKER)
    assert [found.setting.name for found in StreamConfig(settings, {}).entries()] == list(STREAM)
    assert [found.setting.name for found in broker_entries(settings)] == list(BROKER)


def test_a_config_that_this_version_does_not_know_is_left_out() -> None:
    config = StreamConfig(Settings(BROKER), {"from.the.future": "1", "retention.ms": "7"})
    assert config.integer("retention.ms") == 7


def test_retention_holds_only_where_the_policy_deletes() -> None:
    settings = Settings(BROKER)
    own = {"retention.ms": "5", "retention.bytes": "6", "retention.records": "7"}
    kept = StreamConfig(settings, {**own, "cleanup.policy": "compact"}).log_config()
    assert (kept.retention_ms, kept.retention_bytes, kept.retention_records) == (-1, -1, -1)
    for policy in ("delete", "compact,delete"):
        log = StreamConfig(settings, {**own, "cleanup.policy": policy}).log_config()
        assert (log.retention_ms, log.retention_bytes, log.retention_records) == (5, 6, 7)
