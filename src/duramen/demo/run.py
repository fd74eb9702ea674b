"""A demo as a program: options, signals, exit codes, error handling."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from duramen.base.errors import DuramenError

__all__ = ["directory_option", "flights_option", "run"]

_FAILED: Final = 1
_WRONG_USAGE: Final = 2
_INTERRUPTED: Final = 130
_ALL: Final = 336_776
_FEWEST: Final = 100

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def directory_option(name: str) -> Decorator:
    """The option for the demo's directory, which is `name` by default."""
    return click.option(
        "--directory", type=click.Path(path_type=Path), default=Path(name), show_default=True,
        help="The directory for all files; an earlier demo in it is replaced.",
    )  # fmt: skip


flights_option: Final[Decorator] = click.option(
    "--flights", type=click.IntRange(_FEWEST, _ALL), default=_ALL, show_default=True,
    help="Only the first so many flights.",
)  # fmt: skip


def run(command: click.Command, name: str) -> None:
    """Run it; exit codes: 0 it holds, 1 failed, 2 wrong usage, 130 interrupted. `name` is what a user has typed."""
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
        click.echo(f"{name}: interrupted; every process has been stopped", err=True)
        sys.exit(_INTERRUPTED)
    except DuramenError as error:
        click.echo(f"\n{name}: {error} [{error.id}]", err=True)
        sys.exit(_FAILED)
