"""What a share group is configured like: its own configs over the broker's settings."""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from duramen.base.catalogue import GROUP
from duramen.base.errors import ConfigInvalid, DuramenError
from duramen.base.settings import Setting, Settings, Value, check, nearest
from duramen.broker.configs import ConfigEntry, ConfigSource
from duramen.broker.metadata import Metadata
from duramen.controller.decisions import configure_group

__all__ = ["GroupConfigs", "Reset", "ShareConfig", "parse_reset", "share_config"]

_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
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
_BY_DURATION: Final = "by_duration:"
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE)


class Reset(NamedTuple):
    """Where a share partition begins: at the end if `latest`, or `since_ms` before now, or at the beginning."""

    latest: bool
    since_ms: int | None = None


class ShareConfig(NamedTuple):
    """The values in force for a group. Times in ms."""

    reset: Reset
    committed: bool
    lock_ms: int
    most_deliveries: int
    most_in_flight: int
    heartbeat_ms: int
    session_ms: int
    renews: bool


def share_config(settings: Settings, config: Mapping[str, str]) -> ShareConfig:
    """The values in force for a group with these configs of its own."""

    def value(name: str) -> Value:
        setting = GROUP[name]
        if name in config:
            return check(setting, config[name])
        return settings[setting.broker_default] if setting.broker_default else setting.default

    return ShareConfig(
        parse_reset(str(value("share.auto.offset.reset"))),
        value("share.isolation.level") == "read_committed",
        int(value("share.record.lock.duration.ms")),
        int(value("share.delivery.count.limit")),
        int(value("share.partition.max.record.locks")),
        int(value("share.heartbeat.interval.ms")),
        int(value("share.session.timeout.ms")),
        bool(value("share.renew.acknowledge.enable")),
    )


def parse_reset(text: str) -> Reset:
    """`earliest`, `latest` or `by_duration:` and an ISO 8601 duration (KIP-1106). Raises ConfigInvalid."""
    if text in ("earliest", "latest"):
        return Reset(text == "latest")
    found = _DURATION.fullmatch(text.removeprefix(_BY_DURATION)) if text.startswith(_BY_DURATION) else None
    if found is None or not any(found.groups()):
        raise ConfigInvalid(
            f"share.auto.offset.reset is earliest, latest or by_duration:<ISO 8601 duration> (P1DT2H), not {text}"
        )
    days, hours, minutes = (int(part or 0) for part in found.groups()[:3])
    seconds = float(found[4] or 0)
    return Reset(latest=False, since_ms=((days * 24 + hours) * 60 + minutes) * 60_000 + int(seconds * 1000))


class GroupConfigs:
    """The configs that groups have of their own; they are in the metadata."""

    def __init__(self, settings: Settings, metadata: Metadata) -> None:
        self._settings = settings
        self._metadata = metadata

    def get(self, group: str) -> Mapping[str, str]:
        """Those of a group."""
        return self._metadata.state.groups.get(group, {})

    def entries(self, group: str) -> list[ConfigEntry]:
        """Every config of a group, in the order of the catalogue; those of its own have the source `stream`."""
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

    def check(self, changes: Mapping[str, str | None]) -> None:
        """Raise ConfigInvalid unless a group's config may be changed like that; None sets back to the default."""
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

    def change(
        self, group: str, changes: Mapping[str, str | None], done: Callable[[DuramenError | None], None]
    ) -> None:
        """Change a group's config; `done` once that is durable, or ConfigInvalid."""
        try:
            self.check(changes)
        except DuramenError as error:
            done(error)
        else:
            self._metadata.decide(lambda state: configure_group(state, group, changes), done)
