"""`python -m duramen.demo`: the options."""

from pathlib import Path

import click

from duramen.demo.run import directory_option, flights_option, run

__all__ = ["command", "main"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@directory_option("duramen-demo")
@flights_option
@click.option("--keep", is_flag=True, help="Leave the node running, and say how to look around.")
def command(directory: Path, flights: int, *, keep: bool) -> None:
    """Real flights from NATS through the log to Kafka consumers and Spark, with a kill -9 in between.

    At the end it is proven that nothing was lost and that nothing is there twice.
    """
    from duramen.demo.directory import DemoDirectory
    from duramen.demo.screen import Screen
    from duramen.demo.steps import Demo

    screen = Screen()
    try:
        Demo(screen, DemoDirectory(directory), flights, keep=keep).run()
    finally:
        screen.close()


def main() -> None:
    """Run the demo."""
    run(command, "make demo")


if __name__ == "__main__":
    main()
