"""`duramen pipeline validate`: every check that needs no run."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from duramen.base.errors import ServerUnreachable
from duramen.cli.pipeline.pipeline_file import file_argument, look, master_option, print_problems, print_starting

if TYPE_CHECKING:
    from duramen.spark.pipelines.definition.model import PipelineModel
    from duramen.spark.pipelines.definition.problems import Problems

__all__ = ["command"]


@click.command("validate")
@file_argument
@click.option("--offline", is_flag=True, help="Do not check whether the brokers have the streams.")
@master_option
def command(file: Path, *, offline: bool, master: str) -> None:
    """Check names, options, SQL, schemas and sinks, and print problems with line and column. Runs nothing."""
    declared, problems = look(file)
    from duramen.spark.pipelines.checks import check_copies, needs_spark, prepare
    from duramen.spark.pipelines.definition.graph import ordered
    from duramen.spark.pipelines.session import open_spark

    ordered(declared, problems)
    unreachable = None if offline else _unreachable(declared, problems)
    if needs_spark(declared) or _names_master():
        print_starting(master)
        with open_spark(declared, master, {}, None, runs=False) as spark:
            spark.sparkContext.setLogLevel("OFF")
            prepare(spark, declared, problems, "stream")
    else:
        check_copies(declared, problems)
    if unreachable is not None and not problems.errors():
        raise unreachable
    if unreachable is not None:
        problems.add((declared.brokers or declared.name).place, str(unreachable))
    print_problems(file, problems)
    click.echo(
        f"{file} is valid: pipeline {declared.name.value} with {_count(len(declared.sources), 'source')},"
        f" {_count(len(declared.steps), 'step')} and {_count(len(declared.sinks), 'sink')}."
    )


def _names_master() -> bool:
    """Whether a master is named, which is to be there even for a pipeline that needs no Spark to be checked."""
    return click.get_current_context().get_parameter_source("master") is not ParameterSource.DEFAULT


def _unreachable(declared: "PipelineModel", problems: "Problems") -> ServerUnreachable | None:
    """Have the brokers say whether the streams are there; returns why they cannot be asked."""
    from duramen.spark.pipelines.checks import check_streams

    try:
        check_streams(declared, problems)
    except ServerUnreachable as error:
        return ServerUnreachable(f"{error}; check that the node runs, or skip this check with --offline")
    return None


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
