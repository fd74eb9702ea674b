"""Shared parts of the inventory commands: client, options, names from files, results per name."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final, TypeVar

import click
import msgspec

from duramen.base.errors import DuramenError, InputInvalid
from duramen.cli.output import JSON, print_json, print_json_line
from duramen.cli.server import NodeAddress
from duramen.cli.streams.pairs import pairs
from duramen.cli.tables import plain
from duramen.client.api.http import Program, Question, answered
from duramen.client.api.inventory.inventory import Inventory
from duramen.client.api.inventory.requests import CreatedNames

__all__ = [
    "account_option", "counted", "delete_all", "inventory_of", "labels_option", "lines_of", "names_from",
    "namespace_argument", "print_created", "print_labels",
]  # fmt: skip

_F = TypeVar("_F", bound=Callable[..., object])
_T = TypeVar("_T")
_CHUNK_BYTES: Final = 1 << 20
_SHOWN: Final = 20


def inventory_of(server: NodeAddress) -> Inventory:
    """The inventory of a node."""

    def ask(question: Question) -> object:
        return server.ask(question.method, question.path, question.document)

    def run(program: Program[_T]) -> _T:
        return answered(program, ask)

    return Inventory(run)


def account_option(function: _F) -> _F:
    """The option `--account`."""
    return click.option(
        "--account",
        metavar="NAME",
        default="",
        help="The account of the tenants [default: inventory.account of the node]",
    )(function)


def labels_option(function: _F) -> _F:
    """The option `--label`, which the command gets as `labels`."""
    return click.option(
        "--label", "labels", metavar="KEY=VALUE", multiple=True, callback=pairs, help="A label; may be repeated."
    )(function)


def namespace_argument(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """The callback of an argument TENANT/NAMESPACE."""
    if value.count("/") != 1:
        raise click.BadParameter(f"{value!r} is not TENANT/NAMESPACE")
    return value


def counted(count: int, noun: str) -> str:
    """So many of something."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def print_labels(labels: dict[str, str]) -> None:
    """Labels, a line each."""
    for name, value in sorted(labels.items()):
        click.echo(f"  {name}={value}")


def print_created(created: CreatedNames, noun: str, format_: str) -> None:
    """Print the outcome of names; the command ends with 1 if some failed."""
    failed = [{"name": name, "error": error.id, "message": str(error)} for name, error in created.failed.items()]
    if format_ == JSON:
        print_json({"created": created.created, "existing": created.existing, "failed": failed})
    else:
        there = f"; {created.existing:,} already exist" if created.existing else ""
        click.echo(f"{counted(created.created, noun)} created{there}.")
        for one in failed[:_SHOWN]:
            click.echo(f"duramen: {one['message']} [{one['error']}]", err=True)
        if len(failed) > _SHOWN:
            click.echo(f"duramen: {len(failed) - _SHOWN:,} more failed; --format json names all", err=True)
    if failed:
        raise click.exceptions.Exit(1)


def delete_all(names: Sequence[str], noun: str, delete: Callable[[str], object], format_: str) -> None:
    """Delete each, and say so."""
    for name in names:
        delete(name)
        if format_ == JSON:
            print_json_line({"deleted": name})
        else:
            click.echo(f"{noun} {plain(name)} deleted.")


def names_from(file: IO[bytes], failed: dict[str, DuramenError], *, ndjson: bool) -> Iterator[str]:
    """The names of a file, one a line; with `ndjson` JSON, a string or an object with the name as `name`.

    Lines without a name are left out, and are in `failed` then.
    """
    decoder = msgspec.json.Decoder(str | dict[str, object])
    for number, line in enumerate(file, 1):
        stripped = line.rstrip(b"\r\n")
        if not stripped:
            continue
        try:
            found = decoder.decode(stripped) if ndjson else stripped.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            failed[f"line {number}"] = InputInvalid(f"line {number} has no name: {error}")
            continue
        name = found.get("name") if isinstance(found, dict) else found
        if not isinstance(name, str):
            why = "an object needs the field `name`, a string"
            failed[f"line {number}"] = InputInvalid(f"line {number} has no name: {why}")
            continue
        yield name


def lines_of(file: IO[bytes]) -> int | None:
    """How many lines a file has; None where it can be read only once."""
    if file is sys.stdin.buffer or not file.seekable():
        return None
    count = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))
    file.seek(0)
    return count
