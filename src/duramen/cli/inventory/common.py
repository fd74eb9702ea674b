"""Shared parts of the inventory commands: client, options, names from files, results per name."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import IO, Final, TypeVar

import click

from duramen.base.errors import DuramenError, InputInvalid
from duramen.cli.output import JSON, print_json, print_json_line
from duramen.cli.server import NodeAddress
from duramen.cli.streams.pairs import pairs
from duramen.cli.tables import plain
from duramen.client.api.http import Program, Question, answered
from duramen.client.api.inventory.inventory import Inventory
from duramen.client.api.inventory.name_columns import FILE_SUFFIXES, arrow_file
from duramen.client.api.inventory.requests import CreatedNames, Names
from duramen.codec.bulk_names import names_of_lines
from duramen.codec.jsonbytes import why_unreadable

__all__ = [
    "account_option", "changed_labels", "counted", "create_in_each", "delete_all", "filter_options", "inventory_of",
    "labels_option", "names_from", "namespace_argument", "no_labels_option", "not_empty",
    "print_created", "print_labels",
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
        default=None,
        callback=not_empty,
        help="The account of the tenants [default: inventory.account of the node]",
    )(function)


def labels_option(function: _F) -> _F:
    """The option `--label`, which the command gets as `labels`."""
    return click.option(
        "--label", "labels", metavar="KEY=VALUE", multiple=True, callback=pairs, help="A label; may be repeated."
    )(function)


def no_labels_option(function: _F) -> _F:
    """The option `--no-labels`, for commands that change labels."""
    return click.option("--no-labels", is_flag=True, help="Remove all labels.")(function)


def changed_labels(labels: dict[str, str], *, no_labels: bool) -> dict[str, str] | None:
    """The new labels; None: they stay. Raises click.UsageError."""
    if labels and no_labels:
        raise click.UsageError("--label and --no-labels exclude each other")
    return labels if labels or no_labels else None


def not_empty(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    """The callback of an option or argument that may be omitted, but is not empty, as an unset variable would be."""
    if value == "":
        raise click.BadParameter("it is empty: omit it, or give a value")
    return value or ""


def filter_options(function: _F) -> _F:
    """The options `--prefix`, `--glob`, `--pattern` and `--label`."""
    options = (
        ("--prefix", "TEXT", "Only names with this prefix."),
        ("--glob", "GLOB", "Only names that match this glob: `*`, `?`, `[abc]`, `[!abc]`."),
        ("--pattern", "RE2", "Only names that match this RE2 expression as a whole."),
        ("--label", "KEY[=VALUE]", "Only those with this label."),
    )
    for name, shown, doc in reversed(options):
        function = click.option(name, metavar=shown, default=None, callback=not_empty, help=doc)(function)
    return function


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
        click.echo(f"  {plain(name)}={plain(value)}")


def create_in_each(
    names: Mapping[str, Sequence[str]], create: Callable[[str, Sequence[str]], CreatedNames]
) -> CreatedNames:
    """Create names in each parent, independently; those that fail are named by their paths."""
    created, existing, failed = 0, 0, dict[str, DuramenError]()
    for parent, some in names.items():
        try:
            made = create(parent, some)
        except DuramenError as error:
            failed |= {f"{parent}/{name}": error for name in some}
        else:
            created, existing = created + made.created, existing + made.existing
            failed |= {f"{parent}/{name}": error for name, error in made.failed.items()}
    return CreatedNames(created, existing, failed)


def print_created(created: CreatedNames, noun: str, format_: str) -> None:
    """Print the outcome of names; the command ends with 1 if some failed."""
    failed = [{"name": name, "error": error.id, "message": str(error)} for name, error in created.failed.items()]
    if format_ == JSON:
        print_json({"created": created.created, "existing": created.existing, "failed": failed})
    else:
        there = f"; {created.existing:,} already exist" if created.existing else ""
        click.echo(f"{counted(created.created, noun)} created{there}.")
        for one in failed[:_SHOWN]:
            of = "" if one["name"] in one["message"] else f"{plain(one['name'])}: "
            click.echo(f"duramen: {of}{one['message']} [{one['error']}]", err=True)
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


def names_from(file: IO[bytes], failed: dict[str, DuramenError], *, ndjson: bool) -> tuple[Names, int | None]:
    """The names of a file, and their number if that is known: a line each, as JSON with `ndjson`; or a column of Arrow.

    Lines without a name are left out, and are in `failed` then. Raises DependencyMissing, InputInvalid.
    """
    suffix = PurePath(file.name).suffix.lower()
    if suffix in FILE_SUFFIXES:
        if ndjson:
            raise click.UsageError(f"--ndjson does not fit {file.name}: it is for files with lines")
        return arrow_file(file, suffix)
    return (_json_names(file, failed) if ndjson else _plain_names(file, failed)), _lines_of(file)


def _json_names(file: IO[bytes], failed: dict[str, DuramenError]) -> Iterator[str]:
    before = 0
    while lines := file.readlines(_CHUNK_BYTES):
        rows = names_of_lines(b"".join(lines), before)
        before += len(lines)
        failed |= {f"line {row}": InputInvalid(why) for row, why in rows.problems}
        yield from rows.found


def _plain_names(file: IO[bytes], failed: dict[str, DuramenError]) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        try:
            name = line.rstrip(b"\r\n").decode()
        except UnicodeDecodeError as error:
            failed[f"line {number}"] = InputInvalid(f"line {number} has no name: {why_unreadable(line, error)}")
            continue
        if name:
            yield name


def _lines_of(file: IO[bytes]) -> int | None:
    """How many lines a file has; None where it can be read only once."""
    if file is sys.stdin.buffer or not file.seekable():
        return None
    count = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))
    file.seek(0)
    return count
