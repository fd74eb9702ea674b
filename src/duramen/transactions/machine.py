"""State transitions of a transaction, as Kafka's coordinator decides them (KIP-98, KIP-360, KIP-890). Pure.

Every function takes the transaction's state and returns the new state, or None if nothing changes. The caller supplies
new producer ids: `wants_producer_id` tells when one is needed.
"""

from collections.abc import Collection
from typing import Final

from duramen.base.errors import (
    ConcurrentTransactions,
    ProducerFenced,
    ProducerIdUnknown,
    TransactionAbortable,
    TransactionStateInvalid,
)
from duramen.transactions.values import (
    AT_REST,
    LARGEST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    PREPARED,
    SERVER_VERSION,
    PartitionName,
    ProducerIdentity,
    TransactionalId,
    TransactionState,
)

__all__ = [
    "add_partitions",
    "complete",
    "completed",
    "end",
    "expired",
    "fence",
    "initialise",
    "is_written_to",
    "timed_out",
    "verify",
    "wants_producer_id",
]

_ONGOING: Final = TransactionState.ONGOING
_COMPLETE: Final = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
_PREPARE: Final = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}


def wants_producer_id(current: TransactionalId | None) -> bool:
    """Whether `initialise` or `end` may need a fresh producer id."""
    return current is None or current.exhausted


# -- producers ----------------------------------------------------------------------------------------


def initialise(
    current: TransactionalId | None,
    id_: str,
    timeout_ms: int,
    expected: ProducerIdentity | None,
    now_ms: int,
    fresh: int,
) -> TransactionalId:
    """A producer requests its id and epoch; `expected` is its previous one, if it continues after an error (KIP-360).

    The response has the result's identity. If a transaction is open the result is that one, to be aborted first, and
    the producer has to retry. Raises ProducerFenced, ConcurrentTransactions.
    """
    if current is None:
        return TransactionalId(id_, fresh, 0, timeout_ms=timeout_ms, updated_ms=now_ms)
    if expected is not None and not (_may_go_on(current, expected) and _known_epoch(current, expected)):
        raise _fenced(current, expected)
    if current.state in PREPARED:
        raise _concurrent(current)
    if current.state is _ONGOING:
        return fence(current, now_ms)
    renewed = current._replace(
        previous_producer_id=current.producer_id,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        started_ms=-1,
        updated_ms=now_ms,
    )
    if current.exhausted:
        last_epoch = NO_EPOCH if expected is None else current.epoch
        return renewed._replace(producer_id=fresh, epoch=0, last_epoch=last_epoch)
    if expected is None:
        return renewed._replace(epoch=current.epoch + 1, last_epoch=NO_EPOCH)
    if expected.epoch == current.epoch:
        return renewed._replace(epoch=current.epoch + 1, last_epoch=current.epoch)
    return renewed  # the same again: its answer was lost


def _may_go_on(current: TransactionalId, expected: ProducerIdentity) -> bool:
    if expected.producer_id == current.producer_id:
        return True
    return expected.producer_id == current.previous_producer_id and expected.epoch >= LARGEST_EPOCH - 1


def _known_epoch(current: TransactionalId, expected: ProducerIdentity) -> bool:
    return expected.epoch in (current.epoch, current.last_epoch)


def fence(current: TransactionalId, now_ms: int) -> TransactionalId:
    """The broker aborts an ongoing transaction: the epoch is bumped, so that its producer writes nothing any more."""
    return current._replace(
        epoch=min(current.epoch + 1, LARGEST_EPOCH),
        last_epoch=current.epoch,
        previous_producer_id=current.producer_id,
        state=TransactionState.PREPARE_ABORT,
        updated_ms=now_ms,
        version=SERVER_VERSION,
    )


# -- transactions -------------------------------------------------------------------------------------


def _check_identity(current: TransactionalId | None, id_: str, identity: ProducerIdentity) -> TransactionalId:
    if current is None:
        raise ProducerIdUnknown(f"there is no transactional id {id_}")
    if current.producer_id != identity.producer_id:
        raise ProducerIdUnknown(f"the producer id of {current.id} is {current.producer_id}, not {identity.producer_id}")
    if current.epoch != identity.epoch:
        raise _fenced(current, identity)
    if current.state in PREPARED:
        raise _concurrent(current)
    return current


def add_partitions(
    current: TransactionalId | None,
    id_: str,
    identity: ProducerIdentity,
    added: Collection[PartitionName],
    now_ms: int,
    version: int,
) -> TransactionalId | None:
    """Partitions join the transaction, which begins with the first; None where all of them are in it.

    `version` 2 where they join by being written to. Raises ProducerIdUnknown, ProducerFenced, ConcurrentTransactions.
    """
    found = _check_identity(current, id_, identity)
    if found.state is _ONGOING and found.partitions.issuperset(added):
        return None
    before = found.partitions if found.state is _ONGOING else frozenset()
    return found._replace(
        previous_producer_id=found.producer_id,
        state=_ONGOING,
        partitions=before.union(added),
        started_ms=found.started_ms if found.state is _ONGOING else now_ms,
        updated_ms=now_ms,
        version=version,
    )


def verify(current: TransactionalId | None, id_: str, identity: ProducerIdentity, partition: PartitionName) -> None:
    """Raise unless the partition is in the producer's ongoing transaction (KIP-890, part 1).

    ProducerIdUnknown, ProducerFenced, ConcurrentTransactions, or TransactionAbortable where it is not in it.
    """
    found = _check_identity(current, id_, identity)
    if not is_written_to(found, partition):
        raise TransactionAbortable(
            f"partition {partition.partition} of {partition.topic} is not in an ongoing transaction of {id_}"
        )


def is_written_to(current: TransactionalId | None, partition: PartitionName) -> bool:
    """Whether a transaction is ongoing that the partition is in."""
    return current is not None and current.state is _ONGOING and partition in current.partitions


# -- the end ------------------------------------------------------------------------------------------


def end(
    current: TransactionalId | None,
    id_: str,
    identity: ProducerIdentity,
    *,
    commit: bool,
    version: int,
    now_ms: int,
    fresh: int,
) -> TransactionalId | None:
    """A client ends its transaction: returns the prepared one, or None for a repeated request.

    Raises ProducerIdUnknown, ProducerFenced, ConcurrentTransactions, TransactionStateInvalid.
    """
    if version < SERVER_VERSION:
        return _end_keeping_epoch(current, id_, identity, commit=commit, now_ms=now_ms)
    if current is None:
        raise ProducerIdUnknown(f"there is no transactional id {id_}")
    overflowed = (
        current.previous_producer_id == identity.producer_id
        and identity.epoch == LARGEST_EPOCH - 1
        and current.epoch == 0
    )
    if current.producer_id != identity.producer_id and not overflowed:
        raise ProducerIdUnknown(f"the producer id of {id_} is {current.producer_id}, not {identity.producer_id}")
    again = overflowed or identity.epoch + 1 == current.epoch
    if not _end_may_come(current, identity, again=again):
        raise _fenced(current, identity)
    if current.state in PREPARED:
        if current.state is _PREPARE[commit]:
            raise _concurrent(current)
        raise _wrong_end(current, commit=commit)
    if current.state is _ONGOING:
        return _prepare(current, _PREPARE[commit], SERVER_VERSION, now_ms, fresh)
    if again and current.state is _COMPLETE[commit]:
        return None
    if again or commit:
        raise _wrong_end(current, commit=commit)
    # An abort of nothing: a client that does not know whether its first batch has arrived asks for it.
    return _prepare(current, TransactionState.PREPARE_ABORT, SERVER_VERSION, now_ms, fresh)


def _end_may_come(current: TransactionalId, identity: ProducerIdentity, *, again: bool) -> bool:
    if current.state in PREPARED:
        return again
    if current.state is _ONGOING or current.state is TransactionState.EMPTY:
        return identity.epoch == current.epoch and identity.producer_id == current.producer_id
    return again or identity == current.identity


def _end_keeping_epoch(
    current: TransactionalId | None, id_: str, identity: ProducerIdentity, *, commit: bool, now_ms: int
) -> TransactionalId | None:
    if current is None or current.producer_id != identity.producer_id:
        raise ProducerIdUnknown(f"{identity.producer_id} is not the producer id of {id_}")
    if current.epoch != identity.epoch:
        raise _fenced(current, identity)
    if current.state is _ONGOING:
        return _prepare(current, _PREPARE[commit], 0, now_ms, NO_PRODUCER)
    if current.state is _COMPLETE[commit]:
        return None
    if current.state is _PREPARE[commit]:
        raise _concurrent(current)
    raise _wrong_end(current, commit=commit)


def _prepare(
    current: TransactionalId, state: TransactionState, version: int, now_ms: int, fresh: int
) -> TransactionalId:
    prepared = current._replace(
        previous_producer_id=current.producer_id,
        state=state,
        started_ms=current.started_ms if current.state is _ONGOING else now_ms,
        updated_ms=now_ms,
        version=version,
    )
    if current.state is not _ONGOING:
        prepared = prepared._replace(partitions=frozenset())
    if version < SERVER_VERSION:
        return prepared
    return prepared._replace(
        epoch=min(current.epoch + 1, LARGEST_EPOCH),
        last_epoch=current.epoch,
        next_producer_id=fresh if current.exhausted else NO_PRODUCER,
    )


def complete(prepared: TransactionalId, now_ms: int) -> TransactionalId:
    """The transaction after its markers; an exhausted producer id has made room for the next."""
    state = _COMPLETE[prepared.state is TransactionState.PREPARE_COMMIT]
    done = prepared._replace(
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER,
        state=state,
        partitions=frozenset(),
        updated_ms=now_ms,
    )
    if prepared.next_producer_id == NO_PRODUCER:
        return done
    return done._replace(producer_id=prepared.next_producer_id, epoch=0)


def completed(prepared: TransactionalId, now_ms: int, current: TransactionalId | None) -> TransactionalId | None:
    """Like `complete`; None if that is stored already."""
    if current is None or (current.identity, current.state) != (prepared.identity, prepared.state):
        return None
    return complete(current, now_ms)


# -- time ---------------------------------------------------------------------------------------------


def timed_out(current: TransactionalId, now_ms: int) -> bool:
    """Whether the transaction is open for longer than its producer allows."""
    return current.state is _ONGOING and current.started_ms + current.timeout_ms < now_ms


def expired(current: TransactionalId, now_ms: int, expiration_ms: int) -> bool:
    """Whether the transactional id was not used for so long that it is forgotten."""
    return current.state in AT_REST and current.updated_ms <= now_ms - expiration_ms


def _fenced(current: TransactionalId, identity: ProducerIdentity) -> ProducerFenced:
    return ProducerFenced(
        f"{current.id} has producer {current.producer_id} in epoch {current.epoch},"
        f" not {identity.producer_id} in {identity.epoch}"
    )


def _concurrent(current: TransactionalId) -> ConcurrentTransactions:
    return ConcurrentTransactions(f"the transaction of {current.id} before this one is not complete yet")


def _wrong_end(current: TransactionalId, *, commit: bool) -> TransactionStateInvalid:
    outcome = "committed" if commit else "aborted"
    return TransactionStateInvalid(f"the transaction of {current.id} is {current.state.label} and cannot be {outcome}")
