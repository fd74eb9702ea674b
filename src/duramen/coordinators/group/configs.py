"""Group configs, which override the node's settings: stored in the metadata, checked, described."""

from collections.abc import Callable, Mapping
from typing import Final

from duramen.base.catalogue.catalogue import GROUP
from duramen.base.errors import ConfigInvalid, DuramenError
from duramen.base.settings import Setting, Settings, Value, check, nearest
from duramen.broker.changes import Changes, settled
from duramen.broker.control.requests import ConfigureGroup
from duramen.broker.stream_configs import ConfigEntry, ConfigSource
from duramen.coordinators.group.share_configs import parse_reset
from duramen.coordinators.group.values import group_value

__all__ = ["GroupConfigs"]

_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "consumer.session.timeout.ms": ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    "consumer.heartbeat.interval.ms": (
        "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms",
    ),
    "share.session.timeout.ms": ("group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"),
    "share.heartbeat.interval.ms": ("group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
    "share.record.lock.duration.ms": (
        "group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms",
    ),
    "share.delivery.count.limit": ("group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"),
    "share.partition.max.record.locks": (
        "group.share.min.partition.max.record.locks", "group.share.max.partition.max.record.locks",
    ),
}  # fmt: skip
_KINDS: Final = ("consumer", "share")


class GroupConfigs:
    """The configs that override the node's settings for single groups; the metadata stores them."""

    def __init__(self, settings: Settings, changes: Changes) -> None:
        self._settings = settings
        self._changes = changes

    def get(self, group: str) -> Mapping[str, str]:
        """The configs that a group overrides."""
        return self._changes.state.groups.get(group, {})

    def entries(self, group: str) -> list[ConfigEntry]:
        """Every config of a group, in the order of the catalogue; overridden ones have the source `stream`."""
        own = self.get(group)
        return [self._entry(setting, own) for setting in GROUP.values()]

    def _entry(self, setting: Setting, own: Mapping[str, str]) -> ConfigEntry:
        synonyms: list[tuple[str, Value, ConfigSource]] = []
        if setting.name in own:
            synonyms.append((setting.name, check(setting, own[setting.name]), "stream"))
        if setting.broker_default:
            if self._settings.source(setting.broker_default) != "default":
                synonyms.append((setting.broker_default, self._settings[setting.broker_default], "broker"))
            synonyms.append((setting.broker_default, self._settings.setting(setting.broker_default).default, "default"))
        elif setting.name not in own:
            synonyms.append((setting.name, setting.default, "default"))
        return ConfigEntry(setting, synonyms[0][1], synonyms[0][2], tuple(synonyms))

    def check(self, group: str, changes: Mapping[str, str | None]) -> None:
        """Raise ConfigInvalid unless these changes are valid for a group; None resets to the default."""
        for name, text in changes.items():
            setting = GROUP.get(name)
            if setting is None:
                raise ConfigInvalid(f"{name} is not a config of groups{nearest(name, GROUP)}")
            if text is None:
                continue
            value = check(setting, text)
            if name == "share.auto.offset.reset":
                parse_reset(text)
            if name in _BOUNDS:
                low, high = (self._settings.integer(bound) for bound in _BOUNDS[name])
                if not low <= int(value) <= high:
                    raise ConfigInvalid(f"{name} is {low} to {high} on this node, not {text}: see {_BOUNDS[name][0]}")
        own = {name: text for name, text in {**self.get(group), **changes}.items() if text is not None}
        for kind in _KINDS:
            heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
            if changes.keys().isdisjoint((heartbeat, session)):
                continue
            if int(group_value(self._settings, own, session)) <= int(group_value(self._settings, own, heartbeat)):
                raise ConfigInvalid(
                    f"{session} has to be longer than {heartbeat}, or sessions would time out between two heartbeats"
                )

    def change(
        self, group: str, changes: Mapping[str, str | None], done: Callable[[DuramenError | None], None]
    ) -> None:
        """Change a group's config; calls `done` once the change is durable, or with ConfigInvalid."""
        try:
            self.check(group, changes)
        except DuramenError as error:
            done(error)
        else:
            self._changes.ask(ConfigureGroup(group, changes), settled(done))
