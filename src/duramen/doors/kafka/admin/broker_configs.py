"""The configs of brokers: the settings of this node, and its listeners."""

from collections.abc import Sequence
from typing import Final

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.hosts import host_port
from duramen.base.settings import config_text
from duramen.broker.node_configs import setting_of
from duramen.doors.kafka.admin.resources import (
    Alteration,
    DescribedConfig,
    Done,
    Resource,
    ResourceChange,
    changed_list,
    check_node,
    described,
)
from duramen.doors.kafka.request.context import Context
from duramen.service.broker import Broker
from duramen.service.resolve import ResolvedTopics

__all__ = ["BrokerConfigs"]

_STATIC: Final = 4
_THROTTLE: Final = "leader.replication.throttled.rate"
_LIST: Final = 7


class BrokerConfigs(Resource):
    """The settings of this node; the empty name stands for every node and has the cluster-wide changes."""

    def describe(self, context: Context, topics: ResolvedTopics, name: str) -> Sequence[DescribedConfig]:
        """Raises RequestInvalid for another node."""
        del topics
        configs = context.broker.node_configs
        if not name:
            return [described(entry) for entry in configs.entries_of_all()]
        check_node(context.broker, name)
        return [*map(described, configs.entries()), *_listeners(context)]

    def alter(self, broker: Broker, topics: ResolvedTopics, alteration: Alteration, done: Done) -> None:
        """Raises RequestInvalid for a setting that is fixed while a node runs, ConfigInvalid for an invalid value."""
        del topics
        if alteration.name:
            check_node(broker, alteration.name)
        of_all = not alteration.name
        changes = {
            change.name: _value(broker, change, of_all=of_all) for change in alteration.changes if not _is_idle(change)
        }
        if alteration.only_check:
            broker.node_configs.check(changes)
            done(None)
        else:
            broker.node_configs.change(changes, done, of_all=of_all, whole=alteration.whole)


def _is_idle(change: ResourceChange) -> bool:
    """Whether a bound is taken back that nodes never have; Kafka's tool does so after each reassignment."""
    return change.operation == "delete" and change.name == _THROTTLE


def _value(broker: Broker, change: ResourceChange, *, of_all: bool) -> str | None:
    present = config_text(broker.node_configs.value(change.name, of_all=of_all))
    return changed_list(change, {change.name: setting_of(change.name)}, lambda _: present)


def _listeners(context: Context) -> list[DescribedConfig]:
    """The listener configs that Kafka's tools read: where the node listens, and its advertised addresses."""
    advertised = (host_port(context.host, context.port),)
    told = "kafka.advertise" if context.broker.settings.text("kafka.advertise") else "kafka.listen"
    return [
        _addresses("listeners", "kafka.listen", context.listeners),
        _addresses("advertised.listeners", told, advertised),
    ]


def _addresses(name: str, setting: str, addresses: Sequence[str]) -> DescribedConfig:
    value = ",".join(f"PLAINTEXT://{address}" for address in addresses)
    doc = f"{BROKER[setting].doc} Kafka's name for the addresses of `{setting}`."
    source = _STATIC
    return DescribedConfig(name, value, source, _LIST, read_only=True, synonyms=[(name, value, source)], doc=doc)
