"""What every command that shows something has in common: `--format text|json`."""

import json
from collections.abc import Callable
from typing import Final, TypeVar

import click

__all__ = ["JSON", "format_option", "print_json"]

JSON: Final = "json"

_F = TypeVar("_F", bound=Callable[..., object])


def format_option(function: _F) -> _F:
    """The option `--format`, which the command gets as `format_`: `text`, or `JSON`."""
    return click.option(
        "--format", "format_", type=click.Choice(["text", JSON]), default="text", show_default=True,
        help="For people, or for programs.",
    )(function)  # fmt: skip


def print_json(document: object) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))
