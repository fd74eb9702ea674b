"""`duramen policy`: policies of the inventory."""

from collections.abc import Sequence

import click
import msgspec

from duramen.cli.inventory.common import account_option, inventory_of, not_empty
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.streams.pairs import pairs
from duramen.client.api.inventory.policy_requests import PoliciesInfo

__all__ = ["command"]


@click.group("policy")
def command() -> None:
    """Show and set policies of the account, of tenants, namespaces and topics; each inherits the policies above it.

    PATH is TENANT, TENANT/NAMESPACE or TENANT/NAMESPACE/TOPIC; without it, the account.
    """


def _text(value: bool | int | str | None) -> str:
    return "unlimited" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _print(policies: PoliciesInfo, format_: str) -> None:
    if format_ == JSON:
        print_json(msgspec.to_builtins(policies))
        return
    rows = [(name, _text(one.value), one.source) for name, one in sorted(policies.effective.items())]
    print_table(("POLICY", "VALUE", "SET ON"), rows)
    if policies.quotas:
        click.echo()
        used = [(one.policy, one.source, f"{one.used:,}", f"{one.limit:,}") for one in policies.quotas]
        print_table(("QUOTA", "OF THE", "USED", "LIMIT"), used, right=(2, 3))
    if policies.confirmed:
        click.echo(f"\nEffective on the nodes {', '.join(map(str, policies.confirmed))}.")


@command.command("describe")
@click.argument("path", required=False, callback=not_empty)
@account_option
@format_option
@server_option
def _describe(path: str, account: str, format_: str, server: NodeAddress) -> None:
    """Show the policies of PATH that count, the level at which each is set, and how much of quotas is used."""
    _print(inventory_of(server).policies.describe(path, account=account), format_)


@command.command("set")
@click.argument("path", required=False, callback=not_empty)
@click.option("--policy", "set_", metavar="NAME=VALUE", multiple=True, callback=pairs, help="Set a policy. Repeatable.")
@click.option(
    "--unset", metavar="NAME", multiple=True, help="Remove a policy, so that the inherited value applies. Repeatable."
)
@click.option(
    "--wait-effective", is_flag=True, help="Return once every node that follows the inventory has confirmed the change."
)
@account_option
@format_option
@server_option
def _set(
    path: str, set_: dict[str, str], unset: Sequence[str], wait_effective: bool, account: str, format_: str,
    server: NodeAddress,
) -> None:  # fmt: skip
    """Set or remove policies of PATH."""
    changes: dict[str, str | None] = {**set_, **dict.fromkeys(unset)}
    if not changes:
        raise click.UsageError("nothing to change: give --policy NAME=VALUE or --unset NAME")
    policies = inventory_of(server).policies
    _print(policies.set(path, changes, wait_effective=wait_effective, account=account), format_)
