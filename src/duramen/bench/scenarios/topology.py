"""A chain compared with fan-out: bytes that the leader sends, and latency with acks=all beside that of one node."""

from pathlib import Path
from typing import Final

from duramen.bench.contenders import Contender
from duramen.bench.load.closed_loop import fly
from duramen.bench.load.open_loop import pace
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import LoadWorker
from duramen.bench.ours import Ours
from duramen.bench.report.targets import Rounds, TargetOutcome, at_most, told
from duramen.bench.several import NODES, Several

__all__ = ["measure", "steps"]

_TOPOLOGIES: Final = ("fanout", "chain")
_VALUE_BYTES: Final = 1024
_MESSAGES: Final = 50_000
_IN_FLIGHT: Final = 64
_RATE_HZ: Final = 200.0
_PACED_S: Final = 10.0
_WARM_S: Final = 1.0
_HALF: Final = 0.51  # and what a connection that was made anew sent twice
_ONE: Final = "one node"
_MOST_P50: Final = 2.2
_SENT: Final = "duramen_replica_fetch_out_bytes_total"


def steps(rounds: int) -> int:
    """How many jobs there are."""
    return rounds * (2 * len(_TOPOLOGIES) + 1)


def measure(directory: Path, worker: LoadWorker, *, rounds: int, scale: float) -> list[TargetOutcome]:
    """Both topologies in turns, one partition with three replicas each; `scale` makes it shorter."""
    sent, rates, p50_ms = Rounds(), Rounds(), Rounds()
    with (
        Several(directory / "topology") as several,
        Ours(directory / "one", nats=False) as one,
    ):
        alone = one.stream("alone", "sync", "kafka")
        streams = {name: several.stream(name, NODES, {"replication.topology": name}) for name in _TOPOLOGIES}
        for number in range(rounds):
            for name in reversed(_TOPOLOGIES) if number % 2 else _TOPOLOGIES:
                _round(several, worker, name, streams[name], scale, sent, rates, p50_ms)
            p50_ms.add(_ONE, _p50_ms(worker, _ONE, alone, scale))
    mib_s = {name: rate * _VALUE_BYTES / (1 << 20) for name, rate in rates.medians.items()}
    times = {name: f"{figure:.2f}" for name, figure in sent.medians.items()}
    return [
        at_most(
            "what the leader sends to other replicas, chain beside fan-out", sent.ratio("chain", "fanout"), _HALF, "x",
            f"{times['chain']} and {times['fanout']} times what was written",
        ),
        at_most(
            f"p50 of {_RATE_HZ:g} records a second, fan-out beside one node", p50_ms.ratio("fanout", _ONE), _MOST_P50,
            "x", f"{p50_ms.medians['fanout']:.2f} and {p50_ms.medians[_ONE]:.2f} ms",
        ),
        *(told(f"{name}: p50 of {_RATE_HZ:g} records a second", f"{p50_ms.medians[name]:.2f} ms") for name in times),
        *(told(f"{name}: {_IN_FLIGHT} requests of 1 KiB in flight", f"{mib_s[name]:.1f} MiB/s") for name in times),
    ]  # fmt: skip


def _round(
    several: Several, worker: LoadWorker, name: str, stream: Contender, scale: float, sent: Rounds, rates: Rounds,
    p50_ms: Rounds,
) -> None:  # fmt: skip
    before = several.metric(NODES[0], _SENT)
    messages = max(_IN_FLIGHT, int(_MESSAGES * scale))
    flight = worker.run(f"{name}: many", fly, stream, _VALUE_BYTES, in_flight=_IN_FLIGHT, warm_s=0.0, messages=messages)
    p50_ms.add(name, _p50_ms(worker, name, stream, scale))
    paced = _schedules(scale)
    written = (messages + sum(schedule.messages for schedule in paced)) * _VALUE_BYTES
    sent.add(name, (several.metric(NODES[0], _SENT) - before) / written)
    rates.add(name, flight.rate_hz)


def _p50_ms(worker: LoadWorker, name: str, stream: Contender, scale: float) -> float:
    took_us = worker.run(f"{name}: one by one", pace, stream, _VALUE_BYTES, *_schedules(scale))
    return Latencies(took_us).at_ms(50.0) or 0.0


def _schedules(scale: float) -> tuple[Schedule, Schedule]:
    """What goes before, and what is measured."""
    return Schedule(_RATE_HZ, _WARM_S * scale), Schedule(_RATE_HZ, _PACED_S * scale)
