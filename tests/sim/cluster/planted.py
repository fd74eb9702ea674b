"""The bugs of issue 7, and some more, to be planted in whole clusters one at a time: a run of some seed finds each."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

import msgspec
from tests.broker.replicas.planted import BUGS as OF_REPLICAS
from tests.controller.active.planted import BUGS as OF_CONTROL
from tests.controller.quorum.planted import BUGS as OF_QUORUM_ON_DISK
from tests.raft.planted import BUGS as OF_QUORUM
from tests.replication.planted import BUGS as OF_REPLICATION
from tests.sim.bugs.every import BUGS as OF_STORAGE
from tests.sim.planted import Bug, Place

from duramen.base.errors import DuramenError, NodeStarting, OutOfOrderSequence
from duramen.broker.partition import Partition
from duramen.broker.replicas.replica import Replica
from duramen.broker.replicas.roles import Replicas
from duramen.codec.batch import Header
from duramen.controller.active import node_requests as speaking
from duramen.controller.admin.cluster import ClusterAdmin
from duramen.controller.admin.replica_survey import Survey
from duramen.controller.membership.lifecycle import Lifecycle
from duramen.controller.membership.member import ClusterMember
from duramen.coordinators.group.classic import ClassicGroups
from duramen.coordinators.runtime.active import ActiveShard
from duramen.coordinators.transaction.cluster.participant import Participant
from duramen.coordinators.transaction.cluster.requests import WriteMarkers
from duramen.coordinators.transaction.cluster.verification import TransactionVerification
from duramen.coordinators.transaction.coordinator import Transactions
from duramen.groups.group import Group
from duramen.groups.values import StoreEffect
from duramen.metadata import leader_election as settling
from duramen.replication.leader import PartitionLeaderRole
from duramen.replication.progress import FollowerProgress
from duramen.storage.append.append import Appends
from duramen.storage.log.log import Log
from duramen.storage.log.refused_batches import Refusals
from duramen.storage.log.transactions import TransactionTable
from duramen.storage.store import AppendDone

__all__ = ["BUGS"]

_LATER_MS: Final = 60_000
_WITHIN_MS: Final = 10_000

Original = Callable[..., Any]


def _of(bugs: Iterable[Bug], name: str) -> Bug:
    return next(bug for bug in bugs if bug.name == name)


def _elect_anybody(right: Original) -> Original:
    def _elected(before: Any, wanted: Any, known: Any, nodes: Any, rules: Any) -> Any:
        return right(before, wanted, known, nodes, rules._replace(unclean=True))

    return _elected


def _send_anywhere(right: Original) -> Original:
    def preferred_replica(self: ClusterMember, partition: Partition, rack_id: str, offset: int) -> int:
        del offset
        return int(right(self, partition, rack_id, 0))

    return preferred_replica


def _store_here(right: Original) -> Original:
    def store(self: Partition, batch: bytearray, head: Header, done: AppendDone) -> None:
        role = self.role
        if role is None:
            right(self, batch, head, done)
            return
        try:
            stored = role.accept(done, all_replicas=False)
        except DuramenError as error:
            done(-1, error)
        else:
            self._store.append(self.log, batch, head, self.leader_epoch, stored)

    return store


def _always_commit(right: Original) -> Original:
    def _end(self: Participant, partition: Partition, request: WriteMarkers, done: Any) -> None:
        right(self, partition, msgspec.structs.replace(request, commit=True), done)

    return _end


def _show_open(right: Original) -> Original:
    def stable_end(self: TransactionTable, high_watermark: int) -> int:
        right(self, high_watermark)
        return high_watermark

    return stable_end


def _take_any(right: Original) -> Original:
    del right

    def check_commit(
        self: Group,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        *,
        transactional: bool = False,
    ) -> None:
        del self, member_id, instance_id, generation, now_ms, transactional

    return check_commit


def _lead_unwritable(right: Original) -> Original:
    del right

    def storage_changed(self: Lifecycle, *, unwritable: bool) -> None:
        """Nobody hears of it: the node stays live, and leads on."""

    return storage_changed


def _hide_damage(right: Original) -> Original:
    def register(state: Any, registration: Any, *, end_offset: int, is_live: bool, renews: int = 0) -> Any:
        return right(state, registration._replace(damaged=False), end_offset=end_offset, is_live=is_live, renews=renews)

    return register


def _leave_damage(right: Original) -> Original:
    del right

    def damaged(self: Replicas, place: Any) -> None:
        """Nobody hears of it, and the node leads on."""

    return damaged


def _stay_out(right: Original) -> Original:
    def storage_changed(self: Lifecycle, *, unwritable: bool) -> None:
        if unwritable:
            right(self, unwritable=True)

    return storage_changed


def _tell_unstored(right: Original) -> Original:
    del right

    def _store(self: ClassicGroups, group: Group, store: StoreEffect) -> None:
        group.stored(store, None, self._clock.monotonic_ms())
        self._offsets.store_group(group.id, store.snapshot, lambda _: None)
        self._settle(group)

    return _store


def _lag_since_last_fetch(_: Original) -> Original:
    def appended(self: FollowerProgress, log_end: int, now_ms: int) -> None:
        del now_ms
        for known in self._replicas.values():
            if known.mark_end is None:
                known.mark_end, known.mark_ms = log_end, known.caught_up_ms

    return appended


def _serve_alone(_: Original) -> Original:
    def check_holds(self: Replica) -> None:
        if self._over is not None:
            raise self._over

    return check_holds


def _coordinate_alone(right: Original) -> Original:
    def _check_leads(self: ActiveShard) -> None:
        if self._over is not None:
            right(self)

    return _check_leads


def _never_yield(right: Original) -> Original:
    def _measure(self: PartitionLeaderRole) -> None:
        effects = self._replica.effects
        before = len(effects)
        right(self)
        del effects[before:]

    return _measure


def _keep_members(right: Original) -> Original:
    def tick(self: Group, now_ms: int) -> None:
        for member in self.members:
            member.expires_ms = max(member.expires_ms, now_ms + _LATER_MS)
        right(self, now_ms)

    return tick


def _keep_transactions(right: Original) -> Original:
    del right

    def abort_timed_out(self: Transactions) -> None:
        """None is."""

    return abort_timed_out


def _elect_blank(right: Original) -> Original:
    def elect_unclean(self: ClusterAdmin, surveys: Sequence[Survey], done: Any, *, within_ms: int = _WITHIN_MS) -> None:
        worst = [
            one._replace(kept=dict([min(one.kept.items(), key=lambda kept: kept[1].end_offset)])) for one in surveys
        ]
        right(self, worst, done, within_ms=within_ms)

    return elect_unclean


def _check_no_refusal(right: Original) -> Original:
    del right

    def check(self: Refusals, place: Hashable, head: Header) -> None:
        """Whatever was refused."""

    return check


def _call_it_a_gap(right: Original) -> Original:
    del right

    def _for_gap(self: Appends, log: Log, gap: OutOfOrderSequence) -> DuramenError:
        del self, log
        return gap

    return _for_gap


def _refuse_while_starting(real: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(self: Any, lanes: Any, error: DuramenError) -> None:
        if not isinstance(error, NodeStarting):
            real(self, lanes, error)
            return
        for lane in lanes:
            for done in self._close(lane):
                done(False, error)

    return refuse


BUGS: Final = (
    _of(OF_REPLICATION, "cut-to-high-watermark"),
    _of(OF_REPLICAS, "acknowledge-own"),
    _of(OF_REPLICAS, "report-written"),
    _of(OF_REPLICATION, "stale-in-sync"),
    _of(OF_QUORUM, "vote-twice"),
    _of(OF_QUORUM, "vote-blank"),
    _of(OF_REPLICATION, "any-epoch"),
    _of(OF_QUORUM, "commit-earlier"),
    Bug("elect-anybody", "elect outside the in-sync set", (Place(settling, "_elected", _elect_anybody),)),
    Bug(
        "send-anywhere",
        "redirect to a replica that lacks the offset",
        (Place(ClusterMember, "preferred_replica", _send_anywhere),),
    ),
    _of(OF_STORAGE, "take-any-first-sequence"),
    _of(OF_REPLICAS, "show-all"),
    _of(OF_QUORUM_ON_DISK, "count-written"),
    _of(OF_CONTROL, "on-committed"),
    Bug(
        "store-here",
        "",
        (Place(Partition, "store", _store_here),),
        "call offsets and transactions stored before others have them",
    ),
    Bug(
        "always-commit", "", (Place(Participant, "_end", _always_commit),), "write the marker of a commit for an abort"
    ),
    Bug("show-open", "", (Place(TransactionTable, "stable_end", _show_open),), "show what is in open transactions"),
    Bug("take-any", "", (Place(Group, "check_commit", _take_any),), "take offsets of members of earlier generations"),
    Bug(
        "tell-unstored",
        "",
        (Place(ClassicGroups, "_store", _tell_unstored),),
        "tell of what is not stored yet",
    ),
    Bug(
        "lag-since-last-fetch",
        "",
        (Place(FollowerProgress, "appended", _lag_since_last_fetch),),
        "measure a follower's lag from its last fetch, not from the first append after it",
    ),
    Bug(
        "serve-alone",
        "",
        (Place(Replica, "check_holds", _serve_alone),),
        "go on serving reads as a leader that is cut off",
    ),
    Bug(
        "lead-unwritable",
        "",
        (Place(Lifecycle, "storage_changed", _lead_unwritable),),
        "lead on with a disk that takes no writes",
    ),
    Bug(
        "hide-damage",
        "",
        (Place(speaking, "register", _hide_damage),),
        "count on a node for records that damage to its disk has cost",
    ),
    Bug(
        "coordinate-alone",
        "",
        (Place(ActiveShard, "_check_leads", _coordinate_alone),),
        "go on coordinating groups as a leader that is cut off",
    ),
    Bug("never-yield", "", (Place(PartitionLeaderRole, "_measure", _never_yield),), "lead on with a disk that is slow"),
    Bug("keep-members", "", (Place(Group, "tick", _keep_members),), "never end the session of a member"),
    Bug(
        "keep-transactions",
        "",
        (Place(Transactions, "abort_timed_out", _keep_transactions),),
        "never abort a transaction that takes too long",
    ),
    Bug(
        "tell-of-gaps",
        "",
        (Place(Refusals, "check", _check_no_refusal), Place(Appends, "_for_gap", _call_it_a_gap)),
        "answer batches behind a refused one with OUT_OF_ORDER_SEQUENCE_NUMBER",
    ),
    Bug(
        "elect-blank",
        "",
        (Place(ClusterAdmin, "elect_unclean", _elect_blank),),
        "elect a blank replica before one that has everything",
    ),
    Bug(
        "leave-damage",
        "",
        (Place(Replicas, "damaged", _leave_damage),),
        "go on with a replica of which a range was found to be damaged",
    ),
    Bug(
        "refuse-while-starting",
        "",
        (Place(TransactionVerification, "_refuse", _refuse_while_starting),),
        "refuse a batch of a transaction for good because the coordinator's node is starting",
    ),
    Bug("stay-out", "", (Place(Lifecycle, "storage_changed", _stay_out),), "stay out once a full disk has room again"),
)
