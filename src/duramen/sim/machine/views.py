"""The ports ViewStore and StateStore in memory: a sorted map that a crash returns to a flushed state or a later one."""

import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from duramen.base.errors import StorageFailed
from duramen.base.ports import StateRows

__all__ = ["MemoryStateStore", "MemoryViewStore"]


class MemoryViewStore(StateRows):
    """Every batch since the last flush is kept apart, so that a crash can take the newest ones away."""

    def __init__(self) -> None:
        self._states: list[dict[bytes, bytes]] = [{}]
        self._ordered: tuple[dict[bytes, bytes], list[bytes]] = ({}, [])  # a state and its keys: states are not changed
        self._written = 0
        self._opening = 0  # counts clears and closes, which end the scans begun before

    def get(self, key: bytes) -> bytes | None:
        return self._states[-1].get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        state = self._states[-1]
        if self._ordered[0] is not state:
            self._ordered = state, sorted(state)
        keys = self._ordered[1]
        rows = [(key, state[key]) for key in keys[bisect_left(keys, first) : bisect_left(keys, end)]]
        return self._read(rows, self._opening)

    def _read(self, rows: list[tuple[bytes, bytes]], opening: int) -> Iterator[tuple[bytes, bytes]]:
        for row in [*rows, None]:
            if opening != self._opening:
                raise StorageFailed("the view was closed or cleared during a scan")
            if row is not None:
                yield row

    def version(self) -> object:
        return self._opening, self._written

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        self._written += 1
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
        """Lose unflushed rows, or the newest part of them."""
        del self._states[seed.randrange(len(self._states)) + 1 :]


class MemoryStateStore(MemoryViewStore):
    """Checkpoints are copies. `damage` spoils the rows, so that all reads fail until they are restored or cleared."""

    def __init__(self) -> None:
        super().__init__()
        self._checkpoints: dict[str, dict[bytes, bytes]] = {}
        self._spoilt: set[str] = set()
        self.damaged = False

    def get(self, key: bytes) -> bytes | None:
        self._check()
        return super().get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check()
        return super().scan(first, end)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        self._check()
        super().write(puts, deletes)

    def clear(self) -> None:
        self.damaged = False
        super().clear()

    def _check(self) -> None:
        if self.damaged:
            raise StorageFailed("the rows are damaged")

    def crash(self, seed: random.Random) -> None:
        """As a view, but nothing is drawn where there is nothing to lose."""
        if len(self._states) > 1:
            super().crash(seed)

    def make_checkpoint(self, name: str) -> None:
        self._check()
        self.flush()
        self._checkpoints[name] = dict(self._states[-1])

    def checkpoints(self) -> list[str]:
        return sorted(self._checkpoints)

    def open_checkpoint(self, name: str) -> MemoryViewStore:
        if name not in self._checkpoints or name in self._spoilt:
            raise StorageFailed(f"the checkpoint {name} cannot be read")
        found = MemoryViewStore()
        found.write(self._checkpoints[name].items(), ())
        return found

    def remove_checkpoint(self, name: str) -> None:
        self._checkpoints.pop(name, None)
        self._spoilt.discard(name)

    def restore(self, name: str) -> None:
        rows = self.open_checkpoint(name)
        self.clear()
        self.write(rows.scan(b"", b"\xff" * 64), ())
        self.flush()

    @property
    def readable(self) -> int:
        """How many checkpoints can be read."""
        return len(self._checkpoints) - len(self._spoilt)

    def damage(self, *, checkpoints: int) -> None:
        """The rows are damaged, and so many of the newest checkpoints."""
        self.damaged = True
        self._spoilt.update(sorted(self._checkpoints, reverse=True)[:checkpoints])
