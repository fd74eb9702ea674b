"""Two kinds of test coordinators for the runtime: counters in memory, and a table of rows."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.shard import CoordinatorShard, Decision, RowKind, ShardKind

__all__ = ["COUNTERS", "TABLE", "Add", "Counters", "Fill", "counters", "row_key", "table"]

COUNTERS: Final = "__counters"
TABLE: Final = "__table"


class Add(NamedTuple):
    """Adds to a counter; `number` rises with each of a client's, which repeats a command with the same one."""

    counter: bytes
    client: bytes
    number: int


class Counters(CoordinatorShard[Add]):
    """Counters by name, and the newest number of each client with its response."""

    def __init__(self) -> None:
        self.values: dict[bytes, int] = {}
        self._newest: dict[bytes, tuple[int, int]] = {}

    def keys_of(self, command: Add) -> Collection[Hashable]:
        return (command.counter,)

    def decide(self, command: Add, rows: StateRows, now_ms: int) -> Decision:
        del rows, now_ms
        newest, value = self._newest.get(command.client, (-1, 0))
        if command.number <= newest:
            return Decision((), value)
        return Decision(
            [(b"%b %b" % (command.counter, command.client), b"%d" % command.number)],
            self.values.get(command.counter, 0) + 1,
        )

    def apply(self, record: DecodedRecord) -> None:
        counter, client = (record.key or b"").split()
        value = self.values[counter] = self.values.get(counter, 0) + 1
        self._newest[client] = int(record.value or b""), value


class Fill(NamedTuple):
    """Rows from `first` on, so many, get `value`; the row of the sum is raised by how many there are."""

    first: int
    rows: int
    value: int


def row_key(number: int) -> bytes:
    """The key of a row."""
    return b"r%08d" % number


class _Table(CoordinatorShard[Fill]):
    """Decides on the row that it writes: no value falls."""

    def keys_of(self, command: Fill) -> Collection[Hashable]:
        return (command.first,)

    def decide(self, command: Fill, rows: StateRows, now_ms: int) -> Decision:
        del now_ms
        known = rows.get(row_key(command.first))
        if known is not None and int(known) >= command.value:
            return Decision((), int(known))
        return Decision([(b"%d %d" % (command.first, command.rows), b"%d" % command.value)], command.value)

    def apply(self, record: DecodedRecord) -> None:
        raise AssertionError(record)


def _rows(found: Sequence[DecodedRecord], rows: StateRows) -> Mapping[bytes, bytes | None]:
    changes: dict[bytes, bytes | None] = {}
    applied = int(rows.get(b"applied") or b"0")
    for record in found:
        first, number = map(int, (record.key or b"").split())
        changes.update(dict.fromkeys((row_key(row) for row in range(first, first + number)), record.value))
        applied += 1
    changes[b"applied"] = b"%d" % applied
    return changes


def _counters(_: int) -> CoordinatorShard[Add]:
    return Counters()


def _table(_: int) -> CoordinatorShard[Fill]:
    return _Table()


def counters() -> ShardKind[Add]:
    """The kind of counters."""
    return ShardKind(COUNTERS, _counters)


def table(checkpoint_records: int) -> ShardKind[Fill]:
    """The kind of tables."""
    return ShardKind(TABLE, _table, RowKind(_rows, checkpoint_records))
