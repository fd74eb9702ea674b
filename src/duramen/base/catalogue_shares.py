"""The settings of share groups (KIP-932), as data; `catalogue` has them with all others."""

from typing import Final

from duramen.base.settings import Setting

__all__ = ["GROUP_SETTINGS", "NODE_SETTINGS"]

_INT32_MAX = (1 << 31) - 1

# fmt: off
NODE_SETTINGS: Final = (
    Setting("group.share.delivery.count.limit", "integer", 5,
            "How often a record is delivered to a share group before it is given up; default of "
            "`share.delivery.count.limit`.",
            kafka=True, minimum=2, maximum=10),
    Setting("group.share.min.delivery.count.limit", "integer", 2,
            "The least that `share.delivery.count.limit` of a group may be.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    Setting("group.share.max.delivery.count.limit", "integer", 10,
            "The most that `share.delivery.count.limit` of a group may be.",
            kafka=True, minimum=1, maximum=0x7FFF),
    Setting("group.share.record.lock.duration.ms", "integer", 30_000,
            "How long a consumer of a share group has for a record before it is delivered to another; default of "
            "`share.record.lock.duration.ms`.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.share.min.record.lock.duration.ms", "integer", 15_000,
            "The least that `share.record.lock.duration.ms` of a group may be.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.share.max.record.lock.duration.ms", "integer", 60_000,
            "The most that `share.record.lock.duration.ms` of a group may be.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.share.partition.max.record.locks", "integer", 2000,
            "How many records of a partition may be on their way through a share group, from the first that is not "
            "done with on; default of `share.partition.max.record.locks`.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    Setting("group.share.min.partition.max.record.locks", "integer", 100,
            "The least that `share.partition.max.record.locks` of a group may be.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    Setting("group.share.max.partition.max.record.locks", "integer", 4000,
            "The most that `share.partition.max.record.locks` of a group may be.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    Setting("group.share.session.timeout.ms", "integer", 45_000,
            "A member of a share group that has said nothing for this long is gone; default of "
            "`share.session.timeout.ms`.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.share.min.session.timeout.ms", "integer", 45_000,
            "The least that `share.session.timeout.ms` of a group may be.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.share.max.session.timeout.ms", "integer", 60_000,
            "The most that `share.session.timeout.ms` of a group may be.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.share.heartbeat.interval.ms", "integer", 5000,
            "How often members of share groups are told to give a sign of life; default of "
            "`share.heartbeat.interval.ms`.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.share.min.heartbeat.interval.ms", "integer", 5000,
            "The least that `share.heartbeat.interval.ms` of a group may be.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.share.max.heartbeat.interval.ms", "integer", 15_000,
            "The most that `share.heartbeat.interval.ms` of a group may be.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("group.share.max.size", "integer", 200,
            "The most members of one share group.",
            kafka=True, minimum=1, maximum=1000),
    Setting("group.share.max.share.sessions", "integer", 2000,
            "The most share sessions that consumers may have open.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    Setting("share.coordinator.state.topic.num.partitions", "integer", 50,
            "Partitions of `__share_group_state`; fixed when it is first used.",
            kafka=True, minimum=1, maximum=10_000),
    Setting("share.coordinator.snapshot.update.records.per.snapshot", "integer", 500,
            "After so many changes the whole state of a share partition is stored anew.",
            kafka=True, minimum=0, maximum=_INT32_MAX),
    Setting("share.coordinator.state.topic.prune.interval.ms", "integer", 300_000,
            "How often what is not needed any more is cut off `__share_group_state`.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
)

GROUP_SETTINGS: Final = (
    Setting("share.auto.offset.reset", "text", "latest",
            "Where a share group begins in a partition that is new to it: `earliest`, `latest`, or "
            "`by_duration:` and an ISO 8601 duration such as `P1DT2H`, so long before now.",
            scope="group", kafka=True, dynamic=True),
    Setting("share.isolation.level", "choice", "read_uncommitted",
            "Which records of transactions a share group gets: with `read_committed` only those that were committed.",
            scope="group", kafka=True, dynamic=True, choices=("read_committed", "read_uncommitted")),
    Setting("share.record.lock.duration.ms", "integer", 30_000,
            "How long a consumer has for a record before it is delivered to another.",
            scope="group", kafka=True, dynamic=True, unit="ms", minimum=1, maximum=_INT32_MAX,
            broker_default="group.share.record.lock.duration.ms"),
    Setting("share.delivery.count.limit", "integer", 5,
            "How often a record is delivered before it is given up.",
            scope="group", kafka=True, dynamic=True, minimum=1, maximum=0x7FFF,
            broker_default="group.share.delivery.count.limit"),
    Setting("share.partition.max.record.locks", "integer", 2000,
            "How many records of a partition may be on their way, from the first that is not done with on.",
            scope="group", kafka=True, dynamic=True, minimum=1, maximum=_INT32_MAX,
            broker_default="group.share.partition.max.record.locks"),
    Setting("share.heartbeat.interval.ms", "integer", 5000,
            "How often members are told to give a sign of life.",
            scope="group", kafka=True, dynamic=True, unit="ms", minimum=1, maximum=_INT32_MAX,
            broker_default="group.share.heartbeat.interval.ms"),
    Setting("share.session.timeout.ms", "integer", 45_000,
            "A member that has said nothing for this long is gone.",
            scope="group", kafka=True, dynamic=True, unit="ms", minimum=1, maximum=_INT32_MAX,
            broker_default="group.share.session.timeout.ms"),
    Setting("share.renew.acknowledge.enable", "flag", True,
            "Whether consumers may prolong the lock of a record that they need more time for.",
            scope="group", kafka=True, dynamic=True),
)
# fmt: on
