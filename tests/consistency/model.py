"""Histories of a log that is sound: transactions that are open at the same time, markers, readers below the LSO."""

from typing import Final

from hypothesis import strategies as st
from tests.consistency.history import Op, Outcome, Poll, Send

__all__ = ["histories"]

_KEYS: Final = 2
_PROCESSES: Final = 3


class _Log:
    """Keys with their values, and markers, which have none."""

    def __init__(self) -> None:
        self._keys: list[list[int | None]] = [[] for _ in range(_KEYS)]
        self._fates: dict[int, bool] = {}  # by value: committed or aborted

    def append(self, key: int, value: int) -> int:
        self._keys[key].append(value)
        return len(self._keys[key]) - 1

    def end(self, parts: list[Send | Poll], *, commit: bool) -> None:
        for part in parts:
            if isinstance(part, Send):
                self._fates[part.value] = commit
        for key in {part.key for part in parts if isinstance(part, Send)}:
            self._keys[key].append(None)

    def read(self, key: int, position: int, count: int) -> tuple[int, list[tuple[int, int]]]:
        found: list[tuple[int, int]] = []
        for offset in range(position, len(self._keys[key])):
            value = self._keys[key][offset]
            if value is not None and value not in self._fates:
                return offset, found
            if value is not None and self._fates[value]:
                found.append((offset, value))
                if len(found) == count:
                    return offset + 1, found
        return len(self._keys[key]), found


class _Process:
    """A process with one transaction at a time, and its position in each key."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.parts: list[Send | Poll] = []
        self.positions = [0] * _KEYS
        self.begun_at = [0] * _KEYS
        self.moved = False

    def end(self, outcome: Outcome, *, committed: bool) -> Op:
        op = Op(self.number, outcome, tuple(self.parts), self.moved)
        self.parts = []
        self.moved = False
        if not committed:
            self.positions = list(self.begun_at)
        self.begun_at = list(self.positions)
        return op


@st.composite
def histories(draw: st.DrawFn) -> list[Op]:
    """A sound history, everything read in its end."""
    log, history = _Log(), []
    processes = [_Process(number) for number in range(_PROCESSES)]
    values = iter(range(1_000_000))
    for _ in range(draw(st.integers(0, 30))):
        process = draw(st.sampled_from(processes))
        key = draw(st.integers(0, _KEYS - 1))
        match draw(st.sampled_from(["send", "send", "poll", "commit", "commit", "abort", "lost answer", "seek"])):
            case "send":
                value = next(values)
                process.parts.append(Send(key, value, log.append(key, value)))
            case "poll":
                process.positions[key], found = log.read(key, process.positions[key], draw(st.integers(1, 4)))
                if found:
                    process.parts.append(Poll(key, tuple(found)))
            case "seek" if not process.parts:
                process.positions[key] = process.begun_at[key] = draw(st.integers(0, process.positions[key]))
                process.moved = True
            case "commit" | "abort" | "lost answer" as how:
                commit = how == "commit" or (how == "lost answer" and draw(st.booleans()))
                log.end(process.parts, commit=commit)
                outcomes: dict[str, Outcome] = {"commit": "ok", "abort": "fail", "lost answer": "info"}
                history.append(process.end(outcomes[how], committed=commit))
    for process in processes:
        log.end(process.parts, commit=True)
        history.append(process.end("ok", committed=True))
    final = [Poll(key, tuple(found)) for key in range(_KEYS) if (found := log.read(key, 0, 1 << 30)[1])]
    return [*history, Op(_PROCESSES, "ok", tuple(final))]
