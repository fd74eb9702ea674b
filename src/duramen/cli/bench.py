"""`duramen bench`: its options. Benchmarks are imported when they run."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from duramen.base.errors import DependencyMissing
from duramen.base.units import MIB, parse_bytes
from duramen.cli.output import JSON, format_option

__all__ = ["command"]

_SIZES: Final = ("256B", "1KiB", "5KiB", "1MB")
_NEEDED: Final = ("confluent_kafka", "matplotlib", "psutil")
_LARGEST_VALUE_BYTES: Final = 1_000_000

_F = TypeVar("_F", bound=Callable[..., object])


class _Size(click.ParamType[int]):
    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            size = parse_bytes(str(value))
        except ValueError as error:
            self.fail(f"{value!r} is not a size: {error}", param, ctx)
        if not 1 <= size <= _LARGEST_VALUE_BYTES:
            self.fail(f"{value} is not from 1 byte to 1 MB, the sizes that every system accepts by default", param, ctx)
        return size


class _Bound(click.ParamType[int]):
    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            size = value if isinstance(value, int) else parse_bytes(str(value))
        except ValueError as error:
            self.fail(f"{value!r} is not a size: {error}", param, ctx)
        if size < 1:
            self.fail(f"{value} is less than a byte", param, ctx)
        return size


def _together(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    def decorate(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_output = click.option("--output", type=click.Path(file_okay=False, path_type=Path), show_default=True,
                       default=Path("duramen-bench"),
                       help="The directory for results and, during the run, data: its disk is measured.")  # fmt: skip
_common = _together(
    format_option,
    click.option("--peer", "peers", multiple=True, type=click.Choice(["kafka", "jetstream"]),
                 help="A system to measure in the same run, unsynced and synced; may be repeated. kafka: Apache Kafka, "
                 "needs Java and Maven."),
    _output,
)  # fmt: skip
_doors = click.option("--door", type=click.Choice(["kafka", "nats"]), default="kafka", show_default=True,
                      help="The door to write through.")  # fmt: skip
_durabilities = click.option("--durability", "durabilities", multiple=True, default=("sync", "os", "memory"),
                             type=click.Choice(["sync", "os", "memory"]), show_default=True,
                             help="The durability of an acknowledgement; may be repeated.")  # fmt: skip
_sizes = click.option("--size", "sizes", multiple=True, type=_Size(), default=_SIZES, show_default=True,
                      help="Bytes of a message, up to 1 MB; may be repeated.")  # fmt: skip


def _runs(default: int) -> Callable[[_F], _F]:
    return click.option("--runs", type=click.IntRange(1, 1000), default=default, show_default=True,
                        help="Rounds in which the systems alternate, so that disturbances of the machine affect all of "
                        "them.")  # fmt: skip


def _duration(default_s: float) -> Callable[[_F], _F]:
    return click.option("--duration", "duration_s", type=click.FloatRange(0.1, 86_400), default=default_s,
                        show_default=True, metavar="SECONDS", help="The duration of each run of a size.")  # fmt: skip


_spark = click.option("--spark", is_flag=True, help="Measure Spark too, which takes some minutes more; with --peer "
"kafka also Spark's own Kafka source, for which about 500 MB are downloaded once.")  # fmt: skip
_rate = click.option("--rate", "rate_hz", type=click.FloatRange(0.1, 100_000), default=50.0, show_default=True,
                     metavar="PER-SECOND", help="Messages per second, sent at fixed times.")  # fmt: skip


def _messages(default: int, default_bytes: str) -> Callable[[_F], _F]:
    return _together(
        click.option("--messages", type=click.IntRange(1), default=default, show_default=True,
                     help="Messages of each size."),
        click.option("--bytes", "bound_bytes", type=_Bound(), default=default_bytes, show_default=True,
                     help="The most bytes of each size, so that there are fewer large messages."),
    )  # fmt: skip


def _check(output: Path, *, spark: bool = False) -> None:
    """Raises DependencyMissing or a usage error before anything is started."""
    if spark and importlib.util.find_spec("pyspark") is None:
        raise DependencyMissing("measuring Spark needs PySpark: pip install 'duramen[spark]'")
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise DependencyMissing(f"measuring needs {', '.join(missing)}: pip install 'duramen[bench]'")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"--output: {output} cannot be made: {error.strerror}") from None
    if not os.access(output, os.W_OK):
        raise click.UsageError(f"--output: {output} cannot be written")


@click.group("bench", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Measure Duramen on this machine, beside Apache Kafka and NATS JetStream if asked.

    A broker is measured in a process of its own; the load is made by another.
    """


@command.command("latency", short_help="Latency from publish to acknowledgement.")
@_rate
@_duration(30.0)
@_sizes
@_runs(1)
@_doors
@_durabilities
@_common
def _latency(output: Path, format_: str, **options: Any) -> None:
    """Measure publish to acknowledgement at a fixed rate, from the time at which each message was due."""
    _check(output)
    from duramen.bench.commands import latency

    latency(output, as_json=format_ == JSON, **options)


@command.command("throughput", short_help="Throughput of publishing and reading.")
@_messages(100_000, "1GB")
@_sizes
@_runs(1)
@_doors
@_durabilities
@_common
def _throughput(output: Path, format_: str, **options: Any) -> None:
    """Measure the time until all messages are acknowledged, and until a subscriber has all."""
    _check(output)
    from duramen.bench.commands import throughput

    throughput(output, as_json=format_ == JSON, **options)


_QUICK: Final = 0.01
_QUICK_KEYS: Final = 20_000
_ROUNDS_HELP: Final = "Rounds in which the systems take turns."
_scale = click.option("--scale", type=click.FloatRange(0.001, 1000), default=1.0, show_default=True,
                      help="A factor for durations and amounts.")  # fmt: skip


@command.command("targets", short_help="Measure every target and show whether it is met.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=5, show_default=True, help=_ROUNDS_HELP)
@_scale
@_spark
@_common
def _targets(output: Path, peers: tuple[Any, ...], rounds: int, scale: float, spark: bool, format_: str) -> None:
    """Measure every target of the project: the target, the figure, and whether it is met."""
    _check(output, spark=spark)
    from duramen.bench.commands import targets
    from duramen.bench.scenarios.effort import scaled

    targets(output, peers=peers, spark=spark, effort=scaled(rounds, scale), as_json=format_ == JSON)


@command.command("clients", short_help="Kafka clients with Duramen and with Apache Kafka.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=3, show_default=True, help=_ROUNDS_HELP)
@_scale
@click.option("--part", "parts", multiple=True,
              type=click.Choice(["throughput", "transactions", "groups", "tailing", "topics", "memory"]),
              help="What to measure; may be repeated. tailing: from send to receive of a consumer that follows 1,000"
              " records a second. Default: all of it.")  # fmt: skip
@click.option(
    "--peer",
    "peers",
    multiple=True,
    type=click.Choice(["kafka"]),
    help="Also measure Apache Kafka with its defaults in the same run; needs Java and Maven.",
)
@_output
@format_option
def _clients(
    output: Path, parts: tuple[str, ...], peers: tuple[Any, ...], rounds: int, scale: float, format_: str
) -> None:
    """Measure throughput on 1, 10 and 100 partitions, transactions, groups, tailing, 1,000 topics, memory."""
    _check(output)
    from duramen.bench.commands import clients
    from duramen.bench.scenarios.clients import PARTS
    from duramen.bench.scenarios.effort import scaled

    chosen = list(dict.fromkeys(parts)) or PARTS
    clients(output, peers=peers, effort=scaled(rounds, scale), parts=chosen, as_json=format_ == JSON)


def _storage(name: str, short_help: str, help_text: str, rounds: int) -> None:
    """A command of the group that measures one thing about the storage."""

    @command.command(name, short_help=short_help, help=help_text)
    @click.option("--rounds", type=click.IntRange(1, 1000), default=rounds, show_default=True, help=_ROUNDS_HELP)
    @_scale
    @_output
    @format_option
    def run(output: Path, rounds: int, scale: float, format_: str) -> None:
        _check(output)
        from duramen.bench.storage import measure_storage

        measure_storage(name, output, rounds=rounds, scale=scale, as_json=format_ == JSON)


_storage(
    "starting",
    "Start with many logs and with large ones.",
    "Start time of a node with 100 GB in 1,000 logs and in 10,000, after a stop and after kill -9; its memory and open "
    "files. The logs are sparse files: 100 GB take 100 MB of disk.",
    3,
)
_storage(
    "crowded",
    "Small batches to 1,000 logs.",
    "Small batches to 1,000 logs at once: acknowledged batches per second compared with durability=os, and bytes "
    "written to disk per byte of batches.",
    3,
)
_storage(
    "slow-disk",
    "Fifty clients, and a lone producer, on slow disks.",
    "Fifty clients beside one on a disk whose syncs take 1 ms and 5 ms. 50 records a second where a sync takes 0.1, 1"
    " and 5 ms, and where it stalls for 2 s once a minute: how long they take, and how long the event loop stands"
    " still.",
    3,
)
_storage(
    "compaction",
    "Producers while a log is compacted.",
    "The p99 of single records, alternating between runs with and without compaction at the default rate.",
    5,
)
_storage(
    "cold-reads",
    "Producers beside a consumer of cold data.",
    "The p99 of producers with and without a consumer that reads 2 GiB from disk; and how much of the data stays in "
    "memory.",
    5,
)


_storage(
    "failover",
    "Failover after a leader is killed, paused or moved.",
    "The time without acknowledgements with acks=all on three nodes after a leader is killed with -9, paused, or "
    "moved, for a client that retries immediately.",
    10,
)


_storage(
    "topology",
    "Replication in a chain compared with fan-out.",
    "Bytes that the leader of a partition with three replicas sends, and latency of producers with acks=all, in a "
    "chain and with fan-out.",
    3,
)
_storage(
    "partitions",
    "30,000 partitions on three nodes.",
    "The time to create 30,000 partitions with three replicas on three nodes, to elect leaders after a node is killed, "
    "and until that node and a restarted controller are ready.",
    1,
)


@command.command("requests", short_help="Single records, beside klite.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=5, show_default=True, help=_ROUNDS_HELP)
@_scale
@click.option("--klite", type=click.Path(exists=True, dir_okay=False, executable=True, path_type=Path),
              metavar="BINARY", help="Measure beside klite in the same run: this binary of it, built by"
              " `go build ./cmd/klite`.")  # fmt: skip
@_output
@format_option
def _requests(output: Path, rounds: int, scale: float, klite: Path | None, format_: str) -> None:
    """Records of 256 B, each in a request of its own and acknowledged when it is on disk.

    At 50 and 500 a second, one after another, on 50 connections, and 50 in flight on one: latency, rate, and the
    processor's time of the broker for each.
    """
    _check(output)
    from duramen.bench.storage import measure_requests

    measure_requests(output, rounds=rounds, scale=scale, klite=klite, as_json=format_ == JSON)


@command.command("growing", short_help="A node that joins, and copies 10 GB.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=5, show_default=True, help=_ROUNDS_HELP)
@_scale
@click.option("--joined-data", type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
              metavar="DIRECTORY", help="The data directory of the new node, to use a disk of its own. Without it, the "
              "disk of the others.")  # fmt: skip
@_output
@format_option
def _growing(output: Path, rounds: int, scale: float, joined_data: Path | None, format_: str) -> None:
    """Measure the rate at which a joining node copies 10 GB of replicas, and the latency of producers meanwhile.

    The latency of producers is also measured before and after the copy, and during plain copies of the same files: at
    the rate of the node, and at full speed. The new node shares the processors of this machine. Needs 30 GB of disk;
    with --joined-data 20 GB, and 10 GB in that directory.
    """
    _check(output)
    from duramen.bench.storage import measure_growing

    measure_growing(output, rounds=rounds, scale=scale, joined=joined_data, as_json=format_ == JSON)


@command.command("pauses", short_help="Pauses of a node.")
@click.option("--duration", "duration_s", type=click.FloatRange(0.1, 86_400), default=600.0, show_default=True,
              metavar="SECONDS", help="The duration of the load.")  # fmt: skip
@_output
@format_option
def _pauses(output: Path, duration_s: float, format_: str) -> None:
    """Measure the longest pauses of a node and its garbage collector under small batches to 1,000 logs."""
    _check(output)
    from duramen.bench.storage import measure_pauses

    measure_pauses(output, duration_s=duration_s, as_json=format_ == JSON)


@command.command("native", short_help="Records to Arrow and back.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=5, show_default=True, help=_ROUNDS_HELP)
@_scale
@_output
@format_option
def _native(output: Path, rounds: int, scale: float, format_: str) -> None:
    """Measure the records a second and core that the native package and its twins decode and encode for Spark."""
    _check(output)
    if any(importlib.util.find_spec(name) is None for name in ("numpy", "pyarrow")):
        raise DependencyMissing("bench native needs numpy and pyarrow: pip install 'duramen[spark]'")
    from duramen.bench.native import measure_native

    measure_native(output, rounds=rounds, scale=scale, as_json=format_ == JSON)


@command.command("keyed", short_help="Keyed streams and their snapshots.")
@click.option("--part", "parts", multiple=True, type=click.Choice(["views", "streams", "files", "node", "week"]),
              default=("views", "streams"), show_default=True,
              help="What to measure; may be repeated. files: a table of --keys keys in a process of its own, in files"
              " where they do not fit into memory. node: a whole node with --keys keys and --updates updates of them,"
              " restarted also with kill -9. week: what a consumer reads that knows --keys keys and has missed"
              " --updates updates.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1, 1000), default=5, show_default=True, help=_ROUNDS_HELP)
@click.option("--quick", is_flag=True, help="One round of very little, to see that it runs.")
@click.option("--keys", type=click.IntRange(1, 1_000_000_000), default=1_000_000, show_default=True,
              help="The keys of files, node and week: 50 million need 8 GB of disk, 20 GB with node.")  # fmt: skip
@click.option("--updates", type=click.IntRange(1), default=10_000_000, show_default=True,
              help="The number of updates of node and week: a million need 140 MB of disk.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0.1, 10_000), default=8.0, show_default=True,
              help="The time limit of node and week: they load less if it is too short for all.")  # fmt: skip
@click.option("--peer", "peers", multiple=True, type=click.Choice(["kafka"]),
              help="Measure week beside Apache Kafka too, in the same run; needs Java and Maven.")  # fmt: skip
@_scale
@_output
@format_option
def _keyed(
    output: Path, parts: tuple[Any, ...], rounds: int, scale: float, quick: bool, keys: int, updates: int,
    minutes: float, peers: tuple[str, ...], format_: str,
) -> None:  # fmt: skip
    """Measure a keyed stream beside an unkeyed one, its view and its snapshots, and many keys."""
    _check(output)
    from duramen.bench.keyed import measure_keyed

    if quick:
        rounds, scale, keys, updates = 1, min(scale, _QUICK), min(keys, _QUICK_KEYS), min(updates, _QUICK_KEYS)
    measure_keyed(
        output, parts=list(dict.fromkeys(parts)), rounds=rounds, scale=scale, keys=keys, updates=updates,
        minutes=minutes, peer=bool(peers), as_json=format_ == JSON,
    )  # fmt: skip


@command.command("inventory", short_help="An inventory of many topics, beside Apache Kafka.")
@click.option("--part", "parts", multiple=True, type=click.Choice(["node", "curves"]), default=("node",),
              show_default=True, help="What to measure; may be repeated. curves: create rate, memory and restart as"
              " topics become more, plotted.")  # fmt: skip
@click.option("--topics", type=click.IntRange(10_000), default=1_000_000, show_default=True,
              help="The number of topics; 100 million take about 2 GB of disk.")  # fmt: skip
@click.option("--used", type=click.IntRange(0), default=0, show_default=True,
              help="The topics that get a record from Kafka producers, for memory and idle time.")  # fmt: skip
@click.option("--peer", "peers", multiple=True, type=click.Choice(["kafka"]),
              help="Draw curves of Apache Kafka too, in the same run; needs Java and Maven.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0.1, 10_000), default=8.0, show_default=True,
              help="The time limit of curves; with a peer Duramen has at most half of it.")  # fmt: skip
@click.option("--peer-memory", "memory", type=_Bound(), default="4GiB", show_default=True, metavar="SIZE",
              help="The memory limit of Apache Kafka for its curve.")  # fmt: skip
@_output
@format_option
def _inventory(
    output: Path, parts: tuple[Any, ...], topics: int, used: int, peers: tuple[str, ...], minutes: float, memory: int,
    format_: str,
) -> None:  # fmt: skip
    """Measure an inventory on one node: load, bytes a topic, lookups, pages, changes, a restart after kill -9."""
    _check(output)
    if peers and "curves" not in parts:
        parts = (*parts, "curves")
    from duramen.bench.inventory import measure_inventory

    measure_inventory(
        output, parts=list(dict.fromkeys(parts)), topics=topics, used=used, peer=bool(peers), minutes=minutes,
        memory_mib=max(1, memory // MIB), as_json=format_ == JSON,
    )  # fmt: skip


@command.command("queues", short_help="Light queues, beside PostgreSQL and Redis.")
@click.option("--part", "parts", multiple=True, type=click.Choice(["node", "batches", "rows"]), default=("node",),
              show_default=True, help="What to measure; may be repeated. node: everything but rows; batches: of that"
              " only the rows in batches, and a restart; rows: single rows to many queues, beside the peers.",
)  # fmt: skip
@click.option("--peer", "peers", multiple=True, type=click.Choice(["postgres", "redis"]),
              help="Measure rows beside PostgreSQL (a table) and Redis (a stream a queue, appendfsync always) too, in"
              " the same run; needs their servers installed.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0.1, 10_000), default=8.0, show_default=True,
              help="The time limit of rows; all systems get the same share of it.")  # fmt: skip
@click.option("--quick", is_flag=True, help="Very little, to see that it runs.")
@_scale
@_output
@format_option
def _queues(
    output: Path, parts: tuple[Any, ...], peers: tuple[Any, ...], minutes: float, quick: bool, scale: float,
    format_: str,
) -> None:  # fmt: skip
    """Measure six queues with 16 million rows in batches, a million small queues, reads, edits, restarts."""
    _check(output)
    if peers and "rows" not in parts:
        parts = (*parts, "rows")
    from duramen.bench.queues import measure_queues

    measure_queues(
        output, parts=list(dict.fromkeys(parts)), peers=list(dict.fromkeys(peers)),
        scale=min(scale, _QUICK / 10) if quick else scale, minutes=minutes, as_json=format_ == JSON,
    )  # fmt: skip


@command.command("spark", short_help="Spark with Duramen and with its own Kafka source.")
@click.option("--part", "parts", multiple=True, type=click.Choice(["reading", "events", "tables", "memory"]),
              default=("reading", "events", "tables"), show_default=True,
              help="What to measure; may be repeated. memory takes --minutes.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1, 1000), default=3, show_default=True, help=_ROUNDS_HELP)
@_scale
@click.option("--minutes", type=click.FloatRange(1, 10_000), default=30.0, show_default=True,
              help="The duration of the measurement of memory.")  # fmt: skip
@click.option("--peer", "peers", multiple=True, type=click.Choice(["kafka"]),
              help="Also measure Spark's own Kafka source on Apache Kafka, in the same run; needs Java and Maven, and "
              "downloads about 500 MB once.")  # fmt: skip
@_output
@format_option
def _measure_spark(
    output: Path, parts: tuple[str, ...], rounds: int, scale: float, minutes: float, peers: tuple[str, ...],
    format_: str,
) -> None:  # fmt: skip
    """Measure the rows a second that Spark reads, the latency of micro-batches, streams as tables, memory."""
    _check(output, spark=True)
    if "tables" in parts and importlib.util.find_spec("deltalake") is None:
        raise DependencyMissing("measuring tables needs deltalake: pip install 'duramen[tables]'")
    from duramen.bench.spark_command import measure_spark

    measure_spark(
        output, parts=list(dict.fromkeys(parts)), rounds=rounds, scale=scale, minutes=minutes, peer=bool(peers),
        as_json=format_ == JSON,
    )  # fmt: skip


@command.command("all", short_help="All three, in a quarter of an hour.")
@_rate
@_duration(4.0)
@_messages(100_000, "200MB")
@_sizes
@_runs(1)
@_spark
@_common
def _all(output: Path, spark: bool, format_: str, **options: Any) -> None:
    """Measure latency, throughput and targets, in about a quarter of an hour."""
    _check(output, spark=spark)
    from duramen.bench.commands import everything

    everything(output, spark=spark, as_json=format_ == JSON, **options)
