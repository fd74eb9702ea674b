"""The configs of streams and the settings of the node, each with its value in force and where that comes from."""

import re
from typing import Final

from duramen.base.errors import StreamNotFound
from duramen.base.settings import config_text
from duramen.broker.configs import ConfigEntry
from duramen.doors.http.routes import Call, Route
from duramen.doors.http.types import ConfigInfo, ConfigList, SettingInfo, SettingList

__all__ = ["ROUTES"]

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
    stream = call.broker.streams.get(call.path["name"])
    return ConfigList([_config(entry) for entry in stream.config.entries()])


async def _of_node(call: Call) -> SettingList:
    settings = call.broker.settings
    return SettingList(
        [
            SettingInfo(
                name,
                # An address may hold a password.
                _SECRET.sub("***", config_text(settings[name])),
                settings.source(name),
                config_text(settings.setting(name).default),
                settings.setting(name).doc,
            )
            for name in settings.names()
        ]
    )


ROUTES = (
    Route(
        "GET", "/v1/streams/{name}/configs", _of_stream,
        "The configs of a stream: values in force, where they come from, defaults", (StreamNotFound,),
    ),
    Route("GET", "/v1/configs", _of_node, "The settings of the node: values, where they come from, defaults"),
)  # fmt: skip
