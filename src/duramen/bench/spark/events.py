"""The latency from an event to the function of its micro-batch, at a fixed rate of events.

An event's value is its send time. Duramen runs with the settings of `duramen.spark.session`; the peer with Spark's
defaults, and again with those of the session's settings that it supports.
"""

import json
import subprocess
import time
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from confluent_kafka import Producer

from duramen.base.errors import RequestInvalid, RequestTimedOut
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.targets import Rounds, TargetOutcome, at_least, at_most, not_measured
from duramen.bench.spark.reads import PEER
from duramen.bench.spark.sides import PARTITIONS, BenchSide, both, environment, process

__all__ = ["measure_events", "steps"]

_RATE_HZ: Final = 1000
_WARM_UP: Final = 3
"""Times as long as what counts, which is a minute: for about two Java goes on to compile what it runs, and until then
micro-batches take up to twice as long, of either source."""
_FLUSH_S: Final = 60.0
_WANTED_MS: Final = (("p50", 50.0, 100.0), ("p99", 99.0, 200.0))
_TARGET: Final = f"Spark, event to sink at {_RATE_HZ:,} records/s"


class _Way(NamedTuple):
    name: str
    side: BenchSide
    tuned: bool


def steps(rounds: int, *, peer: bool) -> int:
    """Of the progress bar."""
    return rounds * (3 if peer else 1)


def measure_events(
    directory: Path, worker: LoadWorker, *, rounds: int, seconds: float, peer: bool
) -> list[TargetOutcome]:
    """Each way has `seconds` of events in every round, after three times as many that warm it up.

    Raises RequestInvalid.
    """
    found = {name: Rounds() for name, _, _ in _WANTED_MS}
    for number in range(rounds):
        with both(directory / f"events-{number}", "events", peer=peer) as sides:
            ways = [_Way(side.name, side, tuned=False) for side in sides]
            ways += [_Way("kafka, tuned", side, tuned=True) for side in sides[1:]]
            for way in ways:
                worker.say(f"{way.name}: events, round {number + 1}")
                latencies = _measured(way, directory / f"events-{number}", seconds)
                for name, point, _ in _WANTED_MS:
                    found[name].add(way.name, latencies.at_ms(point) or latencies.max_ms)
                worker.step()
    outcomes = []
    for name, _, wanted_ms in _WANTED_MS:
        rounds_ms = found[name].medians
        others = ", ".join(f"{way} {ms:.0f} ms" for way, ms in rounds_ms.items() if way != "duramen")
        outcomes.append(at_most(f"{_TARGET}, {name}", rounds_ms["duramen"], wanted_ms, "ms", others))
    if not peer:
        return [*outcomes, not_measured(f"{_TARGET}, p50 beside the peer", f"better than {PEER}", "without a peer")]
    for other in ("kafka", "kafka, tuned"):
        absolute = f"{found['p50'].medians[other]:.0f} to {found['p50'].medians['duramen']:.0f} ms"
        ratio = found["p50"].ratio(other, "duramen")
        outcomes.append(at_least(f"{_TARGET}, p50 of {other} to ours", ratio, 1.0, "ours", absolute))
    return outcomes


def _measured(way: _Way, places: Path, seconds: float) -> Latencies:
    command = process(way.side, "events", cores=2, runs=1, places=places, tuned=way.tuned)
    log = places / f"{way.name}.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            env=environment(way.side),
        ) as query,
    ):  # fmt: skip
        assert query.stdin is not None
        assert query.stdout is not None
        try:
            counted_ns = _load(way.side, query.stdout, seconds)
            query.stdin.write("\n")
            query.stdin.flush()
            lines = query.stdout.read().splitlines()
        except BaseException:
            query.kill()
            raise
    if query.returncode or not lines:
        raise RequestInvalid(f"Spark failed with the source {way.side.format}: {_last_line(log)}")
    answer: dict[str, Any] = json.loads(lines[-1])
    took_us = [took_us for due_ns, took_us in answer["found"][0] if due_ns >= counted_ns]
    if len(took_us) != int(_RATE_HZ * seconds):
        raise RequestInvalid(f"Spark showed {len(took_us)} events with the source {way.side.format}, not all")
    return Latencies(took_us)


def _last_line(log: Path) -> str:
    return " ".join([line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:])


def _load(side: BenchSide, said: IO[str], seconds: float) -> int:
    """Send events at the rate from when the query shows the first; returns when the first that counts was sent."""
    # Otherwise as it comes: it waits 5 ms for more to send, as Kafka's own does since 4.0.
    producer = Producer({"bootstrap.servers": side.servers, "acks": "all"})

    def send() -> None:
        producer.produce(side.stream, str(time.time_ns()), partition=0)
        producer.flush(_FLUSH_S)

    send()
    if not said.readline():
        raise RequestInvalid(f"Spark ended with the source {side.format} before it showed anything")
    begin_ns, warm = time.monotonic_ns(), int(_RATE_HZ * seconds * _WARM_UP)
    counted_ns = 0
    for number in range(warm + int(_RATE_HZ * seconds)):
        # To sleep is late by some 0.1 ms, and takes nothing from the query that is measured.
        time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9 + number / _RATE_HZ))
        now_ns = time.time_ns()
        if number == warm:
            counted_ns = now_ns
        producer.produce(side.stream, str(now_ns), partition=number % PARTITIONS)
        producer.poll(0)
    if producer.flush(_FLUSH_S):
        raise RequestTimedOut(f"{side.servers} has not acknowledged all events within {_FLUSH_S:g} s")
    return counted_ns
