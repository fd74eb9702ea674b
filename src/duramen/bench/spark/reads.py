"""Rows per second that Spark reads: a batch count, a batch to Parquet, streams to Parquet and to Delta.

Ours goes there in both of its ways: row by row through Java, as any frame does, and in files that the tasks write by
themselves (`duramen.spark.write_parquet`, `stream_parquet`, pipelines that copy a stream, and a stream as a table).

Sources run in processes of their own and take turns. The first runs of each process warm the JVM up and do not
count. The peer is measured as it comes, which is what is compared, and with the options that a session of ours has for
Java, which is told.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from duramen.base.errors import RequestInvalid
from duramen.bench.load.worker import LoadWorker
from duramen.bench.peers.spark_kafka import CONNECTOR_VERSION
from duramen.bench.report.targets import Rounds, TargetOutcome, at_least, not_measured
from duramen.bench.spark.sides import VALUE_BYTES, BenchSide, both, fill, run, with_delta
from duramen.client.http import HttpNode, path_of
from duramen.spark.declared import KEYS

__all__ = ["PEER", "WORKS", "measure_reading", "steps"]

WORKS: Final[Mapping[str, tuple[str, float]]] = {
    "count": ("Spark, batch count and sum, records of 16 + 100 bytes", 3.0),
    "parquet": ("Spark, batch to Parquet, row by row", 2.0),
    "files": ("Spark, batch to Parquet, by write_parquet", 2.0),
    "available": ("Spark, AvailableNow to Parquet, row by row", 2.0),
    "streamed files": ("Spark, AvailableNow to Parquet, by stream_parquet", 2.0),
    "delta": ("Spark, AvailableNow to Delta", 2.0),
    "delta, row by row": ("Spark, AvailableNow to Delta, row by row", 2.0),
    "table": ("Spark, AvailableNow to Delta, as a table", 2.0),
}
"""What is measured, and how many times the peer's rate is wanted."""

_PEERS_WORK: Final[Mapping[str, str]] = {
    "files": "parquet", "streamed files": "available", "delta, row by row": "delta", "table": "delta",
}  # fmt: skip
"""What the peer does where it has no such work: of both, what a user of it would do."""

_WARMING_RUNS: Final = 3
_OUR_JAVA: Final = "kafka with our Java's options"

PEER: Final = f"Spark {CONNECTOR_VERSION}'s own Kafka source from Apache Kafka"


class _Way(NamedTuple):
    name: str
    side: BenchSide
    our_java: bool


def steps(rounds: int, works: int, *, peer: bool) -> int:
    """Of the progress bar."""
    return (2 if peer else 1) + rounds * works * (3 if peer else 1)


def measure_reading(
    directory: Path,
    worker: LoadWorker,
    *,
    records: int,
    rounds: int,
    peer: bool,
    works: Sequence[str] = tuple(WORKS),
    runs: int = 3,
    cores: int = 2,
) -> list[TargetOutcome]:
    """Rows a second of the sources over `records` in each of their brokers, in `rounds` of `runs` warm runs.

    Needs Maven for the peer; without it the outcomes only say how quick ours is. Raises DependencyMissing,
    ServerUnreachable, RequestInvalid, RequestTimedOut.
    """
    found = {work: Rounds() for work in works}
    with both(directory, "spark", peer=peer) as sides:
        for side in sides:
            worker.say(f"{side.name}: {records:,} records are written")
            fill(side, records)
            worker.step()
        ways = [_Way(side.name, side, our_java=False) for side in sides]
        ways += [_Way(_OUR_JAVA, side, our_java=True) for side in sides[1:]]
        for number in range(rounds):
            rates: dict[tuple[str, str], float] = {}
            for work in works:
                for way in ways:
                    does = work if way.side.connector is None else _PEERS_WORK.get(work, work)
                    if (way.name, does) not in rates:
                        worker.say(f"{way.name}: {does}, round {number + 1}")
                        rates[way.name, does] = _rate(way, does, records, runs, cores, directory)
                    found[work].add(way.name, rates[way.name, does])
                    worker.step()
    return [_outcome(work, found[work], peer=peer) for work in works]


def _outcome(work: str, found: Rounds, *, peer: bool) -> TargetOutcome:
    target, wanted = WORKS[work]
    rates = found.medians
    if not peer:
        why = f"without a peer; duramen {rates['duramen']:,.0f} rows/s"
        return not_measured(target, f"at least {wanted:g} x {PEER}", why)
    absolute = f"{rates['duramen']:,.0f} to {rates['kafka']:,.0f} rows/s"
    absolute += f"; {found.ratio('duramen', _OUR_JAVA):.2f} x {_OUR_JAVA}, {rates[_OUR_JAVA]:,.0f}"
    return at_least(target, found.ratio("duramen", "kafka"), wanted, PEER, absolute)


def _rate(way: _Way, work: str, records: int, runs: int, cores: int, places: Path) -> float:
    """Rows a second: the median of `runs` after some that do not count. Raises RequestInvalid."""
    side = way.side
    asked = with_delta(side) if work == "delta" else side
    with _table_for_a_while(side) if work == "table" else nullcontext():
        took_s, found = run(asked, work, cores=cores, runs=_WARMING_RUNS + runs, places=places, our_java=way.our_java)
    if any(one != [records, records * VALUE_BYTES] for one in found):
        raise RequestInvalid(f"Spark read {found} with the source {side.format}, not {records} records each time")
    return records / median(took_s[_WARMING_RUNS:])


@contextmanager
def _table_for_a_while(side: BenchSide) -> Iterator[None]:
    """A stream that is declared to be a table meanwhile is none behind it, or reads would look for the table."""
    try:
        yield
    finally:
        HttpNode(side.http).patch(path_of("streams", side.stream), {"config": dict.fromkeys(KEYS)})
