"""`duramen pipeline status`: the status that the application of a pipeline writes."""

from pathlib import Path

import click

from duramen.cli.output import JSON, format_option, print_json
from duramen.cli.pipeline.pipeline_file import checkpoints_of, checkpoints_option, file_argument, read

__all__ = ["command"]


@click.command("status")
@file_argument
@checkpoints_option
@format_option
def command(file: Path, checkpoints: Path | None, format_: str) -> int:
    """Show each query: its last micro-batch, rate, lag, restarts, and its current error.

    Exits with 1 if a query has failed, or if the application ended unexpectedly.
    """
    declared, _ = read(file)
    import msgspec

    from duramen.cli.pipeline.screen import render
    from duramen.spark.pipelines.status import read_status

    status = read_status(checkpoints_of(declared, checkpoints))
    if format_ == JSON:
        print_json(msgspec.to_builtins(status))
    else:
        click.echo(render(status))
    return 1 if status.state in ("failed", "lost") or any(one.state == "failed" for one in status.queries) else 0
