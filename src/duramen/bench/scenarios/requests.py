"""Single records, each in a request of its own: at low rates, one after another, on many connections; beside klite."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from duramen.bench.bare import pace_writes
from duramen.bench.contenders import Contender
from duramen.bench.load.closed_loop import ClosedLoopResult, fly
from duramen.bench.load.open_loop import pace
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import LoadWorker
from duramen.bench.ours import Ours
from duramen.bench.peers.klite import Klite
from duramen.bench.report.targets import Rounds, TargetOutcome, at_least, at_most, told
from duramen.bench.system import cpu_s

__all__ = ["measure", "steps"]

_RECORD_BYTES: Final = 256
_RATES_HZ: Final = (50.0, 500.0)
_PACED_S: Final = 6.0
_FULL_S: Final = 3.0
_WARM: Final = Schedule(200.0, 0.7)  # more syncs than a node wants to see before it trusts the disk
_OURS: Final = "duramen sync"
_PEER: Final = "klite sync"
_MOST_P50: Final = 1.2
_LEAST_RATE: Final = 0.9
_CPU_US: Final = 22.0


class _Load(NamedTuple):
    """One kind of load: what it is called, how `fly` makes it, and what is wanted of it beside the peer."""

    name: str
    options: Mapping[str, Any]
    least: float | None = None
    most_cpu_us: float | None = None


_LOADS: Final = (
    _Load("1 connection, one request", {}),
    _Load("50 connections, one request each", {"connections": 50}, _LEAST_RATE, _CPU_US),
    _Load("50 connections, one request each, idempotent", {"connections": 50, "idempotent": True}),
    _Load("50 requests in flight on one connection", {"in_flight": 50}),
)


class _System(NamedTuple):
    topic: Contender
    process_id: int


def steps(rounds: int, *, klite: bool) -> int:
    """How many jobs there are."""
    systems = 2 if klite else 1
    return rounds * (len(_RATES_HZ) * (systems + 1) + 2 * len(_LOADS) * systems)


def measure(
    directory: Path, worker: LoadWorker, *, rounds: int, scale: float, klite: Path | None = None
) -> list[TargetOutcome]:
    """Everybody in turns, `klite` is that binary."""
    with ExitStack() as stack:
        ours = stack.enter_context(Ours(directory / "duramen", nats=False))
        systems = [_System(ours.stream("requests", "sync", "kafka"), ours.process.pid)]
        if klite is not None:
            peer = stack.enter_context(Klite(directory / "klite", klite))
            systems.append(_System(peer.topic("requests"), peer.process_id))
        outcomes = []
        for rate_hz in _RATES_HZ:
            outcomes += _paced(directory, worker, systems, rate_hz, rounds, scale)
        for load in _LOADS:
            outcomes += _full(worker, systems, load, rounds, scale)
    return outcomes


def _turned(systems: list[_System], number: int) -> list[_System]:
    turn = number % len(systems)
    return systems[turn:] + systems[:turn]


def _paced(
    directory: Path, worker: LoadWorker, systems: list[_System], rate_hz: float, rounds: int, scale: float
) -> list[TargetOutcome]:
    schedule = Schedule(rate_hz, _PACED_S * scale)
    p50_ms, cpu_us = Rounds(), Rounds()
    took: dict[str, list[Latencies]] = {}
    bare: list[Latencies] = []
    for number in range(rounds):
        what = f"{rate_hz:g} records a second"
        bare.append(
            Latencies(worker.run(f"{what}, T", pace_writes, directory, _RECORD_BYTES, _WARM, schedule, sync=True))
        )
        for topic, process_id in _turned(systems, number):
            before_s = cpu_s(process_id)
            found = worker.run(f"{what}, {topic.name}", pace, topic, _RECORD_BYTES, _WARM, schedule)
            messages = _WARM.messages + schedule.messages
            cpu_us.add(topic.name, (cpu_s(process_id) - before_s) * 1e6 / messages)
            latencies = Latencies(found)
            took.setdefault(topic.name, []).append(latencies)
            p50_ms.add(topic.name, latencies.at_ms(50) or latencies.max_ms)
    figures = f"T {_shown(Latencies.merged(bare))}; "
    figures += "; ".join(
        f"{name} {_shown(Latencies.merged(found))}, {cpu_us.medians[name]:.0f} µs" for name, found in took.items()
    )
    target = f"{_RECORD_BYTES} B at {rate_hz:g}/s: p50"
    if _PEER not in took:
        return [told(f"{target}, p99, ms, and the processor's time", figures)]
    most = _MOST_P50 if rate_hz == _RATES_HZ[0] else None
    ratio = p50_ms.ratio(_OURS, _PEER)
    if most is None:
        return [told(f"{target} beside {_PEER}", f"{ratio:.2f} x ({figures})")]
    return [at_most(target, ratio, most, f"x {_PEER}", figures)]


def _shown(found: Latencies) -> str:
    p99_ms = found.at_ms(99)
    return f"{found.at_ms(50) or found.max_ms:.2f}" + (f" / {p99_ms:.2f}" if p99_ms is not None else "") + " ms"


def _full(worker: LoadWorker, systems: list[_System], load: _Load, rounds: int, scale: float) -> list[TargetOutcome]:
    rates, cpu_us = Rounds(), Rounds()
    for number in range(rounds):
        for topic, process_id in _turned(systems, number):
            what = f"{load.name}, {topic.name}"
            worker.run(f"{what}: warm", fly, topic, _RECORD_BYTES, warm_s=0.0, duration_s=0.3 * scale, **load.options)
            before_s = cpu_s(process_id)
            found: ClosedLoopResult = worker.run(
                what, fly, topic, _RECORD_BYTES, warm_s=0.0, duration_s=_FULL_S * scale, **load.options
            )
            cpu_us.add(topic.name, (cpu_s(process_id) - before_s) * 1e6 / found.requests)
            rates.add(topic.name, found.rate_hz)
    rate, cpu = rates.medians, cpu_us.medians
    shown = ", ".join(f"{name} {rate[name]:,.0f}/s, {cpu[name]:.1f} µs" for name in rate)
    outcomes = []
    if _PEER not in rate:
        outcomes.append(told(load.name, shown))
    elif load.least is None:
        outcomes.append(told(f"{load.name}, beside {_PEER}", f"{rates.ratio(_OURS, _PEER):.2f} x ({shown})"))
    else:
        outcomes.append(at_least(load.name, rates.ratio(_OURS, _PEER), load.least, _PEER, shown))
    if load.most_cpu_us is not None:
        beside = f"{_PEER} {cpu[_PEER]:.1f}" if _PEER in cpu else ""
        outcomes.append(
            at_most(f"{load.name}: the broker's processor", cpu[_OURS], load.most_cpu_us, "µs a request", beside)
        )
    return outcomes
