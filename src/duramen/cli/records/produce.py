"""`duramen produce`: writes standard input as records."""

import contextlib
import os
import select
import stat
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import click

from duramen.base.errors import BatchTooLarge, DuramenError, StreamNotFound
from duramen.base.units import format_bytes
from duramen.cli.names import StreamName
from duramen.cli.progress import Bar
from duramen.cli.records.formats import FORMATS, JSON, RAW, TEXT, ProducedRecord, parser
from duramen.cli.server import NodeAddress, find_stream, server_option
from duramen.cli.standard import input_descriptor
from duramen.client import BrokerCluster, Producer, StreamAdmin, TopicLeaders
from duramen.codec.batch import HEADER_BYTES, encode_record

__all__ = ["command"]

_READ_BYTES: Final = 256 * 1024
_BATCH_BYTES: Final = 512 * 1024
_IDLE_S: Final = 0.005  # without input for this time, the records so far are sent
_JSON_GROWTH: Final = 8  # a byte has six characters in JSON at most; the rest is for names and blanks
_RECORD_BYTES: Final = 36  # the most that a record has beside its key, value and headers
_SIZE_SETTING: Final = "max.message.bytes"
_TOO_LONG: Final = f"the stream's {_SIZE_SETTING} allows no record of that size"
_ACKS: Final[dict[str, Literal[-1, 0, 1]]] = {"all": -1, "1": 1, "0": 0}

_Headers = list[tuple[bytes, bytes | None]]


def _allowed(limit_bytes: int) -> str:
    return f"the {format_bytes(limit_bytes)} that the stream's {_SIZE_SETTING} allows"


def _chunks(descriptor: int, bar: Bar) -> Iterator[bytes]:
    """Standard input as it comes; b"" where the next piece is not there yet."""
    while True:
        if not select.select([descriptor], [], [], _IDLE_S)[0]:
            yield b""
            select.select([descriptor], [], [])
        chunk = os.read(descriptor, _READ_BYTES)
        if not chunk:
            return
        bar.advance(len(chunk))
        yield chunk


def _lines(chunks: Iterator[bytes], limit_bytes: int) -> Iterator[Sequence[bytes]]:
    """Lines as they come, without the LF that ends them; none where the next one is not there yet."""
    rest = bytearray()
    ended = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest += first
        if len(rest) > limit_bytes:
            raise BatchTooLarge(f"line {ended + 1}: it has more than {format_bytes(limit_bytes)}: {_TOO_LONG}")
        if others:
            ended += len(others)
            yield (bytes(rest), *others[:-1])
            rest = bytearray(others[-1])
        elif not chunk:
            yield ()
    if rest:
        yield (bytes(rest),)


def _whole(chunks: Iterator[bytes], limit_bytes: int) -> bytes:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > limit_bytes:
            raise BatchTooLarge(f"standard input has more than {_allowed(limit_bytes)}")
    return bytes(content)


class _Writing:
    """Records on their way into one stream."""

    def __init__(
        self, producer: Producer, stream: TopicLeaders, limit_bytes: int, partition: int | None, headers: _Headers
    ) -> None:
        """`limit_bytes` is the stream's limit for a batch. Raises StreamNotFound if there is no such partition."""
        self._producer = producer
        self._stream = stream
        self._limit_bytes = limit_bytes
        self._partition = partition
        self._headers = headers
        extra = sum(len(name) + len(content or b"") + 10 for name, content in headers)
        self._surely_fits = limit_bytes - HEADER_BYTES - _RECORD_BYTES - extra
        self._check_partition(partition)

    def _check_partition(self, partition: int | None) -> None:
        if partition is not None and partition not in self._stream.leaders:
            count = len(self._stream.leaders)
            raise StreamNotFound(f"stream {self._stream.name} has no partition {partition}; it has {count}")

    def write_whole(self, content: bytes) -> None:
        """All of the input as one record. Raises BatchTooLarge …"""
        entry = self._checked(ProducedRecord(content), len(content))
        self._produce(entry)

    def write_lines(self, pieces: Iterator[Sequence[bytes]], format_: str, separator: bytes | None) -> None:
        """A record for every line. Raises InputInvalid, BatchTooLarge … naming the line it is about."""
        parse = parser(format_, separator)
        number = 0
        for lines in pieces:
            if not lines:
                self._producer.flush()
            for line in lines:
                number += 1
                if format_ == JSON and not line.strip():
                    continue
                try:
                    entry = self._checked(parse(line), len(line))
                except DuramenError as error:
                    error.args = (f"line {number}: {error}",)
                    raise
                self._produce(entry)

    def _checked(self, entry: ProducedRecord, size: int) -> ProducedRecord:
        """A record that was read from `size` bytes, complete. Raises BatchTooLarge or StreamNotFound."""
        if self._partition is not None:
            entry = entry._replace(partition=self._partition)
        else:
            self._check_partition(entry.partition)
        if self._headers:
            entry = entry._replace(headers=[*entry.headers, *self._headers])
        if size > self._surely_fits:
            needed = HEADER_BYTES + len(encode_record(0, 0, entry.key, entry.value, entry.headers))
            if needed > self._limit_bytes:
                raise BatchTooLarge(
                    f"a batch of this record has {needed} bytes, more than {_allowed(self._limit_bytes)}"
                )
        return entry

    def _produce(self, entry: ProducedRecord) -> None:
        self._producer.produce(
            self._stream.name, entry.value, key=entry.key, partition=entry.partition, headers=entry.headers,
            timestamp_ms=entry.timestamp_ms,
        )  # fmt: skip


def _outcome(producer: Producer, acks: str) -> str:
    """The outcome of the records that were read, after an error."""
    if acks == "0":
        return f"{producer.sent} records were sent, and it is unknown whether they are stored"
    written = f"{producer.acknowledged} records before it are written"
    left, in_doubt = producer.unacknowledged, producer.in_doubt
    if not left:
        return written
    if not in_doubt:
        return f"{written}, the {left} after them are not"
    return f"{written}, {in_doubt} of the {left} after them may be: repeating those may store them twice"


def _bar(descriptor: int) -> Bar:
    """A progress bar over the input; none for a terminal."""
    status = os.fstat(descriptor)
    total = max(0, status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR)) if stat.S_ISREG(status.st_mode) else None
    return Bar("writing", total, wanted=not os.isatty(descriptor))


def _header(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> _Headers:
    headers: _Headers = []
    for value in values:
        name, equals, content = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        headers.append((name.encode(), content.encode()))
    return headers


@click.command("produce")
@click.argument("stream", type=StreamName())
@click.option("--format", "format_", type=click.Choice(FORMATS), default=TEXT, show_default=True,
              help="text: each line is a value; json: each line is a record; raw: all input is one value.")  # fmt: skip
@click.option("--key-separator", metavar="TEXT",
              help="With text: the part of a line before its first occurrence is the record's key.")  # fmt: skip
@click.option("--partition", type=click.IntRange(0), help="The partition to write to [default: by key, otherwise any]")
@click.option("--header", metavar="NAME=VALUE", multiple=True, callback=_header, help="A header of every record.")
@click.option("--acks", type=click.Choice(list(_ACKS)), default="all", show_default=True,
              help="The acknowledgement to wait for. all and 1: according to the stream's durability; 0: none, so "
                   "that errors are not reported.")  # fmt: skip
@server_option
def command(
    stream: str,
    format_: str,
    key_separator: str | None,
    partition: int | None,
    header: _Headers,
    acks: str,
    server: NodeAddress,
) -> None:
    """Write standard input to STREAM, a record for each line.

    Lines end with LF, which is not part of the value; every other byte is, a CR too. A line without the key separator
    has no key. With `--format json` a line is an object such as {"value": "v", "key": "k", "headers": [["name",
    "value"]], "partition": 0, "timestamp": 1700000000000}, of which only the value is needed; bytes that are not UTF-8
    are {"base64": "…"}, and null is none. That is what `duramen consume --format json` prints, so that a pipe from
    one to the other copies a stream; `topic` and `offset` are ignored. It ends when the input does and all records are
    acknowledged, and says how many; where something fails or Ctrl-C interrupts it, it says so of those before it.
    """
    if key_separator is not None and (format_ != TEXT or not key_separator):
        raise click.UsageError("--key-separator must not be empty, and needs --format text")
    descriptor = input_descriptor()
    with BrokerCluster(server.kafka(), client_id="duramen-cli") as cluster, _bar(descriptor) as bar:
        topic = find_stream(cluster, stream)
        limit_bytes = int(StreamAdmin(cluster).stream_configs(stream, [_SIZE_SETTING])[_SIZE_SETTING] or 0)
        batch_bytes = min(_BATCH_BYTES, limit_bytes - HEADER_BYTES)
        producer = Producer(cluster, batch_bytes=batch_bytes, acks=_ACKS[acks])
        writing = _Writing(producer, topic, limit_bytes, partition, header)
        chunks = _chunks(descriptor, bar)
        try:
            if format_ == RAW:
                writing.write_whole(_whole(chunks, limit_bytes))
            else:
                longest = limit_bytes * (_JSON_GROWTH if format_ == JSON else 1)
                separator = key_separator.encode() if key_separator else None
                writing.write_lines(_lines(chunks, longest), format_, separator)
            producer.flush()
        except KeyboardInterrupt:
            bar.hide()
            click.echo(f"duramen: interrupted; {_outcome(producer, acks)}", err=True)
            raise
        except DuramenError as error:
            bar.hide()
            with contextlib.suppress(DuramenError):
                producer.flush()  # the records before it
            error.args = (f"{error}; {_outcome(producer, acks)}",)
            raise
    if acks == "0":
        click.echo(f"{producer.sent} records sent to {stream}, none of them acknowledged", err=True)
    else:
        click.echo(f"{producer.acknowledged} records written to {stream}", err=True)
