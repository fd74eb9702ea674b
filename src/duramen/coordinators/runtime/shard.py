"""What a kind of coordinator is to the runtime: pure state machines, one for each partition of a stream."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord

__all__ = ["Change", "CoordinatorShard", "Decision", "RowKind", "ShardAnswer", "ShardKind"]

Command = TypeVar("Command")
Command_contra = TypeVar("Command_contra", contravariant=True)

Change = tuple[bytes, bytes | None]
"""A row and its new value; None removes it."""


class Decision(NamedTuple):
    """What a command comes to: records as (key, value), None a tombstone, and the response once they are applied."""

    records: Sequence[tuple[bytes | None, bytes | None]]
    response: object


class ShardAnswer(NamedTuple):
    """The response to a command, and the offset below which the state has to be for who is to see what it did."""

    response: object
    end_offset: int


class CoordinatorShard(Protocol[Command_contra]):
    """The state machine of one partition. It is made anew for each leadership, and only committed records change it."""

    def key_of(self, command: Command_contra) -> Hashable | None:
        """Commands of one key are decided one after the other, each on what the one before has left.

        None: the command is decided on nothing that others change.
        """

    def decide(self, command: Command_contra, rows: StateRows, now_ms: int) -> Decision:
        """What the command comes to, on the state as it is. Raises DuramenError where it is refused."""

    def apply(self, record: DecodedRecord) -> None:
        """A record is committed; each comes once, in the order of the log. Not called where rows are the state."""

    def next_ms(self) -> int | None:
        """When `due` has something to do, in ms since 1970."""

    def due(self, now_ms: int) -> Iterable[object]:
        """Commands that the time makes."""


class RowKind(NamedTuple):
    """`changes` are what records make of rows, of which it may read some: off the event loop, in order, pure."""

    changes: Callable[[Sequence[DecodedRecord], StateRows], Mapping[bytes, bytes | None]]
    checkpoint_records: int = 100_000
    """A checkpoint is made after so many records, and the log is cut by as many at least."""


class ShardKind(NamedTuple, Generic[Command]):
    """A kind of coordinator: its internal stream, how a shard begins, and whether its state is rows.

    Without rows the state is in memory, and the whole log is read where a leadership begins: it is not cut.
    """

    stream: str
    make: Callable[[int], CoordinatorShard[Command]]
    rows: RowKind | None = None
