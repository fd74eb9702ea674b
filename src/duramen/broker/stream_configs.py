"""The effective config of a stream: its own values over the broker's defaults, each with its source."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from duramen.base.catalogue.catalogue import STREAM
from duramen.base.catalogue.queues import KIND, QUEUE_RETENTION, QUEUE_VALUES, QUEUES
from duramen.base.catalogue.tables import KEPT_OFFSETS, NONE
from duramen.base.settings import Setting, Settings, Value, check, entries
from duramen.storage.log.log import LogConfig, StreamFloor
from duramen.storage.planning.compaction import CompactionConfig, CompactionLimits

__all__ = [
    "UNCHANGED",
    "ChangedDefaults",
    "ConfigEntry",
    "ConfigSource",
    "StreamConfig",
    "Synonym",
    "broker_entries",
    "compaction_limits",
]

_KEYS_SHARE: Final = 8  # compaction's table of keys may take an eighth of memory.limit.bytes
_NO_BOUND: Final = -1
_LEAST_LOAD_FACTOR: Final = 0.1

ConfigSource = Literal["stream", "dynamic-broker", "dynamic-default", "broker", "default"]
"""The source of a value: the stream; this node or all nodes, dynamically; the node's start; the default."""

Synonym = tuple[str, Value, ConfigSource]


class ChangedDefaults(NamedTuple):
    """Settings that were changed while the node runs: its own, and those of every node."""

    own: Mapping[str, Value]
    every: Mapping[str, Value]


UNCHANGED: Final = ChangedDefaults({}, {})


class ConfigEntry(NamedTuple):
    """A config as DescribeConfigs shows it; `synonyms` are (name, value, source) from the nearest to the furthest.

    `without_effect` is the reason why it changes nothing for this stream; empty if it has an effect.
    """

    setting: Setting
    value: Value
    source: ConfigSource
    synonyms: tuple[Synonym, ...]
    without_effect: str = ""

    @property
    def doc(self) -> str:
        """Its description, and the reason if it has no effect."""
        return self.setting.doc + (f" Without effect here: {self.without_effect}." if self.without_effect else "")


class StreamConfig:
    """Values in force, by name."""

    __slots__ = ("_changed", "_log_config", "_overrides", "_settings", "_values")

    def __init__(self, settings: Settings, overrides: Mapping[str, str], changed: ChangedDefaults = UNCHANGED) -> None:
        """`overrides` were checked when they were set; one that is not known any more is left out."""
        self._settings = settings
        self._changed = changed
        self._overrides = {name: check(STREAM[name], text) for name, text in overrides.items() if name in STREAM}
        self._values = {name: self._resolve(setting) for name, setting in STREAM.items()}
        if self._values[KIND] == QUEUES:
            # The broker's defaults are for logs: queues keep everything unless the space has bounds.
            kept = {name: self._overrides.get(name, _NO_BOUND) for name in QUEUE_RETENTION}
            own = {name: self._overrides.get(name, value) for name, value in QUEUE_VALUES.items()}
            self._values |= {**own, **kept}
        self._log_config: LogConfig | None = None

    def _resolve(self, setting: Setting) -> Value:
        if setting.name in self._overrides:
            return self._overrides[setting.name]
        if setting.broker_default:
            return _layers(self._settings, self._changed, setting.broker_default)[0][1]
        return setting.default

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def integer(self, name: str) -> int:
        """The value of an integer config."""
        return int(self._values[name])

    def text(self, name: str) -> str:
        """The value of a text config."""
        return str(self._values[name])

    def log_config(self) -> LogConfig:
        """The storage's config: the same object each time, for any number of logs."""
        if self._log_config is None:
            self._log_config = self._make_log_config()
        return self._log_config

    def _make_log_config(self) -> LogConfig:
        policy = self.text("cleanup.policy")
        deletes = "delete" in policy and self._values[KIND] != QUEUES  # whose log is cut below its view's checkpoints
        compacts = "compact" in policy
        segment_ms = self.integer("segment.ms")
        if compacts:
            segment_ms = min(segment_ms, self.integer("max.compaction.lag.ms"))  # as Kafka: the active one waits too
        return LogConfig(
            self.text("durability"),
            self.integer("segment.bytes"),
            segment_ms,
            self.integer("retention.ms") if deletes else -1,
            self.integer("retention.bytes") if deletes else -1,
            self.integer("retention.records") if deletes else -1,
            self.integer("memory.max.bytes"),
            self.integer("flush.messages"),
            self.integer("flush.ms"),
            compacts,
            CompactionConfig(
                float(self._values["min.cleanable.dirty.ratio"]),
                self.integer("min.compaction.lag.ms"),
                self.integer("max.compaction.lag.ms"),
                self.integer("delete.retention.ms"),
            ),
            min(self.integer("segment.jitter.ms"), segment_ms),
            self.integer("file.delete.delay.ms"),
            self._floors(),
        )

    def _floors(self) -> tuple[StreamFloor, ...]:
        """The condition of retention: the records are in the stream's table."""
        multiple = self.integer("table.retention.multiple")
        if self.text("table.format") == NONE or multiple == 1:
            return ()
        pairs = (entry.split(":") for entry in entries(self.text(KEPT_OFFSETS)) if entry)
        return (StreamFloor("table", {int(partition): int(offset) for partition, offset in pairs}, multiple),)

    def entries(self) -> list[ConfigEntry]:
        """Every config, in the order of the catalogue."""
        return [self._entry(setting) for setting in STREAM.values()]

    def _entry(self, setting: Setting) -> ConfigEntry:
        synonyms: list[Synonym] = []
        if setting.name in self._overrides:
            synonyms.append((setting.name, self._overrides[setting.name], "stream"))
        if setting.broker_default:
            synonyms += _layers(self._settings, self._changed, setting.broker_default)
        elif setting.kafka or setting.name not in self._overrides:
            synonyms.append((setting.name, setting.default, "default"))
        without_effect = setting.without_effect or dict(setting.idle_with).get(self.text("durability"), "")
        return ConfigEntry(setting, self._values[setting.name], synonyms[0][2], tuple(synonyms), without_effect)


def _layers(settings: Settings, changed: ChangedDefaults, name: str) -> list[Synonym]:
    """The values that a setting has, the one in force first."""
    found: list[Synonym] = []
    if name in changed.own:
        found.append((name, changed.own[name], "dynamic-broker"))
    if name in changed.every:
        found.append((name, changed.every[name], "dynamic-default"))
    if settings.source(name) != "default":
        found.append((name, settings[name], "broker"))
    found.append((name, settings.setting(name).default, "default"))
    return found


def broker_entries(settings: Settings, changed: ChangedDefaults = UNCHANGED) -> list[ConfigEntry]:
    """The broker's own settings as configs."""
    entries = []
    for name in settings.names():
        setting = settings.setting(name)
        synonyms = tuple(_layers(settings, changed, name))
        entries.append(ConfigEntry(setting, synonyms[0][1], synonyms[0][2], synonyms, setting.without_effect))
    return entries


def compaction_limits(settings: Settings) -> CompactionLimits:
    """The bounds of compaction that the broker's settings give."""
    return CompactionLimits(
        settings.flag("log.cleaner.enable"),
        min(settings.integer("log.cleaner.dedupe.buffer.size"), settings.integer("memory.limit.bytes") // _KEYS_SHARE),
        max(_LEAST_LOAD_FACTOR, float(settings["log.cleaner.io.buffer.load.factor"])),
        settings.integer("log.cleaner.io.max.bytes.per.second"),
    )
