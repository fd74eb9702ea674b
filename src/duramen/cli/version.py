"""`duramen version`."""

import platform

import click

from duramen import __version__

__all__ = ["command"]


@click.command("version")
def command() -> None:
    """Print the version."""
    click.echo(f"duramen {__version__} (Python {platform.python_version()})")
