"""`duramen log truncate`: writes a new data directory in which one log ends earlier."""

from pathlib import Path

import click

from duramen.cli.log.report import rewrite
from duramen.cli.output import format_option

__all__ = ["command"]


@click.command("truncate")
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@click.argument("target", metavar="DST", type=click.Path(path_type=Path))
@click.option("--stream", required=True, help="The stream to truncate.")
@click.option("--partition", type=click.IntRange(0), default=0, show_default=True, help="Its partition.")
@click.option("--to", "end_offset", metavar="OFFSET", type=click.IntRange(0), required=True,
              help="The new end: the first offset that is dropped.")  # fmt: skip
@format_option
def command(source: Path, target: Path, stream: str, partition: int, end_offset: int, format_: str) -> int:
    """Copy SRC to a new data directory DST, and truncate one log at OFFSET.

    A batch that extends beyond OFFSET is dropped as a whole. As with `duramen log salvage`, SRC is only read, and
    losses are printed. Groups that have read further apply their `auto.offset.reset`. Exits with 0 if only the
    requested records are gone, and with 3 if others are or may be lost.
    """
    from duramen.node.salvage import SalvagedEnd

    return rewrite(source, target, format_, SalvagedEnd(stream, partition, end_offset))
