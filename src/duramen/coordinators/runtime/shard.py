"""The interface of a coordinator kind to the runtime: pure state machines, one per partition of a stream."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.codec.batch import BatchInput, DecodedRecord, Header
from duramen.coordinators.runtime.batches import CommittedBatch
from duramen.storage.log.log import Log
from duramen.storage.scan import OnDamage

__all__ = [
    "BatchRowKind", "Change", "CoordinatorShard", "Decision", "Record", "RowKind", "ShardAnswer",
    "ShardKind", "Together", "TransactionProducer", "least_checkpoint_records",
]  # fmt: skip

Command = TypeVar("Command")
Command_contra = TypeVar("Command_contra", contravariant=True)

Change = tuple[bytes, bytes | None]
"""A row and its new value; None removes it."""


class TransactionProducer(NamedTuple):
    """The producer of records in a transaction."""

    id: int
    epoch: int


Record = tuple[bytes | None, bytes | None]
"""A key and a value; None as a value is a tombstone."""


class Together(NamedTuple):
    """Batches appended after a decision's records, all in one step of the write-ahead log.

    `batches` are for other logs with durability=sync, whose order only this shard decides; `records` after them are for
    the shard's own log, and applied once everything is durable. Right before that, `stored` gets the offsets of
    `batches`, -1 for a deleted log.
    """

    batches: Sequence[tuple[Log, bytearray, Header]]
    records: Sequence[Record]
    stored: Callable[[Sequence[int]], None]


class Decision(NamedTuple):
    """The outcome of a command, and the response once it is applied.

    Records are (key, value), None a tombstone, with the time of their append; `inputs` follow, unchanged.

    With a `producer` they belong to its open transaction, in a batch of their own. `together` with batches for other
    logs is possible only if the partition has no replicas. `over` is called before the response, whether the records
    are applied or not; shards that are decided on appended records do not call it.
    """

    records: Sequence[Record]
    response: object
    inputs: Sequence[BatchInput] = ()
    producer: TransactionProducer | None = None
    together: Together | None = None
    over: Callable[[], None] | None = None


class ShardAnswer(NamedTuple):
    """The response to a command, and the offset up to which a state must be applied to show its effect.

    `first_offset` is that of its first record; -1 without records.
    """

    response: object
    end_offset: int
    first_offset: int = -1


class CoordinatorShard(Protocol[Command_contra]):
    """The state machine of one partition. Each leadership creates a new one, and only committed records change it.

    By default a shard has no memory derived from rows, and no timed commands.
    """

    def keys_of(self, command: Command_contra) -> Collection[Hashable]:
        """Commands that share a key are decided one after the other, each on the outcome of those before.

        A command without a key is decided at once: it uses no state that others change.
        """

    def decide(self, command: Command_contra, rows: StateRows, now_ms: int) -> Decision:
        """The outcome of a command on the present state. Raises DuramenError to refuse it."""

    def apply(self, record: DecodedRecord) -> None:
        """Apply a committed record; each comes once, in log order.

        If rows are the state, they have it already; this is called for kinds with memory besides, after `loaded`.
        """

    def loaded(self, rows: StateRows) -> Iterator[None]:
        """All records that earlier leaders acknowledged are applied: rebuild the memory from rows, step by step.

        No record is applied before the last step, and no command is taken. It is called again after each reload.
        """
        del rows
        return iter(())

    def next_ms(self) -> int | None:
        """The time of the next `due`, in ms since 1970."""
        return None

    def due(self, now_ms: int) -> Iterable[object]:
        """Commands that are due at a time."""
        del now_ms
        return ()


class RowKind(NamedTuple):
    """`changes` returns the changes of rows by records; it may read rows: off the event loop, in order, pure."""

    changes: Callable[[Sequence[DecodedRecord], StateRows], Mapping[bytes, bytes | None]]
    checkpoint_records: int = 100_000
    """The number of records between checkpoints, and the least number that the log is truncated by."""
    is_cut: bool = True
    """Whether the runtime truncates the log below checkpoints.

    If not, the log always has all records that the state needs: it is compacted, or its coordinator truncates obsolete
    records. Rows that lack some of it are rebuilt from its start; damaged records are reported and skipped.
    """
    has_memory: bool = False
    """Whether shards keep memory besides rows."""
    transactions: Callable[[Sequence[CommittedBatch], StateRows, OnDamage], Mapping[bytes, bytes | None]] | None = None
    """Used in place of `changes` if records may be transactional: gets whole batches, with transaction markers."""


class BatchRowKind(NamedTuple):
    """Like RowKind with truncation by the runtime, for many records: `changes` gets whole batches.

    The rows have all records before the offset that it gets. On the leader, `changed` receives the keys of written
    rows.
    """

    changes: Callable[[Partition, Sequence[bytes], int, StateRows], Mapping[bytes, bytes | None]]
    changed: Callable[[Any, Collection[bytes]], None]
    keep_ms: Callable[[Partition], int]
    """The period for which records stay in the log although a checkpoint has them."""
    checkpoint_records: int = 100_000
    is_cut: bool = True
    has_memory: bool = False
    led: Callable[[Any, Partition, StateRows], None] = lambda *_: None
    """Called with a new shard, its partition and its rows."""


def least_checkpoint_records(kinds: Iterable["ShardKind[Any]"]) -> int:
    """The number of records between checkpoints of all rows: the least of every kind."""
    records = [kind.rows.checkpoint_records for kind in kinds if kind.rows is not None]
    return min(records, default=RowKind._field_defaults["checkpoint_records"])


class ShardKind(NamedTuple, Generic[Command]):
    """A kind of coordinator: its internal stream, the creation of shards, and whether its state is rows.

    With a `stream_kind` each stream of that kind has such shards, and `stream` is empty. Without rows the state is in
    memory, and each leadership reads the whole log: it is not truncated.
    """

    stream: str
    make: Callable[[int], CoordinatorShard[Command]]
    rows: RowKind | BatchRowKind | None = None
    cost: str = ""
    """The consequence of an unreadable record for users, in words that continue the report."""
    stream_kind: str = ""
    unloaded: Callable[[int, DuramenError], None] | None = None
    """Called when the shard of a partition stops taking commands, before it may be loaded again."""
    newest_counts: bool = False
    """For a state in memory: whether the newest record of each key has all of its state.

    Then damaged records are reported and skipped; and if the partition has no replicas, commands are decided on the
    appended records of earlier ones.
    """
