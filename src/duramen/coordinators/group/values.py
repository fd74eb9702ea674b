"""The effective values of one group: its own configs over the node's settings."""

from collections.abc import Mapping

from duramen.base.catalogue.catalogue import GROUP
from duramen.base.settings import Settings, Value, check
from duramen.groups.consumer_values import ConsumerConfig

__all__ = ["consumer_config", "group_value"]


def group_value(settings: Settings, config: Mapping[str, str], name: str) -> Value:
    """The effective value of a config for a group with these configs."""
    setting = GROUP[name]
    if name in config:
        return check(setting, config[name])
    return settings[setting.broker_default] if setting.broker_default else setting.default


def consumer_config(settings: Settings, config: Mapping[str, str], every: ConsumerConfig) -> ConsumerConfig:
    """The effective config of a consumer group; `every` is the config of groups without overrides."""
    return every._replace(
        session_timeout_ms=int(group_value(settings, config, "consumer.session.timeout.ms")),
        heartbeat_interval_ms=int(group_value(settings, config, "consumer.heartbeat.interval.ms")),
    )
