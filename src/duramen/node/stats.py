"""Statistics of a data directory without a running node: logs, batches, bytes, times, and the write-ahead log."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from duramen.base.errors import BatchCorrupt
from duramen.codec.batch import CODEC_MASK, HEADER_BYTES, MAX_DECOMPRESSED_BYTES, Header
from duramen.codec.compression import decompress
from duramen.node.names import read_names
from duramen.node.offline import hold
from duramen.node.salvage import stored_bytes
from duramen.storage.planning.salvage import SalvageGaps
from duramen.storage.salvage.left import LeftLog, batches_of
from duramen.storage.salvage.reader import read_leftovers

__all__ = ["Counts", "DirectoryStats", "LogStats", "count"]


class Counts(NamedTuple):
    """Sizes are bytes, times ms since 1970 or -1 without a batch.

    `decompressed_bytes` is the size of the batches without compression.
    """

    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    decompressed_bytes: int = 0
    smallest_batch_bytes: int = 0
    largest_batch_bytes: int = 0
    oldest_ms: int = -1
    newest_ms: int = -1

    def with_batch(self, found: Header, decompressed_bytes: int) -> "Counts":
        """The counts with another batch."""
        size = found.size
        one = Counts(1, found.records, size, decompressed_bytes, size, size, found.first_timestamp, found.max_timestamp)
        return self.plus(one)

    def plus(self, other: "Counts") -> "Counts":
        """The sum of both."""
        if not (self.batches and other.batches):
            return self if self.batches else other
        return Counts(
            self.batches + other.batches,
            self.records + other.records,
            self.size_bytes + other.size_bytes,
            self.decompressed_bytes + other.decompressed_bytes,
            min(self.smallest_batch_bytes, other.smallest_batch_bytes),
            max(self.largest_batch_bytes, other.largest_batch_bytes),
            min(self.oldest_ms, other.oldest_ms),
            max(self.newest_ms, other.newest_ms),
        )


class LogStats(NamedTuple):
    """A log; `stream` is empty if its name is unknown. `lost` are ranges of offsets, by first and last."""

    log_id: int
    stream: str
    partition: int
    durability: str
    segments: int
    start_offset: int
    end_offset: int
    lost: list[tuple[int, int]]
    counts: Counts


class DirectoryStats(NamedTuple):
    """`wal_used_bytes` is the part of the write-ahead log's `wal_bytes` that a start after a kill would read."""

    directory_id: str
    logs: list[LogStats]
    wal_files: int
    wal_bytes: int
    wal_used_bytes: int
    findings: list[str]


def count(
    directory: Path, expect: Callable[[int], None] | None = None, advance: Callable[[int], None] | None = None
) -> DirectoryStats:
    """Read everything once and count it. `advance` gets the number of bytes read, of the total that `expect` got.

    Raises DirectoryUnusable or OSError.
    """
    with hold(directory, damaged=True) as held:
        if expect is not None:
            expect(2 * stored_bytes(directory))
        left = read_leftovers(held.files, held.id, advance=advance)
        names = read_names(held.files, left)
        logs = []
        for log in sorted(left.logs.values(), key=lambda log: log.id):
            counts, gaps = Counts(), SalvageGaps(max(log.start_offset, 0), log.cleaned_offset, log.suspect)
            for found, whole in batches_of(held.files, log):
                counts = counts.with_batch(found, _decompressed_bytes(found, whole))
                gaps.add(found.base_offset, found.next_offset)
                if advance is not None:
                    advance(found.size)
            gaps.reach(log.end_offset)
            logs.append(_log_stats(log, names.of(log.key), gaps.lost, counts))
        findings = [held.problem] if held.problem else []
        return DirectoryStats(
            str(left.directory_id or ""),
            logs,
            left.wal_files,
            left.wal_bytes,
            left.wal_used_bytes,
            findings + left.findings,
        )


def _log_stats(log: LeftLog, stream: str, lost: list[tuple[int, int]], counts: Counts) -> LogStats:
    partition = log.key.partition if log.key is not None else -1
    start_offset = max(log.start_offset, 0)
    segments = len(log.bases)
    return LogStats(log.id, stream, partition, log.durability, segments, start_offset, log.end_offset, lost, counts)


def _decompressed_bytes(found: Header, whole: memoryview) -> int:
    codec = found.attributes & CODEC_MASK
    if not codec:
        return found.size
    try:
        return HEADER_BYTES + len(decompress(codec, whole[HEADER_BYTES:], MAX_DECOMPRESSED_BYTES))
    except BatchCorrupt:
        return found.size
