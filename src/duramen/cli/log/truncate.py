"""`duramen log truncate`: a new data directory in which one log ends earlier."""

from pathlib import Path

import click

from duramen.cli.log.report import rewrite
from duramen.cli.output import format_option

__all__ = ["command"]


@click.command("truncate")
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@click.argument("target", metavar="DST", type=click.Path(path_type=Path))
@click.option("--stream", required=True, help="The stream to cut.")
@click.option("--partition", type=click.IntRange(0), default=0, show_default=True, help="Its partition.")
@click.option("--to", "end_offset", metavar="OFFSET", type=click.IntRange(0), required=True,
              help="The offset at which it is to end: the first one that goes.")  # fmt: skip
@format_option
def command(source: Path, target: Path, stream: str, partition: int, end_offset: int, format_: str) -> int:
    """Write a new data directory DST with all that SRC has, but with one log that ends at OFFSET.

    A batch that reaches beyond goes whole. Otherwise as `duramen log salvage`: SRC is only read, and what is lost is
    printed. Groups that have read further start over as their `auto.offset.reset` says. The exit code is 0 where only
    that is gone which was to go, and 3 where something else is or may be lost.
    """
    from duramen.node.salvage import SalvagedEnd

    return rewrite(source, target, format_, SalvagedEnd(stream, partition, end_offset))
