"""The `duramen` command: names of the commands, and what becomes of errors."""

import importlib
import sys
from collections.abc import Mapping
from typing import Final

import click

from duramen.base.errors import DuramenError, SettingInvalid

__all__ = ["main"]

_COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("duramen.cli.serve", "Start a node."),
    "stream": ("duramen.cli.stream", "Create, list, describe, change and delete streams."),
    "produce": ("duramen.cli.produce", "Write lines of standard input to a stream."),
    "consume": ("duramen.cli.consume", "Print the records of a stream."),
    "log": ("duramen.cli.log", "Look into the files of a log."),
    "doctor": ("duramen.cli.doctor", "Say what this machine offers, and what to do about what is missing."),
    "bench": ("duramen.cli.bench", "Measure latency and throughput, beside Kafka and JetStream if asked."),
    "version": ("duramen.cli.version", "Print the version."),
}

_FAILED: Final = 1
_WRONG_USAGE: Final = 2
_INTERRUPTED: Final = 130


class _Commands(click.Group):
    """A group whose members are imported on demand."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(_COMMANDS[name][0]).command
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in _COMMANDS.items()])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Duramen: a durable, replicated log. NATS subjects and Kafka topics in one log."""


def main() -> None:
    """Run a command; every error becomes one line and an exit code: 1 failed, 2 wrong usage, 130 interrupted."""
    try:
        code = cli.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(_WRONG_USAGE)
    except click.ClickException as error:
        error.show()
        sys.exit(_WRONG_USAGE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)
    except SettingInvalid as error:
        _say(error)
        sys.exit(_WRONG_USAGE)
    except DuramenError as error:
        _say(error)
        sys.exit(_FAILED)
    except BrokenPipeError:
        # Whoever read our output has gone: nothing to say, and nobody to say it to.
        sys.stderr.close()
        sys.exit(_FAILED)


def _say(error: DuramenError) -> None:
    click.echo(f"duramen: {error} [{error.id}]", err=True)
