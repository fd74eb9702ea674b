"""The transactional ids that are known, by their names, and the bound to what they take in memory. Pure."""

from collections.abc import Iterator
from typing import Final

from duramen.base.errors import TransactionsFull
from duramen.transactions.sequences import CommitSequences
from duramen.transactions.values import AT_REST, Transaction, TransactionState

__all__ = ["KnownTransactions"]

_ID_BYTES: Final = 600  # what an id takes beside its name, and a partition that has joined
_PARTITION_BYTES: Final = 200


class KnownTransactions:
    """Transactions by id. Those that were stored before a restart are counted and never refused.

    `sequences` are above those of all that have been put here.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._by_id: dict[str, Transaction] = {}
        self._open: set[str] = set()
        self._held_bytes = 0
        self.sequences = CommitSequences()

    def __contains__(self, id_: str) -> bool:
        return id_ in self._by_id

    def get(self, id_: str) -> Transaction | None:
        """The transaction of that id."""
        return self._by_id.get(id_)

    def values(self) -> Iterator[Transaction]:
        """Every one there is now."""
        return iter(list(self._by_id.values()))

    def put(self, one: Transaction) -> None:
        """The transaction of its id is `one` from here on."""
        self._held_bytes += _size(one) - _size(self._by_id.get(one.id))
        self._by_id[one.id] = one
        self.sequences.saw(one.sequence)
        if one.state in AT_REST or one.state is TransactionState.DEAD:
            self._open.discard(one.id)
        else:
            self._open.add(one.id)

    def open(self) -> list[Transaction]:
        """Those whose newest transaction is begun and not complete."""
        return [self._by_id[id_] for id_ in self._open]

    def remove(self, id_: str) -> None:
        """The id is forgotten."""
        self._held_bytes -= _size(self._by_id.pop(id_, None))
        self._open.discard(id_)

    def check(self, one: Transaction) -> None:
        """Raise TransactionsFull where `one` takes more than before, and that is too much."""
        more = _size(one) - _size(self._by_id.get(one.id))
        if more > 0 and self._held_bytes + more > self._limit_bytes:
            raise TransactionsFull(
                f"the transactional ids of this node, with the partitions in their transactions, take"
                f" {self._held_bytes} of the {self._limit_bytes} bytes there are: give memory.limit.bytes more"
            )


def _size(one: Transaction | None) -> int:
    return 0 if one is None else _ID_BYTES + len(one.id) + _PARTITION_BYTES * len(one.partitions)
