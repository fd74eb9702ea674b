"""`duramen log stats`: statistics of a data directory, without a node."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from duramen.base.units import format_bytes
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.progress import Bar

if TYPE_CHECKING:
    from duramen.node.stats import Counts, DirectoryStats, LogStats

__all__ = ["command"]


@click.command("stats")
@click.argument("data_dir", metavar="DATA_DIR", type=click.Path(path_type=Path))
@format_option
def command(data_dir: Path, format_: str) -> None:
    """Show statistics of DATA_DIR: logs, offsets, segments, batches, bytes, times, use of the write-ahead log.

    Reads everything once and changes nothing; no node may use the directory. RATIO is the compression ratio of the
    batches, LOST the number of missing offsets between the first and the last one.
    """
    from duramen.node.stats import Counts, count

    with Bar("counting", None) as bar:
        stats = count(data_dir, expect=bar.expect, advance=bar.advance)
    whole = Counts()
    for log in stats.logs:
        whole = whole.plus(log.counts)
    if format_ == JSON:
        print_json(_document(data_dir, stats, whole))
    else:
        _print(stats, whole)


def _document(data_dir: Path, stats: "DirectoryStats", whole: "Counts") -> dict[str, object]:
    return {
        "data_dir": str(data_dir),
        "directory_id": stats.directory_id,
        "logs": [
            {
                "log_id": log.log_id,
                "stream": log.stream or None,
                "partition": log.partition,
                "durability": log.durability,
                "segments": log.segments,
                "start_offset": log.start_offset,
                "end_offset": log.end_offset,
                "lost": [{"first_offset": first, "last_offset": last} for first, last in log.lost],
                **_counts(log.counts),
            }
            for log in stats.logs
        ],
        "all": {"logs": len(stats.logs), "segments": sum(log.segments for log in stats.logs), **_counts(whole)},
        "wal": {"files": stats.wal_files, "size_bytes": stats.wal_bytes, "used_bytes": stats.wal_used_bytes},
        "findings": stats.findings,
    }


def _counts(counts: "Counts") -> dict[str, object]:
    there = counts.batches > 0
    return {
        "batches": counts.batches,
        "records": counts.records,
        "size_bytes": counts.size_bytes,
        "decompressed_bytes": counts.decompressed_bytes,
        "smallest_batch_bytes": counts.smallest_batch_bytes if there else None,
        "largest_batch_bytes": counts.largest_batch_bytes if there else None,
        "oldest_timestamp": counts.oldest_ms if there else None,
        "newest_timestamp": counts.newest_ms if there else None,
    }


_HEADER: Final = (
    "LOG", "STREAM", "PARTITION", "START", "END", "LOST",
    "SEGMENTS", "BATCHES", "RECORDS", "SIZE", "MEAN BATCH", "RATIO", "OLDEST", "NEWEST",
)  # fmt: skip


def _print(stats: "DirectoryStats", whole: "Counts") -> None:
    for finding in stats.findings:
        click.echo(finding, err=True)
    rows = [_row(log) for log in stats.logs]
    segments, lost = sum(log.segments for log in stats.logs), sum(_lost(log) for log in stats.logs)
    rows.append(("all", "", "", "", "", str(lost), str(segments), *_cells(whole)))
    print_table(_HEADER, rows, right=(0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))
    used, size = format_bytes(stats.wal_used_bytes), format_bytes(stats.wal_bytes)
    click.echo(f"The write-ahead log has {stats.wal_files} files, {size}; a start would read at most {used} of it.")


def _lost(log: "LogStats") -> int:
    return sum(last - first + 1 for first, last in log.lost)


def _row(log: "LogStats") -> tuple[str, ...]:
    partition = str(log.partition) if log.partition >= 0 else "?"
    offsets = (str(log.start_offset), str(log.end_offset), str(_lost(log)))
    return (str(log.log_id), log.stream or "?", partition, *offsets, str(log.segments), *_cells(log.counts))


def _cells(counts: "Counts") -> tuple[str, ...]:
    numbers = (str(counts.batches), str(counts.records), format_bytes(counts.size_bytes))
    if not counts.batches:
        return (*numbers, "-", "-", "-", "-")
    ratio = f"{counts.decompressed_bytes / counts.size_bytes:.2f}"
    mean = format_bytes(counts.size_bytes // counts.batches)
    return (*numbers, mean, ratio, _time(counts.oldest_ms), _time(counts.newest_ms))


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
