"""Latency: publish to acknowledgement at a fixed rate, for each system and size, in alternating runs."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from duramen.bench.bare import pace_writes
from duramen.bench.contenders import Contender
from duramen.bench.field import BenchServers
from duramen.bench.load.open_loop import pace
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import LoadWorker

__all__ = ["BARE", "BARE_SYNCED", "LatencyCell", "measure_latency", "steps"]

BARE: Final = "bare write"
BARE_SYNCED: Final = "bare write + fdatasync"

_WARM_HZ: Final = 200.0
_WARM_S: Final = 0.5


class LatencyCell(NamedTuple):
    """One system with one size: the latencies of each run."""

    name: str
    door: str
    value_bytes: int
    runs: list[Latencies]

    @property
    def merged(self) -> Latencies:
        """Of all runs together."""
        return Latencies.merged(self.runs)

    def spread_ms(self, percentile: float) -> tuple[float, float] | None:
        """The lowest and highest of the runs at a percentile; None where no run carries it."""
        found = [at for run in self.runs if (at := run.at_ms(percentile)) is not None]
        return (min(found), max(found)) if found else None


def steps(sizes: Sequence[int], contenders: int, runs: int) -> int:
    """How many jobs `measure_latency` runs."""
    return len(sizes) * (contenders + 2) * runs


def measure_latency(
    field: BenchServers,
    worker: LoadWorker,
    contenders: Sequence[Contender],
    sizes: Sequence[int],
    schedule: Schedule,
    runs: int,
) -> list[LatencyCell]:
    """Cells by size: the bare loops, then `contenders` in their order. Raises as `pace`."""
    warm = Schedule(_WARM_HZ, min(_WARM_S, schedule.duration_s))
    names = [(BARE_SYNCED, "file"), (BARE, "file"), *((one.name, one.door) for one in contenders)]
    cells = {size: [LatencyCell(name, through, size, []) for name, through in names] for size in sizes}
    for run in range(runs):
        for size in sizes:
            # Nobody is always the first or always behind the same one.
            for index in _turned(len(names), run):
                what = f"latency, {size} bytes, {names[index][0]}, run {run + 1} of {runs}"
                if index < 2:
                    took_us = worker.run(what, pace_writes, field.directory, size, warm, schedule, sync=index == 0)
                else:
                    took_us = worker.run(what, pace, contenders[index - 2], size, warm, schedule)
                cells[size][index].runs.append(Latencies(took_us))
    return [cell for size in sizes for cell in cells[size]]


def _turned(count: int, by: int) -> list[int]:
    return [(index + by) % count for index in range(count)]
