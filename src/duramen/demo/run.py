"""A demo as a program: signals, exit codes, error handling."""

import signal
import sys
from typing import Final

import click

from duramen.base.errors import DuramenError

__all__ = ["run"]

_FAILED: Final = 1
_WRONG_USAGE: Final = 2
_INTERRUPTED: Final = 130


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
