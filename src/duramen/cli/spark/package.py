"""`duramen spark package`: packs everything that executors need into one file."""

import platform
import shlex
import sys
from pathlib import Path

import click

from duramen import __version__
from duramen.base.units import format_bytes
from duramen.spark.launching.package import pack

__all__ = ["command"]


@click.command("package")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--no-arrow", is_flag=True, help="Omit numpy and pyarrow, for executors that have them.")
def command(file: Path, no_arrow: bool) -> None:
    """Write FILE, a zip archive with everything that executors need, for the option --archives of spark-submit.

    Executors only need a Python of the same minor version on the same kind of machine.
    """
    packed = pack(file, arrow=not no_arrow)
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    click.echo(
        f"{file} holds Duramen {__version__} for executors with {python} on {platform.system()} {platform.machine()}:"
        f" {', '.join(packed.distributions)} ({format_bytes(packed.size_bytes)})."
    )
    archive = shlex.quote(f"{file}#duramen-packages")
    click.echo(f"spark-submit --archives {archive} --conf spark.executorEnv.PYTHONPATH=duramen-packages ...")
