"""`python -m duramen.demo`: the options, and what becomes of errors."""

import signal
import sys
from pathlib import Path
from typing import Final

import click

from duramen.base.errors import DuramenError

__all__ = ["command", "main"]

_FAILED: Final = 1
_WRONG_USAGE: Final = 2
_INTERRUPTED: Final = 130
_ALL: Final = 336_776
_FEWEST: Final = 100


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--directory", type=click.Path(path_type=Path), default=Path("duramen-demo"), show_default=True,
    help="Where everything goes; an earlier demo there is replaced.",
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
    """Run the demo; exit codes: 0 it holds, 1 failed, 2 wrong usage, 130 interrupted."""
    # Shells start what is in the background with Ctrl-C ignored: the other two still have to end everything.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(_WRONG_USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("make demo: interrupted; every process has been stopped", err=True)
        sys.exit(_INTERRUPTED)
    except DuramenError as error:
        click.echo(f"\nmake demo: {error} [{error.id}]", err=True)
        sys.exit(_FAILED)


if __name__ == "__main__":
    main()
