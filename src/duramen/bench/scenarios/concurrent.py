"""Many concurrent requests: on many connections, on one, through NATS, to many partitions. One generator for all."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from duramen.bench.contenders import Contender
from duramen.bench.field import BenchServers
from duramen.bench.load.closed_loop import ClosedLoopResult, fly
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.targets import Rounds, TargetOutcome, at_least, not_measured
from duramen.bench.scenarios.effort import Effort

__all__ = ["measure", "steps"]

_RECORD_BYTES = 256
_WARM_S = 0.5
_PARTITIONS = 1000
_PARTITIONS_A_REQUEST = 100


class _Load(NamedTuple):
    """One kind of load: what it is called, how `fly` makes it, how many acknowledgements a request stands for."""

    name: str
    options: dict[str, Any]
    weight: int = 1


_CONNECTIONS = _Load("50 connections, one request each", {"connections": 50})
_PIPELINE = _Load("50 requests in flight on one connection", {"in_flight": 50})
_NATS = _Load("NATS: 1,000 publishes of 256 B in flight", {"in_flight": 1000})
_MANY = _Load(
    "1,000 partitions, 100 batches a request",
    {
        "connections": _PARTITIONS // _PARTITIONS_A_REQUEST,
        "partitions": [
            range(first, first + _PARTITIONS_A_REQUEST) for first in range(0, _PARTITIONS, _PARTITIONS_A_REQUEST)
        ],
    },
    _PARTITIONS_A_REQUEST,
)


def steps(effort: Effort) -> int:
    """The most jobs there are."""
    return effort.rounds * (3 + 3 + 3 + 2)


def measure(field: BenchServers, worker: LoadWorker, effort: Effort) -> list[TargetOutcome]:
    """All four loads."""
    ours, kafka = [field.ours("sync"), field.ours("os")], field.kafka(synced=True)
    through_kafka = [*ours, kafka]
    through_nats = [field.ours("sync", "nats"), field.ours("os", "nats"), field.jetstream(synced=True)]
    connections = _rounds(worker, effort, _CONNECTIONS, through_kafka)
    pipeline = _rounds(worker, effort, _PIPELINE, through_kafka)
    nats = _rounds(worker, effort, _NATS, through_nats)
    many = [field.ours(durability, "kafka", _PARTITIONS) for durability in ("sync", "os")]
    partitions = _rounds(worker, effort, _MANY, many)
    return [
        _outcome(_CONNECTIONS, connections, 8, "kafka flush.messages=1", "--peer kafka"),
        _outcome(_CONNECTIONS, connections, 0.5, "duramen os", ""),
        _outcome(_PIPELINE, pipeline, 4, "kafka flush.messages=1", "--peer kafka"),
        _outcome(_NATS, nats, 4, "jetstream sync always", "--peer jetstream"),
        _outcome(_MANY, partitions, 0.6, "duramen os", ""),
    ]


def _rounds(worker: LoadWorker, effort: Effort, load: _Load, contenders: Sequence[Contender | None]) -> Rounds:
    rounds = Rounds()
    taking_part = [one for one in contenders if one is not None]
    for number in range(effort.rounds):
        turn = number % len(taking_part)
        for contender in taking_part[turn:] + taking_part[:turn]:
            found: ClosedLoopResult = worker.run(
                f"{load.name}, {contender.name}", fly, contender, _RECORD_BYTES,
                warm_s=min(_WARM_S, effort.full_s), duration_s=effort.full_s, **load.options,
            )  # fmt: skip
            rounds.add(contender.name, found.rate_hz * load.weight)
    return rounds


def _outcome(load: _Load, rounds: Rounds, wanted: float, than: str, option: str) -> TargetOutcome:
    medians = rounds.medians
    unit = "batches/s" if load.weight > 1 else "acknowledged/s"
    absolute = f"{medians['duramen sync']:,.0f} {unit}, os {medians['duramen os']:,.0f}"
    if than not in medians:
        return not_measured(load.name, f"at least {wanted:g} x {than}", f"no {option}; ours {absolute}")
    if than != "duramen os":
        absolute += f", {than} {medians[than]:,.0f}"
    return at_least(load.name, rounds.ratio("duramen sync", than), wanted, than, absolute)
