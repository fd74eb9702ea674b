"""`python -m duramen.demo.cluster`: the options."""

from pathlib import Path
from typing import Final

import click

from duramen.demo.run import directory_option, flights_option, run

__all__ = ["command", "main"]

_SECONDS: Final = 45
_FEWEST_SECONDS: Final = 5


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@directory_option("duramen-demo-cluster")
@flights_option
@click.option(
    "--seconds",
    type=click.IntRange(_FEWEST_SECONDS),
    default=_SECONDS,
    show_default=True,
    help="The duration at an even rate; longer if the cluster takes longer to recover.",
)
def command(directory: Path, flights: int, seconds: int) -> None:
    """Real flights through a cluster of three nodes, one of which is killed while they flow, and another paused.

    At the end it is proven that nothing is missing and nothing is there twice, and what the cluster did is drawn.
    """
    from duramen.demo.cluster.steps import ClusterDemo
    from duramen.demo.directory import DemoDirectory
    from duramen.demo.screen import Screen

    screen = Screen()
    try:
        ClusterDemo(screen, DemoDirectory(directory), flights, seconds).run()
    finally:
        screen.close()


def main() -> None:
    """Run the demo."""
    run(command, "make demo-cluster")


if __name__ == "__main__":
    main()
