"""`duramen table run`: the Spark job that keeps streams as tables."""

import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from duramen.base.units import format_bytes, format_ms, parse_ms
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option, print_json_line
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.table.requirements import need_tables
from duramen.cli.table.storage import storage_option
from duramen.client import BrokerCluster

if TYPE_CHECKING:
    from duramen.spark.translation.job import TableJob
    from duramen.spark.translation.metrics import Account

__all__ = ["command"]

_LEAST_KEPT_MS: Final = 600_000
_TIMEOUT_S: Final = 30.0
_SPARK: Final = {
    "spark.scheduler.mode": "FAIR",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    # Else a worker that Spark has let go of, at the end, says so with a traceback.
    "spark.python.daemon.killWorkerOnFlushFailure": "false",
}


def _pairs(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs = dict(value.partition("=")[::2] for value in values)
    if wrong := [value for value in values if "=" not in value]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE")
    return pairs


def _time(_: click.Context, __: click.Parameter, value: str) -> int:
    try:
        time_ms = parse_ms(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if time_ms < _LEAST_KEPT_MS:
        raise click.BadParameter(f"{value!r} does not fit; it must be at least 10m, because a round may be in progress")
    return time_ms


@click.command("run")
@click.argument("streams", metavar="[STREAM]...", nargs=-1, type=StreamName())
@click.option("--master", default="local[*]", show_default=True, help="The Spark master.")
@click.option("--conf", metavar="NAME=VALUE", multiple=True, callback=_pairs,
              help="A Spark setting; may be repeated.")  # fmt: skip
@click.option("--once", is_flag=True, help="End when each table has the records that its stream had at the start.")
@click.option("--bootstrap-servers", metavar="HOST:PORT,…",
              help="The brokers' address for executors. [default: the Kafka address of the node]")  # fmt: skip
@click.option("--parallel", type=click.IntRange(1, 256), default=8, show_default=True, metavar="NUMBER",
              help="The number of streams that are processed at the same time.")  # fmt: skip
@click.option("--skip-lost", is_flag=True,
              help="If retention has deleted records that the table lacks, continue with the remaining ones instead "
                   "of stopping.")  # fmt: skip
@click.option("--keep", default="1d", show_default=True, metavar="TIME", callback=_time,
              help="The time for which older versions of tables and their files are kept.")  # fmt: skip
@click.option("--metrics", "metrics_address", metavar="HOST:PORT", help="Serve the job's metrics to Prometheus there.")
@click.option("--spark-log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Append Spark's log to this file. [default: it is not kept]")  # fmt: skip
@storage_option
@format_option
@server_option
def command(
    streams: Sequence[str],
    master: str,
    conf: Mapping[str, str],
    once: bool,
    bootstrap_servers: str | None,
    parallel: int,
    skip_lost: bool,
    keep: int,
    metrics_address: str | None,
    spark_log: Path | None,
    storage: Mapping[str, str],
    format_: str,
    server: NodeAddress,
) -> int:
    """Fill the tables of these streams, or of all streams with tables, until SIGTERM or Ctrl-C.

    The job is one Spark application. It can be killed at any point, and several can run: each offset is in its
    table exactly once.
    """
    need_tables()
    from duramen.spark.translation.creation import JobOptions, make_job
    from duramen.spark.translation.streams import declared_streams

    declared_streams(server, streams, storage)  # invalid options are reported before Spark is started
    brokers = bootstrap_servers or server.kafka()
    with BrokerCluster(brokers, client_id="duramen-table", timeout_s=_TIMEOUT_S) as cluster:
        cluster.topics([])
    options = JobOptions(tuple(streams), brokers, storage, parallel, skip_lost=skip_lost, keep_ms=keep)
    from duramen.spark.launching.applications import application

    with application("duramen table run", master, {**_SPARK, **conf}, spark_log) as spark:
        job = make_job(server, spark, options, _teller(format_))
        with _stopped_by_signals(job), _served(job, metrics_address):
            well = job.run(once=once)
    return 0 if well else 1


def _teller(format_: str) -> "_Teller":
    return _Teller(as_json=format_ == JSON, live=sys.stderr.isatty())


class _Teller:
    """Shows the progress of each stream: one line that changes on a terminal, else a line for each change."""

    def __init__(self, *, as_json: bool, live: bool) -> None:
        self._as_json = as_json
        self._live = live and not as_json
        self._said: dict[str, tuple[int, str]] = {}

    def __call__(self, stream: str, account: "Account") -> None:
        new = (account.commits, account.error)
        if self._said.get(stream) == new:
            return
        failed = account.error and self._said.get(stream, (0, ""))[1] != account.error
        self._said[stream] = new
        if self._as_json:
            print_json_line({"stream": stream, **account.values(), "error": account.error})
        elif failed:
            self._clear()
            click.echo(f"duramen: table of {stream}: {account.error}", err=True)
        elif self._live:
            self._clear()
            click.echo(self._line(stream, account), err=True, nl=False)
        else:
            click.echo(self._line(stream, account), err=True)

    def _clear(self) -> None:
        if self._live:
            click.echo("\r\x1b[K", err=True, nl=False)

    def _line(self, stream: str, account: "Account") -> str:
        dead = f", {account.bad} dead letters" if account.bad else ""
        left = f", {account.lag_records} remaining, {format_ms(account.lag_ms)} behind" if account.lag_records else ""
        return f"{stream}: {account.records} records, {format_bytes(account.read_bytes)}{dead}{left}"


@contextlib.contextmanager
def _stopped_by_signals(job: "TableJob") -> Iterator[None]:
    """SIGINT and SIGTERM end the job after the work in progress; a second one at once."""

    def stop(number: int, _: object) -> None:
        job.stop()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _served(job: "TableJob", address: str | None) -> Iterator[None]:
    if address is None:
        yield
        return
    from duramen.spark.translation.metrics import render
    from duramen.spark.translation.metrics_export import Exporter

    with Exporter(address, lambda: render(job.accounts())):
        yield
