"""`duramen pipeline run`: one Spark application, until it is stopped or the available records are processed."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from duramen.cli.pipeline.pipeline_file import (
    checkpoints_of,
    checkpoints_option,
    file_argument,
    master_option,
    print_problems,
    print_starting,
    read,
)

if TYPE_CHECKING:
    from duramen.spark.pipelines.run import PipelineWatcher

__all__ = ["command"]

_LOG = "spark.log"


@click.command("run")
@file_argument
@checkpoints_option
@click.option("--once", is_flag=True, help="Process the available records, and end.")
@click.option("--restarts", type=click.IntRange(0), metavar="NUMBER",
              help="End a query that fails this often in a row. [default: never; 3 with --once]")  # fmt: skip
@master_option
def command(file: Path, *, checkpoints: Path | None, once: bool, restarts: int | None, master: str) -> None:
    """Check a pipeline and run it, with one query for each sink.

    SIGTERM or Ctrl-C stops it; a second one stops it at once. A failed query is restarted with a backoff of up to a
    minute; the others continue. Progress is a table on a terminal, and lines of JSON otherwise. Spark's own log is
    spark.log in the directory of the checkpoints.
    """
    declared, problems = read(file)
    from duramen.spark.pipelines.checks import check_streams, prepare
    from duramen.spark.pipelines.definition.graph import ordered
    from duramen.spark.pipelines.run import Application, Terms
    from duramen.spark.pipelines.session import open_spark
    from duramen.spark.pipelines.status import starting

    ordered(declared, problems)
    if problems.errors():
        print_problems(file, problems)
    held = checkpoints_of(declared, checkpoints)
    with _told_to_stop() as stop, held.held():
        check_streams(declared, problems)
        print_problems(file, problems)
        print_starting(master)
        with contextlib.ExitStack() as stack:
            try:
                with starting(held, declared, master, stop.is_set):
                    spark = stack.enter_context(open_spark(declared, master, {}, held.directory / _LOG))
                    frames = prepare(spark, declared, problems)
                    print_problems(file, problems)
            except Exception:
                if stop.is_set():  # the process that signalled this one may have signalled its Java as well
                    return
                raise
            watcher = stack.enter_context(_watcher())
            Application(declared, frames, held, Terms(master, once, restarts), watcher).run(stop.wait)


@contextlib.contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """An event that the first signal sets; the second ends the process."""
    stop = threading.Event()

    def on_signal(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _watcher() -> "Iterator[PipelineWatcher]":
    from duramen.cli.pipeline.watch import LineWatcher, ScreenWatcher

    if not sys.stdout.isatty():
        yield LineWatcher()
        return
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        yield ScreenWatcher(live)
