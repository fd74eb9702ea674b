"""The configs of streams and the settings of the node, each with its effective value and its source."""

import re
from typing import Final

from duramen.base.errors import StreamNotFound
from duramen.base.settings import config_text
from duramen.broker.min_in_sync import config_entries
from duramen.broker.stream_configs import ConfigEntry
from duramen.doors.http.serving.routes import Call, HttpRoute, on_cluster, on_topic
from duramen.doors.http.types.configs import ConfigInfo, ConfigList, SettingInfo, SettingList
from duramen.service.authorize import Operation

__all__ = ["ROUTES"]

_DYNAMIC: Final = ("dynamic-broker", "dynamic-default")
_SECRET: Final = re.compile(r"(?<=://)[^/@]*(?=@)")


def _config(entry: ConfigEntry) -> ConfigInfo:
    setting = entry.setting
    return ConfigInfo(
        setting.name,
        config_text(entry.value),
        entry.source,
        config_text(entry.synonyms[-1][1]) if setting.broker_default else config_text(setting.default),
        setting.doc,
        setting.dynamic,
        entry.without_effect or None,
    )


async def _of_stream(call: Call) -> ConfigList:
    stream = call.topic
    return ConfigList([_config(entry) for entry in config_entries(call.broker.metadata_state, stream)])


async def _of_node(call: Call) -> SettingList:
    settings = call.broker.settings
    return SettingList(
        [
            SettingInfo(
                entry.setting.name,
                # An address may hold a password.
                _SECRET.sub("***", config_text(entry.value)),
                entry.source if entry.source in _DYNAMIC else settings.source(entry.setting.name),
                config_text(entry.setting.default),
                entry.doc,
                entry.setting.dynamic,
            )
            for entry in call.broker.node_configs.entries()
        ]
    )


ROUTES = (
    HttpRoute(
        "GET", "/v1/streams/{name}/configs", _of_stream, on_topic(Operation.DESCRIBE_CONFIGS),
        "The configs of a stream: effective values, their sources, defaults", (StreamNotFound,),
    ),
    HttpRoute(
        "GET", "/v1/configs", _of_node, on_cluster(Operation.DESCRIBE_CONFIGS),
        "The settings of the node: values, their sources, defaults",
    ),
)  # fmt: skip
