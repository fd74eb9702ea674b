"""Resources with configs: topics and others. Each kind of resource describes and changes its configs."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from duramen.base.catalogue.catalogue import STREAM
from duramen.base.errors import ConfigInvalid, DuramenError, RequestInvalid
from duramen.base.settings import Setting, config_text, entries, named, nearest
from duramen.broker.min_in_sync import config_entries
from duramen.broker.stream_configs import ConfigEntry, ConfigSource
from duramen.broker.streams import Stream
from duramen.doors.kafka.request.context import Context
from duramen.metadata.decisions import check_config, check_name, configure_stream
from duramen.service.broker import Broker
from duramen.service.resolve import ResolvedTopics

__all__ = [
    "Alteration",
    "DescribedConfig",
    "Done",
    "Operation",
    "Resource",
    "ResourceChange",
    "TopicConfigs",
    "changed_list",
    "check_node",
    "described",
    "meant",
]

Done = Callable[[DuramenError | None], None]
Operation = Literal["set", "delete", "append", "subtract"]

_SOURCES: Final[Mapping[ConfigSource, int]] = {
    "stream": 1,
    "dynamic-broker": 2,
    "dynamic-default": 3,
    "broker": 4,
    "default": 5,
}
_TYPES: Final = {"flag": 1, "text": 2, "choice": 2, "integer": 5, "number": 6, "list": 7}
_INTEGER: Final = 3
_SECRET: Final = re.compile(r"://[^/@]*@")


class DescribedConfig(NamedTuple):
    """A config as DescribeConfigs has it; `source` and `type` are Kafka's numbers, synonyms (name, value, source)."""

    name: str
    value: str | None
    source: int
    type: int
    read_only: bool = False
    sensitive: bool = False
    synonyms: Sequence[tuple[str, str, int]] = ()
    doc: str = ""


class ResourceChange(NamedTuple):
    """A change of a config. `value` is None only for a deletion."""

    name: str
    operation: Operation
    value: str | None


class Alteration(NamedTuple):
    """A change of a resource. With `whole`, configs that are not named are reset to their defaults."""

    name: str
    changes: Sequence[ResourceChange]
    whole: bool
    only_check: bool


class Resource(Protocol):
    """A kind of resource. Errors are raised, or handed to `done`."""

    def describe(self, context: Context, topics: ResolvedTopics, name: str) -> Sequence[DescribedConfig]:
        """Every config of the resource of that name."""

    def alter(self, broker: Broker, topics: ResolvedTopics, alteration: Alteration, done: Done) -> None:
        """Change configs, then `done(None)`."""


def described(entry: ConfigEntry) -> DescribedConfig:
    """A config of a stream or of this node."""
    value = config_text(entry.value)
    secret = bool(_SECRET.search(value))  # an address with a password
    return DescribedConfig(
        entry.setting.name,
        None if secret else value,
        _SOURCES[entry.source],
        _type(entry.setting),
        entry.setting.scope == "broker" and not entry.setting.dynamic,
        secret,
        () if secret else [(name, config_text(value), _SOURCES[source]) for name, value, source in entry.synonyms],
        entry.doc,
    )


def _type(setting: Setting) -> int:
    if setting.kind == "integer" and setting.maximum is not None and setting.maximum < 1 << 31:
        return _INTEGER
    return _TYPES[setting.kind]


class TopicConfigs(Resource):
    """The configs of streams."""

    def describe(self, context: Context, topics: ResolvedTopics, name: str) -> Sequence[DescribedConfig]:
        """The configs of a light topic are those of the stream that stores it. Raises NameInvalid, StreamNotFound."""
        check_name(name)
        light = topics.light(name)
        kept_in = None if light is None else context.broker.streams.find_id(light.partition.log.key.stream_id)
        stream = kept_in or topics.get(name)
        return [described(entry) for entry in config_entries(context.broker.metadata_state, stream)]

    def alter(self, broker: Broker, topics: ResolvedTopics, alteration: Alteration, done: Done) -> None:
        """Raises RequestInvalid, StreamNotFound, ConfigInvalid."""
        if not alteration.name:
            raise RequestInvalid("there are no configs for all topics at once: name one")
        # In Apache Kafka's order: a name that is no config of any topic is refused before the topic's name.
        found = topics.find(alteration.name)
        values = {change.name: _value(found, change) for change in meant(alteration.changes, STREAM)}
        check_name(alteration.name)
        check_config({name: value for name, value in values.items() if value is not None})
        topics.get(alteration.name)
        configure_stream(broker.metadata_state, alteration.name, values, whole=alteration.whole)
        if alteration.only_check:
            done(None)
        else:
            broker.configure_stream(alteration.name, values, done, whole=alteration.whole)


def meant(changes: Sequence[ResourceChange], settings: Mapping[str, Setting]) -> list[ResourceChange]:
    """The changes without deletions of unknown configs, which Apache Kafka accepts and ignores.

    MirrorMaker 2 sends one for every config that has its default in the other cluster.
    """
    return [change for change in changes if change.operation != "delete" or change.name in settings]


def _value(stream: Stream | None, change: ResourceChange) -> str | None:
    name = change.name
    if change.operation in ("append", "subtract") and name not in STREAM:
        raise ConfigInvalid(f"{name} is not a config of streams{nearest(name, STREAM)}")
    return changed_list(change, STREAM, (lambda _: "") if stream is None else stream.config.text)


def changed_list(change: ResourceChange, catalogue: Mapping[str, Setting], present: Callable[[str], str]) -> str | None:
    """The value of a config after a change; items are appended to or subtracted from its value in `present`.

    Raises ConfigInvalid if it is not a list.
    """
    name, value = change.name, change.value
    if change.operation in ("set", "delete") or value is None:
        return value
    if catalogue[name].kind != "list":
        raise ConfigInvalid(f"{name} is not a list: it can be set, not appended to")
    parts, changed = entries(present(name)), named(value)
    if change.operation == "append":
        return ",".join(dict.fromkeys([*parts, *changed]))
    return ",".join(part for part in parts if part not in changed)


def check_node(broker: Broker, name: str) -> None:
    """Raise RequestInvalid unless this is the node of that id."""
    if name != str(broker.node_id):
        raise RequestInvalid(f"this is node {broker.node_id}, not {name or 'all of them'}")
