"""The settings of a cluster: heartbeats, sessions, leadership and catch-up; `catalogue` includes them."""

from typing import Final

from duramen.base.settings import Setting

__all__ = ["NODE_SETTINGS"]

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1

# fmt: off
NODE_SETTINGS: Final = (
    Setting("broker.heartbeat.interval.ms", "integer", 2000,
            "The interval of heartbeats to the controller; at most half of `broker.session.timeout.ms`.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("broker.session.timeout.ms", "integer", 9000,
            "A node without a heartbeat for this long is fenced: its leaderships move, and it leaves the in-sync "
            "sets. The controller's value applies. A node whose connection closes and does not return at once is "
            "fenced much sooner.",
            kafka=True, unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("leader.report.window.ms", "integer", 1000,
            "If more than half of the in-sync replicas that fetch from a leader report within this time that they "
            "cannot reach it, the controller elects another leader. The controller's value applies.",
            unit="ms", minimum=1, maximum=_INT32_MAX),
    Setting("auto.leader.rebalance.enable", "flag", True,
            "Leaderships return automatically to preferred replicas that are in sync, every "
            "`leader.imbalance.check.interval.seconds`. The controller's value applies.",
            kafka=True),
    Setting("leader.imbalance.check.interval.seconds", "integer", 300,
            "How often the controller checks for leaderships to return, in seconds.",
            kafka=True, minimum=1, maximum=_INT32_MAX),
    Setting("replica.lag.time.max.ms", "integer", 30_000,
            "A replica that has not caught up with the leader's log for this long leaves the in-sync set. The "
            "leader's value applies.",
            kafka=True, unit="ms", minimum=1, maximum=_INT64_MAX),
    Setting("leader.replication.throttled.rate", "integer", _INT64_MAX,
            "The maximum bytes a second that a node sends to all replicas that are not in sync: those that catch up, "
            "are being added, or only serve consumers. If it is below the write rate, they never become in sync. By "
            "default the node adjusts the rate so that producers are hardly affected, and pauses for two seconds in "
            "twenty to measure that.",
            kafka=True, unit="bytes", minimum=1, maximum=_INT64_MAX),
    Setting("replica.eject.latency.ms", "integer", 1000,
            "A replica leaves the in-sync set if the 99th percentile of its time to sync records exceeds that of the "
            "others by more than this for three seconds in a row. It returns when it is fast again. One replica of "
            "a partition leaves at a time, and never below `min.insync.replicas`. A leader that is as slow gives up "
            "its leadership. 0 turns this off. The leader's value applies.",
            unit="ms", minimum=0, maximum=_INT32_MAX),
)
# fmt: on
