"""`python -m duramen.demo`: the options."""

from pathlib import Path
from typing import Final

import click

from duramen.demo.run import run

__all__ = ["command", "main"]

_ALL: Final = 336_776
_FEWEST: Final = 100


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--directory", type=click.Path(path_type=Path), default=Path("duramen-demo"), show_default=True,
    help="The directory for all files; an earlier demo in it is replaced.",
)  # fmt: skip
@click.option(
    "--flights",
    type=click.IntRange(_FEWEST, _ALL),
    default=_ALL,
    show_default=True,
    help="Only the first so many flights.",
)
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
