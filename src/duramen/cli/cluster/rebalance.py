"""`duramen cluster rebalance`: shows a plan and executes it a few moves at a time."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from duramen.cli.cluster.moves import carry_out
from duramen.cli.cluster.nodes import NODE_ID
from duramen.cli.cluster.outcomes import print_outcomes
from duramen.cli.cluster.places import leaderless_text, named_places
from duramen.cli.confirmation import check_askable, confirm, yes_option
from duramen.cli.output import JSON, format_option, print_json
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.tables import table, terminal_width

__all__ = ["command"]

_REASSIGNMENTS = "/v1/cluster/reassignments"


@click.command("rebalance")
@click.option("--without", "without_nodes", multiple=True, type=NODE_ID, metavar="NODE",
              help="Move all replicas off this node; may be repeated.")  # fmt: skip
@click.option("--at-once", type=click.IntRange(1, 10_000), default=10, show_default=True, metavar="NUMBER",
              help="The number of partitions that are copied at the same time.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the plan without executing it.")
@click.option("--cancel", is_flag=True, help="Cancel all reassignments in progress; completed ones stay.")
@yes_option
@format_option
@server_option
def command(
    without_nodes: Sequence[int],
    at_once: int,
    dry_run: bool,
    cancel: bool,
    yes: bool,
    format_: str,
    server: NodeAddress,
) -> None:
    """Spread replicas and leaders over the nodes: makes a plan, shows it, and executes it.

    After Ctrl-C moves in progress complete, and no more start.
    """
    if cancel and (without_nodes or dry_run):
        raise click.UsageError("--cancel cannot be combined with --without or --dry-run")
    check_askable(yes=yes or dry_run)
    if cancel:
        _cancel(server, yes=yes, format_=format_)
        return
    found = server.post("/v1/cluster/rebalance/plan", {"without_nodes": list(without_nodes)})
    plan = found["moves"]
    if not plan or dry_run:
        _print_plan(plan, format_)
    else:
        if not yes:
            click.echo(_plan_text(plan), err=True)
            confirm(f"Execute these {len(plan)} moves?", yes=yes)
        _print_end(carry_out(server, plan, at_once), format_)
    _check_emptied(without_nodes, found["kept"], found["leaderless"])


def _check_emptied(without_nodes: Sequence[int], kept: Mapping[str, Any], leaderless: Mapping[str, Any]) -> None:
    """End with 1 where the nodes are not empty after the plan."""
    if leaderless["count"]:
        click.echo(f"duramen: {leaderless_text(leaderless)}", err=True)
    if kept["count"]:
        nodes = ", ".join(map(str, without_nodes))
        partitions = "partition" if kept["count"] == 1 else "partitions"
        click.echo(
            f"duramen: {kept['count']} {partitions} cannot leave node {nodes}, because every other node that takes"
            f" replicas has one already: {named_places(kept)}; start another node, or give them fewer replicas with"
            " `duramen cluster reassign STREAM PARTITION --replicas NODE,NODE…`",
            err=True,
        )
    if kept["count"] or leaderless["count"]:
        raise click.exceptions.Exit(1)


def _print_plan(plan: Sequence[Mapping[str, Any]], format_: str) -> None:
    if format_ == JSON:
        print_json(plan)
    elif plan:
        click.echo(_plan_text(plan))
    else:
        click.echo("There is nothing to move.", err=True)


def _plan_text(plan: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            one["stream"],
            str(one["partition"]),
            ",".join(map(str, one["before"])),
            ",".join(map(str, one["after"])),
            str(one["copies"]),
            "; ".join(one["reasons"]),
        )
        for one in plan
    ]
    header = ("STREAM", "PARTITION", "BEFORE", "AFTER", "COPIES", "WHY")
    copies = sum(one["copies"] for one in plan)
    return f"{table(header, rows, (1, 4), terminal_width())}\n{len(plan)} moves, {copies} replicas to be copied"


def _print_end(end: Mapping[str, int], format_: str) -> None:
    if format_ == JSON:
        print_json(end)
        return
    void = f"; {end['void']} were void, because their partitions have changed since" if end["void"] else ""
    click.echo(f"{end['done']} moves are done, and {end['elected']} leaders moved{void}.")


def _cancel(server: NodeAddress, *, yes: bool, format_: str) -> None:
    found = server.get(_REASSIGNMENTS)["reassignments"]
    if not found:
        if format_ == JSON:
            print_json([])
        else:
            click.echo("No reassignment is in progress.", err=True)
        return
    confirm(f"Cancel the {len(found)} reassignments in progress?", yes=yes)
    wanted = [{"stream": one["stream"], "partition": one["partition"], "replicas": None} for one in found]
    print_outcomes(server.post(_REASSIGNMENTS, {"partitions": wanted})["partitions"], "cancelled", format_)
