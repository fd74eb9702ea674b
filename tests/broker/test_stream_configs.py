"""Configs in force, with the sources and synonyms that admin clients show."""

from duramen.base.catalogue.catalogue import BROKER, STREAM
from duramen.base.settings import Settings
from duramen.broker.stream_configs import ChangedDefaults, StreamConfig, broker_entries
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.storage.log.log import NEVER, StreamFloor


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


def test_what_changes_nothing_says_why() -> None:
    def why(durability: str, name: str) -> str:
        entries = StreamConfig(Settings(BROKER), {"durability": durability}).entries()
        return next(entry.without_effect for entry in entries if entry.setting.name == name)

    for name in ("flush.messages", "flush.ms"):
        assert why("sync", name) == "durability=sync implies it: there is a sync before each acknowledgement"
        assert why("os", name) == ""
        assert why("memory", name) == "with durability=memory there is nothing to sync"
    assert why("os", "preallocate") == "the write-ahead log is preallocated instead"
    implied = next(one for one in StreamConfig(Settings(BROKER), {}).entries() if one.setting.name == "flush.ms")
    assert implied.doc.endswith(" Without effect here: " + implied.without_effect + ".")


def test_flushing_reaches_the_log() -> None:
    settings = Settings(BROKER, options={"log.flush.interval.messages": 7, "log.flush.interval.ms": "2s"})
    config = StreamConfig(settings, {"flush.messages": "5"}).log_config()
    assert (config.flush_messages, config.flush_ms) == (5, 2000)
    unbounded = StreamConfig(Settings(BROKER), {}).log_config()
    assert (unbounded.flush_messages, unbounded.flush_ms) == (NEVER, NEVER)


def test_the_jitter_is_never_more_than_the_age_of_a_segment() -> None:
    settings = Settings(BROKER, options={"log.roll.jitter.ms": 500})
    assert StreamConfig(settings, {}).log_config().segment_jitter_ms == 500
    short = StreamConfig(settings, {"segment.ms": "300", "segment.jitter.ms": "400"}).log_config()
    assert (short.segment_ms, short.segment_jitter_ms) == (300, 300)


def test_each_segment_has_a_jitter_of_its_own() -> None:
    hand = ManualBroker()
    stream = hand.create("a", 50, segment_ms=10_000, segment_jitter_ms=4000)
    ages = [partition.log.roll_ms for partition in stream.partitions]
    assert all(6000 < age <= 10_000 for age in ages)
    assert len(set(ages)) > 40
    assert ages == [partition.log.roll_ms for partition in stream.partitions]
    # Nobody writes any more: each is closed when its own time has come.
    for index in range(50):
        hand.produce("a", b"x", partition=index)
    hand.settle()
    hand.advance(8000)
    hand.store.enforce_retention(hand.clock.wall_ms())
    hand.settle()
    closed = [len(partition.log.segments) > 1 for partition in stream.partitions]
    assert closed == [age < 8000 for age in ages]


def test_a_node_s_settings_that_are_defaults_of_streams_are_changed_while_it_runs() -> None:
    defaults = {setting.broker_default for setting in STREAM.values() if setting.broker_default}
    assert {name for name, setting in BROKER.items() if setting.dynamic} == defaults


def test_what_is_changed_while_the_node_runs_comes_before_what_it_was_started_with() -> None:
    settings = Settings(BROKER, options={"log.retention.ms": 5})
    changed = ChangedDefaults({"log.retention.ms": 7}, {"log.retention.ms": 6})
    layers = [
        ("log.retention.ms", 7, "dynamic-broker"),
        ("log.retention.ms", 6, "dynamic-default"),
        ("log.retention.ms", 5, "broker"),
        ("log.retention.ms", 604_800_000, "default"),
    ]
    assert entry(StreamConfig(settings, {}, changed), "retention.ms") == (7, "dynamic-broker", layers)
    own = entry(StreamConfig(settings, {"retention.ms": "9"}, changed), "retention.ms")
    assert own == (9, "stream", [("retention.ms", 9, "stream"), *layers])


def test_streams_follow_the_node_s_settings_while_it_runs() -> None:
    hand = ManualBroker()
    hand.create("mine", retention_ms=3)
    for at in range(450):
        hand.create(f"s{at}")
    answer: CallbackResult[None] = CallbackResult()
    hand.broker.node_configs.change({"log.retention.ms": "8"}, answer, of_all=True, whole=False)
    hand.settle()
    assert answer.error is None
    found = {stream.name: stream.partitions[0].log.config.retention_ms for stream in hand.broker.streams}
    assert found == {"mine": 3} | {f"s{at}": 8 for at in range(450)}
    hand.restart()
    assert hand.create("later").partitions[0].log.config.retention_ms == 8
    assert hand.broker.streams.get("s9").partitions[0].log.config.retention_ms == 8


def test_retention_waits_for_a_table_where_there_is_one() -> None:
    settings = Settings(BROKER)
    table = {"table.format": "delta", "table.location": "/lake", "table.kept.offsets": "0:5, 12:7"}
    assert StreamConfig(settings, table).log_config().floors == (StreamFloor("table", {0: 5, 12: 7}, 2),)
    assert StreamConfig(settings, {**table, "table.kept.offsets": ""}).log_config().floors == (
        StreamFloor("table", {}, 2),
    )
    assert StreamConfig(settings, {**table, "table.retention.multiple": "1"}).log_config().floors == ()
    assert StreamConfig(settings, {**table, "table.format": "none"}).log_config().floors == ()
