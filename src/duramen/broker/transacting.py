"""The coordinator of transactions: decides with their state machine, stores what it says, writes markers, answers.

A transaction ends in one step: its record *prepared*, a marker for every partition and its record *complete* go into
the write-ahead log next to each other and in this order, under one sync. What a crash leaves of them begins with that
record, so a start that finds one which is prepared and not complete writes the markers that are missing.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import (
    ConcurrentTransactions,
    DuramenError,
    NodeStopping,
    RequestInvalid,
    TransactionalIdNotFound,
    TransactionTimeoutInvalid,
)
from duramen.base.ports import Clock
from duramen.base.settings import Settings
from duramen.broker.coordinator import CommitMember, Coordinator
from duramen.broker.offsets import OFFSETS_STREAM, Offsets
from duramen.broker.partition import Partition
from duramen.broker.streams import Streams
from duramen.broker.transaction_log import TransactionLog
from duramen.codec.batch import Header, header
from duramen.codec.markers import encode_marker
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.storage.log import Log
from duramen.storage.store import Store
from duramen.transactions import machine
from duramen.transactions.values import (
    PREPARED,
    Identity,
    TopicPartition,
    Transaction,
    TransactionState,
)

__all__ = ["Listed", "Transactions"]

Done = Callable[[DuramenError | None], None]
IdentityDone = Callable[[Identity | None, DuramenError | None], None]
"""Called with the producer's id and epoch, or with the error."""

Batch = tuple[Log, bytearray, Header]

_NO_FRESH: Final = -1


class Listed(NamedTuple):
    """A line of the list of transactions."""

    id: str
    producer_id: int
    state: TransactionState


class Transactions:
    """Every transactional id of this node."""

    def __init__(
        self,
        log: TransactionLog,
        streams: Streams,
        offsets: Offsets,
        groups: Coordinator,
        store: Store,
        clock: Clock,
        settings: Settings,
        new_producer_id: Callable[[Callable[[int, DuramenError | None], None]], None],
        report: Callable[[str], None],
    ) -> None:
        """`report` is told what an operator should hear of."""
        self._log = log
        self._streams = streams
        self._offsets = offsets
        self._groups = groups
        self._store = store
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._report = report
        self._max_timeout_ms = settings.integer("transaction.max.timeout.ms")
        self._expiration_ms = settings.integer("transactional.id.expiration.ms")
        self._known: dict[str, Transaction] = {}
        self._stopping = False

    # -- starting and stopping ----------------------------------------------------------------------

    def restore(self, done: Callable[[DuramenError | OSError | None], None]) -> None:
        """Take in what is stored, and end what a crash has left in the middle; then `done`."""

        def loaded(error: DuramenError | OSError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._end_left(done)

        self._log.load(self._take, self._report, loaded)

    def _take(self, id_: str, one: Transaction | None) -> None:
        if one is None:
            self._known.pop(id_, None)
        else:
            self._known[id_] = one

    def _end_left(self, done: Callable[[DuramenError | OSError | None], None]) -> None:
        left = 1
        failed: list[DuramenError] = []

        def ended(error: DuramenError | None) -> None:
            nonlocal left
            left -= 1
            failed.extend([] if error is None else [error])
            if not left:
                done(failed[0] if failed else None)

        abandoned = self._abandoned()
        for prepared in [one for one in self._known.values() if one.state in PREPARED]:
            left += 1
            self._finish(prepared, prepared, ended, missing_only=True)
        if abandoned:
            left += 1
            self._write(abandoned, ended, commit=False)
        ended(None)

    def _abandoned(self) -> list[Batch]:
        """Markers that abort what is open in a log and of which no transactional id knows."""
        writers = {one.producer_id: one for one in self._known.values()}
        found: list[Batch] = []
        for stream in self._streams:
            for index, partition in enumerate(stream.partitions):
                for producer_id, _ in partition.log.transactions.opened():
                    one = writers.get(producer_id)
                    if one is not None and TopicPartition(stream.name, index) in one.partitions:
                        continue
                    self._report(
                        f"partition {index} of {stream.name} holds a transaction of producer {producer_id} that no"
                        " transactional id knows of: it is aborted"
                    )
                    epoch = partition.log.producers.epoch(producer_id)
                    found.append(self._marker(partition.log, Identity(producer_id, epoch), commit=False))
        return found

    def stop(self) -> None:
        """Take no more requests."""
        self._stopping = True

    def _check(self, id_: str) -> None:
        if self._stopping:
            raise NodeStopping("this node is stopping")
        if not id_:
            raise RequestInvalid("a transactional id is not empty")

    # -- what is stored -----------------------------------------------------------------------------

    def _keep(self, before: Transaction | None, one: Transaction, done: Done) -> None:
        """The transaction is `one` from here on; `done` once that is durable. Raises CoordinatorLoading."""

        def stored(error: DuramenError | None) -> None:
            if error is not None and self._known.get(one.id) is one:
                self._take(one.id, before)
            done(error)

        self._known[one.id] = one
        self._log.append(one, stored)

    # -- who writes ---------------------------------------------------------------------------------

    def initialise(self, id_: str, timeout_ms: int, expected: Identity | None, done: IdentityDone) -> None:
        """A producer begins, or goes on after an error with what it had; who had its place is fenced."""
        try:
            self._check(id_)
            if not 0 < timeout_ms <= self._max_timeout_ms:
                raise TransactionTimeoutInvalid(
                    f"a transaction timeout is 1 to {self._max_timeout_ms} ms, not {timeout_ms}"
                )
        except DuramenError as error:
            done(None, error)
            return
        self._with_producer_id(
            id_, lambda fresh: self._initialise(id_, timeout_ms, expected, fresh, done), partial(done, None)
        )

    def _with_producer_id(
        self, id_: str, action: Callable[[int], None], failed: Callable[[DuramenError], None]
    ) -> None:
        """Do `action` with a producer id that it may use, where the transactional id may need a new one."""

        def allocated(producer_id: int, error: DuramenError | None) -> None:
            if error is not None:
                failed(error)
                return
            try:
                action(producer_id)
            except DuramenError as refused:
                failed(refused)

        if machine.wants_producer_id(self._known.get(id_)):
            self._new_producer_id(allocated)
        else:
            allocated(_NO_FRESH, None)

    def _initialise(self, id_: str, timeout_ms: int, expected: Identity | None, fresh: int, done: IdentityDone) -> None:
        current = self._known.get(id_)
        if machine.wants_producer_id(current) and fresh == _NO_FRESH:
            raise ConcurrentTransactions(f"{id_} has changed meanwhile")
        one = machine.initialise(current, id_, timeout_ms, expected, self._clock.wall_ms(), fresh)
        if current is not None and one.state is TransactionState.PREPARE_ABORT:
            # The producer asks again, and finds it at rest.
            again = ConcurrentTransactions(f"the transaction that {id_} had open is aborted first")
            self._finish(current, one, lambda error: done(None, again if error is None else error))
        else:
            self._keep(current, one, lambda error: done(one.identity if error is None else None, error))

    # -- what is written ----------------------------------------------------------------------------

    def add_partitions(self, id_: str, identity: Identity, partitions: Collection[TopicPartition], done: Done) -> None:
        """Partitions join the transaction before they are written to (clients before KIP-890's second part)."""
        try:
            self._check(id_)
            self._join(id_, identity, partitions, 0, done)
        except DuramenError as error:
            done(error)

    def add_group(self, id_: str, identity: Identity, group_id: str, done: Done) -> None:
        """The partition that keeps a group's offsets joins the transaction."""
        try:
            partition = TopicPartition(OFFSETS_STREAM, self._offsets.partition_of(group_id))
        except DuramenError as error:
            done(error)
        else:
            self.add_partitions(id_, identity, [partition], done)

    def _join(
        self, id_: str, identity: Identity, partitions: Collection[TopicPartition], version: int, done: Done
    ) -> None:
        current = self._known.get(id_)
        one = machine.add_partitions(current, id_, identity, partitions, self._clock.wall_ms(), version)
        if one is None:
            done(None)
        else:
            # Not taken back where it cannot be stored: a marker too many does no harm, one too few does.
            self._known[id_] = one
            self._log.append(one, done)

    def admission(self, id_: str, *, joins: bool) -> Callable[[Partition, Header], None]:
        """What looks at the header of each transactional batch before it is appended, and raises where it may not be.

        With `joins` (KIP-890, part 2) its partition is part of the transaction from then on.
        """
        return partial(self._admit, id_, joins)

    def _admit(self, id_: str, joins: bool, partition: Partition, head: Header) -> None:
        self._admit_to(
            id_, Identity(head.producer_id, head.producer_epoch), partition.stream.name, partition.index, joins
        )

    def _admit_to(self, id_: str, identity: Identity, topic: str, index: int, joins: bool) -> None:
        self._check(id_)
        partition = TopicPartition(topic, index)
        if joins:
            # Its record goes into the log right before the batch: no batch is there without it.
            self._join(id_, identity, [partition], 2, _nothing)
        else:
            machine.verify(self._known.get(id_), id_, identity, partition)

    def commit_offsets(
        self,
        id_: str,
        identity: Identity,
        group_id: str,
        member: CommitMember,
        offsets: Sequence[tuple[OffsetKey, CommittedOffset]],
        done: Callable[[list[DuramenError | None] | DuramenError], None],
        *,
        joins: bool,
    ) -> None:
        """Offsets of a group that count once the transaction is committed; with `joins` its partition joins.

        Answered with one result for each once they are durable.
        """
        results = self._groups.check_metadata(offsets)
        accepted = [offset for offset, error in zip(offsets, results, strict=True) if error is None]

        def stored(error: DuramenError | None) -> None:
            done([error if result is None else result for result in results])

        try:
            self._groups.check_transactional(group_id, member)
            self._admit_to(id_, identity, OFFSETS_STREAM, self._offsets.partition_of(group_id), joins)
        except DuramenError as error:
            done(error)
        else:
            if accepted:
                self._offsets.hold(group_id, identity.producer_id, identity.epoch, accepted, stored)
            else:
                done(results)

    # -- how it ends --------------------------------------------------------------------------------

    def end(self, id_: str, identity: Identity, *, commit: bool, version: int, done: IdentityDone) -> None:
        """Commit or abort; answered with the identity to go on with, once every marker is durable."""
        try:
            self._check(id_)
        except DuramenError as error:
            done(None, error)
            return

        def act(fresh: int) -> None:
            current = self._known.get(id_)
            if current is not None and current.exhausted and fresh == _NO_FRESH:
                raise ConcurrentTransactions(f"{id_} has changed meanwhile")
            prepared = machine.end(
                current, id_, identity, commit=commit, version=version, now_ms=self._clock.wall_ms(), fresh=fresh
            )
            if current is None or prepared is None:
                done(None if current is None else current.identity, None)
            else:
                self._finish(current, prepared, ended)

        def ended(error: DuramenError | None) -> None:
            known = self._known.get(id_)
            done(known.identity if error is None and known is not None else None, error)

        if id_ in self._known:
            self._with_producer_id(id_, act, partial(done, None))
        else:
            try:
                act(_NO_FRESH)
            except DuramenError as error:
                done(None, error)

    def _finish(self, before: Transaction, prepared: Transaction, done: Done, *, missing_only: bool = False) -> None:
        """Write the markers of a prepared transaction, and that it is complete. Raises CoordinatorLoading.

        With `missing_only` only where it is open: a start does not know which of the markers are there.
        """
        complete = machine.complete(prepared, self._clock.wall_ms())
        markers, later = self._markers(prepared, missing_only=missing_only)
        batches = markers if missing_only else [self._log.batch(prepared), *markers]
        if not later:
            batches.append(self._log.batch(complete))
        self._known[prepared.id] = prepared

        def written(error: DuramenError | None) -> None:
            if error is not None:
                self._take(prepared.id, before)
                done(error)
            elif later:
                self._finish_later(prepared, complete, later, done)
            else:
                self._known[complete.id] = complete
                done(None)

        self._write(batches, written, commit=prepared.state is TransactionState.PREPARE_COMMIT)

    def _write(self, batches: Sequence[Batch], done: Done, *, commit: bool) -> None:
        def written(offsets: list[int], error: DuramenError | None) -> None:
            for (log, _, head), offset in zip(batches, offsets, strict=False):
                if offset >= 0 and self._offsets.keeps(log):
                    self._offsets.ended(log, offset, head.producer_id, commit=commit)
            done(error)

        self._store.append_together(batches, self._store.node_epoch, written)

    def _finish_later(self, prepared: Transaction, complete: Transaction, markers: Sequence[Batch], done: Done) -> None:
        """The markers of logs that do not go through the WAL: only now that it is durable how the transaction ends."""
        left = len(markers)

        def appended(_: int, __: DuramenError | None) -> None:
            # A log that takes nothing until the next start has its marker written then.
            nonlocal left
            left -= 1
            if not left:
                self._keep(prepared, complete, done)

        for log, batch, head in markers:
            self._store.append(log, batch, head, self._store.node_epoch, appended)

    def _markers(self, prepared: Transaction, *, missing_only: bool) -> tuple[list[Batch], list[Batch]]:
        """A transaction's markers: those for logs in the WAL, and the others."""
        commit = prepared.state is TransactionState.PREPARE_COMMIT
        identity = Identity(prepared.producer_id, prepared.epoch)
        together: list[Batch] = []
        later: list[Batch] = []
        for log in self._logs(prepared):
            if missing_only and log.transactions.first_offset(prepared.producer_id) is None:
                continue
            marker = self._marker(log, identity, commit=commit)
            (together if log.config.durability == "sync" else later).append(marker)
        return together, later

    def _logs(self, one: Transaction) -> Iterator[Log]:
        for topic, index in sorted(one.partitions):
            stream = self._streams.find(topic)
            if stream is not None and index < len(stream.partitions):
                yield stream.partitions[index].log

    def _marker(self, log: Log, identity: Identity, *, commit: bool) -> Batch:
        batch = encode_marker(
            identity.producer_id, identity.epoch,
            commit=commit, coordinator_epoch=self._store.node_epoch, now_ms=self._clock.wall_ms(),
        )  # fmt: skip
        return log, batch, header(batch)

    # -- time ---------------------------------------------------------------------------------------

    def abort_timed_out(self) -> None:
        """Abort what is open for longer than its producer allows; the producer is fenced."""
        now_ms = self._clock.wall_ms()
        for one in [one for one in self._known.values() if machine.timed_out(one, now_ms)]:
            self._finish(one, machine.fence(one, now_ms), _nothing)

    def expire(self) -> None:
        """Forget transactional ids that nobody has used for long."""
        now_ms = self._clock.wall_ms()
        for one in [one for one in self._known.values() if machine.expired(one, now_ms, self._expiration_ms)]:
            del self._known[one.id]
            self._log.remove(one.id, partial(self._removed, one))

    def _removed(self, one: Transaction, error: DuramenError | None) -> None:
        if error is not None:
            self._known.setdefault(one.id, one)

    # -- asking -------------------------------------------------------------------------------------

    def describe(self, id_: str) -> Transaction:
        """A transactional id as it is. Raises TransactionalIdNotFound."""
        self._check(id_)
        one = self._known.get(id_)
        if one is None:
            raise TransactionalIdNotFound(f"there is no transactional id {id_}")
        return one

    def listing(
        self, states: Collection[TransactionState], producer_ids: Collection[int], longer_than_ms: int
    ) -> list[Listed]:
        """Every transactional id, or those in some states, of some producers, with transactions of some age."""
        now_ms = self._clock.wall_ms()
        return [
            Listed(one.id, one.producer_id, one.state)
            for one in self._known.values()
            if (not states or one.state in states)
            and (not producer_ids or one.producer_id in producer_ids)
            and (longer_than_ms < 0 or now_ms - one.started_ms > longer_than_ms)
        ]


def _nothing(_: DuramenError | None) -> None:
    """Nobody waits for it."""
