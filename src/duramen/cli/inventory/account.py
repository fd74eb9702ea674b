"""`duramen account`: accounts of the inventory."""

import click
import msgspec

from duramen.cli.inventory.common import counted, inventory_of
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option

__all__ = ["command"]


@click.group("account")
def command() -> None:
    """List and describe accounts: owners of tenants.

    An account exists while it has a tenant or a policy: `duramen tenant create --account NAME` creates it.
    """


@command.command("list")
@click.option("--prefix", metavar="TEXT", default="", help="Only names with this prefix.")
@format_option
@server_option
def _list(prefix: str, format_: str, server: NodeAddress) -> None:
    """List accounts by name."""
    accounts = inventory_of(server).accounts(prefix=prefix)
    if format_ == JSON:
        print_json(msgspec.to_builtins(accounts))
    elif accounts:
        rows = [(one.name, f"{one.tenants:,}", f"{one.namespaces:,}") for one in accounts]
        print_table(("ACCOUNT", "TENANTS", "NAMESPACES"), rows, right=(1, 2))
    else:
        click.echo("There are no such accounts; `duramen tenant create NAME` creates a tenant of one.", err=True)


@command.command("describe")
@click.argument("name")
@format_option
@server_option
def _describe(name: str, format_: str, server: NodeAddress) -> None:
    """Show how many tenants, namespaces and topics the account NAME has."""
    found = inventory_of(server).account(name)
    if format_ == JSON:
        print_json(msgspec.to_builtins(found))
    else:
        counts = (found.tenants, "tenant"), (found.namespaces, "namespace"), (found.topics or 0, "topic")
        click.echo(f"Account {found.name}: {', '.join(counted(count, noun) for count, noun in counts)}")
