"""The settings of nodes for the silence and slowness of others, as data; `catalogue` has them with all others."""

from typing import Final

from duramen.base.settings import Setting

__all__ = ["NODE_SETTINGS"]

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1

# fmt: off
NODE_SETTINGS: Final = (
    Setting("broker.heartbeat.interval.ms", "integer", 2000,
            "How often a node of a cluster tells the controller that it is there; never less often than twice in its "
            "`broker.session.timeout.ms`.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("broker.session.timeout.ms", "integer", 9000,
            "A node that the controller has not heard for this long is fenced: others lead what it led, and it leaves "
            "the in-sync sets. That of the node that is the controller counts. A node whose connection is closed, and "
            "not made anew at once, is fenced much sooner.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("leader.report.window.ms", "integer", 1000,
            "Where more than half of the in-sync replicas that fetch from a leader report within this time that they "
            "cannot reach it, the controller lets another lead. That of the node that is the controller counts.",
            unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("auto.leader.rebalance.enable", "flag", True,
            "Leaders return to the preferred replicas by themselves, those that are in sync, every "
            "`leader.imbalance.check.interval.seconds`. That of the node that is the controller counts.",
            kafka=True),
    Setting("leader.imbalance.check.interval.seconds", "integer", 300,
            "How often the controller looks for leaders that are to return, in seconds.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    Setting("replica.lag.time.max.ms", "integer", 30_000,
            "A replica that has not had all of the leader's log on its disk for this long leaves the in-sync set. That "
            "of the node that leads counts.",
            kafka=True, unit="ms", minimum=1, maximum=_INT64_MAX),
    Setting("leader.replication.throttled.rate", "integer", _INT64_MAX,
            "How many bytes a second a node sends at most to replicas that are not in sync, all together: those that "
            "catch up, are moved here, or only serve consumers. Less than is written keeps them from ever being in "
            "sync. Without it those that catch up get as much as producers hardly feel, and pause for two seconds in "
            "twenty to find out what that is.",
            kafka=True, unit="bytes", minimum=1, maximum=_INT64_MAX),
    Setting("replica.eject.latency.ms", "integer", 1000,
            "A replica leaves the in-sync set that takes longer to have records on its disk than the others do, by "
            "more than this at the 99th percentile, in three seconds in a row: one replica of a partition at a time, "
            "never below `min.insync.replicas`, and until it is quick again. A leader that is so slow lets another "
            "lead. 0 does not look. That of the node that leads counts.",
            unit="ms", minimum=0, maximum=_INT32_MAX),
)
# fmt: on
