"""A whole node with many keys in one keyed stream: updates a second, memory, and restarts until a snapshot opens."""

import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from duramen.base.errors import DuramenError, SnapshotNotReached
from duramen.base.units import MIB
from duramen.bench.load.keyed import VALUE_BYTES
from duramen.bench.load.keyed_batches import produce_keys
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.targets import TargetOutcome, at_most, told
from duramen.bench.system import MemoryWatch, cpu_s
from duramen.client.api.client import connect
from duramen.client.http import HttpNode
from duramen.node.process import NodeProcess

__all__ = ["NODE_STEPS", "measure_node"]

NODE_STEPS: Final = 4
_STREAM: Final = "users"
_LOOK_S: Final = 0.1
_RETRY_S: Final = 0.005
_UPDATES_HZ: Final = 300_000.0
_MEMORY_MIB: Final = 512
_KEY_BYTES: Final = 36.0
_RESTART_S: Final = 0.5
_MANY_RESTART_S: Final = 5.0
_FEW_KEYS: Final = 1_000_000
_FEW_MOVES: Final = 3
_RESTART_SHARE: Final = 0.15
"""Of the time there is, for the restarts."""


class _Move(NamedTuple):
    """Where the view was seen first, and when."""

    at_s: float
    position: int


class _ViewWatch(threading.Thread):
    """Looks where the view is, again and again until it is stopped."""

    def __init__(self, node: NodeProcess, tell: Callable[[int, int], None]) -> None:
        """`tell` gets the view's position and the log's end at each look."""
        super().__init__(daemon=True)
        self._http = HttpNode(node.http, keep=True)
        self._tell = tell
        self._over = threading.Event()
        self.moves: list[_Move] = []
        self.end = 0

    def run(self) -> None:
        """Look."""
        while not self._over.wait(_LOOK_S):
            try:
                found = self._http.get(f"/v1/streams/{_STREAM}")["partitions"][0]
            except DuramenError:
                continue  # the node is busy, or the view is being loaded
            position = (found["view"] or {}).get("position", 0)
            if not self.moves or position > self.moves[-1].position:
                self.moves.append(_Move(time.monotonic(), position))
            self.end = found["high_watermark"]
            self._tell(position, self.end)

    def stop(self) -> None:
        """No more."""
        self._over.set()
        self.join()
        self._http.close()

    def wait(self, end: int, until_s: float) -> None:
        """Wait until the view has all before `end` but for what a last round waits for, or until a time."""
        while time.time() < until_s:
            moves = self.moves
            largest = max((two.position - one.position for one, two in pairwise(moves)), default=0)
            if moves and end - moves[-1].position <= (largest if self.end >= end else 0):
                return
            time.sleep(_LOOK_S)


def _rate_hz(moves: Sequence[_Move], end: int) -> float:
    """Updates a second between the first and the last move of the view; one that only empties it is none of those.

    A view whose table lies in files moves a round at a time, and waits with the last one, which is not full.
    """
    moved = [one for one in moves if one.position < end] if len(moves) > _FEW_MOVES else moves
    first, last = moved[0], moved[-1]
    return (last.position - first.position) / max(1e-9, last.at_s - first.at_s)


class _Measured:
    def __init__(self, node: NodeProcess, worker: LoadWorker, keys: int, updates: int, until_s: float) -> None:
        self._node = node
        self._worker = worker
        self._keys = keys
        self._updates = updates
        self._until_s = until_s

    def outcomes(self, memory: MemoryWatch) -> list[TargetOutcome]:
        with connect(self._node.http) as client:
            client.streams.create(_STREAM, config={"cleanup.policy": "compact", "keyed": True})
        restarts_s = _RESTART_SHARE * (self._until_s - time.time())
        filled_hz, _, keys = self._applied("new keys", 0, self._keys, self._until_s - restarts_s, drawn=False)
        updated_hz, cpu_us, end = self._applied(
            "updates", keys, keys + self._updates, self._until_s - restarts_s, drawn=True
        )
        loaded = min(keys, self._keys)
        view = self._view()
        lies = f"{view['file_bytes'] / MIB:,.0f} MiB of files" if view["file_bytes"] else "in memory"
        met = updated_hz >= _UPDATES_HZ
        return [
            told(f"new keys/s of a node, up to {loaded:,} keys", f"{filled_hz:,.0f}{self._cut(loaded)}"),
            TargetOutcome(
                f"updates/s of a node with {loaded:,} keys", f"at least {_UPDATES_HZ:,.0f}",
                f"{updated_hz:,.0f} ({end - keys:,} updates, {cpu_us:.2f} µs of the node's processor each; {lies})",
                met, "" if met else f"{100 * (1 - updated_hz / _UPDATES_HZ):.0f} % short",
            ),
            at_most("largest memory of the node", memory.largest_mib, _MEMORY_MIB, "MiB"),
            at_most(
                "bytes of memory of the view, a key", view["memory_bytes"] / max(1, view["keys"]), _KEY_BYTES, "B",
                f"{view['keys']:,} keys, {view['memory_bytes'] / MIB:,.0f} MiB, {lies}",
            ),
            self._restarted("a stop", self._node.stop, loaded),
            self._restarted("kill -9", self._node.kill, loaded),
            at_most("largest memory, restarts included", memory.largest_mib, _MEMORY_MIB, "MiB"),
        ]  # fmt: skip

    def _cut(self, loaded: int) -> str:
        return "" if loaded == self._keys else f" (out of time: {self._keys:,} were asked for)"

    def _view(self) -> Any:
        return HttpNode(self._node.http).get(f"/v1/streams/{_STREAM}")["partitions"][0]["view"]

    def _applied(self, what: str, first: int, end: int, until_s: float, *, drawn: bool) -> tuple[float, float, int]:
        """Records a second that the view applies, the node's processor time for each, and where the log ends."""

        def tell(position: int, reached: int) -> None:
            text = f"{what}: {reached - first:,} of {end - first:,} written, the view is at {position:,}"
            self._worker.say(f"{text}, memory {memory.largest_mib:,.0f} MiB")

        watch, spent_s = _ViewWatch(self._node, tell), cpu_s(self._node.pid)
        with MemoryWatch(lambda: self._node.pid) as memory:
            watch.start()
            try:
                reached = self._worker.run(
                    what, produce_keys, self._node.kafka, _STREAM, first, end, self._keys, VALUE_BYTES, until_s,
                    drawn=drawn,
                )  # fmt: skip
                watch.wait(reached, until_s)
            finally:
                watch.stop()
        spent_s = cpu_s(self._node.pid) - spent_s
        return _rate_hz(watch.moves, reached), 1e6 * spent_s / max(1, reached - first), reached

    def _restarted(self, how: str, end: Callable[[], object], keys: int) -> TargetOutcome:
        self._worker.say(f"restarting after {how}")
        began_s = time.monotonic()
        end()
        ended_s = time.monotonic()
        self._node.start()
        ready_s = time.monotonic()
        found = self._opened()
        opened_s = time.monotonic()
        self._worker.step()
        figures = (
            f"at {found['at']:,} of {found['high_watermark']:,}; {how} {ended_s - began_s:.1f} s, ready after"
            f" {ready_s - ended_s:.2f} s"
        )
        wanted_s = _RESTART_S if keys <= _FEW_KEYS else _MANY_RESTART_S
        return at_most(f"{keys:,} keys: from ready until a snapshot opens, after {how}", opened_s - ready_s, wanted_s,
                       "s", figures)  # fmt: skip

    def _opened(self) -> Any:
        http = HttpNode(self._node.http, keep=True)
        while True:
            try:
                return http.get(f"/v1/streams/{_STREAM}/snapshot?max_wait_ms=0")["partitions"][0]
            except SnapshotNotReached:
                if time.time() > self._until_s:
                    raise
                time.sleep(_RETRY_S)  # the view is being loaded


def measure_node(
    directory: Path, worker: LoadWorker, *, keys: int, updates: int, until_s: float
) -> list[TargetOutcome]:
    """So many keys, each once, then so many updates of any of them; what is not done at the time `until_s` is left."""
    with NodeProcess(directory / "many") as node, MemoryWatch(lambda: node.pid) as memory:
        return _Measured(node, worker, keys, updates, until_s).outcomes(memory)
