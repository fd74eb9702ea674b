"""Shared output options: `--format text|json`, and text that fits the terminal."""

import json
from collections.abc import Callable, Container, Sequence
from typing import Final, TypeVar

import click

from duramen.cli.tables import table, terminal_width

__all__ = ["JSON", "format_option", "print_json", "print_json_line", "print_table"]

JSON: Final = "json"

_F = TypeVar("_F", bound=Callable[..., object])


def format_option(function: _F) -> _F:
    """The option `--format`, which the command gets as `format_`: `text`, or `JSON`."""
    return click.option(
        "--format", "format_", type=click.Choice(["text", JSON]), default="text", show_default=True,
        help="Output for people (text) or programs (json, with stable field names).",
    )(function)  # fmt: skip


def print_json(document: object) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_json_line(document: object) -> None:
    """One JSON document on a line of its own."""
    click.echo(json.dumps(document, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Container[int] = ()) -> None:
    """A table that fits the terminal; whole where standard output is none."""
    click.echo(table(header, rows, right, terminal_width()))
