"""A view with its table of keys in files, in a process of its own: update rate, memory, and reopening."""

import resource
import time
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from duramen.base.memory import memory_share_bytes
from duramen.base.units import MIB
from duramen.bench.load.keyed_batches import keyed_batches
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.targets import TargetOutcome, at_most, told
from duramen.broker.views.files import ViewFiles
from duramen.broker.views.rounds import round_bytes
from duramen.host.files import HostFileSystem
from duramen.keyed.checkpoint import LogPositions
from duramen.keyed.native import kernel
from duramen.keyed.view import KeyedView

__all__ = ["FILED_STEPS", "measure_filed"]

FILED_STEPS: Final = 1
_BATCH: Final = 10_000
_SECRET: Final = b"0123456789abcdef"
_LOG: Final = LogPositions(bytes(16), 0, 0, 1 << 40, lambda _: 0)
_LIMIT_BYTES: Final = memory_share_bytes(512 * MIB)
_ROUNDS: Final = 4
_UPDATES_HZ: Final = 300_000.0
_MEMORY_MIB: Final = 512.0
_OPEN_S: Final = 5.0


class _Figures(NamedTuple):
    """Seconds without those in which batches are made; rounds are by how many records they had."""

    filled_hz: float
    updated_hz: float
    round_s: float
    file_bytes: int
    memory_mib: float
    opened_s: float


def measure_filed(directory: Path, worker: LoadWorker, keys: int) -> list[TargetOutcome]:
    """Each key once, then updates of keys far from one another, in rounds as large as a node of 512 MiB has them."""
    found = worker.run(f"{keys:,} keys in files", _measured, str(directory / "filed"), keys)
    rate_hz, met = found.updated_hz, found.updated_hz >= _UPDATES_HZ
    return [
        TargetOutcome(
            f"updates/s of a view with {keys:,} keys in files", f"at least {_UPDATES_HZ:,.0f}",
            f"{rate_hz:,.0f} ({found.file_bytes / MIB:,.0f} MiB of files, a round {found.round_s:.1f} s)", met,
            "" if met else f"{100 * (1 - rate_hz / _UPDATES_HZ):.0f} % short",
        ),
        told(f"new keys/s up to {keys:,} keys in files", f"{found.filled_hz:,.0f}"),
        at_most("memory of its process", found.memory_mib, _MEMORY_MIB, "MiB"),
        at_most("opening it again", found.opened_s, _OPEN_S, "s"),
    ]  # fmt: skip


def _measured(directory: str, keys: int) -> _Figures:
    Path(directory).mkdir()
    files = ViewFiles(HostFileSystem(directory), "keyed/view")
    view = files.load(kernel(), _LOG, _SECRET, anew=True).view
    applying = _Applying(view, files)
    for batch in keyed_batches(0, keys, keys, records=_BATCH):
        applying.take(batch)
    applying.round()
    filled_hz = keys / applying.took_s
    rounds: list[float] = []
    applying.took_s, first = 0.0, view.position
    for batch in keyed_batches(keys, 1 << 40, keys, records=_BATCH):
        if applying.take(batch):
            rounds.append(applying.took_s - sum(rounds))
            if len(rounds) == _ROUNDS:
                break
    updated_hz = (view.position - first) / applying.took_s
    began_s = time.perf_counter()
    again = ViewFiles(HostFileSystem(directory), "keyed/view").load(kernel(), _LOG, _SECRET, anew=False).view
    again.bounds.check_snapshot(view.position)
    opened_s = time.perf_counter() - began_s
    most_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = 0 if view.filed is None else view.filed.file_bytes
    return _Figures(filled_hz, updated_hz, median(rounds), size, most_mib, opened_s)


class _Applying:
    """Does what a node does with a view, and knows how long that took."""

    def __init__(self, view: KeyedView, files: ViewFiles) -> None:
        self.took_s = 0.0
        self._view = view
        self._files = files

    def take(self, batch: bytearray) -> bool:
        """Apply or gather a batch; True where a round has ended."""
        began_s = time.perf_counter()
        self._view.apply(batch)
        self.took_s += time.perf_counter() - began_s
        filed = self._view.filed
        if filed is None and self._view.memory_bytes >= _LIMIT_BYTES:
            self._view.file_table()
        elif filed is None or filed.gathered_bytes < round_bytes(_LIMIT_BYTES):
            return False
        self.round()
        return True

    def round(self) -> None:
        """Apply what is gathered, and save it; S0 is near the end, as after an hour."""
        began_s = time.perf_counter()
        if self._view.filed is None:
            self._view.file_table()
        while self._view.step():
            pass
        before = self._view.position
        self._view.end_round()
        self._files.save(self._view, _LOG)
        self._view.raise_s0(before)
        self.took_s += time.perf_counter() - began_s
