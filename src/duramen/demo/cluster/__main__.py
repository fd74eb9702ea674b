"""`python -m duramen.demo.cluster`: the options."""

from pathlib import Path
from typing import Final

import click

from duramen.demo.run import run

__all__ = ["command", "main"]

_ALL: Final = 336_776
_FEWEST: Final = 100
_SECONDS: Final = 45
_FEWEST_SECONDS: Final = 5


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--directory", type=click.Path(path_type=Path), default=Path("duramen-demo-cluster"), show_default=True,
    help="The directory for all files; an earlier demo in it is replaced.",
)  # fmt: skip
@click.option(
    "--flights",
    type=click.IntRange(_FEWEST, _ALL),
    default=_ALL,
    show_default=True,
    help="Only the first so many flights.",
)
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
