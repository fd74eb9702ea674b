"""`duramen version`."""

import platform

import click

from duramen import __version__
from duramen.cli.output import JSON, format_option, print_json

__all__ = ["command"]


@click.command("version")
@format_option
def command(format_: str) -> None:
    """Print the version."""
    if format_ == JSON:
        print_json({"version": __version__, "python": platform.python_version()})
    else:
        click.echo(f"duramen {__version__} (Python {platform.python_version()})")
