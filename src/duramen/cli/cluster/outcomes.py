"""Prints the outcome per partition, for the commands that change partitions."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from duramen.cli.output import JSON, print_json, print_table

__all__ = ["print_outcomes"]

_NOT_NEEDED = "election-not-needed"


def print_outcomes(outcomes: Sequence[Mapping[str, Any]], done: str, format_: str) -> None:
    """Show them, `done` for those where all is well; the command ends with 1 where something is not."""
    if format_ == JSON:
        print_json(outcomes)
    else:
        rows = [
            (
                one["stream"],
                str(one["partition"]),
                done if one["error"] is None else f"{one['detail']} [{one['error']}]",
            )
            for one in outcomes
        ]
        print_table(("STREAM", "PARTITION", "OUTCOME"), rows, right=(1,))
    if any(one["error"] not in (None, _NOT_NEEDED) for one in outcomes):
        raise click.exceptions.Exit(1)
