"""The coordinator of transactions: decides with their state machine, stores what it says, and answers."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import (
    ConcurrentTransactions,
    DuramenError,
    NodeStopping,
    OutOfOrderSequence,
    RequestInvalid,
    TransactionalIdNotFound,
    TransactionTimeoutInvalid,
)
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.base.settings import Settings
from duramen.broker.coordinator import CommitMember, Coordinator
from duramen.broker.ending import Endings, Places
from duramen.broker.known import KnownTransactions
from duramen.broker.offsets import OFFSETS_STREAM
from duramen.broker.partition import Partition
from duramen.broker.producer_ids import ProducerIdDone
from duramen.codec.batch import Header
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.transactions import machine
from duramen.transactions.values import Identity, TopicPartition, Transaction, TransactionState

__all__ = ["Listed", "Transactions"]

Done = Callable[[DuramenError | None], None]
IdentityDone = Callable[[Identity | None, DuramenError | None], None]
"""Called with the producer's id and epoch, or with the error."""

_NO_FRESH: Final = -1
_MEMORY_SHARE: Final = 16  # transactional ids may take a sixteenth of memory.limit.bytes


class Listed(NamedTuple):
    """A line of the list of transactions."""

    id: str
    producer_id: int
    state: TransactionState


class Transactions:
    """Every transactional id of this node."""

    def __init__(
        self,
        places: Places,
        groups: Coordinator,
        clock: Clock,
        settings: Settings,
        new_producer_id: Callable[[ProducerIdDone], None],
        metrics: Metrics,
        report: Callable[[str], None],
    ) -> None:
        """`report` is told what an operator should hear of."""
        self._begun = metrics.counter("duramen_transactions_total", "begun")
        self._log = places.log
        self._offsets = places.offsets
        self._groups = groups
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._report = report
        self._max_timeout_ms = settings.integer("transaction.max.timeout.ms")
        self._expiration_ms = settings.integer("transactional.id.expiration.ms")
        self._known = KnownTransactions(settings.integer("memory.limit.bytes") // _MEMORY_SHARE)
        self._endings = Endings(self._known, places, clock, metrics, report)
        self._stopping = False

    # -- starting and stopping ----------------------------------------------------------------------

    def restore(self, done: Callable[[DuramenError | OSError | None], None]) -> None:
        """Take in what is stored, and end what a crash has left in the middle; then `done`."""

        def loaded(error: DuramenError | OSError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._endings.end_left(done)

        self._log.load(self._take, self._report, loaded)

    def _take(self, id_: str, one: Transaction | None) -> None:
        if one is None:
            self._known.remove(id_)
        else:
            self._known.put(one)

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

        self._known.put(one)
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
        self._known.check(one)
        if current is not None and one.state is TransactionState.PREPARE_ABORT:
            # The producer asks again, and finds it at rest.
            again = ConcurrentTransactions(f"the transaction that {id_} had open is aborted first")
            self._endings.finish(current, one, lambda error: done(None, again if error is None else error))
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
            self._known.check(one)
            if current is None or current.state is not one.state:
                self._begun.value += 1
            self._known.put(one)
            self._log.append(one, done)

    def admission(self, id_: str, *, joins: bool) -> Callable[[Partition, Header], None]:
        """What looks at the header of each transactional batch before it is appended, and raises where it may not be.

        With `joins` (KIP-890, part 2) its partition is part of the transaction from then on.
        """
        return partial(self._admit, id_, joins)

    def _admit(self, id_: str, joins: bool, partition: Partition, head: Header) -> None:
        topic, index = partition.stream.name, partition.index
        begins = joins and not machine.is_written_to(self._known.get(id_), TopicPartition(topic, index))
        self._admit_to(id_, Identity(head.producer_id, head.producer_epoch), topic, index, joins)
        # What the producer wrote there before may be forgotten: then nothing vouches for what lies in between.
        if begins and head.base_sequence > 0 and not partition.log.producers.has_written(head.producer_id):
            raise OutOfOrderSequence(
                f"producer {head.producer_id} begins in partition {index} of {topic} with sequence"
                f" {head.base_sequence}, not 0"
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
            # As in Apache Kafka: the transaction is looked at first, also where the group refuses the offsets.
            self._admit_to(id_, identity, OFFSETS_STREAM, self._offsets.partition_of(group_id), joins)
            self._groups.check_transactional(group_id, member)
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
                self._endings.finish(current, prepared, ended)

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

    # -- time ---------------------------------------------------------------------------------------

    def abort_timed_out(self) -> None:
        """Abort what is open for longer than its producer allows; the producer is fenced."""
        now_ms = self._clock.wall_ms()
        for one in [one for one in self._known.values() if machine.timed_out(one, now_ms)]:
            self._endings.finish(one, machine.fence(one, now_ms), _nothing)

    def expire(self) -> None:
        """Forget transactional ids that nobody has used for long."""
        now_ms = self._clock.wall_ms()
        for one in [one for one in self._known.values() if machine.expired(one, now_ms, self._expiration_ms)]:
            self._known.remove(one.id)
            self._log.remove(one.id, partial(self._removed, one))

    def _removed(self, one: Transaction, error: DuramenError | None) -> None:
        if error is not None and one.id not in self._known:
            self._known.put(one)

    # -- asking -------------------------------------------------------------------------------------

    def describe(self, id_: str) -> Transaction:
        """A transactional id as it is. Raises TransactionalIdNotFound."""
        self._check(id_)
        one = self._known.get(id_)
        if one is None:
            raise TransactionalIdNotFound(f"there is no transactional id {id_}")
        return one

    def open_since_ms(self) -> list[int]:
        """When each of those that are open was begun, in ms since 1970."""
        return [one.started_ms for one in self._known.open()]

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
