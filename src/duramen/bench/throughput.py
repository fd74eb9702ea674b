"""Throughput: a number of messages of each size, until the last is acknowledged and until a subscriber has all."""

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from duramen.bench.bare import write_throughput
from duramen.bench.contenders import Contender, Door
from duramen.bench.field import BenchServers
from duramen.bench.latency import BARE, BARE_SYNCED
from duramen.bench.load import librdkafka
from duramen.bench.load.closed_loop import fly
from duramen.bench.load.worker import LoadWorker
from duramen.bench.peers import jetstream

__all__ = ["ThroughputCell", "bounded_messages", "measure_throughput", "steps"]

_BARE_BYTES: Final = 1_000_000
_IN_FLIGHT: Final = 1000
_IN_FLIGHT_BYTES: Final = 16 * 1024 * 1024
_WARM_MESSAGES: Final = 2000
_WARM_BYTES: Final = 1024


class ThroughputCell(NamedTuple):
    """One system with one size: how long each run took to publish and to read `messages`; no reads: none made."""

    name: str
    door: str
    value_bytes: int
    messages: int
    publish_s: list[float]
    subscribe_s: list[float]

    @property
    def published_hz(self) -> float:
        """Messages a second, the median of the runs."""
        return self.messages / median(self.publish_s)

    @property
    def read_hz(self) -> float | None:
        """Messages a second, the median of the runs."""
        return self.messages / median(self.subscribe_s) if self.subscribe_s else None


def bounded_messages(messages: int, value_bytes: int, bound_bytes: int) -> int:
    """As many messages as were asked for, or as many as `bound_bytes` holds of such a size; at least one."""
    return max(1, min(messages, bound_bytes // value_bytes))


def steps(sizes: Sequence[int], contenders: int, runs: int) -> int:
    """How many jobs `measure_throughput` runs."""
    return 2 * contenders + len(sizes) * (2 * contenders + 2) * runs


def measure_throughput(
    field: BenchServers,
    worker: LoadWorker,
    durabilities: Sequence[str],
    door: Door,
    sizes: Sequence[int],
    messages: int,
    bound_bytes: int,
    runs: int,
) -> list[ThroughputCell]:
    """Cells by size: the bare loops, then everybody. Raises as `fly` and `librdkafka.publish`."""
    cells: dict[tuple[int, str], ThroughputCell] = {}

    def cell(name: str, through: str, size: int, count: int) -> ThroughputCell:
        return cells.setdefault((size, name), ThroughputCell(name, through, size, count, [], []))

    for contender in field.all(durabilities, door):
        # A JVM and fresh memory are slow the first time: that is not counted, for nobody.
        _publish(worker, f"warming {contender.name} up", contender, _WARM_BYTES, _WARM_MESSAGES)
        _subscribe(worker, f"warming {contender.name} up", contender, _WARM_MESSAGES)
        field.remove(contender)
    for run in range(runs):
        for size in sizes:
            count = bounded_messages(messages, size, bound_bytes)
            what = f"throughput, {count} x {size} bytes, run {run + 1} of {runs}"
            writes = max(1, count * size // _BARE_BYTES)
            piece_bytes = count * size // writes
            for name, sync in ((BARE_SYNCED, True), (BARE, False)):
                took_s = worker.run(
                    f"{what}, {name}", write_throughput, field.directory, piece_bytes, writes, sync=sync
                )
                cell(name, "file", size, count).publish_s.append(took_s)
            for contender in field.all(durabilities, door):
                found = cell(contender.name, contender.door, size, count)
                found.publish_s.append(_publish(worker, f"{what}, {contender.name}", contender, size, count))
                took = _subscribe(worker, f"{what}, {contender.name}, reading", contender, count)
                if took is not None:
                    found.subscribe_s.append(took)
                field.remove(contender)
    return list(cells.values())


def _publish(worker: LoadWorker, what: str, contender: Contender, size: int, count: int) -> float:
    if contender.door == "kafka":
        return worker.run(what, librdkafka.publish, contender, size, count)
    in_flight = max(1, min(_IN_FLIGHT, _IN_FLIGHT_BYTES // size))
    return worker.run(what, fly, contender, size, in_flight=in_flight, warm_s=0.0, messages=count).seconds


def _subscribe(worker: LoadWorker, what: str, contender: Contender, count: int) -> float | None:
    if contender.mode == "memory":
        # It keeps the newest records only: there is no reading them all.
        worker.step()
        return None
    if contender.system == "jetstream":
        return worker.run(what, jetstream.subscribe, contender, count)
    return worker.run(what, librdkafka.subscribe, contender, count)
