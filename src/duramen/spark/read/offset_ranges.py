"""Locates records of streams in the log and in tables: offsets and tasks for `tier=hot`, `cold` and `all`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pyspark.sql.datasource import InputPartition

from duramen.base.errors import OptionInvalid
from duramen.client import Consumer, StreamAdmin, TopicPartition
from duramen.client.consumer import EARLIEST, LATEST
from duramen.client.transaction_states import EndedAt
from duramen.spark.options import Options
from duramen.spark.read.cold_files import ColdPartition, FilePiece, NewestPartition
from duramen.spark.read.cold_tables import ColdTable, EndedIn
from duramen.spark.read.filters import Narrowing
from duramen.spark.read.joint_boundaries import Cold
from duramen.spark.read.plan import Span as Range
from duramen.spark.read.reader import OffsetSpan, reads_committed, report_lost
from duramen.spark.read.splits import Floors
from duramen.spark.read.tiering import TIERS, Extent, Tier
from duramen.spark.tables.port import DataFile

if TYPE_CHECKING:
    from duramen.spark.declared import DeclaredTable

__all__ = ["OffsetSource", "TieredOffsets", "TieredRead", "Tiers"]

_NO_REACH: Final[Mapping[TopicPartition, int]] = {}
_NOTHING_OVER: Final[Mapping[TopicPartition, Collection[int]]] = {}
_TASK_BYTES: Final = 128 * 1024 * 1024


class OffsetSource(Protocol):
    """Locates records: in the log alone (`Consumer`), or with tables."""

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See `Consumer.offsets`."""


class Tiers:
    """The option `tier`, and the streams with tables, which are looked up once each."""

    def __init__(self, options: Options, *, log_only: bool = False) -> None:
        """`log_only`: this PySpark can read nothing else. Raises OptionInvalid."""
        tier = options.one_of("tier", TIERS) if options.given("tier") else None
        if log_only and tier not in (None, "hot"):
            raise OptionInvalid(f"tier={tier}: streaming queries read tables with PySpark 4.2 and newer only")
        tier = "hot" if log_only else tier
        self._tier: Tier | None = next((one for one in TIERS if one == tier), None)
        self._storage = options.storage("tableStorage")
        self._committed = reads_committed(options)
        self._declared: dict[tuple[str, str], DeclaredTable | None] = {}
        self._ended_in: dict[str, EndedIn] = {}

    def __getstate__(self) -> dict[str, object]:
        # Executors get the relevant state with their tasks.
        return {**self.__dict__, "_ended_in": {}}

    @property
    def has_log(self) -> bool:
        """Whether the log is read at all."""
        return self._tier != "cold"

    def look(self, consumer: Consumer, ids: Mapping[str, str], *, fail: bool) -> "TieredOffsets":
        """Locate the records of these streams, by name with ids; `fail` on lost records.

        Raises OptionInvalid if the option requires a table and there is none, and connection errors.
        """
        if self._tier == "hot":
            return TieredOffsets(consumer, {}, "hot", ids, fail=fail)
        unknown = [name for name in ids if (name, ids[name]) not in self._declared]
        if unknown:
            from duramen.spark.declared import KEYS, declared

            configs = StreamAdmin(consumer.cluster).configs_of(unknown, KEYS)
            for name in unknown:
                self._declared[name, ids[name]] = declared(name, ids[name], configs[name], self._storage)
        found = {name: self._declared[name, id_] for name, id_ in ids.items()}
        bare = [name for name, one in found.items() if one is None]
        if self._tier is not None and bare:
            raise OptionInvalid(
                f"tier={self._tier}: stream {bare[0]} is no table; leave the option out, or say tier=hot"
            )
        tables = {
            name: ColdTable(one, self._ended_in.setdefault(name, {})) for name, one in found.items() if one is not None
        }
        tier = self._tier or "all"
        upserted = [name for name, one in tables.items() if one.declaration.upsert]
        if upserted and tier == "all" and not self._committed:
            raise OptionInvalid(
                f"kafka.isolation.level: the table of {min(upserted)} has each key once, at its newest that is"
                " committed; leave the option out, or say tier=hot to read what is in the log alone"
            )
        # Uncommitted records are in the log alone.
        return TieredOffsets(consumer, tables, tier, ids, fail=fail, log_first=tier == "all" and not self._committed)


class TieredRead(NamedTuple):
    """The parts of a read by tier.

    `joined` has, for partitions that continue in the log, the offset below which everything is read from the table.
    `upserted` has the spans of partitions with one row per key: their part in the log is among `hot`.
    """

    hot: list[Range]
    cold: list[Range]
    joined: dict[TopicPartition, int]
    upserted: dict[TopicPartition, tuple[int, int]]


class TieredOffsets:
    """The location of records at one moment: used to plan one read."""

    def __init__(
        self,
        consumer: Consumer,
        tables: Mapping[str, ColdTable],
        tier: Tier,
        ids: Mapping[str, str],
        *,
        fail: bool,
        log_first: bool = False,
    ) -> None:
        """`log_first`: all records are read, and from tables only those that the log no longer has."""
        self._consumer = consumer
        self._tables = tables
        self._tier = tier
        self._ids = ids
        self._fail = fail
        self._log_first = log_first

    @property
    def has_log(self) -> bool:
        """Whether the log is read at all."""
        return self._tier != "cold"

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See `Consumer.offsets`: the earliest, the latest, or the first at a time, of both tiers."""
        tabled = {at for at in wanted if at.topic in self._tables and (self._tier == "cold" or wanted[at] != LATEST)}
        found = self._consumer.offsets(wanted) if wanted.keys() - tabled or self._tier == "all" else {}
        for at, extent in self._extents(tabled).items():
            asked = wanted[at]
            if asked == EARLIEST:
                found[at] = extent.earliest
            elif asked == LATEST:
                found[at] = extent.latest
            else:
                below = extent.latest if self._tier == "cold" else extent.hot[0]
                cold = self._tables[at.topic].first_at(at.partition, asked, below) if extent.cold else None
                found[at] = cold if cold is not None else found.get(at, -1)
        return found

    def bounds(self, ats: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset of each partition and the one after its last."""
        return {at: (extent.earliest, extent.latest) for at, extent in self._extents(ats).items()}

    def _extents(self, ats: Iterable[TopicPartition]) -> dict[TopicPartition, Extent]:
        ats = sorted(ats)
        if not ats:
            return {}
        cold = {at: self._tables[at.topic].extent(at.partition) for at in ats if at.topic in self._tables}
        # The log is asked after the tables: no row of theirs is beyond its end.
        hot = self._consumer.bounds(ats)
        found = {at: Extent(self._tier if at in cold else "hot", hot[at], cold.get(at)) for at in ats}
        return {at: extent.log_first() for at, extent in found.items()} if self._log_first else found

    def in_log(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """These offsets, or the start of the log if they are before it and in a table."""
        tabled = {at: EARLIEST for at in offsets if at.topic in self._tables}
        begins = self._consumer.offsets(tabled) if tabled else {}
        return {at: max(offset, begins.get(at, offset)) for at, offset in offsets.items()}

    def cold_ends(
        self, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int | None
    ) -> dict[TopicPartition, int]:
        """The ends for streams with records only in tables, or that are read from tables alone.

        All partitions of a stream advance together, to a consistent end of its table: about `most` offsets, and not
        beyond `end` if possible. At `end` they stay, however far the table continues. Raises RecordsLost.
        """
        if self._log_first:
            return {}
        there = self.in_log(begin)
        needed = {
            at.topic for at in begin if at.topic in self._tables and (self._tier == "cold" or there[at] > begin[at])
        }
        found: dict[TopicPartition, int] = {}
        for topic in sorted(needed):
            from_ = {at.partition: offset for at, offset in begin.items() if at.topic == topic}
            upto = {at.partition: offset for at, offset in end.items() if at.topic == topic}
            share = None if most is None else max(1, most // len(needed))
            goes_on = any(upto[partition] > offset for partition, offset in from_.items())
            ends = self._tables[topic].next_ends(from_, share, upto) if goes_on else {}
            if ends or self._tier == "cold":
                found |= {
                    TopicPartition(topic, partition): max(offset, ends.get(partition, 0))
                    for partition, offset in from_.items()
                }
        spans = {at: (begin[at], upto) for at, upto in found.items() if begin[at] < upto and self.is_upserted(at)}
        for at, extent in self._extents(spans).items():
            self._report_replaced(at, extent, *spans[at])
        return found

    def be_at(self, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
        """Use upserted tables in their state at `end`, if only they are read: otherwise rows replaced since are lost.

        With the log, those come from there. Raises RecordsLost if a table no longer has that state.
        """
        if self.has_log:
            return
        for topic in sorted({at.topic for at, upto in end.items() if begin[at] < upto and self.is_upserted(at)}):
            spans = {at.partition: (begin[at], upto) for at, upto in end.items() if at.topic == topic}
            if not self._tables[topic].be_at(spans):
                what = f"the table of {topic} has gone on since this micro-batch was planned: what it replaced is gone"
                report_lost(what, fail=self._fail)

    def cold(self, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Cold:
        """The boundaries of a micro-batch from `begin` on by its tables; `ends` are those of `cold_ends`."""
        ended = self.ended({at: offset for at, offset in begin.items() if at in ends}) if self.is_joint(begin) else {}
        jumps = {at: ends[at] for at in ended if self.is_upserted(at)}
        # The log reports its own markers.
        lost = {at.topic for at, offset in self.in_log({at: begin[at] for at in jumps}).items() if offset > begin[at]}
        newest = {topic: self._tables[topic].newest for topic in lost}
        return Cold({at: end for at, end in ends.items() if at not in ended}, ended, jumps, newest)

    def is_joint(self, ats: Iterable[TopicPartition]) -> bool:
        """Whether transactions may span several streams, some with tables: a table knows only its own stream's."""
        topics = {at.topic for at in ats}
        return len(topics) > 1 and bool(topics & self._tables.keys())

    def go_back(self, topics: Iterable[str]) -> bool:
        """Use these tables in an earlier state, if only they are read; False if that is not possible.

        With the log, records deleted meanwhile would be in neither.
        """
        return self._tier == "cold" and all(self._tables[topic].go_back() for topic in topics)

    def is_upserted(self, at: TopicPartition) -> bool:
        """Whether its table has one row per key."""
        return at.topic in self._tables and self._tables[at.topic].declaration.upsert

    def ended(self, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[EndedAt]]:
        """The commit markers before the log, according to tables, for streams with all of them known from `begin` on.

        Requested after those in the log.
        """
        begin = {at: offset for at, offset in begin.items() if at.topic in self._tables}
        there = self.in_log(begin)
        found: dict[TopicPartition, list[EndedAt]] = {}
        for topic in sorted({at.topic for at in begin}):
            table, of_topic = self._tables[topic], {at: offset for at, offset in begin.items() if at.topic == topic}
            ended = {at: table.ended(at.partition, offset, there[at]) for at, offset in of_topic.items()}
            table.forget_ended({at.partition: offset for at, offset in of_topic.items()})
            if None not in ended.values():
                found |= {at: one for at, one in ended.items() if one is not None}
        return found

    def table_end(self, at: TopicPartition) -> int:
        """The end of the table, if it is read; 0 without one."""
        extent = self._tables[at.topic].extent(at.partition) if at.topic in self._tables else None
        return 0 if extent is None else extent[1]

    def floors(self, ats: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets below which tables have all committed records, wherever their markers are."""
        found = {at: self._tables[at.topic].floor(at.partition) for at in ats if at.topic in self._tables}
        return {at: floor for at, floor in found.items() if floor}

    def cut(
        self, spans: Iterable[Range], *, streaming: bool, reach: Mapping[TopicPartition, int] = _NO_REACH
    ) -> TieredRead:
        """Spans by tier; a span of the log needs the records from its `reach` on, if that is before it.

        Raises RecordsLost, OptionInvalid.
        """
        spans = list(spans)
        tabled = self._extents({at for at, first, end in spans if at.topic in self._tables and first < end})
        parts = TieredRead([], [], {}, {})
        for at, first, end in spans:
            extent = tabled.get(at)
            if extent is None:
                parts.hot.append((at, first, end))
                continue
            cut = extent.cut(first, end, prefer_hot=streaming and reach.get(at, first) >= extent.hot[0])
            self._report(at, cut.lost, extent.tier)
            if self.is_upserted(at) and not streaming:
                _require_whole(at, extent, first, end)
                parts.upserted[at] = (first, end)
            elif self.is_upserted(at) and cut.cold[0] < cut.cold[1]:
                self._report_replaced(at, extent, *cut.cold)
            if cut.cold[0] < cut.cold[1]:
                parts.joined[at] = self._tables[at.topic].floor(at.partition)
                if at not in parts.upserted:
                    parts.cold.append((at, *cut.cold))
            if cut.hot[0] < cut.hot[1]:
                parts.hot.append((at, *cut.hot))
        return parts

    def _report(self, at: TopicPartition, lost: Iterable[tuple[int, int]], tier: Tier) -> None:
        where = "neither in the table nor in the log" if tier == "all" else "not in the table"
        for low, high in lost:
            report_lost(f"{at}: the records {low} to {high - 1} are {where}", fail=self._fail)

    def _report_replaced(self, at: TopicPartition, extent: Extent, first: int, end: int) -> None:
        """After the first micro-batch an upserted table lacks replaced records."""
        if first > extent.earliest:
            what = f"{at}: of the records {first} to {end - 1} the table has each key once, at its newest"
            more = ", and the log has them no more" if self.has_log else "; without tier=cold they come from the log"
            report_lost(what + more, fail=self._fail)

    def tasks(
        self,
        parts: TieredRead,
        newer: Mapping[TopicPartition, OffsetSpan],
        narrowing: Narrowing,
        floors: Floors,
        ends: Mapping[TopicPartition, int] = _NO_REACH,
        over: Mapping[TopicPartition, Collection[int]] = _NOTHING_OVER,
    ) -> list[InputPartition]:
        """The tasks that read tables, as far as filters leave any.

        `newer` are the spans of the log for upserted partitions, `ends` the named ends, and `over` the markers of
        transactions that are not shown.
        """
        made: list[InputPartition] = []
        if self._log_first:
            # A row is placed by its own offset, not by the offset at which it counts.
            floors = Floors(named={at: first for at, first, _ in parts.cold})
            ends = {at: end for at, _, end in parts.cold}
        for at, first, end in parts.cold:
            if narrowing.takes(at):
                skipped = over.get(at, ())
                made += self._cold(at, first, end, narrowing, floors, None, named=ends.get(at) == end, over=skipped)
        for at, span in parts.upserted.items():
            if narrowing.takes(at):
                made += self._cold(at, *span, narrowing, Floors(), newer.get(at))
                if at in newer:
                    made.append(NewestPartition(newer[at], narrowing.cut(*span)))
        return made

    def _cold(
        self,
        at: TopicPartition,
        first: int,
        end: int,
        narrowing: Narrowing,
        floors: Floors,
        newer: OffsetSpan | None,
        *,
        named: bool = False,
        over: Collection[int] = (),
    ) -> list[InputPartition]:
        """Files of about a task's size together. Before a `named` end, records that count after it are included."""
        table = self._tables[at.topic]
        below = end if named else None
        end = max(end, self.table_end(at)) if named else end
        whole = floors.whole.get(at, 0)
        skipped = table.begun_below(at.partition, whole, first, end) if whole else set()
        skipped.update(over)
        # A record counts at or after its own offset, but perhaps after all offsets that a filter accepts.
        first = max(first, narrowing.offsets.low)
        groups: list[list[DataFile]] = []
        room = 0
        for file in table.files(at.partition, first, end):
            if file.first_offset > narrowing.offsets.high or (below is not None and file.first_offset >= below):
                continue
            if not groups or file.size_bytes > room:
                groups.append([])
                room = _TASK_BYTES
            groups[-1].append(file)
            room -= file.size_bytes
        storage = table.declaration.storage
        floor = floors.named.get(at, 0)
        pieces = [
            FilePiece(storage, *at, group, first, end, floor, tuple(sorted(skipped)), newer, below) for group in groups
        ]
        return [ColdPartition(piece) for piece in pieces]


def _require_whole(at: TopicPartition, extent: Extent, first: int, end: int) -> None:
    if first > extent.earliest or end < extent.latest:
        raise OptionInvalid(
            f"the table of {at.topic} has each key once, at its newest, so it is read whole: leave out where to"
            " begin and to end, or say tier=hot to read the log's own records"
        )
