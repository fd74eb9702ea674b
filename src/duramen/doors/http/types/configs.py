"""What the HTTP API says of configs, as its JSON has it."""

import msgspec

from duramen.base.settings import Source
from duramen.broker.stream_configs import ConfigSource

__all__ = ["ConfigInfo", "ConfigList", "SettingInfo", "SettingList"]


class ConfigInfo(msgspec.Struct):
    """A config of a stream: its value in force, set by the stream, by the broker's settings, or the default."""

    name: str
    value: str
    source: ConfigSource
    default: str
    doc: str
    dynamic: bool
    without_effect: str | None


class ConfigList(msgspec.Struct):
    """The configs of a stream."""

    configs: list[ConfigInfo]


class SettingInfo(msgspec.Struct):
    """A setting of the node, with where its value comes from."""

    name: str
    value: str
    source: Source | ConfigSource
    default: str
    doc: str
    dynamic: bool


class SettingList(msgspec.Struct):
    """The settings of the node."""

    configs: list[SettingInfo]
