"""`duramen pipeline validate`: all that can be known before a pipeline runs."""

from pathlib import Path

import click

from duramen.base.errors import ServerUnreachable
from duramen.cli.pipeline.opened import file_argument, master_option, read, say_problems, say_starting

__all__ = ["command"]


@click.command("validate")
@file_argument
@click.option("--offline", is_flag=True, help="Do not ask the brokers whether the streams are there.")
@master_option
def command(file: Path, *, offline: bool, master: str) -> None:
    """Check names, options, SQL, schemas and sinks, and say what is wrong with line and column. Nothing is run."""
    declared, problems = read(file)
    from duramen.spark.pipelines.checking import check_streams, prepare
    from duramen.spark.pipelines.graph import ordered
    from duramen.spark.pipelines.opening import open_spark

    ordered(declared, problems)
    if not problems.errors():
        if not offline:
            try:
                check_streams(declared, problems)
            except ServerUnreachable as error:
                raise ServerUnreachable(f"{error}; see that the node runs, or leave it out with --offline") from None
        say_starting(master)
        with open_spark(declared, master, {"spark.ui.enabled": "false"}, None) as spark:
            spark.sparkContext.setLogLevel("OFF")
            prepare(spark, declared, problems)
    say_problems(file, problems)
    click.echo(
        f"{file} is right: pipeline {declared.name.value} with {_count(len(declared.sources), 'source')},"
        f" {_count(len(declared.steps), 'step')} and {_count(len(declared.sinks), 'sink')}."
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
