"""`duramen log salvage`: writes the sound data of a damaged directory to a new one."""

from pathlib import Path

import click

from duramen.cli.log.report import rewrite
from duramen.cli.output import format_option

__all__ = ["command"]


@click.command("salvage")
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@click.argument("target", metavar="DST", type=click.Path(path_type=Path))
@format_option
def command(source: Path, target: Path, format_: str) -> int:
    """Write a new data directory DST from what is left of SRC, and say what is lost, offset range by offset range.

    SRC is only read; no node may run on it. Every sound batch keeps its bytes and its offset; streams keep their ids,
    names and configs, groups their offsets. A stream whose name is lost is called `recovered-` and its id, and keeps
    its records for ever. SRC of a cluster's node makes DST that of a standalone node with the replicas that it held;
    partitions of which it held none, or that were not in sync, are listed. DST gets an id of its own and must be new or
    empty. The exit code is 0 where nothing is lost and 3 where something is or may be.
    """
    return rewrite(source, target, format_)
