"""Transactional producers of a cluster, over several partitions and with offsets of a group."""

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from duramen.base.errors import DuramenError, ProducerFenced, TransactionAbortable, TransactionStateInvalid
from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode, header
from duramen.coordinators.group.coordinator import CommitMember
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.checkers.transaction import SimulatedTransaction
from duramen.sim.cluster.checkers.history import SentBatch
from duramen.sim.cluster.checkers.offsets import Bookmark
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.cluster.clients.coordinators import CoordinatedClient
from duramen.sim.machine.trace import BrokenPromise
from duramen.transactions.values import ProducerIdentity

__all__ = ["NOBODY", "READ_TOPIC", "Transactor"]

NOBODY: Final = CommitMember("", None, -1)
"""A committer of offsets that is not a member of the group."""

READ_TOPIC: Final = OFFSETS_STREAM
"""The topic of the committed offsets: one that is never deleted, because its offsets would be deleted too."""

_OVER: Final = (ProducerFenced, TransactionAbortable, TransactionStateInvalid)  # it may have taken too long
_TIMEOUTS_MS: Final = (3_000, 60_000)
_VERSION: Final = 2  # of transactions (KIP-890)


class Transactor(CoordinatedClient):
    """One transactional id. After a fatal error it begins again: its open transaction is aborted then."""

    def __init__(self, calls: ClientCalls, seed: str, think_us: int, numbers: "count[int]", id_: str) -> None:
        super().__init__(calls, seed, think_us)
        self._numbers = numbers
        self._id = id_
        self._key = OffsetKey(f"group of {id_}", READ_TOPIC, 0)
        self._timeout_ms = self.chance.choice(_TIMEOUTS_MS)
        self._identity: ProducerIdentity | None = None
        self._left: list[SimulatedTransaction] = []  # of which it does not know how they ended
        self._begin()

    def _begin(self) -> None:
        self._transaction: SimulatedTransaction | None = None
        self._places: list[PartitionId] = []
        self._sequences: dict[PartitionId, int] = {}
        self._waiting: tuple[PartitionId, SentBatch] | None = None  # batches to send, repeatedly if necessary
        self._offset: int | None = None  # the same of an offset
        self._offsets: list[int] = []
        self._written = False  # whether anything of it is anywhere
        self._commits: bool | None = None  # how it is to end, once that is asked for

    @property
    def finished(self) -> bool:
        """Whether nothing of it is open; of lost partitions, its transactions may stay open for ever."""
        return bool(self.calls.witness.council.lost) or (self._transaction is None and not self._left)

    def there(self) -> Sequence[PartitionId]:
        """The partitions that it may write to."""
        return self.calls.places()

    def key(self) -> bytes | None:
        """That of the next record."""
        return None

    def sends(self, place: PartitionId, batch: SentBatch) -> None:
        """A batch is sent, perhaps once more."""
        self.calls.book.page(place).sent(batch)

    def acknowledged(self, transaction: SimulatedTransaction) -> None:
        """Its transaction is committed, by the response."""

    def _again(self) -> None:
        if not self.calls.open and self._transaction is not None and self._commits is None:
            self._waiting = self._offset = None
            self._ask_for_end(commit=False)
        if self.calls.open or not self.finished:
            self.step()

    def step(self) -> None:
        if self._identity is None:
            self.of_transactional_id(self._id, self._initialise)
        elif self._transaction is None:
            self._open()
        elif self._commits is not None:
            self.of_transactional_id(self._id, self._end)
        elif self._waiting is not None:
            self._send(*self._waiting)
        elif self._offset is not None:
            self.of_group(self._key.group, self._commit_offset)
        else:
            self._go_on()

    def _go_on(self) -> None:
        what = self.chance.random()
        places = [place for place in self._places if place in self.there()]
        if what < 0.6 and places:
            place = self.chance.choice(places)
            self._waiting = place, self._new(place)
        elif what < 0.7:
            self._offset = self._bookmark.sent(self._transaction)
            self._offsets.append(self._offset)
        else:
            self._ask_for_end(commit=self.chance.random() < 0.7)
        self.step()

    @property
    def _bookmark(self) -> Bookmark:
        return self.calls.bookmarks.of(self._key)

    def _failed(self, place: PartitionId, what: str, value: Any) -> bool:
        """Whether a step failed: it is done again, or the transaction is over."""
        if not isinstance(value, DuramenError):
            return False
        self.calls.trace("%s: %s: %s: %s", self._id, what, type(value).__name__, value)
        if not self.refused(place, value):
            if not isinstance(value, _OVER):
                raise BrokenPromise(f"{self._id}: {what} is refused with {type(value).__name__}: {value}")
            if self._transaction is not None:
                self._left.append(self._transaction)
            self._identity = None
            self._begin()
        self.next(50_000)
        return True

    # -- beginning ----------------------------------------------------------------------------------

    def _initialise(self, place: PartitionId, node_id: int) -> None:
        def ask(broker: Broker, reply: Reply) -> None:
            def done(identity: ProducerIdentity | None, error: DuramenError | None) -> None:
                reply(identity if error is None else error)

            broker.transactions.initialise(self._id, self._timeout_ms, None, done)

        def answered(value: Any) -> None:
            if self._failed(place, "beginning", value):
                return
            for transaction in self._left:
                if transaction.fate == "open":
                    transaction.fate = "aborted"
            self._left.clear()
            self._identity = value
            self.calls.trace("%s is %s", self._id, value)
            self.next()

        self.calls.ask(node_id, ask, answered)

    def _open(self) -> None:
        places = self.there()
        if not places:
            self.next(100_000)
            return
        self._places = self.chance.sample(places, min(len(places), self.chance.choice((1, 2, 3))))
        self._transaction = SimulatedTransaction(next(self._numbers))
        self.calls.trace("%s: transaction %d over %s", self._id, self._transaction.number, self._places)
        self.next()

    # -- writing ------------------------------------------------------------------------------------

    def _new(self, place: PartitionId) -> SentBatch:
        identity = self._identity or ProducerIdentity(-1, -1)
        number, sequence = next(self._numbers), self._sequences.get(place, 0)
        self._sequences[place] = sequence + 1
        value = b"%d/" % number + bytes(self.chance.choice((0, 20, 200)))
        data = encode(
            [BatchInput(self.calls.true.wall_ms(), self.key(), value)], attributes=TRANSACTIONAL,
            base_sequence=sequence, producer_id=identity.producer_id, producer_epoch=identity.epoch,
        )  # fmt: skip
        return SentBatch(
            number, bytes(data), header(data).crc, 1, acks_all=True, producer_id=identity.producer_id,
            sequence=sequence, producer_epoch=identity.epoch, transaction=self._transaction,
        )  # fmt: skip

    def _send(self, place: PartitionId, batch: SentBatch) -> None:
        self.leader(place, lambda node_id, _: self._send_to(node_id, place, batch))

    def _send_to(self, node_id: int, place: PartitionId, batch: SentBatch) -> None:
        self._written = True
        self.sends(place, batch)

        def append(broker: Broker, reply: Reply) -> None:
            partition = partition_at(broker, place)

            def done(base_offset: int, error: DuramenError | None) -> None:
                if error is None:
                    self.calls.witness.ledger(place).released(batch.crc, base_offset)
                reply(base_offset if error is None else self.judged(node_id, place, partition, error))

            admit = broker.transactions.admission(self._id, joins=True)
            partition.append(bytearray(batch.data), done, admit, all_replicas=True)

        def answered(value: Any) -> None:
            if not self._failed(place, f"batch {batch.number} for {place}", value):
                self.calls.trace("%s: batch %d is at %d of %s", self._id, batch.number, value, place)
                self.calls.book.page(place).acknowledged_at(batch, value)
                self._waiting = None
                self.next()

        self.calls.ask(node_id, append, answered)

    def lost(self, place: PartitionId) -> None:
        if place not in self.there() and self._waiting is not None and self._waiting[0] == place:
            self._waiting = None

    def _commit_offset(self, place: PartitionId, node_id: int) -> None:
        offset, identity = self._offset, self._identity
        if offset is None or identity is None:
            return
        self._written = True
        committed = [(self._key, CommittedOffset(offset, -1, "", self.calls.true.wall_ms()))]

        def ask(broker: Broker, reply: Reply) -> None:
            def done(results: list[DuramenError | None] | DuramenError) -> None:
                reply(results if isinstance(results, DuramenError) else results[0])

            group_id = self._key.group
            broker.transactions.commit_offsets(self._id, identity, group_id, NOBODY, committed, done, joins=True)

        def answered(value: Any) -> None:
            if not self._failed(place, f"offset {offset}", value):
                self._offset = None
                self.next()

        self.calls.ask(node_id, ask, answered)

    # -- ending -------------------------------------------------------------------------------------

    def _ask_for_end(self, *, commit: bool) -> None:
        if not self._written:
            self._begin()  # there is nothing to end
            return
        self._commits = commit
        if self._transaction is not None and commit and self._transaction.fate == "open":
            self._transaction.fate = "ending"  # else it has taken too long, and readers know already

    def _end(self, place: PartitionId, node_id: int) -> None:
        commit, identity = self._commits, self._identity
        if commit is None or identity is None:
            return

        def ask(broker: Broker, reply: Reply) -> None:
            def done(fresh: ProducerIdentity | None, error: DuramenError | None) -> None:
                reply(fresh if error is None else error)

            broker.transactions.end(self._id, identity, commit=commit, version=_VERSION, done=done)

        def answered(value: Any) -> None:
            if not self._failed(place, "ending", value):
                self._ended(value, commit=commit)
                self.next()

        self.calls.ask(node_id, ask, answered)

    def _ended(self, identity: ProducerIdentity | None, *, commit: bool) -> None:
        transaction = self._transaction
        if transaction is None:
            return
        self.calls.trace("%s: transaction %d is %s", self._id, transaction.number, "committed" if commit else "aborted")
        if transaction.fate == ("aborted" if commit else "committed"):
            raise BrokenPromise(f"{self._id}: transaction {transaction.number} was {transaction.fate}, and is not")
        transaction.fate = "committed" if commit else "aborted"
        if commit:
            self.acknowledged(transaction)
        for offset in self._offsets if commit else ():
            self._bookmark.acknowledged(offset)
        self.calls.ended[transaction.fate] += 1
        self._identity = identity
        self._begin()
