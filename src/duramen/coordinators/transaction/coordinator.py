"""The transaction coordinator: decides with the state machine, stores its records, responds."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.deadlines import Deadlines
from duramen.base.errors import (
    ConcurrentTransactions,
    DuramenError,
    KeyedTransactionRefused,
    NodeStopping,
    OutOfOrderSequence,
    RequestInvalid,
    TransactionalIdNotFound,
    TransactionStateInvalid,
    TransactionTimeoutInvalid,
)
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.base.settings import Settings
from duramen.broker.partition import Admission, Partition
from duramen.codec.attempts import find_attempt, is_reserved
from duramen.codec.batch import Header
from duramen.coordinators.group.coordinator import CommitMember, Coordinator
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.transaction.batch_decisions import Decisions
from duramen.coordinators.transaction.cluster.cluster import ClusterDependencies, ClusterTransactions, JoinDone
from duramen.coordinators.transaction.cluster.vectors import ClusterVectors
from duramen.coordinators.transaction.cluster.verification import Admitted
from duramen.coordinators.transaction.completion import Endings, TransactionDependencies
from duramen.coordinators.transaction.lateness import Lateness
from duramen.coordinators.transaction.producer_ids import ProducerIdDone
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.coordinators.transaction.shard import Decide
from duramen.coordinators.transaction.store import Changed, TransactionStore
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.metadata.features import MetadataFeature
from duramen.rpc.caller import Caller
from duramen.storage.log.log import Log
from duramen.transactions import machine
from duramen.transactions.values import PartitionName, ProducerIdentity, TransactionalId, TransactionState

__all__ = ["Listed", "Transactions"]

Done = Callable[[DuramenError | None], None]
IdentityDone = Callable[[ProducerIdentity | None, DuramenError | None], None]
"""Called with the producer's id and epoch, or with the error."""

_NO_FRESH: Final = -1
_TOO_OLD: Final = (
    "stream {} is keyed: it takes transactions from the feature level {:d} on, and the cluster is at {:d}: once all"
    " nodes are of this version, raise it with `duramen cluster upgrade`"
)
_REPORT_MS: Final = 60_000
_MEMORY_SHARE: Final = 16  # transactional ids use at most a sixteenth of memory.limit.bytes


class Listed(NamedTuple):
    """A row of the list of transactions."""

    id: str
    producer_id: int
    state: TransactionState


class Transactions:
    """Every transactional id that this node coordinates."""

    def __init__(
        self,
        places: TransactionDependencies,
        groups: Coordinator,
        clock: Clock,
        deadlines: Deadlines,
        settings: Settings,
        new_producer_id: Callable[[ProducerIdDone], None],
        metrics: Metrics,
        report: Callable[[str], None],
        caller: Caller,
        runtime: Runtime,
    ) -> None:
        """`report` receives messages for the operator."""
        self._begun = metrics.counter("duramen_transactions_total", "begun")
        self._streams = places.streams
        self._offsets = places.offsets
        self._membership = places.membership
        self._groups = groups
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._max_timeout_ms = settings.integer("transaction.max.timeout.ms")
        self._expiration_ms = settings.integer("transactional.id.expiration.ms")
        self._known = KnownTransactions(settings.integer("memory.limit.bytes") // _MEMORY_SHARE)
        self._lateness = Lateness(clock)
        alone = places.membership.first_role is None
        self._endings = Endings(self._known, places, clock, metrics, report) if alone else None
        self._store = TransactionStore(
            places.log, self._known, runtime, self._endings, places.store.soon, report, self._took_in
        )  # fmt: skip
        self._cluster: ClusterTransactions | None = None
        if self._endings is not None:
            self._endings.store, self._store.ending = self._store, self._endings
        else:
            dependencies = ClusterDependencies(caller, clock, deadlines, metrics)
            self._cluster = ClusterTransactions(places, self._known, self._store, dependencies, self)
            self._store.ending = self._cluster.finishing
        self.decisions = Decisions(
            self._known, self._store, clock, self._lateness, places.store.soon, metrics, self._max_timeout_ms
        )
        """The decisions about batches of Spark queries."""
        self._stopping = False
        self._report = report
        self._report_ms = 0

    # -- starting and stopping ----------------------------------------------------------------------

    def restore(self, done: Callable[[DuramenError | None], None]) -> None:
        """Load all stored ids, and complete interrupted transactions; then call `done`.

        On a cluster that happens for each partition of `__transaction_state` when this node becomes its leader.
        """

        def loaded(error: DuramenError | None) -> None:
            if error is not None or self._endings is None:
                ended(error)
            else:
                self._endings.end_left(ended)

        def ended(error: DuramenError | None) -> None:
            if error is None:
                self.decisions.sweep()
            done(error)

        self._store.restore(loaded)

    def _took_in(self) -> None:
        """More ids are loaded: finish decided batches."""
        self.decisions.sweep()

    def led(self, partition: Partition) -> None:
        """The leadership of a partition of `__transaction_state` has changed on this node."""
        self._store.let_go(partition.index)

    def when_whole(self, logs: Collection[Log], done: Callable[[], None]) -> Callable[[], None]:
        """Call `done` at a moment when no transaction has its marker in only some of these logs; it may be now.

        The result cancels the call. On a cluster markers are written one by one, and `done` is called at once.
        """
        if self._endings is not None:
            return self._endings.when_whole(logs, done)
        done()
        return lambda: None

    @property
    def vectors(self) -> ClusterVectors | None:
        """Takes snapshots across partitions of a cluster; None on a standalone node, or before all nodes support it."""
        if self._cluster is None or self._membership.state.feature_level < MetadataFeature.KEYED_TRANSACTIONS:
            return None
        return self._cluster.vectors

    def stop(self) -> None:
        """Refuse new requests."""
        self._stopping = True
        if self._cluster is not None:
            self._cluster.stop()

    def _check(self, id_: str) -> None:
        if self._stopping:
            raise NodeStopping("this node is stopping")
        if not id_:
            raise RequestInvalid("a transactional id is not empty")

    # -- producers ----------------------------------------------------------------------------------

    def initialise(self, id_: str, timeout_ms: int, expected: ProducerIdentity | None, done: IdentityDone) -> None:
        """A producer starts, or continues after an error with its identity; the previous producer is fenced."""
        try:
            self._check(id_)
            if not 0 < timeout_ms <= self._max_timeout_ms:
                raise TransactionTimeoutInvalid(
                    f"a transaction timeout is 1 to {self._max_timeout_ms} ms, not {timeout_ms}"
                )
            self._store.check(id_)
        except DuramenError as error:
            done(None, error)
            return

        def changed(one: TransactionalId | None, error: DuramenError | None) -> None:
            if error is None and one is not None and one.state is not TransactionState.EMPTY:
                # The producer retries, and finds no open transaction.
                error = ConcurrentTransactions(f"the transaction that {id_} had open is aborted first")
            done(None if one is None or error is not None else one.identity, error)

        def act(fresh: int) -> None:
            self._store.change(id_, partial(self._initialised, id_, timeout_ms, expected, fresh), changed)

        self._with_producer_id(id_, act, partial(done, None))

    def _with_producer_id(
        self, id_: str, action: Callable[[int], None], failed: Callable[[DuramenError], None]
    ) -> None:
        """Run `action` with a usable producer id; a new one is allocated if necessary."""

        def allocated(producer_id: int, error: DuramenError | None) -> None:
            if error is not None:
                failed(error)
            else:
                action(producer_id)

        if machine.wants_producer_id(self._known.get(id_)):
            self._new_producer_id(allocated)
        else:
            allocated(_NO_FRESH, None)

    def _initialised(
        self, id_: str, timeout_ms: int, expected: ProducerIdentity | None, fresh: int, current: TransactionalId | None
    ) -> TransactionalId:
        if machine.wants_producer_id(current) and fresh == _NO_FRESH:
            raise ConcurrentTransactions(f"{id_} has changed meanwhile")
        self.decisions.check_begins(id_, current)
        one = machine.initialise(current, id_, timeout_ms, expected, self._clock.wall_ms(), fresh)
        self._known.check(one)
        return one

    # -- transactions -------------------------------------------------------------------------------

    def add_partitions(
        self, id_: str, identity: ProducerIdentity, partitions: Collection[PartitionName], done: Done
    ) -> None:
        """Partitions join the transaction before they are written to (clients before KIP-890's second part).

        Calls `done` once that is durable: no batch follows that could prove it.
        """
        self._join(self._store.change, id_, identity, partitions, 0, lambda _, error: done(error))

    def add_group(self, id_: str, identity: ProducerIdentity, group_id: str, done: Done) -> None:
        """The partition of a group's offsets joins the transaction."""
        try:
            partition = PartitionName(OFFSETS_STREAM, self._offsets.partition_of(group_id))
        except DuramenError as error:
            done(error)
        else:
            self.add_partitions(id_, identity, [partition], done)

    def join(
        self, id_: str, identity: ProducerIdentity, partitions: Collection[PartitionName], version: int, done: JoinDone
    ) -> None:
        """Partitions join a transaction that this node coordinates; `done` gets those that were not in it before.

        `version` 2: they join by a write. On a standalone node the batch is appended directly after.
        """
        self._join(self._store.join, id_, identity, partitions, version, done)

    def _join(
        self, change: Callable[[str, Decide, Changed], None], id_: str, identity: ProducerIdentity,
        partitions: Collection[PartitionName], version: int, done: JoinDone,
    ) -> None:  # fmt: skip
        begun: list[PartitionName] = []

        def decide(current: TransactionalId | None) -> TransactionalId | None:
            self.decisions.check_open(id_)
            one = machine.add_partitions(current, id_, identity, partitions, self._clock.wall_ms(), version)
            if one is not None:
                self._known.check(one)
                begun.extend(one for one in partitions if not machine.is_written_to(current, one))
                if current is None or current.state is not one.state:
                    self._begun.value += 1
            return one

        try:
            self._check(id_)
        except DuramenError as error:
            done((), error)
        else:
            change(id_, decide, lambda _, error: done(begun, error))

    def verify(self, id_: str, identity: ProducerIdentity, partitions: Collection[PartitionName], done: Done) -> None:
        """`done` gets no error if the partitions are in a transaction that this node coordinates."""

        def decide(current: TransactionalId | None) -> None:
            for one in partitions:
                machine.verify(current, id_, identity, one)

        try:
            self._check(id_)
        except DuramenError as error:
            done(error)
        else:
            self._store.join(id_, decide, lambda _, error: done(error))

    def admission(self, id_: str, *, joins: bool) -> Admission:
        """Checks the header of each transactional batch before it is appended.

        With `joins` (KIP-890, part 2) its partition joins the transaction.
        """
        return partial(self._admit, id_, joins)

    def _admit(self, id_: str, joins: bool, partition: Partition, head: Header, done: Done) -> None:
        if partition.stream.keyed and self._cluster is not None and self.vectors is None:
            self._refuse(partition, done)
            return

        def admitted(begins: bool, error: DuramenError | None) -> None:
            # The producer's earlier batches may be forgotten: then a gap in between cannot be excluded.
            unknown = begins and head.base_sequence > 0 and not partition.log.producers.has_written(head.producer_id)
            if unknown and error is None:
                error = OutOfOrderSequence(
                    f"producer {head.producer_id} begins in partition {partition.index} of {partition.stream.name} with"
                    f" sequence {head.base_sequence}, not 0"
                )
            done(error)

        self._admit_to(id_, ProducerIdentity(head.producer_id, head.producer_epoch), partition, joins, admitted)

    def _refuse(self, partition: Partition, done: Done) -> None:
        """Refuse: some nodes of the cluster cannot take snapshots between transactions yet."""
        needed, level = int(MetadataFeature.KEYED_TRANSACTIONS), self._membership.state.feature_level
        error = KeyedTransactionRefused(_TOO_OLD.format(partition.stream.name, needed, level))
        self.report_refused(error)
        done(error)

    def report_refused(self, error: DuramenError) -> None:
        """Report at most once a minute why a transaction was refused: most clients show the error code only."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._report_ms:
            self._report_ms = now_ms + _REPORT_MS
            self._report(f"a transaction was refused: {error}")

    def _admit_to(
        self, id_: str, identity: ProducerIdentity, partition: Partition, joins: bool, done: Admitted
    ) -> None:
        try:
            self._check(id_)
            if self._cluster is not None:
                self._cluster.joining.admit(id_, identity, partition, joins=joins, done=done)
            else:
                done(
                    self._admit_here(id_, identity, PartitionName(partition.stream.name, partition.index), joins), None
                )
        except DuramenError as error:
            done(False, error)

    def _admit_here(self, id_: str, identity: ProducerIdentity, partition: PartitionName, joins: bool) -> bool:
        """Whether a partition joins now. Raises if nothing may be appended."""
        refused: list[DuramenError | None] = []
        begins = joins and not machine.is_written_to(self._known.get(id_), partition)
        if joins:
            # Its record goes into the log right before the batch, so no batch exists without it. Nothing waits for it.
            self.join(id_, identity, [partition], 2, lambda _, error: refused.append(error))
        else:
            self.verify(id_, identity, [partition], refused.append)
        if refused and refused[0] is not None:
            raise refused[0]
        return begins

    def commit_offsets(
        self,
        id_: str,
        identity: ProducerIdentity,
        group_id: str,
        member: CommitMember,
        offsets: Sequence[tuple[OffsetKey, CommittedOffset]],
        done: Callable[[list[DuramenError | None] | DuramenError], None],
        *,
        joins: bool,
    ) -> None:
        """Store offsets of a group that take effect once the transaction is committed.

        With `joins` the group's partition joins the transaction. Responds with one result for each offset once they are
        durable.
        """
        results = self._groups.check_metadata(offsets)
        accepted = [offset for offset, error in zip(offsets, results, strict=True) if error is None]

        def stored(error: DuramenError | None) -> None:
            done([error if result is None else result for result in results])

        def admitted(_: bool, error: DuramenError | None) -> None:
            try:
                if error is not None:
                    raise error
                self._groups.check_transactional(group_id, member)
            except DuramenError as refused:
                done(refused)
                return
            if accepted:
                self._offsets.hold(group_id, identity.producer_id, identity.epoch, accepted, stored)
            else:
                done(results)

        try:
            partition = self._streams.get(OFFSETS_STREAM).partition(self._offsets.partition_of(group_id))
            partition.check_leads()
        except DuramenError as error:
            done(error)
        else:
            # As in Apache Kafka, the transaction is checked first, even if the group refuses the offsets.
            self._admit_to(id_, identity, partition, joins, admitted)

    # -- the end ------------------------------------------------------------------------------------

    def end(self, id_: str, identity: ProducerIdentity, *, commit: bool, version: int, done: IdentityDone) -> None:
        """Commit or abort; responds with the identity to continue with.

        It responds once every marker is durable; on a cluster once the decision is durable.
        """
        try:
            self._check(id_)
            self._store.check(id_)
            if is_reserved(id_) and commit:
                raise TransactionStateInvalid(f"{id_} is committed by the decision on its batch, not by its producer")
        except DuramenError as error:
            done(None, error)
            return
        if is_reserved(id_):
            self.decisions.abort(id_, identity, done)
            return

        def decide(fresh: int, current: TransactionalId | None) -> TransactionalId | None:
            if current is not None and current.exhausted and fresh == _NO_FRESH:
                raise ConcurrentTransactions(f"{id_} has changed meanwhile")
            return machine.end(
                current, id_, identity, commit=commit, version=version, now_ms=self._clock.wall_ms(), fresh=fresh
            )

        def changed(one: TransactionalId | None, error: DuramenError | None) -> None:
            done(one.identity if error is None and one is not None else None, error)

        def act(fresh: int) -> None:
            self._store.change(id_, partial(decide, fresh), changed)

        if id_ in self._known:
            self._with_producer_id(id_, act, partial(done, None))
        else:
            act(_NO_FRESH)

    # -- time ---------------------------------------------------------------------------------------

    def abort_timed_out(self) -> None:
        """Abort transactions that exceed their timeout; the producer is fenced.

        Transactions of Spark tasks end as decided.
        """
        now_ms = self._clock.wall_ms()

        def decide(current: TransactionalId | None) -> TransactionalId | None:
            late = current is not None and current.state is TransactionState.ONGOING and self._lateness.is_late(current)
            return machine.fence(current, now_ms) if late and current is not None else None

        opened = [one for one in self._known.open() if one.state is TransactionState.ONGOING]
        self._lateness.look(opened)
        for one in filter(self._lateness.is_late, opened):
            if find_attempt(one.id) is None:
                self._store.change(one.id, decide, _nothing)
        self.decisions.sweep()

    def expire(self) -> None:
        """Forget transactional ids that have been unused for long."""
        now_ms = self._clock.wall_ms()

        def expired(one: TransactionalId) -> bool:
            return find_attempt(one.id) is None and machine.expired(one, now_ms, self._expiration_ms)

        for one in [one for one in self._known.values() if expired(one)]:
            self._store.forget(one.id, expired)

    # -- asking -------------------------------------------------------------------------------------

    def describe(self, id_: str) -> TransactionalId:
        """A transactional id in its present state. Raises TransactionalIdNotFound."""
        self._check(id_)
        self._store.check(id_)
        one = self._known.get(id_)
        if one is None:
            raise TransactionalIdNotFound(f"there is no transactional id {id_}")
        return one

    def open_since_ms(self) -> list[int]:
        """The start times of all open transactions, in ms since 1970."""
        return [one.started_ms for one in self._known.open()]

    def listing(
        self, states: Collection[TransactionState], producer_ids: Collection[int], longer_than_ms: int
    ) -> list[Listed]:
        """Transactional ids, all or those in some states, of some producers, and with transactions of some age."""
        now_ms = self._clock.wall_ms()
        return [
            Listed(one.id, one.producer_id, one.state)
            for one in self._known.values()
            if (not states or one.state in states)
            and (not producer_ids or one.producer_id in producer_ids)
            and (longer_than_ms < 0 or now_ms - one.started_ms > longer_than_ms)
        ]


def _nothing(_: TransactionalId | None, __: DuramenError | None) -> None:
    """A callback without a waiting caller."""
