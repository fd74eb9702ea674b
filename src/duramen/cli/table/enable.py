"""`duramen table enable`: declares a table of a stream."""

from collections.abc import Mapping
from pathlib import Path

import click

from duramen.base.catalogue.catalogue import STREAM
from duramen.base.catalogue.tables import KEPT_OFFSETS, NONE, table_problem
from duramen.base.errors import ConfigInvalid
from duramen.base.settings import check
from duramen.cli.names import StreamName
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.table.storage import storage_option
from duramen.client.http import path_of

__all__ = ["command"]

_FORMATS = ("delta", "iceberg")
_DECODERS = ("json", "avro", NONE)


@click.command("enable")
@click.argument("stream", type=StreamName())
@click.option("--format", "table_format", type=click.Choice(_FORMATS), required=True, help="The table's format.")
@click.option("--location", metavar="URI", required=True,
              help="A directory or s3://BUCKET/PREFIX: empty, or with the table of this stream.")  # fmt: skip
@click.option("--decode", type=click.Choice(_DECODERS), default=NONE, show_default=True,
              help="The format of values; their fields become columns beside those of the record.")  # fmt: skip
@click.option("--schema", "schema_file", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="With --decode avro: the schema of the values as JSON.")  # fmt: skip
@click.option("--registry", metavar="URL", default="",
              help="With --decode avro: the schema registry of the values' ids.")  # fmt: skip
@click.option("--partition-by", metavar="COLUMN,…", default="",
              help="Partition columns: decoded ones, `_date`, `_stream_partition`.")  # fmt: skip
@click.option("--max-lag", default="10s", show_default=True, metavar="TIME",
              help="The maximum lag of the table.")  # fmt: skip
@click.option("--upsert-by", type=click.Choice(("key",)), help="One row for each key, its newest record. Delta only.")
@storage_option
@server_option
def command(
    stream: str,
    table_format: str,
    location: str,
    decode: str,
    schema_file: str | None,
    registry: str,
    partition_by: str,
    max_lag: str,
    upsert_by: str | None,
    storage: Mapping[str, str],
    server: NodeAddress,
) -> None:
    """Keep STREAM as a table, which `duramen table run` fills. Creates the table if it does not exist."""
    config = {
        "table.format": table_format,
        "table.location": location if "://" in location or not location else str(Path(location).absolute()),
        "table.decode": decode,
        "table.schema": Path(schema_file).read_text(encoding="utf-8") if schema_file else "",
        "table.registry.url": registry,
        "table.partition.by": partition_by,
        "table.max.lag.ms": max_lag,
        "table.upsert.by": upsert_by or NONE,
        KEPT_OFFSETS: "",
    }
    problem = table_problem({name: check(STREAM[name], text) for name, text in config.items()})
    if problem is not None:
        raise ConfigInvalid(problem)
    path = path_of("streams", stream)
    there = server.get(path)
    _make(stream, str(there["id"]), config, storage)
    # A table that has been made and is not there any more is no new one; of the log it may need all.
    made = ",".join(f"{part['partition']}:0" for part in there["partitions"])
    server.patch(path, {"config": config | {KEPT_OFFSETS: made}})
    click.echo(f"Stream {stream} is a table at {config['table.location']}; `duramen table run` fills it.")


def _make(stream: str, stream_id: str, config: Mapping[str, str], storage: Mapping[str, str]) -> None:
    """Create the table; an existing one must be this stream's.

    Raises OptionInvalid, TableForeign, TableStorageFailed …
    """
    from duramen.cli.table.requirements import need_tables

    need_tables()
    from duramen.spark.declared import declared
    from duramen.spark.tables.registry import open_table
    from duramen.spark.tables.rounds import decoder_of

    table = declared(stream, stream_id, config, storage)
    if table is not None:
        decoder_of(table.declaration, ())
        open_table(table.declaration)
