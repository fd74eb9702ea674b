"""One log: offsets, segments, leaderships, producers. It holds state and answers questions; the store acts on it."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from duramen.base.ids import LogId
from duramen.base.leader_epochs import LeaderEpochCache
from duramen.codec.crc import crc32c
from duramen.storage.log.producers import ANY_ID, NO_ID, ProducerTable
from duramen.storage.log.readable import ReadableLog
from duramen.storage.log.state import LogState
from duramen.storage.log.transactions import TransactionTable
from duramen.storage.planning.compaction import CompactionConfig, LogView
from duramen.storage.planning.retention import Late
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.segment import Segment, TailState, segment_name

__all__ = ["LOGS_DIRECTORY", "NEVER", "Log", "LogConfig", "LogKey", "log_directory"]

LOGS_DIRECTORY = "logs"
NEVER = (1 << 63) - 1  # flush.messages and flush.ms: unlimited


class LogKey(NamedTuple):
    """The owner of a log: a partition of a stream."""

    stream_id: UUID
    partition: int


class StreamFloor(NamedTuple):
    """A floor set by a stream's config: `offsets` by partition, 0 without one; see `planning.floors`."""

    name: str
    offsets: Mapping[int, int]
    multiple: int


class LogConfig(NamedTuple):
    """The part of a stream's config that the store uses."""

    durability: str = "sync"
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    retention_ms: int = -1
    retention_bytes: int = -1
    retention_records: int = -1
    memory_max_bytes: int = 16 << 20
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    compact: bool = False
    compaction: CompactionConfig = CompactionConfig()
    segment_jitter_ms: int = 0
    file_delete_delay_ms: int = 0
    floors: tuple[StreamFloor, ...] = ()


def log_directory(log_id: int) -> str:
    """The directory of a log's files."""
    return f"{LOGS_DIRECTORY}/{log_id}"


class Log(ReadableLog):
    """A log in memory."""

    __slots__ = (
        "bulk",
        "cleaned_offset",
        "config",
        "cut_again",
        "deleted",
        "directory",
        "dirty_offset",
        "durability",
        "failed",
        "id",
        "introduced",
        "key",
        "late",
        "obsolete",
        "on_advance",
        "producers",
        "reserved_offset",
        "saved",
        "start_moved_ms",
        "superseded_offset",
        "switching_to",
        "takeovers",
        "version",
        "view",
        "view_floor",
        "written",
    )

    def __init__(self, log_id: LogId, key: LogKey, config: LogConfig, handles: Handles) -> None:
        self.directory = log_directory(log_id)
        super().__init__(handles, Segment(f"{self.directory}/{segment_name(0)}", 0))
        self.id = log_id
        self.key = key
        self.config = config
        self.durability = config.durability
        self.switching_to: str | None = None  # the durability in its last WAL frames, once synced
        self.takeovers = self.segments[0].takeovers = LeaderEpochCache()
        self.producers = ProducerTable()
        self.segments[0].in_memory = config.durability == "memory"
        self.cleaned_offset = 0  # compaction may have left gaps below it
        self.dirty_offset = 0  # the next offset whose keys compaction reads
        self.superseded_offset = 0  # the replacements of records that compaction dropped from a keyed log are below it
        self.obsolete: list[tuple[int, int]] = []  # base offset and generation of files without readers
        self.reserved_offset = 0  # with durability=memory: offsets before it are not reused after a crash
        self.start_moved_ms = -1  # when records were last deleted, as far as this process knows
        self.late = Late()  # records that retention deleted right after their write, as far as this process knows
        self.deleted = False
        self.bulk = False  # batches ordered by another node arrive in bulk: see `in_bulk`
        self.cut_again = False  # by a recovery, with later appends: only the WAL records its last truncation
        self.failed = ""  # why this log accepts no writes (durability=os after a failed sync)
        self.version = 0  # increases with every change of `state`
        self.view: LogView | None = None  # decides which records of a keyed stream compaction drops
        self.view_floor: int | None = None  # the oldest snapshot of a keyed stream; None: the log has no view
        self.saved: tuple[int, bytes] | None = None  # its version in the newest checkpoint, encoded
        self.written = False  # whether the log has a LOG_CREATED frame or a checkpoint entry
        self.introduced = 0  # the WAL position after the frames that introduced its newest epoch
        self.on_advance: Callable[[], None] | None = None

    @classmethod
    def restore(cls, state: LogState, handles: Handles) -> "Log":
        """Restore a log from its checkpoint entry."""
        key = LogKey(UUID(bytes=state.stream_id), state.partition)
        log = cls(LogId(state.id), key, LogConfig(durability=state.durability), handles)
        log.start_offset = state.start_offset
        log.end_offset = log.synced_offset = state.end_offset
        log.takeovers = LeaderEpochCache(state.takeovers)
        log.producers = ProducerTable(state.producers, _forgotten_id(state))
        log.transactions = TransactionTable(
            state.opened, state.aborted, state.end_offset if state.marked_offset < 0 else state.marked_offset
        )
        log.damage = list(state.damage)
        log.cleaned_offset = state.cleaned_offset
        log.dirty_offset = state.dirty_offset
        log.superseded_offset = state.superseded_offset
        log.obsolete = list(state.obsolete)
        # After a segment that continues only in memory, nothing is appended to its file.
        in_memory = log.durability == "memory"
        states = [segment for segment in state.segments if segment.size] if in_memory else state.segments
        last = -1 if in_memory else len(states) - 1
        log.segments = [
            Segment.restore(
                f"{log.directory}/{segment_name(segment.base_offset, segment.generation)}",
                segment,
                state.tail if at == last else None,
            )
            for at, segment in enumerate(states)
        ]
        if in_memory or not log.segments:
            log.segments.append(Segment(f"{log.directory}/{segment_name(log.end_offset)}", log.end_offset))
        for segment in log.segments:
            segment.takeovers = log.takeovers
        for segment, following in pairwise(log.segments):
            segment.end_offset = following.base_offset
        log.active.end_offset = log.end_offset
        log.active.in_memory = in_memory
        log.written = True
        return log

    def state(self) -> LogState:
        """The checkpoint entry; valid for the bytes that have reached the segments' files.

        Records in memory only are left out; if there are no others, the offsets still continue.
        """
        kept = [segment for segment in self.segments if not segment.in_memory]
        start_offset, end_offset = self.start_offset, self.end_offset
        if not kept:
            start_offset = end_offset = max(end_offset, self.reserved_offset)
        elif len(kept) < len(self.segments):
            end_offset = self.segments[len(kept)].base_offset
        opened, aborted = self.transactions.rows(end_offset) if kept else ([], [])
        return LogState(
            self.id,
            self.key.stream_id.bytes,
            self.key.partition,
            self.durability,
            min(start_offset, end_offset),
            end_offset,
            [segment.state() for segment in kept],
            kept[-1].tail() if kept else TailState(),
            self.takeovers.rows(),
            [] if self.active.in_memory else self.producers.rows(),
            self.damage,
            self.cleaned_offset,
            self.dirty_offset,
            self.obsolete,
            opened,
            aborted,
            min(self.transactions.marked_offset, end_offset),
            ANY_ID if self.active.in_memory else self.producers.forgotten_id,
            self.superseded_offset,
        )

    @property
    def active(self) -> Segment:
        """The segment that receives appends."""
        return self.segments[-1]

    @property
    def switches(self) -> bool:
        """Whether an append needs checkpoints before it, and perhaps a change to the configured durability.

        After an interrupted change from memory the active segment is not memory-only any more: that is completed too,
        even if the config is unchanged.
        """
        durability = self.durability
        if self.bulk or self.cut_again or durability != self.config.durability:
            return self.cut_again or self.changes
        return self.segments[-1].in_memory != (durability == "memory")

    @property
    def changes(self) -> bool:
        """Whether its durability has to change."""
        return self.wanted_durability != self.durability or self.active.in_memory != (self.durability == "memory")

    @property
    def wanted_durability(self) -> str:
        """The durability from the next batch on: the configured one, except during bulk appends."""
        return "os" if self.bulk and self.config.durability == "sync" else self.config.durability

    @property
    def in_bulk(self) -> bool:
        """Whether batches go only to segments although the config says sync: acknowledged after their sync.

        On disk such a log has the durability os: recovery reads its segments beyond the checkpoint. If the config has
        changed to os, new batches stay behind those that still wait in memory.
        """
        return self.durability == "os" and (self.config.durability == "sync" or bool(self.active.pending))

    @property
    def roll_ms(self) -> int:
        """The age at which the active segment is closed: with a jitter it differs between segments."""
        config = self.config
        if not config.segment_jitter_ms:
            return config.segment_ms
        drawn = crc32c(f"{self.id} {self.active.base_offset}".encode())
        return config.segment_ms - drawn % config.segment_jitter_ms

    def set_durability(self, durability: str) -> None:
        """Change the durability from the next batch on, with a roll if there is a segment to close."""
        if durability == self.durability and self.active.in_memory == (durability == "memory"):
            return
        self.durability = durability
        self.reserved_offset = 0
        self.version += 1
        if self.active.size:
            self.roll()
        self.active.in_memory = durability == "memory"

    def roll(self) -> Segment:
        """Close the active segment and start another at the end."""
        closed = self.active
        closed.closed = True
        segment = Segment(f"{self.directory}/{segment_name(self.end_offset)}", self.end_offset)
        segment.in_memory = self.durability == "memory"
        segment.takeovers = self.takeovers
        self.segments.append(segment)
        self.close_index(closed)
        return segment

    def close_index(self, segment: Segment) -> None:
        """Finish the index of a closed segment once all its bytes are in its file."""
        if segment.closed and segment.copied == segment.size and segment.index is not None and not segment.in_memory:
            following = self.segments[self._segment_at(segment.base_offset) + 1]
            segment.index.close(segment.size, following.base_offset - segment.base_offset, segment.max_timestamp)

    def synced_to(self, end_offset: int) -> None:
        """Everything below `end_offset` is acknowledged according to the durability."""
        if end_offset > self.synced_offset:
            self.synced_offset = end_offset

    def notify(self) -> None:
        """The high watermark has increased."""
        if self.on_advance is not None:
            self.on_advance()

    def with_ends(self) -> Iterator[tuple[Segment, int]]:
        """Each segment with its end offset."""
        ends = [*(following.base_offset for following in self.segments[1:]), self.end_offset]
        return zip(self.segments, ends, strict=True)

    def supersede(self, offset: int) -> None:
        """Records of a keyed log are missing; records below `offset` have superseded them."""
        if offset > self.superseded_offset:
            self.superseded_offset = offset
            self.version += 1

    @property
    def whole_from(self) -> int:
        """From this offset on the newest record of each key exists; compaction removed older ones."""
        return max(self.cleaned_offset, self.superseded_offset)

    def copied_offset(self) -> int:
        """The end of the prefix whose records are all in files."""
        offset = self.end_offset
        for segment in reversed(self.segments):
            if segment.pending:
                offset = segment.copied_offset()
            elif segment.size:
                break  # all before it was copied earlier
        return offset

    def size_bytes(self) -> int:
        """The size of all batches."""
        return sum(segment.size for segment in self.segments)

    def drop_before(self, offset: int) -> list[Segment]:
        """Move the log start to `offset`; returns the removed segments, which lie wholly before it."""
        self.start_offset = max(self.start_offset, offset)
        self.transactions.cut_start(self.start_offset)
        self.producers.start_at(self.start_offset)
        count = max(0, bisect_right(self.segments, self.start_offset, key=lambda s: s.base_offset) - 1)
        dropped = self.segments[:count]
        del self.segments[:count]
        if dropped:
            self.forget_hints()
        return dropped

    def release(self) -> None:
        """The log is deleted: from now on its segments, and their files, belong to their remaining readers.

        Other objects may refer to the log for long.
        """
        last = Segment(f"{self.directory}/{segment_name(self.end_offset)}", self.end_offset)
        last.in_memory = self.durability == "memory"
        last.takeovers = self.takeovers
        self.segments = [last]
        self.start_offset = self.end_offset
        self.producers = ProducerTable()
        self.transactions = TransactionTable()
        self.saved = None
        self.forget_hints()

    def swap(self, old: list[Segment], new: Segment) -> None:
        """Replace adjacent segments by the compacted segment `new`."""
        at = self.segments.index(old[0])
        new.takeovers = self.takeovers
        self.segments[at : at + len(old)] = [new]
        self.obsolete = self.obsolete + [(segment.base_offset, segment.generation) for segment in old]
        self.version += 1
        self.forget_hints()


def _forgotten_id(state: LogState) -> int:
    """The highest forgotten producer id of a log: any, if producers were only in memory."""
    if state.forgotten_producer_id is None:
        return ANY_ID if state.end_offset else NO_ID
    return ANY_ID if state.durability == "memory" else state.forgotten_producer_id
