"""The effective configs of a share group: its own over the broker's settings."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import ConfigInvalid
from duramen.base.settings import Settings
from duramen.coordinators.group.values import group_value

__all__ = ["ShareConfig", "ShareReset", "parse_reset", "share_config"]

_BY_DURATION: Final = "by_duration:"
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE)


class ShareReset(NamedTuple):
    """The start of a share partition: the end if `latest`, else `since_ms` before now, else the beginning."""

    latest: bool
    since_ms: int | None = None


class ShareConfig(NamedTuple):
    """The effective values of a group. Times in ms."""

    reset: ShareReset
    committed: bool
    lock_ms: int
    most_deliveries: int
    most_in_flight: int
    heartbeat_ms: int
    session_ms: int
    renews: bool


def share_config(settings: Settings, config: Mapping[str, str]) -> ShareConfig:
    """The effective values of a group with these configs."""
    value = partial(group_value, settings, config)
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


def parse_reset(text: str) -> ShareReset:
    """`earliest`, `latest` or `by_duration:` and an ISO 8601 duration (KIP-1106). Raises ConfigInvalid."""
    if text in ("earliest", "latest"):
        return ShareReset(text == "latest")
    found = _DURATION.fullmatch(text.removeprefix(_BY_DURATION)) if text.startswith(_BY_DURATION) else None
    if found is None or not any(found.groups()):
        raise ConfigInvalid(
            f"share.auto.offset.reset is earliest, latest or by_duration:<ISO 8601 duration> (P1DT2H), not {text}"
        )
    days, hours, minutes = (int(part or 0) for part in found.groups()[:3])
    seconds = float(found[4] or 0)
    return ShareReset(latest=False, since_ms=((days * 24 + hours) * 60 + minutes) * 60_000 + int(seconds * 1000))
