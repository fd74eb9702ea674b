"""The state of a transactional id at the coordinator. Values only."""

from enum import IntEnum
from typing import Final, NamedTuple

__all__ = [
    "AT_REST",
    "LARGEST_EPOCH",
    "NO_EPOCH",
    "NO_PRODUCER",
    "NO_SEQUENCE",
    "PREPARED",
    "SERVER_VERSION",
    "PartitionName",
    "ProducerIdentity",
    "TransactionState",
    "TransactionalId",
]

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
LARGEST_EPOCH: Final = (1 << 15) - 1

SERVER_VERSION: Final = 2
"""The version of transactions that the broker itself ends them by: the epoch is bumped (KIP-890)."""


class TransactionState(IntEnum):
    """States by the numbers that records have for them; `label` is Kafka's name."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that clients know."""
        return "".join(part.capitalize() for part in self.name.split("_"))


AT_REST: Final = frozenset((TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
PREPARED: Final = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


class PartitionName(NamedTuple):
    """A partition by the names that requests and records have for it."""

    topic: str
    partition: int


class TransactionalId(NamedTuple):
    """A transactional id, its producer, and its newest transaction.

    `last_epoch` is the epoch before the newest bump that a producer asked for itself (KIP-360), or -1;
    `previous_producer_id` whose epochs ran out, `next_producer_id` the one that takes over when the transaction is
    complete. `version` is that of the client (KIP-890): 0 keeps the epoch over the end of a transaction, 2 bumps it.
    Times in ms since 1970; `started_ms` is -1 before the first partition. `sequence` is the commit sequence of the
    newest transaction whose end was decided.
    """

    id: str
    producer_id: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[PartitionName] = frozenset()
    started_ms: int = -1
    updated_ms: int = -1
    version: int = 0
    sequence: int = NO_SEQUENCE

    @property
    def identity(self) -> ProducerIdentity:
        """The producer that may write now."""
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def exhausted(self) -> bool:
        """Whether no client may have another epoch: the largest is left for fencing."""
        return self.epoch >= LARGEST_EPOCH - 1
