"""Configs in the JSON of the HTTP API."""

import msgspec

from duramen.base.settings import Source
from duramen.broker.stream_configs import ConfigSource

__all__ = ["ConfigInfo", "ConfigList", "SettingInfo", "SettingList"]


class ConfigInfo(msgspec.Struct):
    """A config of a stream: its effective value, set by the stream, by the broker's settings or by default."""

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
    """A setting of the node and the source of its value."""

    name: str
    value: str
    source: Source | ConfigSource
    default: str
    doc: str
    dynamic: bool


class SettingList(msgspec.Struct):
    """The settings of the node."""

    configs: list[SettingInfo]
