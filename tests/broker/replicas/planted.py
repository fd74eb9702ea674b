"""Bugs to be planted in what carries out the machine's effects, one at a time: the simulation has to find each."""

from collections.abc import Callable
from typing import Any, Final

from tests.replication.planted import BUGS as MACHINE_BUGS
from tests.sim.planted import Bug, Place

from duramen.base.errors import DuramenError
from duramen.broker.partition import Partition
from duramen.broker.replicas.log import ReplicaLog
from duramen.broker.replicas.replica import Replica
from duramen.broker.replicas.waiters import ReplicaWaiters
from duramen.storage.store import AppendDone

__all__ = ["BUGS"]

Original = Callable[..., Any]


def _report_written(right: Original) -> Original:
    def _synced(self: Replica, _: Partition) -> None:
        right(self, _)
        if self._over is None:
            self._machine.synced(self._machine.history.end)
            self._go_on()

    return _synced


def _acknowledge_own(right: Original) -> Original:
    def _stored(
        self: ReplicaWaiters,
        epoch: int,
        done: AppendDone,
        all_replicas: bool,
        base_offset: int,
        error: DuramenError | None,
    ) -> None:
        right(self, epoch, done, False, base_offset, error)
        del all_replicas

    return _stored


def _cut_later(right: Original) -> Original:
    def cut(self: ReplicaLog, end_offset: int, done: Callable[[DuramenError | None], None]) -> None:
        right(self, end_offset, lambda _: None)
        done(None)

    return cut


def _show_all(right: Original) -> Original:
    def _show(self: Replica) -> None:
        right(self)
        self._state.high_watermark = self._machine.history.end_offset

    return _show


BUGS: Final = (
    *(bug for bug in MACHINE_BUGS if bug.words == "truncate by HW"),
    Bug("report-written", "report written for synced", (Place(Replica, "_synced", _report_written),)),
    Bug("acknowledge-own", "ack before sync", (Place(ReplicaWaiters, "_stored", _acknowledge_own),)),
    Bug("cut-later", "", (Place(ReplicaLog, "cut", _cut_later),), "do not wait for a cut"),
    Bug("show-all", "", (Place(Replica, "_show", _show_all),), "let readers see what is not committed"),
)
