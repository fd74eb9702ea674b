"""`duramen table status`: the contents, lag and errors of tables."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from duramen.base.units import format_bytes, format_ms
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.table.requirements import need_tables
from duramen.cli.table.storage import storage_option
from duramen.cli.tables import plain
from duramen.client import BrokerCluster

if TYPE_CHECKING:
    from duramen.spark.translation.status import TranslationStatus

__all__ = ["command"]


@click.command("status")
@click.argument("stream", required=False, type=StreamName())
@storage_option
@format_option
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@server_option
def command(stream: str | None, storage: Mapping[str, str], format_: str, as_json: bool, server: NodeAddress) -> int:
    """Show the table of STREAM, or all tables: lag, files, rows, last commit. Exits with 1 if one has an error."""
    need_tables()
    import msgspec

    from duramen.spark.translation.status import status_of
    from duramen.spark.translation.streams import declared_streams

    tables = declared_streams(server, [stream] if stream else [], storage)
    with BrokerCluster(server.kafka(), client_id="duramen-table-status") as cluster:
        found = [
            status_of(table, told, cluster, time.time_ns() // 1_000_000) for _, (table, told) in sorted(tables.items())
        ]
    if as_json or format_ == JSON:
        print_json(msgspec.to_builtins(found))
    elif found:
        print_table(_HEADER, [_row(one) for one in found], right=range(1, 8))
        for one in found:
            if one.error:
                click.echo(f"{plain(one.stream)}: {plain(one.error)}")
    else:
        click.echo("No stream is a table yet; `duramen table enable STREAM` makes it one.", err=True)
    return 1 if any(one.error for one in found) else 0


_HEADER = ("STREAM", "LAG TIME", "LAG RECORDS", "LAG BYTES", "FILES", "ROWS", "SIZE", "DEAD LETTERS", "LAST COMMIT",
           "JOB SEEN", "LOCATION")  # fmt: skip


def _row(one: "TranslationStatus") -> tuple[str, ...]:
    return (
        one.stream,
        "-" if one.lag_seconds is None else format_ms(1000 * one.lag_seconds),
        _number(one.lag_records),
        "-" if one.lag_bytes is None else format_bytes(one.lag_bytes),
        _number(one.files),
        _number(one.rows),
        "-" if one.size_bytes is None else format_bytes(one.size_bytes),
        _number(one.dead_letters),
        _ago(one.last_commit_ms, "-"),
        _ago(one.looked_ms, "never"),
        one.location,
    )


def _ago(then_ms: int | None, otherwise: str) -> str:
    return otherwise if then_ms is None else f"{format_ms(max(0, time.time_ns() // 1_000_000 - then_ms))} ago"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
