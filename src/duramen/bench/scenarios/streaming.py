"""One librdkafka producer and one librdkafka consumer, compared with Apache Kafka in its default configuration."""

from duramen.bench.contenders import Contender
from duramen.bench.field import BenchServers
from duramen.bench.load import librdkafka
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.sizes import size_name
from duramen.bench.report.targets import Rounds, TargetOutcome, at_least, not_measured
from duramen.bench.scenarios.effort import Effort

__all__ = ["measure", "steps"]

_SIZES = (100, 1024)
_WANTED = 1.0


def steps(effort: Effort) -> int:
    """How many jobs there are."""
    return len(_SIZES) * effort.rounds * 4


def measure(field: BenchServers, worker: LoadWorker, effort: Effort) -> list[TargetOutcome]:
    """Producing and consuming, of each size."""
    outcomes = []
    for size in _SIZES:
        records = effort.small_records if size == _SIZES[0] else effort.large_records
        producing, consuming = Rounds(), Rounds()
        for number in range(effort.rounds):
            contenders = [field.kafka(synced=False), field.ours("sync")]
            for contender in reversed(contenders) if number % 2 else contenders:
                if contender is not None:
                    _round(worker, contender, size, records, producing, consuming)
                    field.remove(contender)
        for what, rounds in (("producing", producing), ("consuming", consuming)):
            outcomes.append(_outcome(f"librdkafka {what} {size_name(size)}", rounds, size))
    return outcomes


def _round(
    worker: LoadWorker, contender: Contender, size: int, records: int, producing: Rounds, consuming: Rounds
) -> None:
    what = f"{records:,} records of {size_name(size)}, {contender.name}"
    took_s = worker.run(f"producing {what}", librdkafka.publish, contender, size, records)
    producing.add(contender.name, records / took_s)
    took_s = worker.run(f"consuming {what}", librdkafka.subscribe, contender, records)
    consuming.add(contender.name, records / took_s)


def _outcome(target: str, rounds: Rounds, size: int) -> TargetOutcome:
    medians = rounds.medians
    ours = medians["duramen sync"]
    absolute = f"{ours / 1000:,.0f} k records/s, {ours * size / 1e6:,.0f} MB/s"
    if "kafka lazy" not in medians:
        return not_measured(target, f"at least {_WANTED:g} x Kafka lazy", f"no --peer kafka; ours {absolute}")
    absolute += f"; Kafka {medians['kafka lazy'] / 1000:,.0f} k"
    return at_least(target, rounds.ratio("duramen sync", "kafka lazy"), _WANTED, "Kafka lazy", absolute)
