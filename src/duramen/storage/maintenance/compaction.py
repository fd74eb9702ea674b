"""Compaction by key: one log at a time, in steps of bounded size at a limited rate, beside appends and reads.

A round surveys the keys of a log's dirty segments, rewrites its segments without superseded records, and swaps in each
one once it is on disk. For a keyed log the view knows the superseded records without a survey and decides on each
segment in turn. The checkpoint names the log's files: old ones stay until both checkpoints name the new ones
(docs/adr/compaction-swap.md). A failed round is abandoned, logged, and repeated later.
"""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from duramen.base.deadlines import Deadlines
from duramen.base.errors import BatchCorrupt, DuramenError, LogDamaged
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock, FileSystem, Lane, Worker
from duramen.storage.log.floors import floors_of
from duramen.storage.log.log import NEVER, Log
from duramen.storage.maintenance.closed_segment import SegmentSource, Target
from duramen.storage.maintenance.compaction_passes import PausingTable, rewrite, survey
from duramen.storage.maintenance.offset_map import SLOT_BYTES, OffsetMap
from duramen.storage.maintenance.rests import Rests
from duramen.storage.maintenance.scheduler import Upkeep
from duramen.storage.maintenance.segment_rewrite import holds
from duramen.storage.planning.compaction import (
    Aborted,
    ByKey,
    BySupersession,
    Cleanable,
    Cleaner,
    CompactionLimits,
    CompactionSegmentFacts,
    FinishedTransactions,
    KeepRule,
    LogView,
    Superseded,
    cleanable,
    groups,
)
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.index import IndexHeader
from duramen.storage.segment.reader import open_index
from duramen.storage.segment.segment import Segment, segment_name

__all__ = ["Compactor"]

_RETRY_MS: Final = 60_000
_SHARE: Final = 0.1  # of a processor, if there is a limit


class _Step(NamedTuple):
    """Run `job` in `lane` and continue with its result."""

    lane: Lane
    job: Callable[[], Any]


class _Alone(NamedTuple):
    """Run the job that `plan` makes while no copy is in progress."""

    plan: Callable[[], Callable[[], Any]]


class _Ask(NamedTuple):
    """Call a function that responds later."""

    ask: Callable[[Callable[[Any], None]], None]


class _Pause(NamedTuple):
    """A pause after bytes that were read or written: continue when the rate allows it."""

    size_bytes: int


class _SegmentGone(Exception):
    """A segment was deleted or truncated during the round: the round skips it."""


T = TypeVar("T")
_Request = _Step | _Alone | _Ask | _Pause
_Part = Generator[_Request, Any, T]
_Round = _Part[None]


def segment_facts(log: Log) -> list[CompactionSegmentFacts]:
    """The facts about a log's segments for planning, without the active one."""
    return [
        CompactionSegmentFacts(
            segment.base_offset,
            following.base_offset,
            segment.size,
            segment.first_timestamp,
            segment.max_timestamp,
            settled=segment.closed
            and not (segment.in_memory or segment.suspect)
            and segment.synced == segment.copied == segment.size > 0,
            sound=not (segment.spoiled or segment.damage),
        )
        for segment, following in pairwise(log.segments)
    ]


def _once_synced(log: Log) -> list[CompactionSegmentFacts]:
    """The facts after a checkpoint: closed segments are settled, unless their sync failed."""
    return [
        facts._replace(settled=segment.closed and segment.size > 0 and not (segment.in_memory or segment.suspect))
        for segment, facts in zip(log.segments, segment_facts(log), strict=False)
    ]


def _transactions(log: Log) -> FinishedTransactions:
    return FinishedTransactions(Aborted(*row[:3]) for row in log.transactions.aborted)


class Compactor:
    """Compacts logs, the most urgent first. `report` receives messages for the operator."""

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        handles: Handles,
        metrics: Metrics,
        upkeep: Upkeep,
        limits: CompactionLimits,
    ) -> None:
        self.report: Callable[[str], None] = lambda _: None
        self._files = files
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._handles = handles
        self._upkeep = upkeep
        self._limits = limits
        self._rests = Rests(clock, _SHARE if limits.bytes_per_second else 1.0)
        self._round: _Round | None = None
        self._log: Log | None = None
        self._logs: Callable[[], Iterable[Log]] = tuple
        self._settling: set[Log] = set()
        self._not_before_ms: dict[Log, int] = {}
        self._reached: dict[Log, int] = {}  # where the last round ended, without damaged segments
        self._stopped: Callable[[], None] | None = None
        self._in_step = False
        self._rounds = metrics.counter("duramen_compactions_total")
        self._failures = metrics.counter("duramen_compaction_failures_total")
        self._read = metrics.counter("duramen_compaction_read_bytes_total")
        self._written = metrics.counter("duramen_compaction_written_bytes_total")
        self._running = metrics.counter("duramen_compaction_running")

    # -- which log ----------------------------------------------------------------------------------

    def look(self, logs: Callable[[], Iterable[Log]]) -> None:
        """Compact the dirty logs one by one until none is dirty enough; does nothing while that is in progress."""
        self._logs = logs
        if self._stopped is not None or self._round is not None or not self._limits.enabled:
            return
        compacted = [log for log in logs() if log.obsolete or (log.config.compact and len(log.segments) > 1)]
        for log in compacted:
            if log.obsolete and log not in self._settling:
                self._settle(log)
        for known in (self._reached, self._not_before_ms):
            for log in [log for log in known if log.deleted]:
                del known[log]
        if not self._begin(compacted) and self._most_urgent(compacted, _once_synced) is not None:
            # The round needs no more than this sync: the next regular checkpoint may be a minute away.
            self._upkeep.checkpointer.request(self._synced)

    def _begin(self, compacted: Iterable[Log]) -> bool:
        found = self._most_urgent(compacted, segment_facts)
        if found is None:
            return False
        self._log = found[0]
        self._running.value = 1
        self._round = self._compact(*found)
        self._go_on(None)
        return True

    def _synced(self, error: OSError | None) -> None:
        if error is None and self._stopped is None and self._round is None:
            self._begin([log for log in self._logs() if log.config.compact])

    def _most_urgent(
        self, logs: Iterable[Log], facts: Callable[[Log], list[CompactionSegmentFacts]]
    ) -> tuple[Log, Cleanable] | None:
        best: tuple[Log, Cleanable] | None = None
        now_ms = self._clock.wall_ms()
        for log in logs:
            # A log with obsolete files waits: deleted records may be in them.
            if log.obsolete or self._waits(log):
                continue
            start = max(log.dirty_offset, self._reached.get(log, 0))
            found = cleanable(facts(log), start, floors_of(log), log.config.compaction, now_ms)
            if found is not None and (best is None or found.urgency > best[1].urgency):
                best = log, found
        return best

    def _waits(self, log: Log) -> bool:
        return self._not_before_ms.get(log, 0) > self._clock.monotonic_ms()

    def stop(self, done: Callable[[], None]) -> None:
        """Abandon the round and start no other. `done` is called once no job uses files any more."""
        self._stopped = done
        self._rests.hurried = True
        if not self._in_step:
            self._give_up(done)

    def _give_up(self, done: Callable[[], None]) -> None:
        if self._round is not None:
            self._round.close()
            self._ended()
        done()

    # -- one step after another ---------------------------------------------------------------------

    def _go_on(self, result: object) -> None:
        running = self._round
        if running is None:
            return
        try:
            request = running.throw(result) if isinstance(result, BaseException) else running.send(result)
        except StopIteration:
            self._rounds.value += 1
            self._ended()
            self._worker.soon(partial(self.look, self._logs))
        except (DuramenError, OSError) as error:
            self._failed(error)
            self._ended()
        else:
            self._do(request)

    def _do(self, request: _Request) -> None:
        running = self._round

        def resume() -> None:
            if self._round is running:
                self._go_on(None)

        if not isinstance(request, _Pause):
            self._run(request)
            return
        delay_ms = 0
        if self._limits.bytes_per_second > 0:
            delay_ms = request.size_bytes * 1000 // self._limits.bytes_per_second - self._rests.rested_ms()
        if delay_ms > 0:
            self._deadlines.at(self._clock.monotonic_ms() + delay_ms, resume)
        else:
            self._worker.soon(resume)

    def _run(self, request: _Step | _Alone | _Ask) -> None:
        def done(result: object) -> None:
            self._in_step = False
            if self._stopped is not None:
                self._give_up(self._stopped)
            else:
                self._go_on(result)

        self._in_step = True
        if isinstance(request, _Step):
            self._worker.submit(request.lane, request.job, done)
        elif isinstance(request, _Ask):
            request.ask(done)
        else:
            self._upkeep.copier.alone(request.plan, done)

    def _ended(self) -> None:
        self._round = self._log = None
        self._running.value = 0

    def _failed(self, error: DuramenError | OSError) -> None:
        log = self._log
        if log is None or log.deleted:
            return
        self._failures.value += 1
        self._not_before_ms[log] = self._clock.monotonic_ms() + _RETRY_MS
        what = "without that segment" if isinstance(error, LogDamaged | BatchCorrupt) else "then"
        self.report(
            f"compaction of {log.directory} was abandoned, nothing is lost: {error}; it is retried {what} in "
            f"{_RETRY_MS // 1000} s"
        )

    # -- a round ------------------------------------------------------------------------------------

    def _compact(self, log: Log, found: Cleanable) -> _Round:
        self._not_before_ms.pop(log, None)
        if log.view is not None:
            yield from self._compact_keyed(log, found.end, log.view)
            return
        table = yield from self._survey(log, found)
        facts = segment_facts(log)
        cleaner = self._cleaner(log, ByKey(PausingTable(table, self._rests)), facts)
        end = min(table.latest + 1, log.end_offset)
        log.cleaned_offset = max(log.cleaned_offset, end)  # before the first gap exists
        log.version += 1
        segments = list(log.segments)
        for group in groups(facts, table.latest + 1, log.config.segment_bytes):
            yield from self._replace(log, [segments[at] for at in group], cleaner)
        self._compacted(log, end)

    def _compact_keyed(self, log: Log, end: int, view: LogView) -> _Round:
        """From the oldest segment up, so that a tombstone goes after the records that it deletes."""
        facts = segment_facts(log)
        sound = all(segment.sound for segment in facts)
        cleaner: Cleaner | None = None
        segments = list(log.segments)
        cleaned_as_of = NEVER if sound else None
        for group in groups(facts, end, log.config.segment_bytes):
            old = [segments[at] for at in group]
            first, last = old[0].base_offset, facts[group[-1]].end_offset
            decided: Superseded | None = yield _Ask(partial(view.decide, first, last, cleaned_as_of))
            if decided is None or log.view is not view:
                self._not_before_ms[log] = self._clock.monotonic_ms() + _RETRY_MS
                return
            rule = BySupersession(decided, keep_tombstones=not sound)
            cleaner = cleaner or self._cleaner(log, rule, facts)
            cleaner.rule = rule
            log.cleaned_offset = max(log.cleaned_offset, decided.end)  # before the first gap exists
            log.superseded_offset = max(log.superseded_offset, decided.as_of)
            log.version += 1
            whole = yield from self._replace(log, old, cleaner)
            if whole and not log.deleted:
                view.dropped(decided, rule.kept)
            cleaned_as_of = None if cleaned_as_of is None or not whole else min(cleaned_as_of, decided.as_of)
        self._compacted(log, end)

    def _cleaner(self, log: Log, rule: KeepRule, facts: Iterable[CompactionSegmentFacts]) -> Cleaner:
        return Cleaner(
            rule,
            now_ms=self._clock.wall_ms(),
            delete_retention_ms=log.config.compaction.delete_retention_ms,
            transactions=_transactions(log),
            last_batches={row[0]: row[3][-1][2] for row in log.producers.rows() if row[3]},
            keep_tombstones=not all(segment.sound for segment in facts),
        )

    def _compacted(self, log: Log, end: int) -> None:
        if log.deleted:
            return
        self._reached[log] = end
        # After a restart unreadable segments are read again, and then every key after them has to be known.
        log.dirty_offset = min([end, *(found.base_offset for found in segment_facts(log) if not found.sound)])
        log.version += 1
        self._upkeep.checkpoint_later()
        if log.obsolete:
            self._settle(log)

    def _survey(self, log: Log, found: Cleanable) -> _Part[OffsetMap]:
        """The newest offset of every key from the first dirty offset on, as far as the table has room."""
        limits = self._limits
        needed = int((found.end - found.start) / limits.load_factor + 2) * SLOT_BYTES
        table = OffsetMap(min(limits.buffer_bytes, needed), limits.load_factor)
        transactions = _transactions(log)
        for segment, facts in zip(list(log.segments), segment_facts(log), strict=False):
            if facts.end_offset <= found.start or facts.base_offset >= found.end or not facts.sound:
                continue
            try:
                source = yield from self._source(log, segment)
            except _SegmentGone:
                continue  # and everything older with it
            while source.left:
                before = source.left
                full: bool = yield from self._checked(
                    segment, _Step("read", partial(survey, source, table, transactions, found.start, self._rests))
                )
                self._read.value += before - source.left
                yield _Pause(before - source.left)
                if full:
                    return table
        table.latest = found.end - 1
        return table

    def _source(self, log: Log, segment: Segment) -> _Part[SegmentSource]:
        if not holds(log, segment):
            raise _SegmentGone
        try:
            file = self._handles.open(segment)
        except LogDamaged:
            segment.spoiled = True
            raise
        if file is None:
            raise AssertionError("a settled segment is in a file")
        if segment.index is None or segment.index.first:
            blocked = open_index(segment, file)
            blocked.apply((yield _Step("read", blocked.job)))
        index = segment.index
        if index is None or segment.damage:
            segment.spoiled = True
            raise LogDamaged(f"{segment.path}.log is damaged")
        return SegmentSource(segment, file, index)

    def _checked(self, segment: Segment, step: _Step) -> _Part[Any]:
        """The result of a step; if it finds damage, the segment is skipped from now on."""
        try:
            return (yield step)
        except (LogDamaged, BatchCorrupt):
            segment.spoiled = True
            raise

    def _replace(self, log: Log, old: list[Segment], cleaner: Cleaner) -> _Part[bool]:
        """Returns whether no record is left to remove."""
        base, generation = old[0].base_offset, max(segment.generation for segment in old) + 1
        path = f"{log.directory}/{segment_name(base, generation)}"
        target = Target(self._files, path, IndexHeader(log.id, base, log.key.stream_id, log.key.partition), generation)
        changed = len(old) > 1
        swapped = False
        cleaner.unmarked.clear()
        try:
            yield _Step("disk", target.open)
            for segment in old:
                changed = (yield from self._rewrite(log, segment, target, cleaner, last=segment is old[-1])) or changed
            if changed:
                yield _Step("disk", target.finish)
                swapped = yield from self._swap(log, old, target)
            if swapped:
                log.transactions.forget_aborted(cleaner.unmarked)
        except _SegmentGone:
            return False
        finally:
            if not swapped:
                self._worker.submit("disk", partial(target.abandon, published=changed), lambda _: None)
        return swapped or not changed

    def _rewrite(self, log: Log, segment: Segment, target: Target, cleaner: Cleaner, *, last: bool) -> _Part[bool]:
        source = yield from self._source(log, segment)
        changed = False
        while source.left:
            before, size = source.left, target.segment.size
            step: bool = yield from self._checked(
                segment, _Step("read", partial(rewrite, source, target, cleaner, self._rests, last=last))
            )
            changed = changed or step
            self._read.value += before - source.left
            self._written.value += target.segment.size - size
            yield _Pause(before - source.left + target.segment.size - size)
        return changed

    def _swap(self, log: Log, old: list[Segment], target: Target) -> _Part[bool]:
        def plan() -> Callable[[], bool]:
            if not all(holds(log, segment) for segment in old):
                return lambda: False
            return publish

        def publish() -> bool:
            target.publish(log.directory)
            return True

        published: bool = yield _Alone(plan)
        if not published or not all(holds(log, segment) for segment in old):
            return False
        log.swap(old, target.segment)
        for segment in old:
            self._handles.retire(segment)
        return True

    # -- the old files ------------------------------------------------------------------------------

    def _settle(self, log: Log) -> None:
        """Remove obsolete files, once two checkpoints in a row do not name them."""
        self._settling.add(log)
        obsolete = list(log.obsolete)
        request = self._upkeep.checkpointer.request

        def first(error: OSError | None) -> None:
            if error is not None:
                self._settling.discard(log)
            else:
                request(second)

        def second(error: OSError | None) -> None:
            if error is not None or log.deleted:
                self._settling.discard(log)
                return
            kept = {(segment.base_offset, segment.generation) for segment in log.segments}
            paths = [f"{log.directory}/{segment_name(*place)}" for place in obsolete if place not in kept]
            self._worker.submit("disk", partial(_remove, self._files, log.directory, paths), removed)

        def removed(result: object) -> None:
            self._settling.discard(log)
            if not isinstance(result, BaseException):
                log.obsolete = [place for place in log.obsolete if place not in obsolete]
                log.version += 1
                self._upkeep.checkpoint_later()

        request(first)


def _remove(files: FileSystem, directory: str, paths: list[str]) -> None:
    for path in paths:
        for ending in (".log", ".index"):
            files.unlink(path + ending)
    files.sync_directory(directory)  # files that a power loss brings back would never be removed
