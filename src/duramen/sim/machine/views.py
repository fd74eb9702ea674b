"""The ports ViewStore and StateStore in memory: a sorted map that a crash returns to a flushed state or a later one."""

import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from duramen.base.errors import StateDamaged, StorageFailed
from duramen.base.ports import StateRows

__all__ = ["MemoryStateStore", "MemoryViewStore"]

_Range = tuple[bytes, bytes]
_ALL: Final = b"", b"\xff" * 64


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
                raise StorageFailed("the rows were closed or replaced during a scan")
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

    def close(self) -> None:
        self.flush()
        self._opening += 1

    def crash(self, seed: random.Random) -> None:
        """Lose unflushed rows, or the newest part of them."""
        del self._states[seed.randrange(len(self._states)) + 1 :]


class _Rows(MemoryViewStore):
    """Rows of which ranges may be damaged: a scan ends there with the error, as it does at a damaged block."""

    def __init__(self) -> None:
        super().__init__()
        self._damage: list[_Range] = []

    def get(self, key: bytes) -> bytes | None:
        self._check(key, key + b"\0")
        return super().get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        bad = min((max(first, low) for low, high in self._damage if low < end and first < high), default=None)
        return super().scan(first, end) if bad is None else self._until(super().scan(first, bad))

    def _until(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        yield from rows
        raise StateDamaged("the rows are damaged")

    def _check(self, first: bytes, end: bytes) -> None:
        if any(low < end and first < high for low, high in self._damage):
            raise StateDamaged("the rows are damaged")


class MemoryStateStore(_Rows):
    """Checkpoints are copies, with the damage of their rows. `aside` has the rows that were set aside."""

    def __init__(self) -> None:
        super().__init__()
        self.problem = ""
        self.aside: list[Mapping[bytes, bytes]] = []
        self._checkpoints: dict[str, dict[bytes, bytes]] = {}
        self._damaged: dict[str, list[_Range]] = {}

    @property
    def damaged(self) -> bool:
        """Whether rows are damaged."""
        return bool(self._damage)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        if _ALL in self._damage:
            raise StateDamaged("the rows are damaged")
        super().write(puts, deletes)

    def clear(self) -> None:
        """All rows are lost, and their damage with them."""
        self._states, self._damage = [{}], []
        self._opening += 1

    def crash(self, seed: random.Random) -> None:
        """As a view, but nothing is drawn where there is nothing to lose."""
        if len(self._states) > 1:
            super().crash(seed)

    def make_checkpoint(self, name: str) -> None:
        if _ALL in self._damage:
            raise StateDamaged("the rows are damaged")
        self.flush()
        self._checkpoints[name], self._damaged[name] = self._states[-1], [*self._damage]

    def checkpoints(self) -> list[str]:
        return sorted(self._checkpoints)

    def open_checkpoint(self, name: str) -> MemoryViewStore:
        if name not in self._checkpoints:
            raise StateDamaged(f"there is no checkpoint {name}")
        found = _Rows()
        found.write(self._checkpoints[name].items(), ())
        found._damage = self._damaged[name]
        return found

    def remove_checkpoint(self, name: str) -> None:
        self._checkpoints.pop(name, None)
        self._damaged.pop(name, None)

    def set_aside(self, name: str) -> str:
        if name in self._checkpoints:
            self.aside.append(self._checkpoints[name])
        self.remove_checkpoint(name)
        return "aside"

    def reopen(self) -> None:
        del self._states[1:]
        self._opening += 1

    def restore(self, name: str) -> str:
        self.open_checkpoint(name)
        return self._use(self._checkpoints[name], [*self._damaged[name]])

    def replace(self, rows: Iterable[tuple[bytes, bytes]]) -> str:
        return self._use(dict(rows), [])

    def _use(self, rows: dict[bytes, bytes], damage: list[_Range]) -> str:
        self.aside.append(self._states[-1])
        self._states, self._damage = [rows], damage
        self._opening += 1
        return "aside"

    @property
    def readable(self) -> int:
        """From how many checkpoints all rows can be restored."""
        return sum(not self._damaged[name] for name in self._restorable())

    def _restorable(self) -> list[str]:
        return sorted(filter(str.isdigit, self._checkpoints))  # the others are copies for readers

    def damage(self, *, checkpoints: int, rows: _Range = _ALL) -> None:
        """Rows in a range are damaged, and in so many of the newest checkpoints."""
        self._damage.append(rows)
        for name in self._restorable()[::-1][:checkpoints]:
            self._damaged[name].append(rows)
