"""A shard of a queue space: its state is rows, and in memory are those who wait for entries."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Final
from uuid import UUID

from duramen.base.catalogue_queues import QUEUES
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.shard import BatchRowKind, CoordinatorShard, Decision, ShardKind
from duramen.queues.changes import changes
from duramen.queues.machine import Enqueue, QueueCommand, records_for
from duramen.queues.names import HashName, hash_by
from duramen.queues.rows import name_key, state_key
from duramen.storage.log.log import LogKey

__all__ = ["QueueShard", "hash_of", "queue_kind"]

_SPACES: Final = 1000


@lru_cache(_SPACES)
def hash_of(space: UUID) -> HashName:
    """The hash of the names of a space's queues."""
    return hash_by(space.bytes)


class QueueShard(CoordinatorShard[QueueCommand]):
    """Entries are put in without a turn; what changes others of a queue is decided one after the other."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, dict[int, Callable[[], None]]] = {}  # by row: that of the name, that of the state
        self._numbers = 0

    def keys_of(self, command: QueueCommand) -> Collection[Hashable]:
        return () if isinstance(command, Enqueue) else (command.queue.hash,)

    def decide(self, command: QueueCommand, rows: StateRows, now_ms: int) -> Decision:
        return Decision((), None, records_for(command, rows, now_ms))

    def apply(self, record: DecodedRecord) -> None:
        raise AssertionError(record)

    # -- waiting ------------------------------------------------------------------------------------

    def wait(self, queue: bytes, action: Callable[[], None]) -> Callable[[], None]:
        """Do `action` once, when something is put into a queue or taken back; returns what leaves it."""
        self._numbers += 1
        number, keys = self._numbers, (name_key(queue), state_key(queue))
        for key in keys:
            self._waiting.setdefault(key, {})[number] = action

        def leave() -> None:
            for key in keys:
                others = self._waiting.get(key)
                if others is not None and others.pop(number, None) is not None and not others:
                    del self._waiting[key]

        return leave

    def changed(self, keys: Collection[bytes]) -> None:
        """Rows were written: who waits for one of them goes on."""
        fewer, more = (keys, self._waiting) if len(keys) < len(self._waiting) else (self._waiting, keys)
        for key in [key for key in fewer if key in more]:
            for action in list(self._waiting.get(key, {}).values()):
                action()


def _changes(log: LogKey, found: Sequence[bytes], offset: int, rows: StateRows) -> Mapping[bytes, bytes | None]:
    return changes(found, offset, rows, hash_of(log.stream_id))


def _keep_ms(partition: Partition) -> int:
    return partition.stream.log_retention_ms


def _make(_: int) -> CoordinatorShard[QueueCommand]:
    return QueueShard()


def queue_kind(checkpoint_records: int = 100_000) -> ShardKind[QueueCommand]:
    """The kind of all queue spaces."""
    rows = BatchRowKind(_changes, QueueShard.changed, _keep_ms, checkpoint_records)
    return ShardKind("", _make, rows, stream_kind=QUEUES)
