"""The configs of groups: Kafka's resource type GROUP."""

from collections.abc import Sequence
from typing import Final

from duramen.base.catalogue.catalogue import GROUP
from duramen.base.errors import ConfigInvalid, RequestInvalid
from duramen.broker.stream_configs import ConfigEntry
from duramen.doors.kafka.admin.resources import (
    Alteration,
    DescribedConfig,
    Done,
    Resource,
    ResourceChange,
    described,
    meant,
)
from duramen.doors.kafka.request.context import Context
from duramen.service.broker import Broker
from duramen.service.resolve import ResolvedTopics

__all__ = ["GroupResource"]

_OF_A_STREAM: Final = 1
_OF_A_GROUP: Final = 8


class GroupResource(Resource):
    """The configs of groups. As in Apache Kafka, a group may have some before it exists."""

    def describe(self, context: Context, topics: ResolvedTopics, name: str) -> Sequence[DescribedConfig]:
        """Raises RequestInvalid if no group is named."""
        del topics
        _check_name(name)
        return [_of_group(entry) for entry in context.broker.group_configs.entries(name)]

    def alter(self, broker: Broker, topics: ResolvedTopics, alteration: Alteration, done: Done) -> None:
        """Raises RequestInvalid, ConfigInvalid."""
        del topics
        _check_name(alteration.name)
        changes: dict[str, str | None] = {}
        if alteration.whole:
            changes = dict.fromkeys(broker.group_configs.get(alteration.name))
        changes |= {change.name: _value(change) for change in meant(alteration.changes, GROUP)}
        broker.group_configs.check(alteration.name, changes)
        if alteration.only_check:
            done(None)
        else:
            broker.group_configs.change(alteration.name, changes, done)


def _check_name(name: str) -> None:
    if not name:
        raise RequestInvalid("there are no configs for all groups at once: name one")


def _value(change: ResourceChange) -> str | None:
    if change.operation in ("append", "subtract"):
        raise ConfigInvalid(f"{change.name} is not a list: it can be set, not appended to")
    return change.value


def _of_group(entry: ConfigEntry) -> DescribedConfig:
    shown = described(entry)
    synonyms = [
        (name, value, _OF_A_GROUP if source == _OF_A_STREAM else source) for name, value, source in shown.synonyms
    ]
    return shown._replace(source=synonyms[0][2], synonyms=synonyms)
