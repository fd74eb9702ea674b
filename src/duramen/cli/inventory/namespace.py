"""`duramen namespace`: namespaces of the inventory."""

from collections.abc import Sequence
from functools import partial

import click
import msgspec

from duramen.cli.confirmation import confirm, yes_option
from duramen.cli.inventory.common import (
    account_option,
    changed_labels,
    counted,
    create_in_each,
    delete_all,
    filter_options,
    inventory_of,
    labels_option,
    namespace_argument,
    no_labels_option,
    not_empty,
    print_created,
    print_labels,
)
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.tables import plain
from duramen.client.api.inventory.requests import NamespaceInfo

__all__ = ["command"]


@click.group("namespace")
def command() -> None:
    """Create, list, search, describe, change, move and delete namespaces: sets of topics of a tenant."""


def _print(namespace: NamespaceInfo, format_: str) -> None:
    if format_ == JSON:
        print_json(msgspec.to_builtins(namespace))
        return
    click.echo(f"Namespace {namespace.tenant}/{namespace.name}: {counted(namespace.topics, 'topic')}")
    print_labels(namespace.labels)
    for subject in namespace.subjects:
        click.echo(f"  subject {plain(subject)}")


def _all_named(_context: click.Context, _parameter: click.Parameter, value: Sequence[str]) -> Sequence[str]:
    return [namespace_argument(_context, _parameter, one) for one in value]


@command.command("create")
@click.argument("names", metavar="TENANT/NAME...", nargs=-1, required=True, callback=_all_named)
@labels_option
@account_option
@format_option
@server_option
def _create(names: Sequence[str], labels: dict[str, str], account: str, format_: str, server: NodeAddress) -> None:
    """Create namespaces; those that are there stay as they are. Those that fail are named, and the rest is created."""
    by_tenant: dict[str, list[str]] = {}
    for name in names:
        tenant, _, namespace = name.partition("/")
        by_tenant.setdefault(tenant, []).append(namespace)
    create = partial(inventory_of(server).create_namespaces, labels=labels, account=account)
    print_created(create_in_each(by_tenant, create), "namespace", format_)


@command.command("list")
@click.argument("tenant")
@click.option("--prefix", metavar="TEXT", default="", help="Only names with this prefix.")
@account_option
@format_option
@server_option
def _list(tenant: str, prefix: str, account: str, format_: str, server: NodeAddress) -> None:
    """List the namespaces of TENANT by name."""
    _show(inventory_of(server).namespaces(tenant, prefix=prefix, account=account), format_)


@command.command("search")
@click.argument("tenant", required=False, callback=not_empty)
@filter_options
@account_option
@format_option
@server_option
def _search(
    tenant: str, prefix: str, glob: str, pattern: str, label: str, account: str, format_: str, server: NodeAddress
) -> None:
    """Find namespaces of TENANT, or of all tenants, by name or by a label."""
    _show(
        inventory_of(server).namespaces(
            tenant, prefix=prefix, glob=glob, pattern=pattern, label=label, account=account
        ),
        format_,
    )  # fmt: skip


def _show(namespaces: Sequence[NamespaceInfo], format_: str) -> None:
    if format_ == JSON:
        print_json(msgspec.to_builtins(namespaces))
    elif namespaces:
        rows = [(f"{one.tenant}/{one.name}", f"{one.topics:,}") for one in namespaces]
        print_table(("NAMESPACE", "TOPICS"), rows, right=(1,))
    else:
        click.echo("There are no such namespaces; `duramen namespace create TENANT/NAME` creates one.", err=True)


@command.command("describe")
@click.argument("name", metavar="TENANT/NAME", callback=namespace_argument)
@account_option
@format_option
@server_option
def _describe(name: str, account: str, format_: str, server: NodeAddress) -> None:
    """Show a namespace, and how many topics it has."""
    _print(inventory_of(server).namespace(name, account=account), format_)


@command.command("update")
@click.argument("name", metavar="TENANT/NAME", callback=namespace_argument)
@labels_option
@no_labels_option
@click.option(
    "--subjects", metavar="SUBJECT", multiple=True,
    help="A NATS subject such as 'devices.acme.>'. The part of a message's subject that matches the wildcard is the "
    "name of its topic. May be repeated.",
)  # fmt: skip
@click.option("--no-subjects", is_flag=True, help="Accept no more messages from NATS.")
@account_option
@format_option
@server_option
def _update(
    name: str, labels: dict[str, str], no_labels: bool, subjects: Sequence[str], no_subjects: bool, account: str,
    format_: str, server: NodeAddress,
) -> None:  # fmt: skip
    """Give a namespace these labels, or these NATS subjects, in place of those that it has.

    With subjects alone it keeps its labels, and with labels alone its subjects.
    """
    if subjects and no_subjects:
        raise click.UsageError("--subjects and --no-subjects exclude each other")
    bound = list(subjects) if subjects or no_subjects else None
    new = changed_labels(labels, no_labels=no_labels)
    if new is None and bound is None:
        raise click.UsageError("nothing to change: give --label, --no-labels, --subjects or --no-subjects")
    changed = inventory_of(server).update_namespace(name, labels=new, subjects=bound, account=account)
    _print(changed, format_)


@command.command("rename")
@click.argument("name", metavar="TENANT/NAME", callback=namespace_argument)
@click.argument("new_name")
@account_option
@format_option
@server_option
def _rename(name: str, new_name: str, account: str, format_: str, server: NodeAddress) -> None:
    """Give a namespace another name; its topics keep their ids."""
    if "/" in new_name:
        raise click.UsageError(f"{new_name!r} is no name in a tenant: `duramen namespace move` changes the tenant")
    to = f"{name.partition('/')[0]}/{new_name}"
    _print(inventory_of(server).update_namespace(name, to=to, account=account), format_)


@command.command("move")
@click.argument("name", metavar="TENANT/NAME", callback=namespace_argument)
@click.argument("to", metavar="TO_TENANT/TO_NAME", callback=namespace_argument)
@account_option
@format_option
@server_option
def _move(name: str, to: str, account: str, format_: str, server: NodeAddress) -> None:
    """Move a namespace to another tenant with all its topics, which keep their ids."""
    _print(inventory_of(server).update_namespace(name, to=to, account=account), format_)


@command.command("delete")
@click.argument("names", metavar="TENANT/NAME...", nargs=-1, required=True, callback=_all_named)
@yes_option
@account_option
@format_option
@server_option
def _delete(names: Sequence[str], yes: bool, account: str, format_: str, server: NodeAddress) -> None:
    """Delete namespaces with all topics in them. JSON is a line for each that is deleted."""
    inventory = inventory_of(server)
    topics = sum(inventory.namespace(name, account=account).topics for name in names)
    confirm(f"Delete {', '.join(map(plain, names))} with {counted(topics, 'topic')}?", yes=yes)
    delete_all(names, "Namespace", partial(inventory.delete_namespace, account=account), format_)
