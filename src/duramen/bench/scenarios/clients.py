"""Everyday work of Kafka clients, compared with Apache Kafka: throughput, transactions, groups, memory."""

from collections.abc import Callable, Sequence
from typing import Final

from duramen.bench.contenders import Contender
from duramen.bench.field import BenchServers
from duramen.bench.load import librdkafka
from duramen.bench.load.idle import create_topics, hold_connections, resident_mib
from duramen.bench.load.members import gather
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.tail import tail
from duramen.bench.load.transactions import transact
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.sizes import size_name
from duramen.bench.report.targets import Rounds, TargetOutcome, at_least, at_most, not_measured, told
from duramen.bench.scenarios.effort import Effort
from duramen.bench.system import cpu_s

__all__ = ["PARTS", "measure", "steps"]

PARTS: Final = ("throughput", "transactions", "groups", "tailing", "topics", "memory")

OURS: Final = "duramen sync"
LAZY: Final = "kafka lazy"
SYNCED: Final = "kafka flush.messages=1"

_SIZES: Final = (100, 1024)
_PARTITIONS: Final = (1, 10, 100)
_TRANSACTION_RECORDS: Final = 100
_MEMBERS: Final = (10, 100)
_TAIL_HZ: Final = 1000.0
_TAIL_BYTES: Final = 256
_WARM_S: Final = 1.0
_TOPICS: Final = 1000
_CONNECTIONS: Final = 1000
_LATENCY: Final = 0.5
_MEMORY: Final = 0.25


def steps(effort: Effort, parts: Sequence[str] = PARTS) -> int:
    """The most jobs there are."""
    jobs = {
        "throughput": 2 * 2 * len(_SIZES) * len(_PARTITIONS), "transactions": 2, "groups": 2 * len(_MEMBERS),
        "tailing": 3, "topics": 2,
    }  # fmt: skip
    return effort.rounds * sum(jobs.get(part, 0) for part in parts) + 2 * ("memory" in parts)


def measure(
    field: BenchServers, worker: LoadWorker, effort: Effort, parts: Sequence[str] = PARTS
) -> list[TargetOutcome]:
    """The `parts`; memory of the idle brokers first and after the same load last."""
    works = {
        "throughput": _throughput, "transactions": _transactions, "groups": _groups, "tailing": _tailing,
        "topics": _creating,
    }  # fmt: skip
    idle = _memory(field)
    outcomes = [outcome for part, work in works.items() if part in parts for outcome in work(field, worker, effort)]
    if "memory" not in parts:
        return outcomes
    used = _memory(field)
    held = _connections(field, worker)
    for what, found in (("idle", idle), ("after all of this", used), (f"with {_CONNECTIONS:,} idle connections", held)):
        outcomes.append(_smaller(f"memory {what}", found, _MEMORY, LAZY, "MiB"))
    return outcomes


def _turns(field: BenchServers, number: int, partitions: int = 1, *, synced: bool = False) -> list[Contender]:
    """New topics of everybody, in the order of this round."""
    found = [field.ours("sync", partitions=partitions), field.kafka(synced=False, partitions=partitions)]
    if synced:
        found.append(field.kafka(synced=True, partitions=partitions))
    contenders = [one for one in found if one is not None]
    turn = number % len(contenders)
    return contenders[turn:] + contenders[:turn]


def _rounds(field: BenchServers, effort: Effort, job: Callable[[Contender], float], partitions: int = 1) -> Rounds:
    rounds = Rounds()
    for number in range(effort.rounds):
        for contender in _turns(field, number, partitions):
            rounds.add(contender.name, job(contender))
            field.remove(contender)
    return rounds


def _throughput(field: BenchServers, worker: LoadWorker, effort: Effort) -> list[TargetOutcome]:
    outcomes = []
    for size, records in zip(_SIZES, (effort.small_records, effort.large_records), strict=True):
        for partitions in _PARTITIONS:
            producing, consuming = Rounds(), Rounds()
            for number in range(effort.rounds):
                for contender in _turns(field, number, partitions):
                    what = f"{records:,} records of {size_name(size)}, {partitions} partitions, {contender.name}"
                    took_s = worker.run(f"producing {what}", librdkafka.publish, contender, size, records, partitions)
                    producing.add(contender.name, records / took_s)
                    took_s = worker.run(f"consuming {what}", librdkafka.subscribe, contender, records, partitions)
                    consuming.add(contender.name, records / took_s)
                    field.remove(contender)
            for verb, rounds in (("produced", producing), ("consumed", consuming)):
                outcomes.append(_faster(f"{size_name(size)}, {partitions} partitions, {verb}", rounds, "records/s"))
    return outcomes


def _transactions(field: BenchServers, worker: LoadWorker, effort: Effort) -> list[TargetOutcome]:
    def job(contender: Contender) -> float:
        what = f"transactions, {contender.name}"
        return worker.run(what, transact, contender, _SIZES[0], _TRANSACTION_RECORDS, effort.full_s)

    target = f"transactions of {_TRANSACTION_RECORDS} records"
    return [_faster(target, _rounds(field, effort, job), "a second")]


def _groups(field: BenchServers, worker: LoadWorker, effort: Effort) -> list[TargetOutcome]:
    outcomes = []
    for members in _MEMBERS:

        def job(contender: Contender, members: int = members) -> float:
            return worker.run(f"a group of {members} members, {contender.name}", gather, contender, members)

        rounds = _rounds(field, effort, job, members)
        outcomes.append(_smaller(f"a group of {members} new members has its partitions", rounds, 1.0, LAZY, "s"))
    return outcomes


def _tailing(field: BenchServers, worker: LoadWorker, effort: Effort) -> list[TargetOutcome]:
    rounds, cpu_us = {50.0: Rounds(), 99.0: Rounds()}, Rounds()
    warm, schedule = Schedule(_TAIL_HZ, _WARM_S), Schedule(_TAIL_HZ, effort.paced_s)
    for number in range(effort.rounds):
        for contender in _turns(field, number, synced=True):
            what = f"following {_TAIL_HZ:g} records a second, {contender.name}"
            process_id = field.process_id if contender.name == OURS else field.kafka_process_id
            before_s = cpu_s(process_id) if process_id is not None else 0.0
            found = Latencies(worker.run(what, tail, contender, _TAIL_BYTES, warm, schedule))
            if process_id is not None:
                spent_s = cpu_s(process_id) - before_s
                cpu_us.add(contender.name, spent_s * 1e6 / (warm.messages + schedule.messages))
            for point, figures in rounds.items():
                figures.add(contender.name, found.at_ms(point) or found.max_ms)
            field.remove(contender)
    target = f"from send to receive at {_TAIL_HZ:,.0f} records a second"
    spent = ", ".join(f"{name} {figure:.0f} µs" for name, figure in cpu_us.medians.items())
    return [
        *(_smaller(f"{target}, p{point:g}", figures, _LATENCY, SYNCED, "ms") for point, figures in rounds.items()),
        told(f"{target}, processor time of the broker for each", spent),
    ]


def _creating(field: BenchServers, worker: LoadWorker, effort: Effort) -> list[TargetOutcome]:
    def job(contender: Contender) -> float:
        return worker.run(f"creating {_TOPICS:,} topics, {contender.name}", create_topics, contender, _TOPICS)

    return [_smaller(f"{_TOPICS:,} topics are created", _rounds(field, effort, job), 1.0, LAZY, "s")]


def _memory(field: BenchServers) -> Rounds:
    rounds = Rounds()
    for name, pid in ((OURS, field.process_id), (LAZY, field.kafka_process_id)):
        if pid is not None:
            rounds.add(name, resident_mib(pid))
    return rounds


def _connections(field: BenchServers, worker: LoadWorker) -> Rounds:
    rounds = Rounds()
    for contender in _turns(field, 0):
        pid = field.process_id if contender.name == OURS else field.kafka_process_id
        if pid is not None:
            what = f"{_CONNECTIONS:,} idle connections, {contender.name}"
            rounds.add(contender.name, worker.run(what, hold_connections, contender, pid, _CONNECTIONS))
    return rounds


def _faster(target: str, rounds: Rounds, unit: str) -> TargetOutcome:
    medians = rounds.medians
    absolute = f"{medians[OURS]:,.0f} {unit}"
    if LAZY not in medians:
        return not_measured(target, f"at least 1 x {LAZY}", f"no --peer kafka; ours {absolute}")
    return at_least(target, rounds.ratio(OURS, LAZY), 1.0, LAZY, f"{absolute}, {LAZY} {medians[LAZY]:,.0f}")


def _smaller(target: str, rounds: Rounds, wanted: float, than: str, unit: str) -> TargetOutcome:
    medians = rounds.medians
    absolute = ", ".join(f"{name} {figure:.3g} {unit}" for name, figure in medians.items())
    if than not in medians:
        return not_measured(target, f"at most {wanted:g} x {than}", f"no --peer kafka; {absolute}")
    return at_most(target, rounds.ratio(OURS, than), wanted, "x", absolute, f"of {than}")
