"""Latency of single records at 50 per second: compared with a bare write + fdatasync, and with Kafka that syncs."""

from duramen.bench.bare import pace_writes
from duramen.bench.contenders import Contender
from duramen.bench.field import BenchServers
from duramen.bench.load.open_loop import pace
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.sizes import size_name
from duramen.bench.report.targets import TargetOutcome, at_most, not_measured
from duramen.bench.scenarios.effort import Effort

__all__ = ["measure", "steps"]

_SIZES = (256, 1024, 5120)
_RATE_HZ = 50.0
_WARM_HZ, _WARM_S = 200.0, 0.5
_ALLOWED_MS = 0.4
_BARE, _OURS, _OS, _KAFKA = "T", "duramen sync", "duramen os", "kafka flush.messages=1"


def steps(effort: Effort) -> int:
    """How many jobs there are."""
    return len(_SIZES) * effort.rounds * 4


def measure(field: BenchServers, worker: LoadWorker, effort: Effort) -> list[TargetOutcome]:
    """p50 against T, and p99 against Kafka's, of each size."""
    contenders = {
        one.name: one for one in (field.ours("sync"), field.ours("os"), field.kafka(synced=True)) if one is not None
    }
    outcomes = []
    for size in _SIZES:
        outcomes += _outcomes(size, _sample(field, worker, effort, contenders, size))
    return outcomes


def _sample(
    field: BenchServers, worker: LoadWorker, effort: Effort, contenders: dict[str, Contender], size: int
) -> dict[str, Latencies]:
    schedule, warm = Schedule(_RATE_HZ, effort.paced_s), Schedule(_WARM_HZ, min(_WARM_S, effort.paced_s))
    took_us: dict[str, list[int]] = {name: [] for name in (_BARE, *contenders)}
    for number in range(effort.rounds):
        names = list(took_us)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            what = f"{_RATE_HZ:g} records of {size_name(size)} a second, {name}"
            if name == _BARE:
                took_us[name] += worker.run(what, pace_writes, field.directory, size, warm, schedule, sync=True)
            else:
                took_us[name] += worker.run(what, pace, contenders[name], size, warm, schedule)
    return {name: Latencies(found) for name, found in took_us.items()}


def _outcomes(size: int, found: dict[str, Latencies]) -> list[TargetOutcome]:
    ours, bare = found[_OURS], found[_BARE]
    name = f"single records at {_RATE_HZ:g}/s, {size_name(size)}"
    outcomes = []
    p50_ms, bare_ms, os_ms = ours.at_ms(50), bare.at_ms(50), found[_OS].at_ms(50)
    if p50_ms is None or bare_ms is None or os_ms is None:
        outcomes.append(not_measured(f"{name}: p50", "at most T + 0.4 ms", f"{ours.count} samples are too few"))
    else:
        figures = f"T {bare_ms:.2f}, os {os_ms:.2f}"
        outcomes.append(at_most(f"{name}: p50", p50_ms, bare_ms + _ALLOWED_MS, "ms", figures, "T + 0.4 ms"))
    wanted = "at most Kafka's with flush.messages=1"
    p99_ms = ours.at_ms(99)
    if p99_ms is None:
        outcomes.append(not_measured(f"{name}: p99", wanted, f"{ours.count} samples are too few"))
    elif _KAFKA not in found:
        outcomes.append(not_measured(f"{name}: p99", wanted, f"no --peer kafka; ours {p99_ms:.2f} ms"))
    else:
        kafka_ms = found[_KAFKA].at_ms(99)
        bare_p99_ms = bare.at_ms(99)
        figures = f"T {bare_p99_ms:.2f}" if bare_p99_ms is not None else ""
        if kafka_ms is not None:
            outcomes.append(at_most(f"{name}: p99", p99_ms, kafka_ms, "ms", figures, "Kafka's, flush.messages=1"))
    return outcomes
