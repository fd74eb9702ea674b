"""`duramen queue`: the group of its commands."""

import click

from duramen.cli.queues.entries import COMMANDS
from duramen.cli.queues.spaces import spaces

__all__ = ["command"]


@click.group("queue")
def command() -> None:
    """Put entries into queues, read, edit, lease and acknowledge them. A space has any number of queues by name."""


command.add_command(spaces)
for _one in COMMANDS:
    command.add_command(_one)
