"""The settings of groups of the consumer protocol (KIP-848), as data; `catalogue` includes them."""

from typing import Final

from duramen.base.settings import Setting

__all__ = ["GROUP_SETTINGS", "NODE_SETTINGS"]

_INT32_MAX = (1 << 31) - 1

# fmt: off
NODE_SETTINGS: Final = (
    Setting("group.consumer.session.timeout.ms", "integer", 45_000,
            "The session timeout of members of the consumer protocol (KIP-848); default of "
            "`consumer.session.timeout.ms`.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.consumer.min.session.timeout.ms", "integer", 45_000,
            "The minimum of `consumer.session.timeout.ms` of a group.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.consumer.max.session.timeout.ms", "integer", 60_000,
            "The maximum of `consumer.session.timeout.ms` of a group.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.consumer.heartbeat.interval.ms", "integer", 5000,
            "The heartbeat interval of members of the consumer protocol; responses to heartbeats carry their "
            "assignments. Default of `consumer.heartbeat.interval.ms`.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.consumer.min.heartbeat.interval.ms", "integer", 5000,
            "The minimum of `consumer.heartbeat.interval.ms` of a group.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.consumer.max.heartbeat.interval.ms", "integer", 15_000,
            "The maximum of `consumer.heartbeat.interval.ms` of a group.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.consumer.max.size", "integer", _INT32_MAX,
            "The maximum number of members of one group of the consumer protocol.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    Setting("group.consumer.assignors", "choice", "uniform,range",
            "The assignors of the consumer protocol; the first is the default. `uniform` balances and keeps existing "
            "assignments, `range` assigns each member a range of every stream's partitions.",
            kafka=True, choices=("uniform,range", "range,uniform", "uniform", "range")),
    Setting("group.consumer.migration.policy", "choice", "bidirectional",
            "Whether a consumer group migrates to the consumer protocol when the first member joins with it "
            "(`upgrade`), back to the classic one when the last such member leaves (`downgrade`), both, or neither.",
            kafka=True, choices=("bidirectional", "upgrade", "downgrade", "disabled")),
)

GROUP_SETTINGS: Final = (
    Setting("consumer.session.timeout.ms", "integer", 45_000,
            "The session timeout of members of the consumer protocol.",
            scope="group", kafka=True, dynamic=True, unit="ms", minimum=1, maximum=_INT32_MAX,
            broker_default="group.consumer.session.timeout.ms"),
    Setting("consumer.heartbeat.interval.ms", "integer", 5000,
            "The heartbeat interval of members of the consumer protocol.",
            scope="group", kafka=True, dynamic=True, unit="ms", minimum=1, maximum=_INT32_MAX,
            broker_default="group.consumer.heartbeat.interval.ms"),
)
# fmt: on
