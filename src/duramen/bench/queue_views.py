"""Views of light queues without a node: read speed, also beside emptied queues."""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from duramen.base.ids import Position
from duramen.bench.load.queues import VALUE_BYTES, queue_name
from duramen.codec.batch import BatchInput, encode
from duramen.host.rocksdb import RocksViewStore
from duramen.queues.changes import changes
from duramen.queues.names import hash_by
from duramen.queues.operations import delete_record
from duramen.queues.reading import retrieve

__all__ = ["ViewReads", "reads_of_view"]

_T = TypeVar("_T")

_HASH: Final = hash_by(b"bench queues")
_EPOCH: Final = 0
_TURN: Final = 64
"""Single rows that come in one turn, and lie in one batch."""
_READS: Final = 20_000
_LIMIT: Final = 100
_ALL: Final = 1 << 20


class ViewReads(NamedTuple):
    """Seconds that each of many reads took, and those of the processor, which others that run do not lengthen."""

    took_s: list[float]
    cpu_s: list[float]


class _View:
    """A shard's rows in RocksDB."""

    def __init__(self, path: Path) -> None:
        self._store = RocksViewStore(str(path))
        self._end = 0

    def put(self, new: Sequence[BatchInput]) -> int:
        """Apply a batch; the offset that it begins at."""
        base, batch = self._end, bytes(encode(new, base_offset=self._end, leader_epoch=_EPOCH))
        rows = changes([batch], base, self._store, _HASH)
        puts = [(key, value) for key, value in rows.items() if value is not None]
        self._store.write(puts, [key for key, value in rows.items() if value is None])
        self._end += len(new)
        return base

    def read(self, queues: Sequence[bytes]) -> ViewReads:
        """Read random queues."""
        chance, found = random.Random(5), ViewReads([], [])
        for _ in range(_READS):
            queue = _HASH(chance.choice(queues))
            began_s, began_cpu_s = time.perf_counter(), time.thread_time()
            retrieve(self._store, queue, "start", _LIMIT, _ALL, 0)
            found.cpu_s.append(time.thread_time() - began_cpu_s)
            found.took_s.append(time.perf_counter() - began_s)
        return found

    def close(self) -> None:
        """Close it."""
        self._store.close()


def reads_of_view(
    directory: Path, queues: int, each: int, emptied: int, say: Callable[[str], None]
) -> tuple[ViewReads, ViewReads]:
    """Reads of 100 entries of a random queue, and those right after so many queues were emptied.

    There are so many `queues` with `each` entries, of rows that came one at a time, and as many with 100 more.
    """
    view = _View(directory / "queue-view")
    try:
        say("a view of queues")
        order = [number % queues for number in random.Random(7).sample(range(queues * each), queues * each)]
        names, value = [queue_name(number).encode() for number in range(queues)], bytes(VALUE_BYTES)
        positions = list[list[int]]([] for _ in range(queues))
        for turn in _turns(order):
            base = view.put([BatchInput(1, names[number], value) for number in turn])
            for place, number in enumerate(turn):
                positions[number].append(base + place)
        large = names[:: max(1, queues // 1000)]
        for name in large:
            view.put([BatchInput(1, name, value)] * _LIMIT)
        before = view.read([*names[:1000], *large])
        gone = range(queues - emptied, queues)
        deleted = [(names[number], offset) for number in gone for offset in positions[number]]
        for gone_at_once in _turns(deleted):
            view.put([delete_record(name, Position(_EPOCH, offset), 1) for name, offset in gone_at_once])
        return before, view.read([*(names[number] for number in gone), *large])
    finally:
        view.close()


def _turns(rows: Sequence[_T]) -> Iterable[Sequence[_T]]:
    return (rows[at : at + _TURN] for at in range(0, len(rows), _TURN))
