"""`duramen pipeline explain`: Spark's execution plan of each query."""

from pathlib import Path

import click

from duramen.cli.pipeline.pipeline_file import file_argument, master_option, print_problems, print_starting, read

__all__ = ["command"]


@click.command("explain")
@file_argument
@click.option("--mode", type=click.Choice(["simple", "extended", "formatted", "cost", "codegen"]), default="formatted",
              show_default=True, help="The mode of Spark's EXPLAIN.")  # fmt: skip
@master_option
def command(file: Path, *, mode: str, master: str) -> None:
    """Print the plan of each query for one micro-batch. Runs nothing, and asks no broker."""
    declared, problems = read(file)
    from duramen.spark.pipelines.checks import plans
    from duramen.spark.pipelines.session import open_spark

    print_starting(master)
    with open_spark(declared, master, {}, None, runs=False) as spark:
        spark.sparkContext.setLogLevel("OFF")
        found = plans(spark, declared, mode, problems)
    print_problems(file, problems)
    for name, plan in found.items():
        click.echo(f"Query {name}\n{plan.rstrip()}\n")
