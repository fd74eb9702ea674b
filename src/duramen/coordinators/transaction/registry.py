"""The known transactional ids and deciding queries, and the limit of their memory. Pure."""

from collections.abc import Iterator
from typing import Final

from duramen.base.errors import TransactionsFull
from duramen.codec.attempts import PREFIX, home_of, is_reserved
from duramen.transactions.batch_decisions import Query
from duramen.transactions.sequences import CommitSequences
from duramen.transactions.values import AT_REST, TransactionalId, TransactionState

__all__ = ["KnownTransactions"]

_ID_BYTES: Final = 600  # the bytes of an id besides its name, and of a joined partition
_PARTITION_BYTES: Final = 200
_WINNER_BYTES: Final = 200


class KnownTransactions:
    """Transactions by id. Those that were stored before a restart count and are never refused.

    `sequences` are above those of all that were put here.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._by_id: dict[str, TransactionalId] = {}
        self._open: set[str] = set()
        self._queries: dict[str, Query] = {}
        self._attempts: dict[str, set[str]] = {}  # the reserved ids by their queries
        self._held_bytes = 0
        self.sequences = CommitSequences()

    def __contains__(self, id_: str) -> bool:
        return id_ in self._by_id

    def get(self, id_: str) -> TransactionalId | None:
        """The transaction with that id."""
        return self._by_id.get(id_)

    def values(self) -> Iterator[TransactionalId]:
        """Every known transaction."""
        return iter(list(self._by_id.values()))

    def put(self, one: TransactionalId) -> None:
        """Set the transaction of its id to `one`."""
        self._held_bytes += _size(one) - _size(self._by_id.get(one.id))
        self._by_id[one.id] = one
        self.sequences.saw(one.sequence)
        if is_reserved(one.id):
            self._attempts.setdefault(_query_of(one.id), set()).add(one.id)
        if one.state in AT_REST or one.state is TransactionState.DEAD:
            self._open.discard(one.id)
        else:
            self._open.add(one.id)

    def open(self) -> list[TransactionalId]:
        """The ids whose newest transaction has started and is not complete."""
        return [self._by_id[id_] for id_ in self._open]

    def remove(self, id_: str) -> None:
        """Forget an id."""
        self._held_bytes -= _size(self._by_id.pop(id_, None))
        self._open.discard(id_)
        if is_reserved(id_):
            query = _query_of(id_)
            ids = self._attempts.get(query, set())
            ids.discard(id_)
            if not ids:
                self._attempts.pop(query, None)

    def check(self, one: TransactionalId) -> None:
        """Raise TransactionsFull if `one` needs more memory than before and exceeds the limit."""
        self._check(_size(one) - _size(self._by_id.get(one.id)))

    def _check(self, more: int) -> None:
        if more > 0 and self._held_bytes + more > self._limit_bytes:
            raise TransactionsFull(
                f"the transactional ids of this node, with the partitions in their transactions, take"
                f" {self._held_bytes} of the {self._limit_bytes} available bytes: raise memory.limit.bytes"
            )

    # -- queries ------------------------------------------------------------------------------------

    def query(self, id_: str) -> Query | None:
        """The stored query with that id."""
        return self._queries.get(id_)

    def queries(self) -> list[Query]:
        """Every known query."""
        return list(self._queries.values())

    def put_query(self, id_: str, query: Query | None) -> None:
        """Set a query; None forgets it."""
        before = self._queries.pop(id_, None)
        self._held_bytes += _query_size(query) - _query_size(before)
        if query is not None:
            self._queries[id_] = query

    def check_query(self, query: Query) -> None:
        """Raise TransactionsFull if a query needs more memory than before and exceeds the limit."""
        self._check(_query_size(query) - _query_size(self._queries.get(query.id)))

    def attempts(self, query: str) -> list[TransactionalId]:
        """The transactional ids of a query."""
        return [self._by_id[id_] for id_ in sorted(self._attempts.get(query, ()))]

    def writing_queries(self) -> list[str]:
        """The queries that have transactional ids."""
        return list(self._attempts)


def _query_of(id_: str) -> str:
    return home_of(id_).removeprefix(PREFIX)


def _query_size(query: Query | None) -> int:
    if query is None:
        return 0
    return _ID_BYTES + len(query.id) + sum(map(len, query.runs)) + _WINNER_BYTES * len(query.winners)


def _size(one: TransactionalId | None) -> int:
    return 0 if one is None else _ID_BYTES + len(one.id) + _PARTITION_BYTES * len(one.partitions)
