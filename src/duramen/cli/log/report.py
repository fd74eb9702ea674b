"""Shared parts of `duramen log salvage` and `truncate`: the progress bar and the report."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from duramen.base.units import format_bytes
from duramen.cli.output import JSON, print_json, print_table
from duramen.cli.progress import Bar

if TYPE_CHECKING:
    from duramen.node.salvage import Salvaged, SalvagedEnd, SalvagedLog

__all__ = ["LOST", "rewrite"]

LOST: Final = 3
"""The exit code where something is lost."""

_LACKING: Final = {False: "no replica here", True: "not in sync here: the newest records may be lost"}


def rewrite(source: Path, target: Path, format_: str, cut: "SalvagedEnd | None" = None) -> int:
    """Create the new directory and report the result; returns the exit code."""
    from duramen.node.salvage import salvage

    maker = shlex.join(["duramen", *sys.argv[1:]])
    with Bar("salvaging" if cut is None else "copying", None) as bar:
        done = salvage(source, target, maker=maker, cut=cut, expect=bar.expect, advance=bar.advance)
    if format_ == JSON:
        print_json(_document(source, target, done))
    else:
        _print(target, done)
    lost = done.partial or any(len(log.lost) > len(log.known) for log in done.logs)
    return LOST if lost or not done.whole else 0


def _document(source: Path, target: Path, done: "Salvaged") -> dict[str, object]:
    logs = [
        {
            "log_id": log.log_id,
            "stream": log.stream,
            "partition": log.partition,
            "start_offset": log.start_offset,
            "end_offset": log.end_offset,
            "batches": log.batches,
            "size_bytes": log.size_bytes,
            "lost": [
                {"first_offset": first, "last_offset": last, "known_before": (first, last) in log.known}
                for first, last in log.lost
            ],
            "cut": None if log.cut is None else {"first_offset": log.cut[0], "last_offset": log.cut[1]},
        }
        for log in done.logs
    ]
    return {
        "source": str(source),
        "destination": str(target),
        "directory_id": str(done.directory_id),
        "whole": done.whole,
        "streams_without_name": done.renamed,
        "findings": done.findings,
        "partial": [one._asdict() for one in done.partial],
        "logs": logs,
    }


def _print(target: Path, done: "Salvaged") -> None:
    for finding in done.findings:
        click.echo(finding, err=True)
    rows = [
        (log.stream, str(log.partition), str(first), str(last), _why(log, (first, last)))
        for log in done.logs
        for first, last in [*log.lost, *([log.cut] if log.cut is not None else [])]
    ]
    rows += [(one.stream, str(one.partition), "-", "-", _LACKING[one.held]) for one in done.partial]
    if rows:
        print_table(("STREAM", "PARTITION", "FIRST OFFSET", "LAST OFFSET", "WHY"), rows, right=(1, 2, 3))
    for name in done.renamed:
        click.echo(f"A stream whose name is lost is now called {name}.")
    batches, size = sum(log.batches for log in done.logs), sum(log.size_bytes for log in done.logs)
    click.echo(
        f"{target} has {len(done.logs)} {'log' if len(done.logs) == 1 else 'logs'}, {batches} batches,"
        f" {format_bytes(size)}. {_verdict(done)}"
    )
    click.echo(f"Start a node on it: {shlex.join(['duramen', 'serve', '--data-dir', str(target)])}")


def _why(log: "SalvagedLog", lost: tuple[int, int]) -> str:
    if lost == log.cut:
        return "cut off"
    return "lost before, as recorded by the node" if lost in log.known else "lost"


def _verdict(done: "Salvaged") -> str:
    if not done.whole:
        return "More than that may be lost: the checkpoint, the write-ahead log or the metadata log is not whole."
    named = done.partial or any(log.lost or log.cut for log in done.logs)
    return "Nothing else is lost." if named else "Nothing is lost."
