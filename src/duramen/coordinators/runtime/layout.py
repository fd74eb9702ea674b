"""The layout of all states' rows and positions of a node in one store.

    0x00, uint64 log id                         int32 leader epoch, int64 offset, uint32 generation: the position
    0x01, uint64 log id, uint32 generation      uint64 rows: an installation under way
    0x02, uint64 log id, uint32 generation, key value
    0x03, uint64 log id                         the position once more
    0x04, uint64 log id                         why the rows of the log are lost, as text

The copies of the positions are at the other end of the keys: a damaged block does not have both.
The generation in the position determines which rows are valid. A replacement of a whole state is written as a new
generation, and becomes valid with the write that puts it into the position. Numbers are never reused: a new one is
larger than those of the position and of installations, and the largest is only removed with a larger one. Every write
names the position or count at which it begins, and changes nothing if the store has another: so a crash or a restore,
which return the store as a whole to an earlier state, never mix two states. Rows of other generations and of deleted
logs are swept.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from duramen.base.errors import StateDamaged
from duramen.base.ids import LogId
from duramen.base.ports import StateRows, StateStore
from duramen.storage.log.log import Log

__all__ = [
    "ALL_ROWS",
    "EMPTY",
    "HELD",
    "LogRows",
    "StoredState",
    "all_stored",
    "count_of",
    "count_value",
    "fits",
    "installation_key",
    "loss_rows",
    "losses_of",
    "new_generation",
    "position_rows",
    "readable_stored_of",
    "restorable",
    "row_prefix",
    "stored_of",
    "sweep",
]

_STORED: Final = struct.Struct(">iqI")
_COUNT: Final = struct.Struct(">Q")
_ID: Final = struct.Struct(">Q")
_GROUP: Final = struct.Struct(">QI")
_POSITIONS: Final = b"\x00"
_INSTALLATIONS: Final = b"\x01"
_ROWS: Final = b"\x02"
_COPIES: Final = b"\x03"
_LOSSES: Final = b"\x04"
ALL_ROWS: Final = b"", b"\x05"
"""The range of the keys of all rows."""
_SWEPT_AT_ONCE: Final = 10_000
HELD: Final = "held-"
"""The prefix of checkpoints that are kept for readers: they are never restored."""


class StoredState(NamedTuple):
    """The position of a log's state, and the generation of its rows: 0, which no row has, if nothing is applied."""

    leader_epoch: int
    offset: int
    generation: int


EMPTY: Final = StoredState(-1, 0, 0)


def fits(stored: StoredState, log: Log, *, ahead: bool) -> bool:
    """Whether the applied records are part of the log's history, or, if it may be `ahead`, possibly are."""
    if stored.offset > log.end_offset:
        return ahead
    return stored.offset <= log.start_offset or log.takeovers.epoch_at(stored.offset - 1) == stored.leader_epoch


class LogRows(StateRows):
    """The rows of one generation of a log's state, by their keys."""

    def __init__(self, store: StateRows, log_id: int, generation: int) -> None:
        self._store = store
        self._prefix = row_prefix(log_id, generation)
        self._end = row_prefix(log_id, generation + 1)

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`."""
        return self._store.get(self._prefix + key)

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """The values of `keys`."""
        return self._store.get_many([*map(self._prefix.__add__, keys)])

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with `first <= key < end` in order."""
        return self._without_prefix(self._prefix + first, self._prefix + end)

    def ceiling(self, key: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """The first entry at or after `key`, before `end`."""
        row = self._store.ceiling(self._prefix + key, self._prefix + end)
        return None if row is None else (row[0][len(self._prefix) :], row[1])

    def ceilings(self, keys: Sequence[bytes], end: bytes) -> list[tuple[bytes, bytes] | None]:
        """For each key the first entry at or after it, before `end`."""
        skipped = len(self._prefix)
        found = self._store.ceilings([*map(self._prefix.__add__, keys)], self._prefix + end)
        return [None if row is None else (row[0][skipped:], row[1]) for row in found]

    def all(self, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All entries, or those after a key."""
        first = self._prefix if after is None else self._prefix + after + b"\x00"
        return self._without_prefix(first, self._end)

    def _without_prefix(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        skipped = len(self._prefix)
        for key, value in self._store.scan(first, end):
            yield key[skipped:], value


def row_prefix(log_id: int, generation: int) -> bytes:
    """The key prefix of a generation's rows."""
    return _ROWS + _GROUP.pack(log_id, generation)


def position_rows(log_id: int, stored: StoredState) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    """The row with the position of a log's state, and its copy."""
    key, value = _ID.pack(log_id), _STORED.pack(*stored)
    return (_POSITIONS + key, value), (_COPIES + key, value)


def installation_key(log_id: int, generation: int) -> bytes:
    """The key of the row that counts the installed rows of an installation."""
    return _INSTALLATIONS + _GROUP.pack(log_id, generation)


def count_value(rows: int) -> bytes:
    """The value of that row."""
    return _COUNT.pack(rows)


def count_of(value: bytes) -> int:
    """The count in that value."""
    rows: int = _COUNT.unpack(value)[0]
    return rows


def stored_of(store: StateRows, log_id: int) -> StoredState:
    """The position of a log's state."""
    found = store.get(_POSITIONS + _ID.pack(log_id))
    return EMPTY if found is None else StoredState(*_STORED.unpack(found))


def readable_stored_of(store: StateRows, log_id: int) -> StoredState:
    """The position of a log's state, or its copy if it is damaged. Raises StateDamaged if both are."""
    try:
        return stored_of(store, log_id)
    except StateDamaged:
        found = store.get(_COPIES + _ID.pack(log_id))
        if found is None:
            raise
        return StoredState(*_STORED.unpack(found))


def all_stored(store: StateRows) -> dict[int, StoredState]:
    """The positions of the states of all logs."""
    rows = store.scan(_POSITIONS, _INSTALLATIONS)
    return {_ID.unpack(key[1:])[0]: StoredState(*_STORED.unpack(value)) for key, value in rows}


def loss_rows(losses: Mapping[int, str]) -> list[tuple[bytes, bytes]]:
    """The rows that say why the rows of logs are lost."""
    return [(_LOSSES + _ID.pack(log_id), why.encode()) for log_id, why in losses.items()]


def losses_of(store: StateRows) -> dict[int, str]:
    """Why rows of logs are lost, also before this start."""
    return {_ID.unpack(key[1:])[0]: value.decode() for key, value in store.scan(_LOSSES, ALL_ROWS[1])}


def restorable(store: StateStore) -> list[str]:
    """The checkpoints from which rows may be restored, oldest first."""
    return [name for name in store.checkpoints() if not name.startswith(HELD)]


def _installations(store: StateRows, log_id: int) -> list[int]:
    rows = store.scan(_INSTALLATIONS + _ID.pack(log_id), _INSTALLATIONS + _ID.pack(log_id + 1))
    return [_GROUP.unpack(key[1:])[1] for key, _ in rows]


def new_generation(store: StateRows, log_id: int) -> int:
    """A generation number that the log has never used."""
    return max([stored_of(store, log_id).generation, *_installations(store, log_id)]) + 1


def sweep(store: StateStore, logs: set[LogId]) -> bool:
    """Remove some obsolete rows; returns whether there were any."""
    stored = all_stored(store)
    old = [kind + _ID.pack(log_id) for log_id in stored.keys() - logs for kind in (_POSITIONS, _COPIES)]
    begun = [_GROUP.unpack(key[1:]) for key, _ in store.scan(_INSTALLATIONS, _ROWS)]
    live = {(log_id, found.generation) for log_id, found in stored.items()}
    # The last one of each log is the newest.
    live |= {one for one in dict(begun).items() if one[1] > stored.get(one[0], EMPTY).generation}
    live = {one for one in live if one[0] in logs}
    old += [_INSTALLATIONS + _GROUP.pack(*one) for one in begun if one not in live]
    old += [_LOSSES + _ID.pack(log_id) for log_id in losses_of(store) if log_id in stored or log_id not in logs]
    at = _ROWS
    while len(old) < _SWEPT_AT_ONCE and (row := next(store.scan(at, _COPIES), None)) is not None:
        log_id, generation = _GROUP.unpack_from(row[0], 1)
        end = _ROWS + _GROUP.pack(log_id, generation + 1)
        if (log_id, generation) not in live:
            old += [key for key, _ in islice(store.scan(at, end), _SWEPT_AT_ONCE)]
        at = end
    if old:
        store.write((), old)
    return len(old) >= _SWEPT_AT_ONCE
