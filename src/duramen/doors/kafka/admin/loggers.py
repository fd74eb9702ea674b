"""The node's loggers as a resource (KIP-412): levels change while it runs, and are reset when it stops."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from duramen.base.errors import ConfigInvalid, RequestInvalid
from duramen.doors.kafka.admin.resources import Alteration, DescribedConfig, Done, Resource, ResourceChange, check_node
from duramen.doors.kafka.request.context import Context
from duramen.service.broker import Broker
from duramen.service.resolve import ResolvedTopics

__all__ = ["BrokerLoggers"]

_DYNAMIC_LOGGER: Final = 6
_UNKNOWN_TYPE: Final = 0
_ROOT: Final = "root"
# Kafka's names of levels; of several names for one level here the last is shown.
_LEVELS: Final[Mapping[str, int]] = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES: Final = {level: name for name, level in _LEVELS.items()}


class BrokerLoggers(Resource):
    """The loggers that have logged something, by name, and `root`, from which the others inherit their level."""

    def describe(self, context: Context, topics: ResolvedTopics, name: str) -> Sequence[DescribedConfig]:
        """Raises RequestInvalid for another node."""
        del topics
        check_node(context.broker, name)
        return [
            DescribedConfig(
                logger, _NAMES.get(_get(logger).getEffectiveLevel(), "INFO"), _DYNAMIC_LOGGER, _UNKNOWN_TYPE
            )
            for logger in _known()
        ]

    def alter(self, broker: Broker, topics: ResolvedTopics, alteration: Alteration, done: Done) -> None:
        """Raises RequestInvalid, or ConfigInvalid for an unknown logger or level; then none is changed."""
        del topics
        check_node(broker, alteration.name)
        if alteration.whole:
            raise RequestInvalid("levels of loggers are changed with IncrementalAlterConfigs")
        known = _known()
        for change in alteration.changes:
            _check(change, known)
        for change in alteration.changes if not alteration.only_check else ():
            _get(change.name).setLevel(logging.NOTSET if change.value is None else _LEVELS[change.value])
        done(None)


def _check(change: ResourceChange, known: Sequence[str]) -> None:
    name, value = change.name, change.value
    if change.operation not in ("set", "delete"):
        raise RequestInvalid(f"the level of {name} is not a list: it can be set or deleted")
    if name not in known:
        raise ConfigInvalid(f"there is no logger {name}")
    if value is None and name == _ROOT:
        raise RequestInvalid("the root logger has no other to take its level from")
    if value is not None and value not in _LEVELS:
        raise ConfigInvalid(f"{name}: {value!r} is no level; it must be one of {', '.join(_LEVELS)}")


def _known() -> list[str]:
    loggers = logging.root.manager.loggerDict.items()
    return [_ROOT, *sorted(name for name, logger in loggers if isinstance(logger, logging.Logger))]


def _get(name: str) -> logging.Logger:
    return logging.getLogger(None if name == _ROOT else name)
