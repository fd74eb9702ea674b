"""Transactions as they are kept: records in `__transaction_state`, read back when the node starts."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from duramen.base.errors import BatchCorrupt, CoordinatorLoading, DuramenError
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.attempts import PREFIX, home_of
from duramen.codec.batch import BatchInput, DecodedRecord, Header, check, encode, records
from duramen.groups.records import partition_for
from duramen.metadata.partitions import PartitionId
from duramen.storage.log.log import Log
from duramen.storage.scan import scan_log
from duramen.storage.store import Store
from duramen.transactions.batch_decisions import Query
from duramen.transactions.query_records import decode_query, decode_query_key, encode_query, encode_query_key
from duramen.transactions.records import decode_key, decode_value, encode_key, encode_value
from duramen.transactions.sequences import CommitSequences
from duramen.transactions.values import PREPARED, TransactionalId

__all__ = ["TRANSACTIONS_STREAM", "Takes", "TransactionLog", "transaction_partition"]

TRANSACTIONS_STREAM: Final = "__transaction_state"

Done = Callable[[DuramenError | None], None]


class Takes(Protocol):
    """Who is handed what is stored; None: it is forgotten."""

    def take(self, id_: str, one: TransactionalId | None) -> None:
        """A transactional id."""

    def take_query(self, id_: str, query: Query | None) -> None:
        """A query."""


def transaction_partition(id_: str, partitions: int) -> int:
    """Of so many partitions the one that keeps an id: all those of a query in one."""
    return partition_for(home_of(id_), partitions)


class TransactionLog:
    """Stores transactions, and queries. Those of an id lie in the partition that its name hashes to."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._stream: Stream | None = None

    def use(self, stream: Stream) -> None:
        """The stream `__transaction_state`."""
        self._stream = stream

    @property
    def ready(self) -> bool:
        """Whether there is somewhere to store."""
        return self._stream is not None

    @property
    def partitions(self) -> Sequence[Partition]:
        """Those of the stream; none where it is not there."""
        return () if self._stream is None else self._stream.partitions

    def place_of(self, id_: str) -> PartitionId:
        """The partition that keeps an id. Raises CoordinatorLoading."""
        stream = self._there()
        return PartitionId(stream.id, transaction_partition(id_, len(stream.partitions)))

    def partition_of(self, id_: str) -> int:
        """The number of the partition that keeps an id. Raises CoordinatorLoading."""
        return self.place_of(id_).partition

    def place(self, index: int) -> PartitionId:
        """The partition of that number. Raises CoordinatorLoading."""
        return PartitionId(self._there().id, index)

    def sequenced(self, one: TransactionalId, sequences: CommitSequences) -> TransactionalId:
        """`one`, with the next commit sequence where its end is decided by that. Raises CoordinatorLoading."""
        if one.state not in PREPARED:
            return one
        return one._replace(sequence=sequences.following(self._clock.wall_ms(), self.partition_of(one.id)))

    def load(
        self,
        partitions: Sequence[Partition],
        taker: Takes,
        report: Callable[[str], None],
        done: Callable[[DuramenError | OSError | None], None],
    ) -> None:
        """Hand `taker` each record below the high watermark, in their order.

        What is damaged is reported.
        """
        left = list(partitions)

        def lost(first: int, last: int, error: DuramenError) -> None:
            report(f"records {first} to {last} of {TRANSACTIONS_STREAM} cannot be read: {error}")

        def batch(_: Header, whole: bytes) -> None:
            for record in records(whole, verify=False):
                try:
                    _take(record, taker)
                except BatchCorrupt as error:
                    lost(record.offset, record.offset, error)

        def following(error: DuramenError | OSError | None) -> None:
            if error is not None or not left:
                done(error)
            else:
                scan_log(self._store, left.pop().log, 0, batch, following, lost)

        following(None)

    def batch(self, one: TransactionalId) -> tuple[Log, bytearray, Header]:
        """What `Store.append_together` has to be handed for the transaction to be stored. Raises CoordinatorLoading."""
        partition, batch, head = self._batch(one.id, encode_key(one.id), encode_value(one))
        return partition.log, batch, head

    def _there(self) -> Stream:
        if self._stream is None:
            raise CoordinatorLoading(f"the stream {TRANSACTIONS_STREAM} is not there yet")
        return self._stream

    def _batch(self, id_: str, key: bytes, value: bytes | None) -> tuple[Partition, bytearray, Header]:
        stream = self._there()
        partition = stream.partitions[transaction_partition(id_, len(stream.partitions))]
        batch = encode([BatchInput(self._clock.wall_ms(), key, value)])
        return partition, batch, check(batch)

    def append(self, one: TransactionalId, done: Done) -> None:
        """Store a transaction; `done` once all replicas in sync have it. Raises CoordinatorLoading."""
        self._append(one.id, encode_key(one.id), encode_value(one), done)

    def remove(self, id_: str, done: Done) -> None:
        """Forget a transactional id. Raises CoordinatorLoading."""
        self._append(id_, encode_key(id_), None, done)

    def append_query(self, id_: str, query: Query | None, done: Done) -> None:
        """Store a query, or that it is forgotten; as `append`. Raises CoordinatorLoading."""
        value = None if query is None else encode_query(query)
        self._append(PREFIX + id_, encode_query_key(id_), value, done)

    def _append(self, id_: str, key: bytes, value: bytes | None, done: Done) -> None:
        partition, batch, head = self._batch(id_, key, value)
        partition.store(batch, head, lambda _, error: done(error))


def _take(record: DecodedRecord, taker: Takes) -> None:
    if record.key is None:
        return
    if (id_ := decode_key(record.key)) is not None:
        taker.take(id_, None if record.value is None else decode_value(id_, record.value))
    elif (query := decode_query_key(record.key)) is not None:
        taker.take_query(query, None if record.value is None else decode_query(query, record.value))
