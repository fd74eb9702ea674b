"""`duramen tenant`: tenants of the inventory."""

from collections.abc import Sequence
from functools import partial

import click
import msgspec

from duramen.cli.confirmation import confirm, yes_option
from duramen.cli.inventory.common import (
    account_option,
    changed_labels,
    counted,
    delete_all,
    filter_options,
    inventory_of,
    labels_option,
    no_labels_option,
    print_created,
    print_labels,
)
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.tables import plain
from duramen.client.api.inventory.requests import TenantInfo

__all__ = ["command"]


@click.group("tenant")
def command() -> None:
    """Create, list, search, describe, change and delete tenants: owners of namespaces, whose topics are in them."""


def _print(tenant: TenantInfo, format_: str) -> None:
    if format_ == JSON:
        print_json(msgspec.to_builtins(tenant))
        return
    counts = counted(tenant.namespaces, "namespace")
    if tenant.topics is not None:
        counts += f", {counted(tenant.topics, 'topic')}"
    click.echo(f"Tenant {tenant.name} of the account {tenant.account}: {counts}")
    print_labels(tenant.labels)


@command.command("create")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@labels_option
@account_option
@format_option
@server_option
def _create(names: Sequence[str], labels: dict[str, str], account: str, format_: str, server: NodeAddress) -> None:
    """Create tenants; those that are there stay as they are."""
    print_created(inventory_of(server).create_tenants(names, labels=labels, account=account), "tenant", format_)


@command.command("list")
@click.option("--prefix", metavar="TEXT", default="", help="Only names with this prefix.")
@account_option
@format_option
@server_option
def _list(prefix: str, account: str, format_: str, server: NodeAddress) -> None:
    """List tenants by name."""
    _show(inventory_of(server).tenants(prefix=prefix, account=account), format_)


@command.command("search")
@filter_options
@account_option
@format_option
@server_option
def _search(
    prefix: str, glob: str, pattern: str, label: str, account: str, format_: str, server: NodeAddress
) -> None:  # fmt: skip
    """Find tenants by name or by a label."""
    found = inventory_of(server).tenants(prefix=prefix, glob=glob, pattern=pattern, label=label, account=account)
    _show(found, format_)


def _show(tenants: Sequence[TenantInfo], format_: str) -> None:
    if format_ == JSON:
        print_json(msgspec.to_builtins(tenants))
    elif tenants:
        rows = [
            (one.name, f"{one.namespaces:,}", ", ".join(f"{key}={value}" for key, value in one.labels.items()))
            for one in tenants
        ]
        print_table(("TENANT", "NAMESPACES", "LABELS"), rows, right=(1,))
    else:
        click.echo("There are no such tenants; `duramen tenant create NAME` creates one.", err=True)


@command.command("describe")
@click.argument("name")
@account_option
@format_option
@server_option
def _describe(name: str, account: str, format_: str, server: NodeAddress) -> None:
    """Show the tenant NAME, and how many namespaces and topics it has."""
    _print(inventory_of(server).tenant(name, account=account), format_)


@command.command("update")
@click.argument("name")
@labels_option
@no_labels_option
@account_option
@format_option
@server_option
def _update(
    name: str, labels: dict[str, str], no_labels: bool, account: str, format_: str, server: NodeAddress
) -> None:  # fmt: skip
    """Give the tenant NAME these labels in place of those that it has."""
    new = changed_labels(labels, no_labels=no_labels)
    if new is None:
        raise click.UsageError("nothing to change: give --label KEY=VALUE or --no-labels")
    _print(inventory_of(server).update_tenant(name, labels=new, account=account), format_)


@command.command("rename")
@click.argument("name")
@click.argument("new_name")
@account_option
@format_option
@server_option
def _rename(name: str, new_name: str, account: str, format_: str, server: NodeAddress) -> None:
    """Give the tenant NAME another name; its topics keep their ids."""
    _print(inventory_of(server).update_tenant(name, name=new_name, account=account), format_)


@command.command("delete")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@yes_option
@account_option
@format_option
@server_option
def _delete(names: Sequence[str], yes: bool, account: str, format_: str, server: NodeAddress) -> None:
    """Delete tenants with all namespaces and topics in them. JSON is a line for each that is deleted."""
    inventory = inventory_of(server)
    for name in names:
        inventory.tenant(name, account=account)
    confirm(f"Delete {', '.join(map(plain, names))} with all namespaces and topics?", yes=yes)
    delete_all(names, "Tenant", partial(inventory.delete_tenant, account=account), format_)
