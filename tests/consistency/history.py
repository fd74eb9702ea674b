"""What clients did and saw: operations with their outcome, recorded while they run.

The vocabulary is that of Jepsen's Kafka workload: an operation is one transaction, or one plain send or poll, of one
process; it has micro-operations, sends and polls, by key, which is a partition here. Its outcome is `ok`, `fail` (it
did not happen, for certain) or `info` (nobody knows).
"""

import threading
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

__all__ = ["Op", "Outcome", "Poll", "Recorder", "Send"]

Outcome = Literal["ok", "fail", "info"]


class Send(NamedTuple):
    """A value, unique within its key, and where it was stored, as far as that is known.

    `delivered`: the client was told that it is stored, whatever becomes of the rest of its operation.
    """

    key: int
    value: int
    offset: int | None = None
    delivered: bool = False


class Poll(NamedTuple):
    """What one poll gave of one key: offsets and values in the order in which they came."""

    key: int
    records: tuple[tuple[int, int], ...]


class Op(NamedTuple):
    """One operation. `moved`: the process was given another position or other keys before it."""

    process: int
    outcome: Outcome
    parts: tuple[Send | Poll, ...]
    moved: bool = False
    began_s: float = 0.0
    ended_s: float = 0.0


class Recorder:
    """Collects operations of many threads; what began and never ended is `info`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: list[Op] = []
        self._open: dict[int, Op] = {}

    def invoke(self, process: int, parts: Sequence[Send | Poll], *, moved: bool = False) -> None:
        """A process begins an operation; it has one at a time."""
        with self._lock:
            self._open[process] = Op(process, "info", tuple(parts), moved, time.monotonic())

    def complete(self, process: int, outcome: Outcome, parts: Sequence[Send | Poll]) -> None:
        """It has ended; `parts` are what it did and saw."""
        with self._lock:
            begun = self._open.pop(process)
            self._done.append(begun._replace(outcome=outcome, parts=tuple(parts), ended_s=time.monotonic()))

    def history(self) -> list[Op]:
        """All operations, in the order in which they ended."""
        with self._lock:
            return [*self._done, *self._open.values()]
