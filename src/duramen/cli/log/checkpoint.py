"""A node checkpoint, as `duramen log dump` shows it."""

from pathlib import Path
from typing import Final
from uuid import UUID

import click
import msgspec

from duramen.cli.log.files import FileUnreadable
from duramen.cli.output import JSON, print_json
from duramen.storage.checkpoint import NodeCheckpoint, read_checkpoint
from duramen.storage.log.state import LogState

__all__ = ["dump_checkpoint"]

_TAKEOVER: Final = ("leader_epoch", "leader_id", "first_offset")


def dump_checkpoint(path: Path, format_: str) -> None:
    """Print it. Raises FileUnreadable where it is damaged or none."""
    number = path.name.removeprefix("checkpoint-")
    if not (number.isascii() and number.isdigit()):
        raise FileUnreadable(f"{path} is not a checkpoint: its name would end in a number")
    try:
        from duramen.node.offline import data_files

        checkpoint = read_checkpoint(data_files(path.parent), int(number))
    except OSError as error:
        raise FileUnreadable(f"{path} cannot be read: {error.strerror}") from None
    if checkpoint is None:
        raise FileUnreadable(f"{path} is damaged: it does not match its CRC; a node uses the previous one")
    logs = [msgspec.msgpack.decode(raw, type=LogState) for raw in checkpoint.logs]
    if format_ == JSON:
        print_json(_head(checkpoint) | {"logs": [_document(log) for log in logs]})
        return
    click.echo(" ".join(f"{name.replace('_', '-')} {value}" for name, value in _head(checkpoint).items()))
    for log in logs:
        sizes = " ".join(f"{segment.base_offset}:{segment.size}" for segment in log.segments)
        lost = " ".join(f"{first}-{last}" for first, last in log.damage)
        click.echo(
            f"log {log.id} stream-id {UUID(bytes=log.stream_id)} partition {log.partition} durability {log.durability}"
            f" offsets {log.start_offset}-{log.end_offset} takeovers {len(log.takeovers)}"
            f" producers {len(log.producers)}"
            + (f" segments {sizes}" if sizes else "")
            + (f" lost {lost}" if lost else "")
        )


def _head(checkpoint: NodeCheckpoint) -> dict[str, object]:
    return {
        "directory_id": str(UUID(bytes=checkpoint.directory_id)),
        "node_epoch": checkpoint.node_epoch,
        "next_log_id": checkpoint.next_log_id,
        "replay_wal_position": checkpoint.replay,
        "wal_generation": checkpoint.wal_generation,
        "clean": checkpoint.clean,
    }


def _document(log: LogState) -> dict[str, object]:
    return {
        "log_id": log.id,
        "stream_id": str(UUID(bytes=log.stream_id)),
        "partition": log.partition,
        "durability": log.durability,
        "start_offset": log.start_offset,
        "end_offset": log.end_offset,
        "cleaned_offset": log.cleaned_offset,
        "dirty_offset": log.dirty_offset,
        "superseded_offset": log.superseded_offset,
        "segments": [segment._asdict() for segment in log.segments],
        "takeovers": [dict(zip(_TAKEOVER, row, strict=True)) for row in log.takeovers],
        "producers": len(log.producers),
        "lost": [{"first_offset": first, "last_offset": last} for first, last in log.damage],
    }
