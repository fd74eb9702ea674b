"""`duramen consume`: prints records to standard output."""

import os
import select
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from duramen.base.positions import POSITION_FORMS, At, Position, parse_position
from duramen.cli.names import GroupName, StreamName
from duramen.cli.progress import Bar
from duramen.cli.records.formats import FORMATS, TEXT, Printer, printer
from duramen.cli.records.reader import GroupShare, RecordChunk, StreamRecords
from duramen.cli.server import NodeAddress, find_stream, server_option
from duramen.client import BrokerCluster, Consumer, GroupMembership, TopicLeaders, TopicPartition
from duramen.client.places import FOREVER, check_places, partitions_of, places

__all__ = ["command"]

_TIMEOUT_S: Final = 30.0
_SILENT_S: Final = 5.0  # after this a follower says that it waits


class _PositionType(click.ParamType[Position]):
    name = POSITION_FORMS

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        try:
            return parse_position(str(value), int(time.time() * 1000))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Output:
    """Standard output: `left` records may still go there."""

    def __init__(self, stream: str, print_record: Printer, count: int | None, bar: Bar) -> None:
        self.left = FOREVER if count is None else count
        self.bar = bar
        self._stream = stream
        self._print = print_record
        self._is_pipe = stat.S_ISFIFO(os.fstat(1).st_mode) or stat.S_ISSOCK(os.fstat(1).st_mode)

    def write(self, chunk: RecordChunk) -> int:
        """Write the chunk, as far as it may; returns the offset after the last written record."""
        taken = chunk.records[: self.left]
        if taken:
            partition = chunk.at.partition
            _write_all(b"".join([self._print(self._stream, partition, record) for record in taken]))
            self.bar.advance(len(taken))
            self.left -= len(taken)
        return chunk.next_offset if len(taken) == len(chunk.records) else chunk.records[len(taken)].offset

    def check(self) -> None:
        """Raise BrokenPipeError if the reader of the output has gone."""
        if self._is_pipe:
            poll = select.poll()
            poll.register(1, 0)
            if any(events & select.POLLERR for _, events in poll.poll(0)):
                raise BrokenPipeError


def _write_all(data: bytes) -> None:
    """Write and flush. With PYTHONUNBUFFERED a write may take a part only."""
    left = memoryview(data)
    while left:
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()


def _ends(
    consumer: Consumer, bounds: Mapping[TopicPartition, tuple[int, int]], until: Position, *, follow: bool
) -> dict[TopicPartition, int]:
    if follow:
        return dict.fromkeys(bounds, FOREVER)
    wanted = places(consumer, until, bounds)
    return {at: min(wanted[at], end) for at, (_, end) in bounds.items()}


def _read_alone(
    consumer: Consumer, topic: TopicLeaders, partition: int | None, offset: Position, until: Position, output: _Output,
    *, follow: bool,
) -> None:  # fmt: skip
    """Read each partition from `offset` on."""
    wanted = partitions_of(topic, partition)
    reader = StreamRecords(consumer, topic, follow=follow)
    bounds = consumer.bounds(wanted)
    firsts = places(consumer, offset, bounds)
    check_places(firsts, bounds)
    ends = _ends(consumer, bounds, until, follow=follow)
    output.bar.expect(sum(max(0, ends[at] - firsts[at]) for at in wanted))
    reader.read(firsts, ends)
    while output.left and reader.positions:
        output.check()
        for chunk in reader.chunks():
            output.write(chunk)
            if not output.left:
                break
        if follow and partition is None:
            reader.look_for_more()


def _read_for_group(
    cluster: BrokerCluster,
    topic: TopicLeaders,
    group: str,
    offset: Position,
    until: Position,
    output: _Output,
    *,
    follow: bool,
) -> None:
    """Consume as a member of a group, from the group's offsets."""
    consumer = Consumer(cluster)
    reader = StreamRecords(consumer, topic, follow=follow)
    ends = _ends(consumer, consumer.bounds(partitions_of(topic, None)), until, follow=follow)

    def begin(assigned: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]) -> None:
        bounds = consumer.bounds(assigned)
        firsts = places(consumer, offset, bounds)
        for at, wanted in committed.items():
            start, end = bounds[at]
            if start <= wanted <= end:
                firsts[at] = wanted
                continue
            if wanted < start:
                firsts[at] = start
            click.echo(
                f"duramen: group {group} is at {wanted} in {at}, which has the offsets {start} to {end - 1}; it "
                f"continues at {firsts[at]}", err=True,
            )  # fmt: skip
        reader.read(firsts, {at: FOREVER if follow else ends.get(at, 0) for at in assigned})

    with GroupShare(cluster, reader, GroupMembership(cluster, group, [topic.name]), group) as share:
        while output.left:
            output.check()
            share.keep(lambda *shared: reader.patiently(lambda: begin(*shared)))
            if not follow and not reader.positions:
                break
            for chunk in reader.chunks():
                if not share.alive():
                    break
                share.written(chunk.at, output.write(chunk))
                if not output.left:
                    break


def _check_usage(
    format_: str, key_separator: str | None, partition: int | None, group: str | None, until: Position | None,
    *, follow: bool,
) -> None:  # fmt: skip
    """Raises UsageError for contradicting options."""
    if key_separator is not None and format_ != TEXT:
        raise click.UsageError("--key-separator needs --format text")
    if group is not None and partition is not None:
        raise click.UsageError("--group assigns the partitions: it cannot be combined with --partition")
    if follow and until is not None:
        raise click.UsageError("--follow never ends: it cannot be combined with --until")


@click.command("consume")
@click.argument("stream", type=StreamName())
@click.option("--offset", type=_PositionType(), default="start", show_default=True,
              help="The first record: the start, the end, an offset, -N for the last N records of each partition, or "
                   "a time: ISO 8601, milliseconds since 1970, or relative (@-30s).")  # fmt: skip
@click.option("--until", type=_PositionType(),
              help="The end; the record at this position is not printed [default: the end at the start of the "
              "command]")  # fmt: skip
@click.option("-n", "--count", type=click.IntRange(0), metavar="COUNT", help="End after this many records.")
@click.option("--partition", type=click.IntRange(0), help="The partition to read [default: all of them]")
@click.option("--group", metavar="NAME", type=GroupName(),
              help="Read as a member of this consumer group: start at its committed offsets, and commit the printed "
              "records. Without a committed offset it starts at --offset.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Continue with new records, until Ctrl-C.")
@click.option("--format", "format_", type=click.Choice(FORMATS), default=TEXT, show_default=True,
              help="text: a value per line; json: a record per line; raw: values without separators.")  # fmt: skip
@click.option("--key-separator", metavar="TEXT", help="With text: print the key and this before the value.")
@server_option
def command(
    stream: str,
    offset: Position,
    until: Position | None,
    count: int | None,
    partition: int | None,
    group: str | None,
    follow: bool,
    format_: str,
    key_separator: str | None,
    server: NodeAddress,
) -> None:
    """Print the records of STREAM, from the start to the end as it is when the command begins.

    Records of one partition come in their order; partitions are mixed as they come. -N and @TIME are of each
    partition, as in kcat: `--offset -5` begins with the last five records of each. As text, a record without a value
    is an empty line, and one without a key is its value alone. `--format json` has everything there is of a record;
    `duramen produce --format json` reads it.

    With --follow it outlives the node: it waits until one answers there again, and goes on where it was. With
    --group, what was printed is committed every second, before the group shares its partitions out anew, and at the
    end; what was printed and not committed, because the command was killed or its output was blocked for longer than
    45 seconds, is printed again by whoever gets the partition next.
    """
    _check_usage(format_, key_separator, partition, group, until, follow=follow)
    print_record = printer(format_, None if key_separator is None else key_separator.encode())
    timeout_s = _SILENT_S if follow else _TIMEOUT_S
    bar = Bar("reading", None, wanted=not follow and not sys.stdout.isatty())
    with BrokerCluster(server.kafka(), client_id="duramen-cli", timeout_s=timeout_s) as cluster, bar:
        topic = find_stream(cluster, stream)
        if partition is None and len(topic.leaders) > 1:
            for name, position in (("an --offset", offset), ("an --until", until)):
                if isinstance(position, At):
                    has = f"stream {stream} has {len(topic.leaders)} partitions"
                    raise click.UsageError(f"{has}: {name} N needs a --partition")
        output = _Output(stream, print_record, count, bar)
        if group is not None:
            _read_for_group(cluster, topic, group, offset, until or "end", output, follow=follow)
        else:
            _read_alone(Consumer(cluster), topic, partition, offset, until or "end", output, follow=follow)
