"""DescribeConfigs and IncrementalAlterConfigs."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from duramen.base.catalogue import STREAM
from duramen.base.errors import ConfigInvalid, DuramenError, RequestInvalid
from duramen.base.settings import Setting, config_text
from duramen.broker.configs import ConfigEntry, ConfigSource, broker_entries
from duramen.broker.streams import Stream
from duramen.codec.kafka.schema import Message
from duramen.controller.decisions import configure_stream
from duramen.doors.kafka.context import Context
from duramen.doors.kafka.errors import error_code
from duramen.doors.kafka.exchange import Exchange

__all__ = ["SOURCE_NUMBERS", "handle_describe_configs", "handle_incremental_alter_configs"]

_TOPIC: Final = 2
_BROKER: Final = 4
SOURCE_NUMBERS: Final[Mapping[ConfigSource, int]] = {"stream": 1, "broker": 4, "default": 5}
_TYPES: Final = {"flag": 1, "text": 2, "choice": 2, "integer": 5, "number": 6}
_INTEGER: Final = 3
_LIST: Final = 7
_LISTS: Final = ("cleanup.policy", "log.cleanup.policy")
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def _type(setting: Setting) -> int:
    if setting.name in _LISTS:
        return _LIST
    if setting.kind == "integer" and setting.maximum is not None and setting.maximum < 1 << 31:
        return _INTEGER
    return _TYPES[setting.kind]


def handle_describe_configs(context: Context, exchange: Exchange) -> None:
    """The configs of streams and of this node, with where their values come from."""
    request = exchange.message()
    results = []
    for resource in request["resources"]:
        answer: dict[str, Any] = {
            "resource_type": resource["resource_type"],
            "resource_name": resource["resource_name"],
            "configs": (),
        }
        try:
            entries = _entries(context, resource)
        except DuramenError as error:
            answer |= {"error_code": error_code(error), "error_message": str(error)}
        else:
            keys = resource["configuration_keys"]
            answer["configs"] = [
                _describe(entry, request) for entry in entries if keys is None or entry.setting.name in keys
            ]
        results.append(answer)
    exchange.reply({"results": results})


def _entries(context: Context, resource: Message) -> list[ConfigEntry]:
    broker, name = context.broker, resource["resource_name"]
    if resource["resource_type"] == _TOPIC:
        return broker.streams.get(name).config.entries()
    if resource["resource_type"] == _BROKER:
        if name not in ("", str(broker.node_id)):
            raise RequestInvalid(f"this is node {broker.node_id}, not {name}")
        return broker_entries(broker.settings)
    raise RequestInvalid(f"there are no configs of the resource type {resource['resource_type']}")


def _describe(entry: ConfigEntry, request: Message) -> Message:
    return {
        "name": entry.setting.name,
        "value": config_text(entry.value),
        "read_only": entry.setting.scope == "broker",
        "config_source": SOURCE_NUMBERS[entry.source],
        "synonyms": [
            {"name": name, "value": config_text(value), "source": SOURCE_NUMBERS[source]}
            for name, value, source in (entry.synonyms if request["include_synonyms"] else ())
        ],
        "config_type": _type(entry.setting),
        "documentation": entry.doc if request["include_documentation"] else None,
    }


def handle_incremental_alter_configs(context: Context, exchange: Exchange) -> None:
    """Change configs of streams (KIP-339)."""
    request = exchange.message()
    resources = request["resources"]
    answers: list[Message] = []

    def finish(answer: Message, error: DuramenError | None) -> None:
        answers.append(
            answer | {"error_code": error_code(error), "error_message": None if error is None else str(error)}
        )
        if len(answers) == len(resources):
            exchange.reply({"responses": answers})

    if not resources:
        exchange.reply({"responses": []})
    for resource in resources:
        answer = {"resource_type": resource["resource_type"], "resource_name": resource["resource_name"]}
        try:
            if resource["resource_type"] != _TOPIC:
                raise RequestInvalid("only configs of topics can be changed while the node runs")
            stream = context.broker.streams.get(resource["resource_name"])
            changes = {entry["name"]: _change(stream, entry) for entry in resource["configs"]}
            configure_stream(context.broker.metadata_state, stream.name, changes)
        except DuramenError as error:
            finish(answer, error)
            continue
        if request["validate_only"]:
            finish(answer, None)
        else:
            context.broker.configure_stream(stream.name, changes, partial(finish, answer))


def _change(stream: Stream, entry: Message) -> str | None:
    name, operation, value = entry["name"], entry["config_operation"], entry["value"]
    if operation == _DELETE:
        return None
    if value is None:
        raise ConfigInvalid(f"{name} has no value")
    if operation == _SET:
        return str(value)
    if operation not in (_APPEND, _SUBTRACT):
        raise RequestInvalid(f"there is no operation {operation}")
    if name not in _LISTS or name not in STREAM:
        raise ConfigInvalid(f"{name} is not a list: it can be set, not appended to")
    present = stream.config.text(name).split(",")
    named = [part.strip() for part in value.split(",")]
    if operation == _APPEND:
        return ",".join(dict.fromkeys([*present, *named]))
    return ",".join(part for part in present if part not in named)
