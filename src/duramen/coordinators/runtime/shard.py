"""The interface of a coordinator kind to the runtime: pure state machines, one for each partition of a stream."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.codec.batch import BatchInput, DecodedRecord, Header
from duramen.coordinators.runtime.batches import CommittedBatch
from duramen.storage.log.log import Log, LogKey
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
    """Who writes records in a transaction."""

    id: int
    epoch: int


Record = tuple[bytes | None, bytes | None]
"""A key and a value; None as a value is a tombstone."""


class Together(NamedTuple):
    """What is appended behind a decision's records, all in one step of the write-ahead log.

    `batches` are for other logs with durability=sync, which nobody else may order; `records` behind them are for the
    shard's own, and applied once all of it is durable. Right before `stored` gets the offsets of `batches`, -1 of those
    whose log is deleted.
    """

    batches: Sequence[tuple[Log, bytearray, Header]]
    records: Sequence[Record]
    stored: Callable[[Sequence[int]], None]


class Decision(NamedTuple):
    """What a command comes to, and the response once it is applied.

    Records are (key, value), None a tombstone, of the time at which they are stored; `inputs` come behind, as they are.

    With a `producer` they are a part of its open transaction, in a batch of their own.
    It comes `together` with batches for other logs only where the partition has no replicas.
    """

    records: Sequence[Record]
    response: object
    inputs: Sequence[BatchInput] = ()
    producer: TransactionProducer | None = None
    together: Together | None = None


class ShardAnswer(NamedTuple):
    """The response to a command, and the offset below which the state has to be for who is to see what it did.

    `first_offset` is that of the first of its records; -1 where it came to none.
    """

    response: object
    end_offset: int
    first_offset: int = -1


class CoordinatorShard(Protocol[Command_contra]):
    """The state machine of one partition. It is made anew for each leadership, and only committed records change it.

    One that inherits from this makes nothing of its rows as it is loaded, and nothing of the time.
    """

    def keys_of(self, command: Command_contra) -> Collection[Hashable]:
        """Commands that share a key are decided one after the other, each on what those before have left.

        One without a key is decided at once: on nothing that others change.
        """

    def decide(self, command: Command_contra, rows: StateRows, now_ms: int) -> Decision:
        """What the command comes to, on the state as it is. Raises DuramenError where it is refused."""

    def apply(self, record: DecodedRecord) -> None:
        """A record is committed; each comes once, in the order of the log.

        Where rows are the state, they have it already; this is called for kinds with memory besides, behind `loaded`.
        """

    def loaded(self, rows: StateRows) -> Iterator[None]:
        """All that earlier leaders have acknowledged is applied: make anew what is in memory of rows, step by step.

        No record is applied before the last step, and no command taken. It is called again after each reload.
        """
        del rows
        return iter(())

    def next_ms(self) -> int | None:
        """When `due` has something to do, in ms since 1970."""
        return None

    def due(self, now_ms: int) -> Iterable[object]:
        """Commands that the time makes."""
        del now_ms
        return ()


class RowKind(NamedTuple):
    """`changes` are what records make of rows, of which it may read some: off the event loop, in order, pure."""

    changes: Callable[[Sequence[DecodedRecord], StateRows], Mapping[bytes, bytes | None]]
    checkpoint_records: int = 100_000
    """A checkpoint is made after so many records, and the log is cut by as many at least."""
    is_cut: bool = True
    """Whether the runtime cuts the log below checkpoints.

    If not, the log has at each time all that the state needs: it is compacted, or its coordinator cuts it below what
    counts. Rows that lack something of it are made anew from its start; what is damaged in it is reported and skipped.
    """
    has_memory: bool = False
    """Whether shards keep something in memory besides rows."""
    transactions: Callable[[Sequence[CommittedBatch], StateRows, OnDamage], Mapping[bytes, bytes | None]] | None = None
    """In place of `changes` where records may be parts of transactions: of batches, the markers among them."""


class BatchRowKind(NamedTuple):
    """As RowKind where the runtime cuts the log, for many records: `changes` gets whole batches.

    The rows have all before the offset that it gets. `changed` is told where the shard leads which rows were written.
    """

    changes: Callable[[LogKey, Sequence[bytes], int, StateRows], Mapping[bytes, bytes | None]]
    changed: Callable[[Any, Collection[bytes]], None]
    keep_ms: Callable[[Partition], int]
    """For how long records stay in the log although a checkpoint has them."""
    checkpoint_records: int = 100_000
    is_cut: bool = True
    has_memory: bool = False


def least_checkpoint_records(kinds: Iterable["ShardKind[Any]"]) -> int:
    """After how many records a checkpoint of all rows is made: it serves every kind."""
    records = [kind.rows.checkpoint_records for kind in kinds if kind.rows is not None]
    return min(records, default=RowKind._field_defaults["checkpoint_records"])


class ShardKind(NamedTuple, Generic[Command]):
    """A kind of coordinator: its internal stream, how a shard begins, and whether its state is rows.

    With a `stream_kind` each stream of that kind has such shards, and `stream` names none. Without rows the state is in
    memory, and the whole log is read where a leadership begins: it is not cut.
    """

    stream: str
    make: Callable[[int], CoordinatorShard[Command]]
    rows: RowKind | BatchRowKind | None = None
    cost: str = ""
    """What it means for users that a record cannot be read: words that follow those."""
    stream_kind: str = ""
    unloaded: Callable[[int, DuramenError], None] | None = None
    """Told that the shard of a partition takes no commands from here on, before it may be loaded again."""
    newest_counts: bool = False
    """Whether the newest record of each key has all of it, for a state in memory.

    Then what is damaged in the log is reported and skipped; and where the partition has no replicas, commands are
    decided on what those before them have appended.
    """
