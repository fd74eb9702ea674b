"""The ViewStore port in memory: a sorted map that falls back to any earlier flushed or later state at a crash."""

import random
from collections.abc import Iterable, Iterator

from duramen.base.errors import StorageFailed

__all__ = ["MemoryViewStore"]


class MemoryViewStore:
    """Every batch since the last flush is kept apart, so that a crash can take the newest ones away."""

    def __init__(self) -> None:
        self._states: list[dict[bytes, bytes]] = [{}]
        self._opening = 0  # counts clears and closes, which end the scans begun before

    def get(self, key: bytes) -> bytes | None:
        return self._states[-1].get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        rows = sorted((key, value) for key, value in self._states[-1].items() if first <= key < end)
        return self._read(rows, self._opening)

    def _read(self, rows: list[tuple[bytes, bytes]], opening: int) -> Iterator[tuple[bytes, bytes]]:
        for row in [*rows, None]:
            if opening != self._opening:
                raise StorageFailed("the view was closed or cleared during a scan")
            if row is not None:
                yield row

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        state = dict(self._states[-1])
        state.update(puts)
        for key in deletes:
            state.pop(key, None)
        self._states.append(state)

    def flush(self) -> None:
        del self._states[:-1]

    def clear(self) -> None:
        self._states = [{}]
        self._opening += 1

    def close(self) -> None:
        self.flush()
        self._opening += 1

    def crash(self, seed: random.Random) -> None:
        """Lose what was not flushed, or the newest part of it."""
        del self._states[seed.randrange(len(self._states)) + 1 :]
