"""A pipeline file as the commands open it: parsed, with its problems printed and its checkpoints located."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from duramen.base.errors import PipelineInvalid

if TYPE_CHECKING:
    from duramen.spark.pipelines.checkpoints import Checkpoints
    from duramen.spark.pipelines.definition.model import PipelineModel
    from duramen.spark.pipelines.definition.problems import Problems

__all__ = [
    "checkpoints_of",
    "checkpoints_option",
    "file_argument",
    "look",
    "master_option",
    "print_problems",
    "print_starting",
    "read",
]

_F = TypeVar("_F", bound=Callable[..., object])

_DIRECTORY: Final = "checkpoints"


def file_argument(function: _F) -> _F:
    """The argument FILE."""
    return click.argument("file", type=click.Path(path_type=Path), metavar="FILE")(function)


def master_option(function: _F) -> _F:
    """The option `--master`."""
    return click.option(
        "--master", default="local[*]", show_default=True, metavar="URL",
        help="The Spark master: local[N], spark://HOST:PORT, or any other.",
    )(function)  # fmt: skip


def checkpoints_option(function: _F) -> _F:
    """The option `--checkpoints`."""
    return click.option(
        "--checkpoints", type=click.Path(path_type=Path), metavar="DIRECTORY",
        help="The directory for the checkpoint of each query. [default: checkpoints/PIPELINE beside FILE]",
    )(function)  # fmt: skip


def read(file: Path) -> tuple["PipelineModel", "Problems"]:
    """The pipeline of a file. Raises PipelineInvalid where it is none, with each problem said; OSError."""
    declared, problems = look(file)
    if problems.errors():
        print_problems(file, problems)
    return declared, problems


def look(file: Path) -> tuple["PipelineModel", "Problems"]:
    """The pipeline of a file as far as it can be parsed, and its problems. Raises PipelineInvalid, OSError."""
    from duramen.spark.pipelines.definition.loader import load
    from duramen.spark.pipelines.definition.problems import Problems

    problems = Problems()
    declared = load(file, problems)
    if declared is None:
        print_problems(file, problems)
        raise PipelineInvalid(f"{file} is not a pipeline")
    return declared, problems


def checkpoints_of(declared: "PipelineModel", given: Path | None) -> "Checkpoints":
    """The checkpoints of a pipeline."""
    from duramen.spark.pipelines.checkpoints import Checkpoints

    name = declared.name.value
    directory = Path(declared.directory, _DIRECTORY, name) if given is None else given
    return Checkpoints(directory.absolute(), name)


def print_starting(master: str) -> None:
    """Say that Spark starts, on a terminal: it takes its time."""
    if sys.stderr.isatty():
        click.echo(f"Spark starts on {master} …", err=True)


def print_problems(file: Path, problems: "Problems") -> None:
    """Each on a line of standard error. Raises PipelineInvalid where one of them is an error."""
    for problem in problems:
        click.echo(problem.said(str(file)), err=True)
    if problems.errors():
        many = "1 problem, named" if problems.errors() == 1 else f"{problems.errors()} problems, each named"
        raise PipelineInvalid(f"{file} has {many} above with its line and column")
