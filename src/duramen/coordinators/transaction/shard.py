"""The state machine of one partition of `__transaction_state`: transactional ids, and deciding queries.

A command decides on the known state of its id, and produces the record of the new state. If other nodes may lead the
partition, a permanent refusal must not rest on a change that only a deposed leader made. So the state that the refusal
rests on is stored once more first; in-sync replicas accept it only from their leader.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from duramen.base.errors import (
    AttemptLost,
    BatchCorrupt,
    BatchDiffers,
    DuramenError,
    ProducerFenced,
    ProducerIdUnknown,
    QueryFenced,
    TransactionAbortable,
    TransactionStateInvalid,
)
from duramen.base.ports import StateRows
from duramen.codec.attempts import query_name
from duramen.codec.batch import DecodedRecord, Header
from duramen.coordinators.runtime.shard import CoordinatorShard, Decision, Record, Together
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.storage.log.log import Log
from duramen.transactions.batch_decisions import Query
from duramen.transactions.query_records import decode_query, decode_query_key, encode_query, encode_query_key
from duramen.transactions.records import decode_key, decode_value, encode_key, encode_value
from duramen.transactions.values import PREPARED, TransactionalId, TransactionState

__all__ = [
    "FINAL",
    "ChangeId",
    "Command",
    "Decide",
    "Ends",
    "FinishLeft",
    "ForgetId",
    "IdOutcome",
    "KeepQuery",
    "Step",
    "TransactionShard",
]  # fmt: skip

FINAL: Final = (
    AttemptLost, BatchDiffers, ProducerFenced, ProducerIdUnknown, QueryFenced, TransactionAbortable,
    TransactionStateInvalid,
)  # fmt: skip
"""Permanent errors, which clients do not retry.

A node must not return them on state that another node has changed since.
"""

Decide = Callable[[TransactionalId | None], TransactionalId | None]
"""Maps the present state of an id to its new state, or None to keep it. Raises to refuse both."""


class ChangeId(NamedTuple):
    """Change an id with the result of `decide`."""

    id: str
    decide: Decide


class ForgetId(NamedTuple):
    """Forget an id, if that is allowed in its turn."""

    id: str
    may: Callable[[TransactionalId], bool]


class KeepQuery(NamedTuple):
    """Store a query; None: forget it."""

    id: str
    value: Query | None


class FinishLeft(NamedTuple):
    """Complete a transaction that was prepared before a start."""

    id: str


Command = ChangeId | ForgetId | KeepQuery | FinishLeft


class IdOutcome(NamedTuple):
    """The state of an id to continue with; `changed`: by this command.

    With `error` it is refused, and that is confirmed.
    """

    one: TransactionalId | None
    changed: bool
    error: DuramenError | None = None


class Step(NamedTuple):
    """The end of a transaction: in one step with `markers`, unless some come `later`; `marked` gets their offsets."""

    complete: TransactionalId
    markers: Sequence[tuple[Log, bytearray, Header]]
    later: bool
    marked: Callable[[Sequence[int]], None]


class Ends(Protocol):
    """Ends transactions on a standalone node."""

    def step(self, prepared: TransactionalId, *, stored: bool) -> Step:
        """The end of this transaction; `stored`: its prepared state is in the log already."""


class TransactionShard(CoordinatorShard[Command]):
    """Its state is in `known`, together with that of the node's other partitions."""

    def __init__(
        self, index: int, known: KnownTransactions, ends: Ends | None, loaded: Callable[[], None],
        report: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`ends` if no other node can lead. `loaded` is called once all is loaded, `report` for unreadable records."""
        self._index = index
        self._known = known
        self._ends = ends
        self._loaded = loaded
        self._report = report
        self._ids: set[str] = set()
        self._queries: set[str] = set()
        self._decided: dict[str, dict[bytes, TransactionalId]] = {}  # states of records in progress, which are newer

    def keys_of(self, command: Command) -> Collection[Hashable]:
        return (query_name(command.id) if isinstance(command, KeepQuery) else command.id,)

    def decide(self, command: Command, rows: StateRows, now_ms: int) -> Decision:
        del rows
        match command:
            case ChangeId():
                return self._change(command, now_ms)
            case ForgetId():
                current = self._known.get(command.id)
                gone = current is not None and command.may(current)
                return Decision([_record_of(command.id, None)] if gone else (), IdOutcome(None, gone))
            case KeepQuery():
                return Decision([_query_record(command.id, command.value)], IdOutcome(None, True))
            case FinishLeft():
                current = self._known.get(command.id)
                if self._ends is None or current is None or current.state not in PREPARED:
                    return Decision((), IdOutcome(current, False))
                return self._ending(self._ends, current, stored=True)

    def _change(self, command: ChangeId, now_ms: int) -> Decision:
        current = self._known.get(command.id)
        try:
            one = command.decide(current)
        except FINAL as error:
            if self._ends is not None:
                raise
            return Decision([_record_of(command.id, current)], IdOutcome(None, False, error))
        if one is None:
            return Decision((), IdOutcome(current, False))
        if one.state in PREPARED:
            one = one._replace(sequence=self._known.sequences.following(now_ms, self._index))
            if self._ends is not None:
                return self._ending(self._ends, one, stored=False)
        self._decided[one.id] = {}
        return Decision([self._record(one)], IdOutcome(one, True))

    def _ending(self, ends: Ends, one: TransactionalId, *, stored: bool) -> Decision:
        step = ends.step(one, stored=stored)
        self._decided[one.id] = {}
        before = () if stored else (self._record(one),)
        behind = () if step.later else (self._record(step.complete),)
        outcome = IdOutcome(one if step.later else step.complete, True)
        return Decision(before, outcome, together=Together(step.markers, behind, step.marked))

    def _record(self, one: TransactionalId) -> Record:
        key, value = _record_of(one.id, one)
        if value is not None:
            self._decided[one.id][value] = one
        return key, value

    def undecided(self) -> list[int]:
        """The sequences of commits whose records are being appended to the log."""
        on_their_way = (one for records in self._decided.values() for one in records.values())
        return [one.sequence for one in on_their_way if one.state is TransactionState.PREPARE_COMMIT]

    def apply(self, record: DecodedRecord) -> None:
        if record.key is None:
            return
        try:
            if (id_ := decode_key(record.key)) is not None:
                self._take(id_, record.value)
            elif (query := decode_query_key(record.key)) is not None:
                value = None if record.value is None else decode_query(query, record.value)
                self._queries.add(query)
                self._known.put_query(query, value)
        except BatchCorrupt as error:
            self._report(f"record {record.offset} of {TRANSACTIONS_STREAM} cannot be read: {error}")

    def _take(self, id_: str, value: bytes | None) -> None:
        decided = self._decided.pop(id_, None)
        if value is None:
            self._ids.discard(id_)
            self._known.remove(id_)
            return
        if decided is None or value not in decided:
            one = decode_value(id_, value)
        else:
            one = decided.pop(value)
            if decided:
                self._decided[id_] = decided
        self._ids.add(id_)
        self._known.put(one)

    def forget(self) -> None:
        """Forget the state of this partition."""
        for id_ in self._ids:
            self._known.remove(id_)
        for query in self._queries:
            self._known.put_query(query, None)

    def loaded(self, rows: StateRows) -> Iterator[None]:
        del rows
        self._loaded()
        return iter(())


def _record_of(id_: str, one: TransactionalId | None) -> Record:
    """The record of an id; None: a tombstone."""
    return encode_key(id_), None if one is None else encode_value(one)


def _query_record(id_: str, value: Query | None) -> Record:
    return encode_query_key(id_), None if value is None else encode_query(value)
