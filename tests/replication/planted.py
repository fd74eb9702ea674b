"""Bugs to be planted in replication, or in the controller of its tests: the simulation has to find each of them."""

from collections.abc import Callable
from typing import Any, Final

from tests.replication.controller import Controller
from tests.sim.planted import Bug, Place

from duramen.replication.follower import PartitionFollowerRole
from duramen.replication.insync import InSync
from duramen.replication.leader import PartitionLeaderRole
from duramen.replication.machine import ReplicaMachine
from duramen.replication.messages import Reach, ReplicaFetch, ReplicaRefusal

__all__ = ["BUGS"]

Original = Callable[..., Any]


def _cut_to_high_watermark(right: Original) -> Original:
    def open(self: PartitionFollowerRole) -> None:  # noqa: A001
        if self._replica.history.end_offset > self._replica.high_watermark:
            self._replica.cut(self._replica.high_watermark)
        right(self)

    return open


def _report_written(right: Original) -> Original:
    def _reaches(self: PartitionFollowerRole) -> tuple[Reach, ...]:
        own, *others = right(self)
        return (own._replace(covered=self._replica.history.end_offset), *others)

    return _reaches


def _commit_with_old_set(right: Original) -> Original:
    def _commit(self: PartitionLeaderRole) -> None:
        attempted, self._in_sync.attempted = self._in_sync.attempted, frozenset()
        right(self)
        self._in_sync.attempted = attempted

    return _commit


def _forget_refused(right: Original) -> Original:
    def refused(self: InSync, proposal: Any, due_ms: int) -> None:
        right(self, proposal, due_ms)
        self.attempted = frozenset()

    return refused


def _count_what_is_wanted(_: Original) -> Original:
    def _has_enough(self: PartitionLeaderRole) -> bool:
        return len(self._in_sync.maximal) >= self._replica.state.needed(self._replica.config)

    return _has_enough


def _any_epoch(_: Original) -> Original:
    def _epoch_refusal(self: ReplicaMachine, fetch: ReplicaFetch) -> ReplicaRefusal | None:
        del fetch
        return ReplicaRefusal.NOT_LEADER if self._part is None else None

    return _epoch_refusal


def _elect_anybody(_: Original) -> Original:
    def _candidates(self: Controller) -> frozenset[int]:
        live = self.live & frozenset(self.state.replicas)
        return self.state.in_sync if self.state.in_sync & live else live

    return _candidates


def _tell_at_once(_: Original) -> Original:
    def latest_offset(self: PartitionLeaderRole) -> int | None:
        return self._replica.high_watermark

    return latest_offset


def _join_at_high_watermark(_: Original) -> Original:
    def _bar(self: PartitionLeaderRole) -> int:
        return max(self._replica.high_watermark, self._lent)

    return _bar


def _join_before_the_tail(_: Original) -> Original:
    def _bar(self: PartitionLeaderRole) -> int:
        return max(self._replica.high_watermark, self._first)

    return _bar


def _serve_unconfirmed(right: Original) -> Original:
    def open(self: PartitionFollowerRole) -> None:  # noqa: A001
        self._confirmed = True
        right(self)

    return open


BUGS: Final = (
    Bug("cut-to-high-watermark", "truncate by HW", (Place(PartitionFollowerRole, "open", _cut_to_high_watermark),)),
    Bug("report-written", "report written for synced", (Place(PartitionFollowerRole, "_reaches", _report_written),)),
    Bug("stale-in-sync", "stale in-sync set", (Place(PartitionLeaderRole, "_commit", _commit_with_old_set),)),
    Bug("forget-refused", "", (Place(InSync, "refused", _forget_refused),), "take what was refused for over"),
    Bug(
        "count-proposed",
        "",
        (Place(PartitionLeaderRole, "_has_enough", _count_what_is_wanted),),
        "count who is only proposed",
    ),
    Bug("any-epoch", "forget the epoch check", (Place(ReplicaMachine, "_epoch_refusal", _any_epoch),)),
    Bug("elect-anybody", "elect outside the in-sync set", (Place(Controller, "_candidates", _elect_anybody),)),
    Bug(
        "tell-at-once",
        "",
        (Place(PartitionLeaderRole, "latest_offset", _tell_at_once),),
        "skip the wait for the first offset",
    ),
    Bug(
        "join-early",
        "",
        (Place(PartitionLeaderRole, "_bar", _join_at_high_watermark),),
        "join at the high watermark alone",
    ),
    Bug(
        "join-before-tail",
        "",
        (Place(PartitionLeaderRole, "_bar", _join_before_the_tail),),
        "join without what a tail may have shown",
    ),
    Bug(
        "unconfirmed",
        "",
        (Place(PartitionFollowerRole, "open", _serve_unconfirmed),),
        "ask and serve before the leader answered",
    ),
)
