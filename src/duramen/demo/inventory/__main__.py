"""`python -m duramen.demo.inventory`: the options."""

from pathlib import Path
from typing import Final

import click

from duramen.demo.run import directory_option, run

__all__ = ["command", "main"]

_TOPICS: Final = 10_000_000
_FEWEST: Final = 10_000


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@directory_option("duramen-demo-inventory")
@click.option(
    "--topics", type=click.IntRange(_FEWEST), default=_TOPICS, show_default=True,
    help="The number of topics; 100 million need about 6 GB of disk.",
)  # fmt: skip
def command(directory: Path, topics: int) -> None:
    """Load topics into a node's inventory, look them up, search, rename, move; kill -9, and check that all is there."""
    from duramen.demo.directory import DemoDirectory
    from duramen.demo.inventory.steps import InventoryDemo
    from duramen.demo.screen import Screen

    screen = Screen()
    try:
        InventoryDemo(screen, DemoDirectory(directory), topics).run()
    finally:
        screen.close()


def main() -> None:
    """Run the demo."""
    run(command, "make demo-inventory")


if __name__ == "__main__":
    main()
