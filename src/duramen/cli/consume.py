"""`duramen consume`: records become lines of standard output."""

import base64
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from duramen.base.errors import OffsetOutOfRange, RequestTimedOut, ServerUnreachable, StreamNotFound
from duramen.cli.server import Server, find_stream, server_option
from duramen.client import Cluster, Consumer, TopicPartition
from duramen.client.fetched import Fetched
from duramen.codec.batch import CONTROL, Record, batches, records

__all__ = ["command"]

_WAIT_MS: Final = 500
_TIMEOUT_S: Final = 30.0
_SILENT_S: Final = 5.0  # after this a follower says that it waits
_FOREVER: Final = 1 << 62


class _Offset(click.ParamType[str | int]):
    name = "start|end|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        if value in ("start", "end"):
            return str(value)
        if not (str(value).isascii() and str(value).isdigit()):
            self.fail(f"{value!r} is not start, end or an offset", param, ctx)
        return int(value)


def _spans(
    consumer: Consumer, stream: str, offset: str | int, partition: int | None, *, follow: bool
) -> dict[TopicPartition, tuple[int, int]]:
    """What to read of each partition: from which offset, to which."""
    there = list(find_stream(consumer.cluster, stream).leaders)
    if partition is not None and partition not in there:
        raise StreamNotFound(f"stream {stream} has no partition {partition}; it has {len(there)}")
    if isinstance(offset, int) and partition is None and len(there) > 1:
        raise click.UsageError(f"stream {stream} has {len(there)} partitions: an --offset needs a --partition")
    wanted = [TopicPartition(stream, index) for index in (there if partition is None else [partition])]
    spans = {}
    for at, (start, end) in consumer.bounds(wanted).items():
        first = {"start": start, "end": end}.get(offset, -1) if isinstance(offset, str) else offset
        if not start <= first <= end:
            raise OffsetOutOfRange(f"{at} has the offsets {start} to {end - 1}, not {first}")
        spans[at] = (first, _FOREVER if follow else end)
    return spans


def _fetch(consumer: Consumer, positions: dict[TopicPartition, int], *, follow: bool) -> list[Fetched]:
    """What there is at `positions`; a follower waits for a node that does not answer, and says so once."""
    said = False
    while True:
        try:
            return consumer.fetch(positions, max_wait_ms=_WAIT_MS)
        except (ServerUnreachable, RequestTimedOut) as error:
            if not follow:
                raise
            if not said:
                click.echo(f"duramen: {error}; waiting", err=True)
            said = True


def _records(
    consumer: Consumer, spans: dict[TopicPartition, tuple[int, int]], *, follow: bool
) -> Iterator[list[tuple[int, Record]]]:
    """Records with their partitions, as they come; an empty list where there is nothing new."""
    positions = {at: first for at, (first, end) in spans.items() if first < end}
    while positions:
        # Whoever answers first goes last the next time, so that none waits behind the others.
        for fetched in _fetch(consumer, positions, follow=follow):
            first, end = positions.pop(fetched.at), spans[fetched.at][1]
            yield [
                (fetched.at.partition, record)
                for piece in fetched.pieces
                for place, head in batches(piece)
                if not head.attributes & CONTROL
                for record in records(piece[place : place + head.size])
                if first <= record.offset < end
            ]
            if fetched.next_offset < end:
                positions[fetched.at] = fetched.next_offset


def _as_text(_: str, __: int, record: Record) -> bytes:
    return (record.value or b"") + b"\n"


def _field(name: str, content: bytes | None) -> dict[str, str | None]:
    """Text as it is; what is not UTF-8 under another name, so that nobody takes one for the other."""
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content or b"").decode()}


def _as_json(stream: str, partition: int, record: Record) -> bytes:
    document = {
        "stream": stream,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [_field("name", name) | _field("value", value) for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


_FORMATS: Final[dict[str, Callable[[str, int, Record], bytes]]] = {"text": _as_text, "json": _as_json}


@click.command("consume")
@click.argument("stream")
@click.option("--offset", type=_Offset(), default="start", show_default=True, help="Where to begin.")
@click.option("-n", "count", type=click.IntRange(0), metavar="COUNT", help="End after so many records.")
@click.option("--partition", type=click.IntRange(0), help="The partition to read [default: all of them]")
@click.option("--follow", is_flag=True, help="Go on with records as they come, until Ctrl-C.")
@click.option("--format", "format_", type=click.Choice(list(_FORMATS)), default="text", show_default=True,
              help="Values only, one a line; or records as JSON, one a line.")  # fmt: skip
@server_option
def command(
    stream: str,
    offset: str | int,
    count: int | None,
    partition: int | None,
    follow: bool,
    format_: str,
    server: Server,
) -> None:
    """Print the records of STREAM, from the start to the end as it is when the command begins.

    With --follow it outlives the node: it waits until one answers there again, and goes on where it was.
    """
    left = _FOREVER if count is None else count
    line = _FORMATS[format_]
    timeout_s = _SILENT_S if follow else _TIMEOUT_S
    with Cluster(server.kafka(), client_id="duramen-cli", timeout_s=timeout_s) as cluster:
        consumer = Consumer(cluster)
        spans = _spans(consumer, stream, offset, partition, follow=follow)
        for found in _records(consumer, spans, follow=follow) if left else ():
            for index, record in found[:left]:
                sys.stdout.buffer.write(line(stream, index, record))
            sys.stdout.buffer.flush()
            left -= len(found[:left])
            if not left:
                break
