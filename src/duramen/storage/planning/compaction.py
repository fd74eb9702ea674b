"""Compaction by key: which segments to examine, the order of logs, and which records stay. Pure.

The rules are Kafka's (LogCleaner, KIP-58, KIP-354, KIP-534): https://kafka.apache.org/documentation/#compaction
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from duramen.codec.batch import CONTROL, TRANSACTIONAL, Header
from duramen.codec.batch_filter import RecordSpan
from duramen.storage.planning.floors import Floor, compaction_bound

__all__ = [
    "Aborted",
    "BatchVerdict",
    "ByKey",
    "BySupersession",
    "Cleanable",
    "Cleaner",
    "CompactionConfig",
    "CompactionLimits",
    "CompactionSegmentFacts",
    "FinishedTransactions",
    "KeepRule",
    "LogView",
    "NewestRecords",
    "Superseded",
    "cleanable",
    "groups",
]

_ABORT: Final = 0
_COMMIT: Final = 1
_LARGEST_OFFSET_DELTA: Final = (1 << 31) - 1


class CompactionSegmentFacts(NamedTuple):
    """The facts about a segment for compaction.

    `end_offset` is the base offset of the next one, times are ms since 1970. `settled`: closed, and synced completely.
    `sound`: without known damage.
    """

    base_offset: int
    end_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int
    settled: bool = True
    sound: bool = True


class CompactionConfig(NamedTuple):
    """A stream's config: min.cleanable.dirty.ratio, {min,max}.compaction.lag.ms, delete.retention.ms."""

    min_dirty_ratio: float = 0.5
    min_lag_ms: int = 0
    max_lag_ms: int = (1 << 63) - 1
    delete_retention_ms: int = 86_400_000


class CompactionLimits(NamedTuple):
    """Limits of compaction: of the table of keys, and of the bytes read and written per second (0: unlimited)."""

    enabled: bool = True
    buffer_bytes: int = 64 << 20
    load_factor: float = 0.9
    bytes_per_second: int = 0


class Cleanable(NamedTuple):
    """The part of a log that may be compacted: the dirty offsets `start` to `end` (exclusive), and its urgency.

    `ratio` is dirty bytes by all bytes before `end`; `overdue`: a record has waited longer than the rules allow.
    """

    start: int
    end: int
    dirty_bytes: int
    ratio: float
    overdue: bool

    @property
    def urgency(self) -> tuple[bool, float, int]:
        """The sort key, largest first: overdue logs before others, then the dirtiest."""
        return self.overdue, self.ratio, self.dirty_bytes


def cleanable(
    segments: Sequence[CompactionSegmentFacts],
    cleaned_offset: int,
    floors: Sequence[Floor],
    rules: CompactionConfig,
    now_ms: int,
) -> Cleanable | None:
    """The dirty part of a log that may be compacted now; None if there is none, or not enough.

    `segments` are in order, without the active one.
    """
    bound = compaction_bound(floors)
    start = max(cleaned_offset, segments[0].base_offset) if segments else cleaned_offset
    end, clean_bytes, dirty_bytes, earliest = start, 0, 0, -1
    for segment in segments:
        young = rules.min_lag_ms > 0 and segment.max_timestamp > now_ms - rules.min_lag_ms
        if segment.end_offset <= start:
            clean_bytes += segment.size
            continue
        if not segment.settled or segment.end_offset > bound or young:
            break
        end = segment.end_offset
        dirty_bytes += segment.size
        if segment.first_timestamp >= 0 and (earliest < 0 or segment.first_timestamp < earliest):
            earliest = segment.first_timestamp
    if end <= start or not dirty_bytes:
        return None
    overdue = earliest >= 0 and earliest < now_ms - max(rules.max_lag_ms, rules.min_lag_ms)
    found = Cleanable(start, end, dirty_bytes, dirty_bytes / (clean_bytes + dirty_bytes), overdue)
    return found if overdue or found.ratio > rules.min_dirty_ratio else None


def groups(segments: Sequence[CompactionSegmentFacts], end: int, segment_bytes: int) -> list[list[int]]:
    """Groups of segments before `end` that become one each: indices, in order, together at most `segment_bytes`.

    A damaged segment stays as it is. Only compacted segments share a group.
    """
    found: list[list[int]] = []
    size = 0
    for at, segment in enumerate(segments):
        if segment.base_offset >= end or not segment.settled:
            break
        if not segment.sound:
            size = -1
            continue
        joins = (
            size >= 0
            and bool(found)
            and size + segment.size <= segment_bytes
            and segment.end_offset - segments[found[-1][0]].base_offset <= _LARGEST_OFFSET_DELTA
        )
        if joins:
            found[-1].append(at)
            size += segment.size
        else:
            found.append([at])
            size = segment.size
    return found


class Aborted(NamedTuple):
    """An aborted transaction: its producer, and the offsets of its first record and its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class FinishedTransactions:
    """Tells which batches belong to aborted transactions, and which markers have no records left.

    Batches come in order.
    """

    def __init__(self, aborted: Iterable[Aborted] = ()) -> None:
        self._ahead = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._aborting: dict[int, int] = {}  # by producer: the offset of the marker that aborts its records
        self._seen: set[int] = set()  # producers with a batch of their aborted transaction
        self._committing: set[int] = set()

    def discards(self, head: Header) -> bool:
        """Whether a data batch is part of an aborted transaction."""
        self._begin(head)
        if not head.attributes & TRANSACTIONAL:
            return False
        if head.base_offset < self._aborting.get(head.producer_id, -1):
            self._seen.add(head.producer_id)
            return True
        self._committing.add(head.producer_id)
        return False

    def ends(self, head: Header, marker: int | None) -> bool:
        """Whether no record is left of the transaction that a control batch ends; `marker` is its type."""
        self._begin(head)
        if marker == _ABORT:
            left = head.producer_id in self._seen
            self._seen.discard(head.producer_id)
            self._aborting.pop(head.producer_id, None)
            return not left
        if marker == _COMMIT:
            left = head.producer_id in self._committing
            self._committing.discard(head.producer_id)
            return not left
        return marker is None

    def _begin(self, head: Header) -> None:
        while self._ahead and self._ahead[-1].first_offset < head.next_offset:
            begun = self._ahead.pop()
            # A transaction that ended earlier is skipped: its marker may be among removed batches.
            if begun.last_offset >= head.base_offset:
                self._aborting[begun.producer_id] = begun.last_offset


class NewestRecords(Protocol):
    """The newest offset of each surveyed key; `latest` is the last surveyed offset."""

    latest: int

    def newest(self, key: bytes) -> int:
        """-1 if the key was not seen."""


class KeepRule(Protocol):
    """Decides which records stay, up to the offset `latest`; later ones stay. Offsets come in order.

    With `stamps_tombstones`, remaining tombstones get a time after which they are `expired`.
    """

    latest: int
    stamps_tombstones: bool

    def stays(self, offset: int, key: bytes | None, *, tombstone: bool, expired: bool) -> bool:
        """Whether a record stays."""


class ByKey:
    """The newest record of each key stays, and a tombstone until it has expired."""

    stamps_tombstones = True

    def __init__(self, newest: NewestRecords) -> None:
        self.latest = newest.latest
        self._newest = newest.newest

    def stays(self, offset: int, key: bytes | None, *, tombstone: bool, expired: bool) -> bool:
        """Whether a record stays."""
        # A record without a key is never read by key; appends without one are refused.
        return key is not None and not (tombstone and expired) and offset >= self._newest(key)


class Superseded(Protocol):
    """A view's decision about the offsets `[base, end)`, by the snapshot at `as_of`."""

    @property
    def base(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def as_of(self) -> int: ...

    def stays(self, offset: int, *, tombstone: bool) -> bool:
        """Whether a record stays."""


class LogView(Protocol):
    """The view of a keyed log, which knows the superseded records."""

    def decide(
        self, first: int, end: int, cleaned_as_of: int | None, done: Callable[[Superseded | None], None]
    ) -> None:
        """Decide which records of the offsets `[first, end)` may go; None if the view cannot decide now.

        Everything before `first` was cleaned by the snapshot at `cleaned_as_of`; with None tombstones stay.
        """

    def dropped(self, decided: Superseded, kept: bytearray) -> None:
        """Compaction has dropped all decided records except those with bits in `kept`, from `base` on."""


class BySupersession:
    """A view's decision as a rule. `kept` has the bits of remaining records."""

    stamps_tombstones = False

    def __init__(self, decided: Superseded, *, keep_tombstones: bool) -> None:
        self.latest = decided.end - 1
        self.kept = bytearray(max(0, decided.end - decided.base + 7 >> 3))
        self._decided = decided
        self._keep_tombstones = keep_tombstones

    def stays(self, offset: int, key: bytes | None, *, tombstone: bool, expired: bool) -> bool:
        """Whether a record stays."""
        del expired
        stays = key is not None and self._decided.stays(offset, tombstone=tombstone)
        if stays or (tombstone and self._keep_tombstones):
            place = offset - self._decided.base
            self.kept[place >> 3] |= 1 << (place & 7)
            return True
        return False


class BatchVerdict(NamedTuple):
    """The verdict on a batch: gone, or its `kept` records and a new delete horizon (ms; -1: unchanged)."""

    gone: bool
    kept: list[RecordSpan]
    delete_horizon_ms: int = -1


class Cleaner:
    """Decides record by record, for one round over one log. Batches come in the order of their offsets."""

    def __init__(
        self,
        rule: KeepRule,
        *,
        now_ms: int,
        delete_retention_ms: int,
        transactions: FinishedTransactions,
        last_batches: Mapping[int, int],
        keep_tombstones: bool = False,
    ) -> None:
        """`last_batches`: the base offset of the last batch of each known producer. These batches stay, even if empty.

        `keep_tombstones` if an earlier segment could not be compacted: it may have records that they delete.
        """
        self.rule = rule
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._transactions = transactions
        self._last_batches = last_batches
        self._keep_tombstones = keep_tombstones
        self.unmarked: set[int] = set()
        """Offsets of expired markers of aborted transactions: the marker goes, or only its empty batch stays."""

    def judge(self, head: Header, records: Sequence[RecordSpan], marker: int | None, *, last: bool) -> BatchVerdict:
        """The verdict on a batch. The `last` batch of its segment stays, to keep the segment's end."""
        expired = 0 <= head.delete_horizon_ms <= self._now_ms and not self._keep_tombstones
        stays = last or self._last_batches.get(head.producer_id) == head.base_offset
        if head.attributes & CONTROL:
            ended = self._transactions.ends(head, marker)
            if ended and expired:
                if marker == _ABORT:
                    self.unmarked.add(head.base_offset)
                return BatchVerdict(not stays, [])
            return BatchVerdict(gone=False, kept=list(records), delete_horizon_ms=self._new_horizon(head, wanted=ended))
        if self._transactions.discards(head):
            return BatchVerdict(not stays, [])
        kept = list(self._kept(head, records, expired=expired))
        seen = head.next_offset - 1 <= self.rule.latest
        wanted = seen and self.rule.stamps_tombstones and any(span.tombstone for span in kept)
        return BatchVerdict(not kept and not stays, kept, self._new_horizon(head, wanted=wanted))

    def _new_horizon(self, head: Header, *, wanted: bool) -> int:
        return self._horizon_ms if wanted and head.delete_horizon_ms < 0 else -1

    def _kept(self, head: Header, records: Sequence[RecordSpan], *, expired: bool) -> Iterator[RecordSpan]:
        stays, latest, base = self.rule.stays, self.rule.latest, head.base_offset
        for span in records:
            _, _, delta, _, key, tombstone = span
            if base + delta > latest or stays(base + delta, key, tombstone=tombstone, expired=expired):
                yield span
