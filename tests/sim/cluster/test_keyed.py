"""Simulated clusters with a keyed stream: snapshots of all replicas are states, and planted bugs are found."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Final

import pytest
from tests.sim.cluster.modes import hunt, keeps_promises
from tests.sim.planted import Bug, Place

from duramen.base.ids import StreamId
from duramen.base.ports import Buffer
from duramen.broker.views import applier, live
from duramen.broker.views import files as view_files
from duramen.broker.views.batch_reader import ReadResult
from duramen.broker.views.floors import ReplicaFloor
from duramen.coordinators.lease.coordinator import LeaseCoordinator
from duramen.coordinators.lease.held import HeldPositions
from duramen.coordinators.lease.requests import LeaseRow, LeasesFound
from duramen.keyed import checkpoint as view_checkpoint
from duramen.keyed.checkpoint import LogPositions, ViewCheckpoint
from duramen.keyed.leases import SnapshotLease
from duramen.keyed.live_passes import LiveWindow
from duramen.keyed.snapshots import SnapshotBounds
from duramen.rpc.server import Done
from duramen.storage.log.log import Log
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import Store

Original = Callable[..., Any]

SEEDS: Final = (6,)
LONG_SEEDS: Final = range(1, 101)
NEARBY: Final = range(1, 31)
SLOW: Final = ("view-ahead", "hold-nothing")
"""Bugs that are found late in a run."""


def _apply_written(right: Original) -> Original:
    def read_batches(
        store: Store, log: Log, offset: int, take: Callable[[ReadResult], None], size: int = 1 << 20
    ) -> None:
        plan = log.plan_written(offset, size)
        if plan is None or isinstance(plan, Blocked):
            right(store, log, offset, take, size)
        else:
            read_slice(store, plan, take)

    return read_batches


def _show_written(_: Original) -> Original:
    def bounds(self: ReplicaFloor, bounds: SnapshotBounds) -> SnapshotBounds:
        return bounds._replace(s0=max(bounds.s0, self.floor.oldest))

    return bounds


def _compact_to_own(_: Original) -> Original:
    def agreed(self: ReplicaFloor) -> int:
        return max(self.floor.agreed, 1 << 60)

    return agreed


def _use_any_checkpoint(_: Original) -> Original:
    def newest(contents: Iterable[Buffer], log: LogPositions, hash_id: int) -> tuple[ViewCheckpoint | None, list[str]]:
        del log, hash_id
        return next(map(view_checkpoint.decode, contents), None), []

    return newest


def _forget_leases(_: Original) -> Original:
    def oldest(self: HeldPositions, stream_id: StreamId, index: int) -> int | None:
        return min([one.position for one in self._held.get((stream_id, index), ())], default=None)

    return oldest


def _hold_nothing(_: Original) -> Original:
    def _hold(self: LeaseCoordinator, stream_id: StreamId, lease: SnapshotLease, done: Done[LeasesFound]) -> None:
        del self, stream_id
        done(LeasesFound((LeaseRow.of(lease),)))

    return _hold


def _end_a_page_early(right: Original) -> Original:
    def _end(self: live._Page, window: LiveWindow) -> None:
        self._at = window.stop
        right(self, window)

    return _end


BUGS: Final = (
    Bug(
        "apply-uncommitted", "superseding above HW",
        (Place(applier, "read_batches", _apply_written), Place(ReplicaFloor, "bounds", _show_written)),
    ),
    Bug("compact-beyond-heard", "a replica compacting beyond the S0 it heard", (
        Place(ReplicaFloor, "agreed", _compact_to_own),
    )),
    Bug("view-ahead", "a view ahead of its log after a crash", (Place(view_files, "newest", _use_any_checkpoint),)),
    Bug("forget-leases", "a record dropped that an open snapshot sees", (
        Place(HeldPositions, "oldest", _forget_leases),
    )),
    Bug("hold-nothing", "", (Place(LeaseCoordinator, "_hold", _hold_nothing),), "answer a lease that no leader holds"),
    Bug("pass-ends-early", "end of a pass told before its last record", (
        Place(live._Page, "_end", _end_a_page_early),
    )),
)  # fmt: skip

FOUND_BY: Final = {
    "apply-uncommitted": 2, "compact-beyond-heard": 1, "view-ahead": 2, "forget-leases": 5, "hold-nothing": 3,
    "pass-ends-early": 2,
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_snapshots_of_all_replicas_are_states(seed: int) -> None:
    keeps_promises(seed, keyed=True)


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=pytest.mark.long) if bug.name in SLOW else bug for bug in BUGS],
    ids=[bug.name for bug in BUGS],
)  # fmt: skip
def test_the_seed_that_found_a_bug_finds_it_again(bug: Bug) -> None:
    assert hunt(bug, chain([FOUND_BY[bug.name]], NEARBY), stuck=False, keyed=True) is not None


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_snapshots_in_many_clusters_are_states(seed: int) -> None:
    test_snapshots_of_all_replicas_are_states(seed)
