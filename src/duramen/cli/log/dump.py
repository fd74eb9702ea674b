"""`duramen log dump`: the record batches of a segment, read without a node."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from duramen.base.errors import BatchCorrupt, DuramenError
from duramen.cli.output import JSON, format_option, print_json_line
from duramen.codec.batch import (
    APPEND_TIME,
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LENGTH_END,
    TRANSACTIONAL,
    Header,
    header,
    records,
)
from duramen.codec.compression import CODECS
from duramen.codec.crc import crc32c
from duramen.codec.jsonbytes import json_of
from duramen.storage.segment import parse_segment_name

__all__ = ["SegmentUnreadable", "command"]

_SHOWN_BYTES: Final = 200


class SegmentUnreadable(DuramenError):
    """What was named is not a segment, or is damaged."""

    id = "segment-unreadable"
    safe = "Nothing was changed: the file was only read."
    remedy = "Name a .log file of a data directory; of a damaged one, a node serves what lies around the damage."


@click.command("dump")
@click.argument("segment", type=click.Path(path_type=Path))
@click.option("--records", "with_records", is_flag=True, help="Print each batch's records too.")
@format_option
def command(segment: Path, with_records: bool, format_: str) -> None:
    """Print the record batches of SEGMENT, a .log file of a data directory; ends with 1 where one is damaged.

    A running node may be writing to it: what is not copied into it yet is not shown. JSON is one batch a line.
    """
    data = _map(segment)
    for position, batch, problem in _batches(data):
        content = data[position : position + batch.size] if with_records and not problem else None
        if format_ == JSON:
            print_json_line(_document(position, batch, problem, content))
        else:
            click.echo(_line(position, batch) + (f" DAMAGED: {problem}" if problem else ""))
            if content is not None:
                _print_records(content)
        if problem:
            raise SegmentUnreadable(f"{segment} is damaged at byte {position}: {problem}")


def _map(segment: Path) -> memoryview:
    try:
        if segment.suffix != ".log" or parse_segment_name(segment.stem) is None:
            raise SegmentUnreadable(f"{segment} is not a segment: its name would be an offset and end in .log")
        with segment.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # The view keeps the map alive, and the map the file.
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")
    except OSError as error:
        raise SegmentUnreadable(f"{segment} cannot be read: {error.strerror}") from None


def _batches(data: memoryview) -> Iterator[tuple[int, Header, str]]:
    """Position, header and problem of each batch; the last has a problem where it is cut off or damaged."""
    position, expected = 0, -1
    while position < len(data):
        try:
            batch = header(data, position)
        except BatchCorrupt as error:
            raise SegmentUnreadable(f"byte {position}: {error}") from None
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


def _codec(batch: Header) -> str:
    number = batch.attributes & CODEC_MASK
    return CODECS[number] if number < len(CODECS) else "?"


def _document(position: int, batch: Header, problem: str, content: memoryview | None) -> dict[str, object]:
    """A batch as JSON; times are ms since 1970, records are as everywhere."""
    document: dict[str, object] = {
        "position": position,
        "size_bytes": batch.size,
        "base_offset": batch.base_offset,
        "last_offset": batch.next_offset - 1,
        "record_count": batch.records,
        "leader_epoch": batch.leader_epoch,
        "crc": batch.crc,
        "codec": _codec(batch),
        "timestamp_type": "LogAppendTime" if batch.attributes & APPEND_TIME else "CreateTime",
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "transactional": bool(batch.attributes & TRANSACTIONAL),
        "control": bool(batch.attributes & CONTROL),
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "problem": problem or None,
    }
    if content is not None:
        document["records"] = [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": json_of(record.key),
                "value": json_of(record.value),
                "headers": [[name.decode(errors="replace"), json_of(value)] for name, value in record.headers],
            }
            for record in records(content)
        ]
    return document


def _line(position: int, batch: Header) -> str:
    marks = [
        _codec(batch),
        "LogAppendTime" if batch.attributes & APPEND_TIME else "CreateTime",
    ]
    marks += ["transactional"] if batch.attributes & TRANSACTIONAL else []
    marks += ["control"] if batch.attributes & CONTROL else []
    producer = (
        f" producer {batch.producer_id} epoch {batch.producer_epoch} sequence {batch.base_sequence}"
        if batch.producer_id >= 0
        else ""
    )
    return (
        f"offsets {batch.base_offset}-{batch.next_offset - 1} position {position} size {batch.size}"
        f" records {batch.records} leader-epoch {batch.leader_epoch} crc {batch.crc:08x}"
        f" timestamps {batch.base_timestamp}-{batch.max_timestamp} {' '.join(marks)}{producer}"
    )


def _print_records(batch: memoryview) -> None:
    for record in records(batch):
        headers = " ".join(f"{name.decode(errors='replace')}={_text(value)}" for name, value in record.headers)
        click.echo(
            f"  offset {record.offset} timestamp {record.timestamp} key {_text(record.key)} value {_text(record.value)}"
            + (f" headers {headers}" if headers else "")
        )


def _text(content: bytes | None) -> str:
    if content is None:
        return "null"
    shown = repr(content[:_SHOWN_BYTES])[1:]
    return f"{shown}… ({len(content)} bytes)" if len(content) > _SHOWN_BYTES else shown
