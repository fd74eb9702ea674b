"""The groups in a partition of `__consumer_offsets`, as a shard of the coordinator runtime.

Decisions use the groups in memory, which are ahead of the committed state; responses wait until that catches up. So
commits of a group need not wait for each other. A command carries the records. Rows are the state, from which groups
with members are rebuilt at each load.
"""

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.group.rows import changes, changes_outside
from duramen.coordinators.runtime.shard import CoordinatorShard, Decision, RowKind, ShardKind, TransactionProducer

__all__ = ["OFFSETS_CONFIG", "OFFSETS_STREAM", "GroupRecords", "StoreRecords", "offsets_kind"]

OFFSETS_STREAM: Final = "__consumer_offsets"
OFFSETS_CONFIG: Final = {"cleanup.policy": "compact", "durability": "sync", "segment.bytes": str(100 * 1024 * 1024)}


class GroupRecords(Protocol):
    """The owner of the records, which learns the partitions that this node coordinates."""

    def restore_some(self, index: int) -> Iterator[None]:
        """Load the groups of a partition, step by step."""

    def let_go(self, index: int, error: DuramenError) -> None:
        """The node no longer coordinates the groups of a partition; waiting requests get `error`."""


class StoreRecords(NamedTuple):
    """Keys with values, None for a tombstone, stored atomically. With a producer: in its open transaction."""

    records: Sequence[tuple[bytes, bytes | None]]
    producer: TransactionProducer | None = None


class _GroupShard(CoordinatorShard[StoreRecords]):
    def __init__(self, index: int, groups: GroupRecords) -> None:
        self._index = index
        self._groups = groups

    def keys_of(self, command: StoreRecords) -> Collection[Hashable]:
        del command
        return ()

    def decide(self, command: StoreRecords, rows: StateRows, now_ms: int) -> Decision:
        del rows, now_ms
        return Decision(command.records, None, producer=command.producer)

    def apply(self, record: DecodedRecord) -> None:
        raise AssertionError(record)

    def loaded(self, rows: StateRows) -> Iterator[None]:
        del rows
        return self._groups.restore_some(self._index)


def offsets_kind(groups: GroupRecords) -> ShardKind[StoreRecords]:
    """The shard kind of groups."""
    return ShardKind(
        OFFSETS_STREAM,
        lambda index: _GroupShard(index, groups),
        RowKind(changes_outside, is_cut=False, transactions=changes),
        cost="so a group whose last commit was there continues from an older one",
        unloaded=groups.let_go,
    )
