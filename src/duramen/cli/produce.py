"""`duramen produce`: lines of standard input become records."""

import os
import select
from collections.abc import Iterator
from typing import Final

import click

from duramen.base.errors import BatchTooLarge
from duramen.base.units import format_bytes
from duramen.cli.server import Server, find_stream, server_option
from duramen.cli.standard import input_descriptor
from duramen.client import Cluster, Producer

__all__ = ["command"]

_READ_BYTES: Final = 256 * 1024
_LONGEST_LINE_BYTES: Final = 64 * 1024 * 1024
_IDLE_S: Final = 0.005  # when no input has come for so long, what there is is sent


def _lines(descriptor: int) -> Iterator[bytes | None]:
    """The lines, without their ends; None where the next one is not there yet."""
    rest = bytearray()
    while True:
        if not select.select([descriptor], [], [], _IDLE_S)[0]:
            yield None
            select.select([descriptor], [], [])
        chunk = os.read(descriptor, _READ_BYTES)
        if not chunk:
            break
        first, *others = chunk.split(b"\n")
        rest += first
        if len(rest) > _LONGEST_LINE_BYTES:
            raise BatchTooLarge(f"a line has more than {format_bytes(_LONGEST_LINE_BYTES)}")
        if others:
            yield bytes(rest)
            yield from others[:-1]
            rest = bytearray(others[-1])
    if rest:
        yield bytes(rest)


def _header(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    headers = []
    for value in values:
        name, equals, content = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        headers.append((name.encode(), content.encode()))
    return headers


@click.command("produce")
@click.argument("stream")
@click.option("--key-separator", metavar="TEXT", help="What stands before it in a line is the record's key.")
@click.option("--partition", type=click.IntRange(0), help="The partition to write to [default: by key, else any]")
@click.option("--header", metavar="NAME=VALUE", multiple=True, callback=_header, help="A header of every record.")
@server_option
def command(
    stream: str, key_separator: str | None, partition: int | None, header: list[tuple[bytes, bytes]], server: Server
) -> None:
    """Write every line of standard input to STREAM as the value of a record.

    It ends when the input does and all records are acknowledged. A line without the key separator has no key.
    """
    descriptor = input_descriptor()
    separator = key_separator.encode() if key_separator else None
    with Cluster(server.kafka(), client_id="duramen-cli") as cluster, Producer(cluster) as producer:
        find_stream(cluster, stream)
        for line in _lines(descriptor):
            if line is None:
                producer.flush()
                continue
            key: bytes | None = None
            value = line
            if separator is not None and separator in line:
                key, _, value = line.partition(separator)
            producer.produce(stream, value, key=key, partition=partition, headers=header)
        producer.flush()
    click.echo(f"{producer.acknowledged} records written to {stream}", err=True)
