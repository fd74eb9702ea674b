"""Steps about configs: of topics, of groups and of the node, changed one by one or as a whole."""

from typing import Any, Final

from tests.differential.drawing import Drawing, Making, Step

from duramen.codec.kafka.versions import ApiKey

__all__ = ["Configs", "draw_config", "group_config", "note_compression"]

_CONFIGS: Final = (
    ("cleanup.policy", ("compact", "delete", "compact,delete", "shred", "")),
    ("retention.ms", ("1000000", "-1", "-2", "x")), ("max.message.bytes", ("1000", "2000000", "-1")),
    ("compression.type", ("gzip", "producer", "zstd", "brotli")), ("min.insync.replicas", ("1", "0")),
    ("message.timestamp.type", ("CreateTime", "LogAppendTime", "Now")), ("segment.bytes", ("1048576", "1", "2000000")),
    ("delete.retention.ms", ("100", "-5")), ("min.cleanable.dirty.ratio", ("0.1", "2")), ("no.such.config", ("1",)),
    ("retention.bytes", ("-1", "100000")), ("flush.messages", ("1", "0")),
    ("unclean.leader.election.enable", ("true",)),
)  # fmt: skip
_ASKED: Final = [name for name, _ in _CONFIGS]
_GROUP_CONFIGS: Final = (
    ("share.auto.offset.reset", ("earliest", "latest", "by_duration:PT1H", "by_duration:", "never")),
    ("share.isolation.level", ("read_committed", "read_uncommitted", "serializable")),
    ("share.record.lock.duration.ms", ("15000", "30000", "14999", "99999999", "x")),
    ("share.delivery.count.limit", ("2", "10", "1", "11")), ("share.partition.max.record.locks", ("100", "99", "4001")),
    ("share.heartbeat.interval.ms", ("5000", "4999", "15001")), ("share.session.timeout.ms", ("45000", "44999")),
    ("share.renew.acknowledge.enable", ("false", "maybe")), ("no.such.config", ("1",)),
    ("consumer.session.timeout.ms", ("45000", "44999")), ("consumer.heartbeat.interval.ms", ("5000", "4999")),
)  # fmt: skip
_ASKED_OF_GROUPS: Final = [name for name, _ in _GROUP_CONFIGS]
_OPERATIONS: Final = (0, 0, 0, 1, 1, 2, 3, 9, -1)
_LISTS: Final = ("compact", "delete", "delete,compact", "shred", "")
_TOPIC: Final = 2
_BROKER: Final = 4
_GROUP: Final = 32
_KINDS: Final = (0, 1, 3, 99, -1)


def draw_config(draw: Drawing) -> dict[str, Any]:
    """A config of topics with a value that may be wrong."""
    name, values = draw.chance.choice(_CONFIGS)
    return {"name": name, "value": draw.chance.choice(values)}


def note_compression(draw: Drawing, topic: str, configs: list[dict[str, Any]]) -> None:
    """From here on the topic's records may be compressed anew, where its configs say so."""
    if any(config["name"] == "compression.type" for config in configs):
        draw.recompressed.add(topic)


def group_config(group: str, name: str, value: str) -> Step:
    """Set one config of a group."""
    config = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": _GROUP, "resource_name": group, "configs": [config]}
    return Step(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}, settle=True)


class Configs:
    """Draws them."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw

    def making(self) -> list[Making]:
        """The steps of this family."""
        return [(5, self._describe), (7, self._alter_some), (4, self._alter_all), (2, self._describe_group)]

    def _resource(self) -> tuple[int, str]:
        kind = _TOPIC if self._draw.often() else self._draw.one(_BROKER, _GROUP, _GROUP, *_KINDS)
        if kind == _BROKER:
            return kind, self._draw.one("1", "9", "x", "")
        if kind == _GROUP:
            return kind, self._draw.one(self._draw.groups[0], "configured", "")
        return kind, self._draw.name()

    def _entry(self, kind: int) -> dict[str, Any]:
        if kind != _GROUP:
            return draw_config(self._draw)
        name, values = self._draw.chance.choice(_GROUP_CONFIGS)
        return {"name": name, "value": self._draw.chance.choice(values)}

    def _describe(self) -> Step:
        kind, name = self._resource()
        if kind == _BROKER:
            name = self._draw.one("9", "x")
        return self._describing(kind, name, _ASKED)

    def _describe_group(self) -> Step:
        return self._describing(_GROUP, self._draw.one(self._draw.groups[0], "configured", ""), _ASKED_OF_GROUPS)

    def _describing(self, kind: int, name: str, keys: list[str]) -> Step:
        wish = {
            "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
            "include_synonyms": self._draw.sometimes(0.3), "include_documentation": False,
        }  # fmt: skip
        return Step(ApiKey.DESCRIBE_CONFIGS, self._draw.version(ApiKey.DESCRIBE_CONFIGS), wish)

    def _resources(self, configs: int) -> tuple[int, list[dict[str, Any]]]:
        kind, name = self._resource()
        entries = [self._entry(kind) for _ in range(configs)]
        note_compression(self._draw, name, entries)
        resources = [{"resource_type": kind, "resource_name": name, "configs": entries}]
        if self._draw.sometimes(0.1):
            resources.append({"resource_type": kind, "resource_name": self._draw.one(name, "alpha"), "configs": []})
        return kind, resources

    def _count(self) -> int:
        return 1 if self._draw.often() else int(self._draw.one(0, 2, 2))

    def _alter_some(self) -> Step:
        _, resources = self._resources(self._count())
        for entry in resources[0]["configs"]:
            entry["config_operation"] = self._draw.one(*_OPERATIONS)
            if entry["config_operation"] in (2, 3) and self._draw.often():
                entry |= {"name": "cleanup.policy", "value": self._draw.one(*_LISTS)}
            if entry["config_operation"] == 1 or self._draw.sometimes(0.05):
                entry["value"] = None
        wish = {"resources": resources, "validate_only": self._draw.sometimes(0.3)}
        version = self._draw.version(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        return Step(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, wish, settle=True)

    def _alter_all(self) -> Step:
        _, resources = self._resources(self._draw.number(3))
        del resources[1:]  # Apache Kafka does not answer where one resource is named twice
        for entry in resources[0]["configs"]:
            if self._draw.sometimes(0.05):
                entry["value"] = None
        wish = {"resources": resources, "validate_only": self._draw.sometimes(0.3)}
        return Step(ApiKey.ALTER_CONFIGS, self._draw.version(ApiKey.ALTER_CONFIGS), wish, settle=True)
