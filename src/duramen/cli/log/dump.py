"""`duramen log dump`: prints a file of a data directory without a node. Here: the batches of a segment."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import click

from duramen.base.errors import BatchCorrupt
from duramen.cli.log.batches import batch_document, batch_line, print_records
from duramen.cli.log.checkpoint import dump_checkpoint
from duramen.cli.log.files import FileUnreadable, held_file
from duramen.cli.log.frames import dump_wal
from duramen.cli.output import JSON, format_option, print_json_line
from duramen.codec.batch import CRC_START, HEADER_BYTES, LENGTH_END, Header, header
from duramen.codec.crc import crc32c
from duramen.storage.segment.segment import parse_segment_name

__all__ = ["command"]


@click.command("dump")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--records", "with_records", is_flag=True, help="Print each batch's records too.")
@format_option
def command(file: Path, with_records: bool, format_: str) -> None:
    """Print the record batches of a segment, the frames of a file of the write-ahead log, or a checkpoint.

    FILE is a `.log`, a `.wal`, or a `checkpoint-` file of a data directory that no node uses. JSON output is one
    batch or frame a line, or the checkpoint. Exits with 1 if a segment or a checkpoint is damaged.
    """
    with held_file(file):
        if file.suffix == ".wal":
            dump_wal(file, format_, with_records=with_records)
        elif file.name.startswith("checkpoint-"):
            dump_checkpoint(file, format_)
        else:
            _dump_segment(file, with_records, format_)


def _dump_segment(segment: Path, with_records: bool, format_: str) -> None:
    data = _map(segment)
    for position, batch, problem in _batches(data):
        content = data[position : position + batch.size] if with_records and not problem else None
        if format_ == JSON:
            print_json_line(batch_document(batch, position, content) | {"problem": problem or None})
        else:
            click.echo(batch_line(batch, position) + (f" DAMAGED: {problem}" if problem else ""))
            if content is not None:
                print_records(content)
        if problem:
            raise FileUnreadable(f"{segment} is damaged at byte {position}: {problem}")


def _map(segment: Path) -> memoryview:
    try:
        if segment.suffix != ".log" or parse_segment_name(segment.stem) is None:
            raise FileUnreadable(
                f"{segment} is not a segment: its name would be an offset and end in .log; nor is it a .wal file or a"
                " checkpoint"
            )
        with segment.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # The view keeps the map alive, and the map the file.
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")
    except OSError as error:
        raise FileUnreadable(f"{segment} cannot be read: {error.strerror}") from None


def _batches(data: memoryview) -> Iterator[tuple[int, Header, str]]:
    """Position, header and problem of each batch; the last has a problem where it is cut off or damaged."""
    position, expected = 0, -1
    while position < len(data):
        try:
            batch = header(data, position)
        except BatchCorrupt as error:
            raise FileUnreadable(f"byte {position}: {error}") from None
        problem = _problem(data, position, batch, expected)
        yield position, batch, problem
        if problem:
            return
        position += batch.size
        expected = batch.next_offset


def _problem(data: memoryview, position: int, batch: Header, expected: int) -> str:
    if batch.magic != 2 or batch.length < HEADER_BYTES - LENGTH_END:
        return "no record batch begins here"
    if position + batch.size > len(data):
        return "the batch is cut off"
    if crc32c(data[position + CRC_START : position + batch.size]) != batch.crc:
        return "the batch does not match its CRC"
    if batch.base_offset < expected:
        return f"the batch repeats the offset {batch.base_offset}; {expected} is next"
    return ""
