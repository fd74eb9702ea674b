"""The frames of a file of the write-ahead log, as `duramen log dump` shows them."""

from pathlib import Path
from uuid import UUID

import click

from duramen.base.ports import File
from duramen.cli.log.batches import batch_document, batch_line, print_records
from duramen.cli.log.files import FileUnreadable
from duramen.cli.output import JSON, print_json_line
from duramen.codec.batch import header
from duramen.storage.recovery.recovery import wal_salt
from duramen.storage.wal.frames import FRAME_HEADER_BYTES, Bad, Frame, FrameType, find_generation, position, scan
from duramen.storage.wal.records import (
    decode_change,
    decode_created,
    decode_forgotten,
    decode_takeover,
    decode_truncate,
)
from duramen.storage.wal.wal import FILE_PAYLOAD_BYTES

__all__ = ["dump_wal"]

_BEGINNING_BYTES = FRAME_HEADER_BYTES + FILE_PAYLOAD_BYTES


def dump_wal(path: Path, format_: str, *, with_records: bool) -> None:
    """Print every frame of the generation with which the file begins, and the gaps between sound frames.

    Bytes after the last one are of an earlier use of the file, and left out. Raises FileUnreadable.
    """
    try:
        from duramen.node.offline import data_files

        file = data_files(path.parent).open(path.name, read_only=True)
        beginning = bytes(file.read(0, _BEGINNING_BYTES))
    except OSError as error:
        raise FileUnreadable(f"{path} cannot be read: {error.strerror}") from None
    # The first frame names the directory, with whose id its own CRC begins.
    salt = wal_salt(UUID(bytes=beginning[FRAME_HEADER_BYTES:][:16])) if len(beginning) == _BEGINNING_BYTES else 0
    generation = find_generation(beginning, salt)
    if generation is None:
        raise FileUnreadable(f"{path} does not begin with a valid frame: it was never used, or its start is damaged")
    for item in scan(file, generation, salt):
        _show(item, file, format_, generation, with_records=with_records)


def _show(item: Frame | Bad, file: File, format_: str, generation: int, *, with_records: bool) -> None:
    if isinstance(item, Bad):
        if item.end == file.size():
            return
        if format_ == JSON:
            print_json_line({"position": item.place, "size_bytes": item.end - item.place, "problem": "no sound frame"})
        else:
            click.echo(f"position {item.place} size {item.end - item.place} DAMAGED: no sound frame")
        return
    content = item.payload if with_records and item.type is FrameType.APPEND else None
    if format_ == JSON:
        print_json_line(_document(item, generation, content))
    else:
        click.echo(_line(item))
        if content is not None:
            print_records(content)


def _document(frame: Frame, generation: int, content: memoryview | None) -> dict[str, object]:
    return {
        "position": frame.place,
        "wal_position": position(generation, frame.place),
        "synced_wal_position": frame.vouched,
        "size_bytes": frame.end - frame.place,
        "type": frame.type.name,
        "log_id": frame.log_id or None,
        **_fields(frame),
        **({"batch": batch_document(header(frame.payload), frame.place + FRAME_HEADER_BYTES, content)}
           if frame.type is FrameType.APPEND else {}),
        "problem": None,
    }  # fmt: skip


def _fields(frame: Frame) -> dict[str, object]:
    match frame.type:
        case FrameType.FILE:
            return {
                "directory_id": str(UUID(bytes=bytes(frame.payload[:16]))),
                "format": int.from_bytes(frame.payload[16:20], "big"),
                "previous_end": int.from_bytes(frame.payload[20:28], "big"),
            }
        case FrameType.TRUNCATE:
            return dict(zip(("end_offset", "leader_epoch"), decode_truncate(frame.payload), strict=True))
        case FrameType.TAKEOVER:
            names = ("leader_epoch", "leader_id", "first_offset")
            return dict(zip(names, decode_takeover(frame.payload), strict=True))
        case FrameType.LOG_CREATED:
            key, durability = decode_created(frame.payload)
            return {"stream_id": str(key.stream_id), "partition": key.partition, "durability": durability}
        case FrameType.CHECKPOINT_ENTRY:
            return decode_change(frame.payload)._asdict()
        case FrameType.PRODUCERS_FORGOTTEN:
            return {"producer_id": decode_forgotten(frame.payload)}
        case _:
            return {}


def _line(frame: Frame) -> str:
    words = [f"position {frame.place} size {frame.end - frame.place} {frame.type.name}"]
    words += [f"log {frame.log_id}"] if frame.log_id else []
    words += [f"{name.replace('_', '-')} {value}" for name, value in _fields(frame).items()]
    if frame.type is FrameType.APPEND:
        words.append(batch_line(header(frame.payload), frame.place + FRAME_HEADER_BYTES))
    return " ".join(words)
