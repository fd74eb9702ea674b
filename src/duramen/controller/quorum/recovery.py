"""Recovers a replica from disk: reads and checks ballot, snapshot and log before it sends anything.

A missing ballot means an empty, unknown replica if the log is empty; otherwise the log is that of a standalone node,
which is a quorum of one. If the disk may have lost a promise, the start is refused. A damaged log is truncated before
the damage if other voters have the rest; the replica does not count until it has fetched everything again.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DirectoryUnusable, DuramenError, LogDamaged, StorageFailed
from duramen.base.ports import Clock, FileSystem, Worker
from duramen.codec.batch import Header
from duramen.controller.quorum.applier import EventsApplied, MetadataView
from duramen.controller.quorum.ballot_file import BallotFile, Promised
from duramen.controller.quorum.dependencies import LIMITS, QuorumDependencies, QuorumEffects, QuorumLimits
from duramen.controller.quorum.entries import is_gap, read_batch
from duramen.controller.quorum.log import MetadataLog
from duramen.controller.quorum.runner import Runner
from duramen.controller.quorum.snapshots import FoundSnapshot, SnapshotFiles
from duramen.raft.ballots import Ballot
from duramen.raft.epochs import NOTHING, EpochEnd
from duramen.raft.machine import RaftMachine
from duramen.raft.messages import EntryBatch
from duramen.raft.replica import Chance, RaftDiskState
from duramen.raft.timeouts import TIMEOUTS, RaftTimeouts
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voter, Voters
from duramen.storage.log.log import Log
from duramen.storage.scan import scan_log
from duramen.storage.store import Store

__all__ = ["Opening", "QuorumIdentity"]

OpenDone = Callable[[Runner | DuramenError], None]


class QuorumIdentity(NamedTuple):
    """The identity of the replica, and the quorum if its disk has none.

    `founders` are the initial voters of an empty log without a ballot: those that form the cluster, and none for a
    replica that must learn the voters. `seeds` are nodes to ask, `joins` is the voter that it wants to become.
    """

    me: ReplicaId
    founders: Voters = NO_VOTERS
    seeds: tuple[int, ...] = ()
    joins: Voter | None = None
    timeouts: RaftTimeouts = TIMEOUTS
    limits: QuorumLimits = LIMITS


class Opening:
    """Reads a replica's disk; `run` passes on the running replica, or the error."""

    def __init__(
        self,
        store: Store,
        log: Log,
        files: FileSystem,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        *,
        plan: QuorumIdentity,
        view: MetadataView,
        outside: QuorumEffects,
        chance: Chance,
    ) -> None:
        """`view` is empty, and `chance` draws a number from 0 up to its argument, exclusive."""
        self._store = store
        self._log = log
        self._ballots = BallotFile(files)
        self._snapshots = SnapshotFiles(files)
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._plan = plan
        self._view = view
        self._outside = outside
        self._chance = chance
        self._below: EpochEnd | None = None  # the end of the log's part that the snapshot covers
        self._batches: list[EntryBatch] = []

    def run(self, done: OpenDone) -> None:
        """Open the replica. `done` gets LogDamaged, DirectoryUnusable or StorageFailed if that is not possible."""

        def read(result: tuple[Promised | None, FoundSnapshot] | BaseException) -> None:
            if isinstance(result, DuramenError):
                done(result)
            elif isinstance(result, BaseException):
                done(StorageFailed(f"the ballot of the quorum cannot be read: {result}"))
            else:
                self._scan(*result, done)

        self._worker.submit("read", self._read, read)

    def _read(self) -> tuple[Promised | None, FoundSnapshot]:
        return self._ballots.read(), self._snapshots.newest()

    def _scan(self, promised: Promised | None, found: FoundSnapshot, done: OpenDone) -> None:
        for path in found.damaged:
            self._outside.report(f"{path} is damaged: the previous snapshot is used if the log after it still exists")
        start = NOTHING if found.snapshot is None else found.snapshot.end
        if self._log.start_offset > start.offset:
            where = f"the metadata log ({self._log.directory}) begins at offset {self._log.start_offset}"
            error = LogDamaged(f"{where}, and no sound snapshot has the entries before that")
            self._begin_anew(promised, error, done)
            return

        def scanned(error: DuramenError | OSError | None) -> None:
            if isinstance(error, OSError):
                done(StorageFailed(f"the metadata log ({self._log.directory}) cannot be read: {error}"))
                return
            if error is not None:
                named = LogDamaged(f"the metadata log ({self._log.directory}) is damaged: {error}")
                self._cut(promised, found, named, done)
            else:
                self._scanned(promised, found, done)

        # Damage is an error: skipping it would leave a hole in the committed entries.
        scan_log(self._store, self._log, 0, partial(self._found, start), scanned)

    def _scanned(self, promised: Promised | None, found: FoundSnapshot, done: OpenDone) -> None:
        start = NOTHING if found.snapshot is None else found.snapshot.end
        founders = self._founders(promised)
        applied = EventsApplied(self._view, founders)
        try:
            self._judge(promised, start)
            if found.snapshot is not None:
                applied.restore(found.snapshot)
        except DuramenError as refused:
            done(refused)
            return
        self._open(promised, applied, founders, start, done)

    def _cut(self, promised: Promised | None, found: FoundSnapshot, error: LogDamaged, done: OpenDone) -> None:
        """Truncate the log before the damage, if other voters have the following entries."""
        known = None if promised is None else promised.founders if found.snapshot is None else found.snapshot.voters
        for batch in self._batches:
            known = known if batch.voters is None else batch.voters
        if promised is None or known is None or known.ids == (self._plan.me,):
            done(error)
            return

        def cut(failure: DuramenError | None) -> None:
            if failure is not None:
                done(StorageFailed(f"the metadata log could not be cut before its damage: {failure}"))
            else:
                self._scanned(promised, found, done)

        last = self._batches[-1] if self._batches else None
        below = self._log.start_offset if self._below is None else self._below.offset
        end_offset = below if last is None else last.first + last.entries
        self._outside.report(f"{error}: it is truncated at offset {end_offset} and fetched again from the leader")
        self._store.metadata_damaged = True
        self._store.truncate(self._log, end_offset, max(self._log.takeovers.latest_epoch, 0), cut)

    def _begin_anew(self, promised: Promised | None, error: LogDamaged, done: OpenDone) -> None:
        """Start with only the ballot, if the quorum was never this node alone: others have all entries."""
        if promised is None or promised.founders.ids == (self._plan.me,):
            done(error)
            return

        def deleted(failure: DuramenError | None) -> None:
            if failure is not None:
                done(StorageFailed(f"the metadata log could not be deleted: {failure}"))
                return
            self._log = self._store.ensure(self._log.key, self._log.config)
            self._scanned(promised, FoundSnapshot(None, ()), done)

        self._outside.report(f"{error}: it is deleted and fetched again from the leader")
        self._store.metadata_damaged = True
        self._store.delete(self._log, deleted)

    def _found(self, start: EpochEnd, head: Header, data: bytes) -> None:
        if head.next_offset <= start.offset:
            self._below = EpochEnd(head.leader_epoch, head.next_offset)
        else:
            self._batches.append(read_batch(data))

    def _judge(self, promised: Promised | None, start: EpochEnd) -> None:
        """Raises if the disk contradicts itself."""
        plan, batches = self._plan, self._batches
        if any(is_gap(batch) for batch in batches):
            raise LogDamaged(f"the metadata log ({self._log.directory}) lacks entries of a missing snapshot")
        named = start != NOTHING or any(batch.voters is not None for batch in batches)
        if promised is None and named:
            raise LogDamaged(
                f"the metadata log ({self._log.directory}) belongs to a quorum, but the ballot is gone: the votes"
                " of this replica are not known. Start the node with an empty directory, and it joins as a new replica"
            )
        if promised is not None and promised.replica != plan.me:
            raise DirectoryUnusable(
                f"this directory is the replica {promised.replica} of the quorum, and the node is started as {plan.me}:"
                " start it with the node.id that it had"
            )
        newest = max((batch.epoch for batch in batches), default=start.epoch)
        if promised is not None and promised.ballot.epoch < newest:
            raise LogDamaged(
                f"the ballot of the quorum is of epoch {promised.ballot.epoch}, and the metadata log has epoch"
                f" {newest}: it is an older copy, and newer votes are not known. Start the node with an empty"
                " directory, and it joins as a new replica"
            )

    def _open(
        self, promised: Promised | None, applied: EventsApplied, founders: Voters, start: EpochEnd, done: OpenDone
    ) -> None:
        log = MetadataLog(self._store, self._log, self._clock, self._plan.limits.kept_bytes)
        dependencies = QuorumDependencies(
            log, self._ballots, self._snapshots, founders, applied, self._worker, self._clock, self._deadlines,
            self._plan.limits,
        )  # fmt: skip

        def begun(error: DuramenError | None) -> None:
            if error is not None:
                done(StorageFailed(f"the metadata log cannot begin with its snapshot: {error}"))
            else:
                done(self._runner(dependencies, self._ballot(promised, applied.voters), start))

        if start.offset in (self._log.start_offset, 0) or self._below == start:
            log.begin(start, self._batches)
            if start.offset > self._log.start_offset:
                log.start_at(start.offset)
            begun(None)
        else:
            # A leader's snapshot was stored, and the log not restarted: its entries are of another history.
            self._batches = []
            log.restart(start, begun)

    def _founders(self, promised: Promised | None) -> Voters:
        """The voters if the log names none."""
        if promised is not None:
            return promised.founders
        if not self._batches:
            return self._plan.founders
        alone = Voters([Voter(self._plan.me)])
        return self._plan.founders if self._plan.founders.ids == alone.ids else alone

    def _ballot(self, promised: Promised | None, voters: Voters) -> Ballot:
        """The initial ballot; `voters` are those before the log's entries after its snapshot.

        A quorum of one is never behind the epoch of its node, nor behind its log. With more voters the node's epoch,
        which increases with every start, is not used: each start would depose the leader.
        """
        ballot = Ballot() if promised is None else promised.ballot
        for batch in self._batches:
            voters = voters if batch.voters is None else batch.voters
        least = self._store.node_epoch - 1
        alone = voters.ids == (self._plan.me,)
        return Ballot(least) if alone and ballot.epoch < least else ballot

    def _runner(self, dependencies: QuorumDependencies, ballot: Ballot, start: EpochEnd) -> Runner:
        plan = self._plan
        machine = RaftMachine(
            plan.me,
            RaftDiskState(
                ballot, start, dependencies.applied.voters, self._batches, damaged=self._store.metadata_damaged
            ),
            now_ms=self._clock.monotonic_ms(),
            chance=self._chance,
            timeouts=plan.timeouts,
            seeds=plan.seeds,
            joins=plan.joins,
        )
        return Runner(machine, dependencies, self._outside)
