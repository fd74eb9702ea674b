"""The `duramen` command: the names of the commands, and error reporting."""

import contextlib
import importlib
import os
import re
import signal
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Final

import click

from duramen.base.errors import BugFound, DuramenError, SettingInvalid, SystemFailed, UsageWrong
from duramen.cli.standard import check_output, discard_output, output_error

__all__ = ["COMPLETION_VARIABLE", "NAME", "cli", "run"]

_COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("duramen.cli.serve", "Start a node."),
    "config": ("duramen.cli.config", "Show a node's settings and their sources; check a settings file."),
    "stream": ("duramen.cli.streams.stream", "Create, list, describe, change and delete streams."),
    "account": ("duramen.cli.inventory.account", "Accounts of the inventory: owners of tenants."),
    "tenant": ("duramen.cli.inventory.tenant", "Tenants of the inventory: owners of namespaces."),
    "namespace": ("duramen.cli.inventory.namespace", "Namespaces of the inventory: sets of topics."),
    "topic": (
        "duramen.cli.inventory.topic",
        "Topics of the inventory, millions of them; streams too.",
    ),
    "policy": ("duramen.cli.inventory.policy", "Policies and quotas of tenants, namespaces and topics."),
    "snapshot": ("duramen.cli.snapshot", "Read snapshots of keyed streams: each key once."),
    "queue": ("duramen.cli.queues.command", "Add, read, lease and acknowledge entries of queues."),
    "group": ("duramen.cli.group", "List, describe, reset and delete consumer groups."),
    "produce": ("duramen.cli.records.produce", "Write lines of standard input to a stream."),
    "consume": ("duramen.cli.records.consume", "Print the records of a stream."),
    "log": (
        "duramen.cli.log.command",
        "Inspect a data directory, and salvage a damaged one.",
    ),
    "table": ("duramen.cli.table.command", "Keep streams as Delta or Iceberg tables, and show their status."),
    "spark": ("duramen.cli.spark.command", "Prepare Duramen for a Spark cluster."),
    "pipeline": ("duramen.cli.pipeline.command", "Run a pipeline file: streams through SQL into streams and tables."),
    "cluster": ("duramen.cli.cluster.command", "Show and change a cluster and its nodes."),
    "top": ("duramen.cli.top.top", "Watch rates, lag, syncs and connections of a node."),
    "doctor": ("duramen.cli.doctor.doctor", "Check this machine, and suggest fixes."),
    "bench": ("duramen.cli.bench", "Measure latency and throughput, optionally with Kafka and JetStream."),
    "completion": ("duramen.cli.completion", "Print the script for shell completion."),
    "version": ("duramen.cli.version", "Print the version."),
}

NAME: Final = "duramen"
COMPLETION_VARIABLE: Final = "_DURAMEN_COMPLETE"
_FAILED: Final = 1
_WRONG_USAGE: Final = 2
_INTERRUPTED: Final = 130
_TRACEBACK: Final = "DURAMEN_TRACEBACK"
_SAYS_WHAT_TO_DO: Final = re.compile(
    r"`|(?:^|[ (])--[a-z]|did you mean|does not fit:|\bmust\b|; it has |; send |pip install"
)


class _Commands(click.Group):
    """A group whose members are imported on demand."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        known = _COMMANDS.get(name)
        if known is None:
            return None
        command: click.Command = importlib.import_module(known[0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            found = super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=_COMMANDS, ctx=ctx) from None
        # Imported: from here on Ctrl-C is an exception, so that resources are closed. `serve` has its own handlers.
        if found[0] != "serve" and callable(signal.getsignal(signal.SIGINT)):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return found

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in _COMMANDS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version, like `duramen version`."""
    if wanted:
        command = importlib.import_module(_COMMANDS["version"][0]).command
        ctx.invoke(command)
        ctx.exit()


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def cli() -> None:
    """Duramen: a durable log for people who work in Python. NATS subjects and Kafka topics in one log."""


def run() -> int:
    """Run a command; every error becomes one line. Returns 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    if not os.environ.get(_TRACEBACK):
        sys.excepthook = _last_resort
    try:
        check_output()
        code = _call()
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except DuramenError as error:
        _say(f"{_with_remedy(error)} [{error.id}]")
        return _WRONG_USAGE if isinstance(error, SettingInvalid) else _FAILED
    except OSError as error:
        _print_failure(error)
        return _FAILED
    return code


def _call() -> int:
    try:
        code = cli.main(prog_name=NAME, complete_var=COMPLETION_VARIABLE, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return _WRONG_USAGE
    except click.ClickException as error:
        _say(f"{_usage(error)} [{UsageWrong.id}]")
        return _WRONG_USAGE
    return code if isinstance(code, int) else 0


def _usage(error: click.ClickException) -> str:
    """The usage error in one line, with a reference to the help."""
    message = " ".join(error.format_message().split()).replace(". Did you mean", "; did you mean")
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = NAME if context is None else context.command_path
    return f"{_lowered(message.removesuffix('.'))}{'' if message.endswith('?') else ';'} see `{path} --help`"


def _with_remedy(error: DuramenError) -> str:
    """The error's message, and the remedy if the message has none."""
    message = str(error)
    if not error.remedy or _SAYS_WHAT_TO_DO.search(message):
        return message
    return f"{message}; {_lowered(error.remedy.removesuffix('.'))}"


def _lowered(sentence: str) -> str:
    """A sentence as a part of another: its first letter small, unless its first word is a name such as NATS."""
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def _say(what: str) -> None:
    with contextlib.suppress(OSError):  # no output is possible: the error cannot be printed there
        click.echo(f"duramen: {what}", err=True)


def _print_failure(error: OSError) -> None:
    """A system call failed: mostly on the output, otherwise the error has the name."""
    output = output_error()
    discard_output()
    if isinstance(output or error, BrokenPipeError):
        # The reader of the output has gone: there is nobody to print an error for.
        return
    if output is not None:
        _say(f"standard output cannot be written: {output.strerror} [{SystemFailed.id}]")
    elif error.filename is not None:
        _say(f"{os.fsdecode(error.filename)}: {error.strerror} [{SystemFailed.id}]")
    else:
        _say(f"{error.strerror or error} [{SystemFailed.id}]")


def _last_resort(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    if issubclass(kind, Exception):
        said = kind.__name__
        # Errors of Spark fetch their message from Java, which may have ended.
        with contextlib.suppress(Exception):
            said = " ".join(f"{said}: {error}".split())
        _say(f"this is a bug in Duramen: {said}; {_TRACEBACK}=1 shows where [{BugFound.id}]")
