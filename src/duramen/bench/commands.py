"""The commands of `duramen bench`: set up, measure, print, write results."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from duramen.bench import latency as latencies
from duramen.bench import throughput as throughputs
from duramen.bench.contenders import Door
from duramen.bench.field import BenchServers, Peer
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.documents import latency_document, targets_document, throughput_document, write_document
from duramen.bench.report.plot import plot_latency
from duramen.bench.report.tables import latency_table, targets_table, throughput_table
from duramen.bench.report.targets import TargetOutcome, not_measured
from duramen.bench.scenarios import clients as users
from duramen.bench.scenarios import compaction, concurrent, process, single, streaming
from duramen.bench.scenarios.effort import FULL, Effort
from duramen.bench.spark.reads import PEER, WORKS, measure_reading
from duramen.bench.spark.reads import steps as reading_steps

__all__ = ["clients", "console_for", "everything", "latency", "show", "targets", "throughput"]

_WIDE = 160
_SPARK_ROUNDS = 3
_DURABILITIES = ("sync", "os", "memory")


@contextmanager
def _field(output: Path, peers: Sequence[Peer], *, nats: bool) -> Iterator[BenchServers]:
    # Beside the results: the disk that is to be measured is the one that was named.
    with (
        tempfile.TemporaryDirectory(dir=output, prefix="data-", ignore_cleanup_errors=True) as directory,
        BenchServers(Path(directory).absolute(), list(dict.fromkeys(peers)), nats=nats) as field,
    ):
        yield field


def console_for(*, as_json: bool) -> Console:
    """Where tables go: beside JSON, to standard error."""
    console = Console(stderr=as_json)
    # A table that goes to a file is not cut to the width of a terminal that is not there.
    return console if console.is_terminal else Console(width=_WIDE, stderr=as_json)


def show(console: Console, table: Table, document: Path, *others: Path, as_json: bool) -> None:
    """Print a table, or the document, and say what was written."""
    written = (document, *others)
    if as_json:
        sys.stdout.write(document.read_text())
    else:
        console.print(table)
    console.print("written: " + ", ".join(map(str, written)), soft_wrap=True)


def latency(
    output: Path,
    *,
    rate_hz: float,
    duration_s: float,
    sizes: Sequence[int],
    runs: int,
    door: Door,
    durabilities: Sequence[str],
    peers: Sequence[Peer],
    as_json: bool = False,
) -> None:
    """Measure latency; prints a table, or JSON, writes latency-DOOR.json and latency-DOOR.png."""
    console = console_for(as_json=as_json)
    sizes, durabilities = list(dict.fromkeys(sizes)), list(dict.fromkeys(durabilities))
    with _field(output, peers, nats=door == "nats") as field:
        contenders = field.all(durabilities, door)
        with LoadWorker(console, latencies.steps(sizes, len(contenders), runs)) as worker:
            cells = latencies.measure_latency(field, worker, contenders, sizes, Schedule(rate_hz, duration_s), runs)
    document, picture = output / f"latency-{door}.json", output / f"latency-{door}.png"
    settings = {"rate_hz": rate_hz, "duration_s": duration_s, "runs": runs}
    write_document(document, {"settings": settings, "latency": latency_document(cells)})
    plot_latency(cells, picture)
    show(console, latency_table(cells), document, picture, as_json=as_json)


def throughput(
    output: Path,
    *,
    messages: int,
    bound_bytes: int,
    sizes: Sequence[int],
    runs: int,
    door: Door,
    durabilities: Sequence[str],
    peers: Sequence[Peer],
    as_json: bool = False,
) -> None:
    """Measure throughput; prints a table, or JSON, writes throughput-DOOR.json."""
    console = console_for(as_json=as_json)
    sizes, durabilities = list(dict.fromkeys(sizes)), list(dict.fromkeys(durabilities))
    with _field(output, peers, nats=door == "nats") as field:
        systems = len(durabilities) + 2 * len(set(peers))
        with LoadWorker(console, throughputs.steps(sizes, systems, runs)) as worker:
            cells = throughputs.measure_throughput(
                field, worker, durabilities, door, sizes, messages, bound_bytes, runs
            )
    document = output / f"throughput-{door}.json"
    settings = {"messages": messages, "bound_bytes": bound_bytes, "runs": runs}
    write_document(document, {"settings": settings, "throughput": throughput_document(cells)})
    show(console, throughput_table(cells), document, as_json=as_json)


def targets(output: Path, *, peers: Sequence[Peer], spark: bool, effort: Effort = FULL, as_json: bool = False) -> None:
    """Measure every target, that of Spark if asked; prints a table, or JSON, writes targets.json."""
    console = console_for(as_json=as_json)
    scenarios = (process, concurrent, streaming, single, compaction)
    outcomes: list[TargetOutcome] = []
    peer = "kafka" in peers
    more = reading_steps(_spark_rounds(effort), 1, peer=peer) if spark else 0
    with LoadWorker(console, more + sum(scenario.steps(effort) for scenario in scenarios)) as worker:
        # Before the others run: memory of theirs that is not touched yet would slow our start.
        with tempfile.TemporaryDirectory(dir=output, prefix="data-", ignore_cleanup_errors=True) as directory:
            outcomes += process.measure(Path(directory).absolute(), worker, effort)
        with _field(output, peers, nats=True) as field:
            for scenario in (concurrent, streaming, single):
                outcomes += scenario.measure(field, worker, effort)
        with tempfile.TemporaryDirectory(dir=output, prefix="data-", ignore_cleanup_errors=True) as directory:
            outcomes += compaction.measure(Path(directory).absolute(), worker, effort)
        outcomes += _spark(output, worker, effort, peer=peer) if spark else _no_spark()
    document = output / "targets.json"
    write_document(document, {"effort": effort._asdict(), "targets": targets_document(outcomes)})
    show(console, targets_table(outcomes), document, as_json=as_json)


def clients(
    output: Path, *, peers: Sequence[Peer], effort: Effort, parts: Sequence[str] = users.PARTS, as_json: bool = False
) -> None:
    """Measure what users of Kafka's clients do; prints a table, or JSON, writes clients.json."""
    console = console_for(as_json=as_json)
    with LoadWorker(console, users.steps(effort, parts)) as worker, _field(output, peers, nats=False) as field:
        outcomes = users.measure(field, worker, effort, parts)
    document = output / "clients.json"
    write_document(document, {"effort": effort._asdict(), "parts": list(parts), "targets": targets_document(outcomes)})
    show(console, targets_table(outcomes), document, as_json=as_json)


def _spark(output: Path, worker: LoadWorker, effort: Effort, *, peer: bool) -> list[TargetOutcome]:
    with tempfile.TemporaryDirectory(dir=output, prefix="data-", ignore_cleanup_errors=True) as directory:
        return measure_reading(
            Path(directory).absolute(), worker, records=effort.spark_records, rounds=_spark_rounds(effort), peer=peer,
            works=["count"],
        )  # fmt: skip


def _spark_rounds(effort: Effort) -> int:
    return min(_SPARK_ROUNDS, effort.rounds)


def _no_spark() -> list[TargetOutcome]:
    target, wanted = WORKS["count"]
    return [not_measured(target, f"at least {wanted:g} x {PEER}", "no --spark")]


def everything(
    output: Path,
    *,
    rate_hz: float,
    duration_s: float,
    messages: int,
    bound_bytes: int,
    sizes: Sequence[int],
    runs: int,
    peers: Sequence[Peer],
    spark: bool,
    as_json: bool = False,
) -> None:
    """Latency and throughput through the Kafka door, then the targets."""
    latency(
        output, rate_hz=rate_hz, duration_s=duration_s, sizes=sizes, runs=runs, door="kafka",
        durabilities=_DURABILITIES, peers=peers, as_json=as_json,
    )  # fmt: skip
    throughput(
        output, messages=messages, bound_bytes=bound_bytes, sizes=sizes, runs=runs, door="kafka",
        durabilities=_DURABILITIES, peers=peers, as_json=as_json,
    )  # fmt: skip
    targets(output, peers=peers, spark=spark, as_json=as_json)
