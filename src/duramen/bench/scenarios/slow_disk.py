"""Many clients on a slow disk: shared syncs make them many times as fast as one client."""

from pathlib import Path
from typing import Final

from duramen.bench.contenders import Contender
from duramen.bench.load.closed_loop import ClosedLoopResult, fly
from duramen.bench.load.worker import LoadWorker
from duramen.bench.ours import Ours
from duramen.bench.report.targets import Rounds, TargetOutcome, at_least
from duramen.bench.slow_node import program

__all__ = ["measure", "steps"]

_DELAYS_MS: Final = (1.0, 5.0)
_CLIENTS: Final = 50
_RECORD_BYTES: Final = 256
_LOAD_S: Final = 3.0
_WARM_S: Final = 0.5
_WANTED: Final = 25.0
_ONE: Final = "one client"
_ALL: Final = f"{_CLIENTS} clients"


def steps(rounds: int) -> int:
    """How many jobs there are."""
    return 2 * rounds * len(_DELAYS_MS)


def measure(directory: Path, worker: LoadWorker, *, rounds: int, scale: float) -> list[TargetOutcome]:
    """One client and fifty in turns, each with one request in flight, on each of the disks."""
    outcomes = []
    for delay_ms in _DELAYS_MS:
        rates = Rounds()
        with Ours(directory / f"slow-{delay_ms:g}", nats=False, program=program(delay_ms)) as ours:
            stream = ours.stream("slow", "sync", "kafka")
            for number in range(rounds):
                for name in (_ONE, _ALL) if number % 2 else (_ALL, _ONE):
                    rates.add(name, _rate_hz(worker, stream, name, delay_ms, scale))
        medians = rates.medians
        outcomes.append(
            at_least(
                f"{_ALL}, a sync takes {delay_ms:g} ms",
                rates.ratio(_ALL, _ONE),
                _WANTED,
                _ONE,
                f"{medians[_ALL]:,.0f} acknowledged/s, one {medians[_ONE]:,.0f}",
            )
        )
    return outcomes


def _rate_hz(worker: LoadWorker, stream: Contender, name: str, delay_ms: float, scale: float) -> float:
    found: ClosedLoopResult = worker.run(
        f"{name}, {delay_ms:g} ms a sync", fly, stream, _RECORD_BYTES,
        connections=_CLIENTS if name == _ALL else 1, warm_s=_WARM_S * scale, duration_s=_LOAD_S * scale,
    )  # fmt: skip
    return found.rate_hz
