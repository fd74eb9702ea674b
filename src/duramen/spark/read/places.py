"""Where records of streams lie, in the log and in tables: offsets and tasks for `tier=hot`, `cold` and `all`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pyspark.sql.datasource import InputPartition

from duramen.base.catalogue_tables import STREAM_SETTINGS, storage_problem
from duramen.base.errors import DuramenError, OptionInvalid
from duramen.client import Admin, Consumer, TopicPartition
from duramen.client.consumer import EARLIEST, LATEST
from duramen.spark.columns import TIMESTAMP_TYPE
from duramen.spark.options import Options
from duramen.spark.read.cold import ColdPartition, NewestPartition, Piece
from duramen.spark.read.filters import Narrowing
from duramen.spark.read.planning import Span as Range
from duramen.spark.read.reading import Span, reads_committed, report_lost
from duramen.spark.read.shares import Floors
from duramen.spark.read.tiers import TIERS, Extent, Tier
from duramen.spark.tables.history import next_ends
from duramen.spark.tables.port import DataFile, State

if TYPE_CHECKING:
    import pyarrow as pa

    from duramen.spark.tables.port import Table
    from duramen.spark.translation.declared import Declared

__all__ = ["Offsets", "Parts", "Places", "Tiers"]

_NO_STATE: Final = State({}, {}, {}, (), ())
_NO_REACH: Final[Mapping[TopicPartition, int]] = {}
_TASK_BYTES: Final = 128 * 1024 * 1024
_KEYS: Final = [setting.name for setting in STREAM_SETTINGS]


class Offsets(Protocol):
    """Says where records lie: the log alone (`Consumer`), or with tables."""

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """As `Consumer.offsets`."""


class Tiers:
    """What the option `tier` says, and which streams are tables; that is asked once for each."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid."""
        tier = options.one_of("tier", TIERS) if options.given("tier") else None
        self._tier: Tier | None = next((one for one in TIERS if one == tier), None)
        try:
            storage = json.loads(options.text("tableStorage") or "{}")
        except ValueError:
            storage = None
        if not isinstance(storage, dict) or not all(isinstance(value, str) for value in storage.values()):
            raise OptionInvalid('tableStorage: it must be JSON such as {"s3.endpoint": "http://127.0.0.1:9000"}')
        for problem in filter(None, map(storage_problem, storage)):
            raise OptionInvalid(f"tableStorage: {problem}")
        self._storage = storage
        self._committed = reads_committed(options)
        self._declared: dict[tuple[str, str], Declared | None] = {}

    def look(self, consumer: Consumer, ids: Mapping[str, str], *, fail: bool) -> "Places":
        """Of these streams, by their names with their ids; `fail` where records are lost.

        Raises OptionInvalid where the option wants a table and there is none, and what reaching the brokers raises.
        """
        if self._tier == "hot":
            return Places(consumer, {}, "hot", ids, fail=fail)
        unknown = [name for name in ids if (name, ids[name]) not in self._declared]
        if unknown:
            from duramen.spark.translation.declared import declared

            configs = Admin(consumer.cluster).configs_of(unknown, _KEYS)
            for name in unknown:
                self._declared[name, ids[name]] = declared(name, ids[name], configs[name], self._storage)
        found = {name: self._declared[name, id_] for name, id_ in ids.items()}
        bare = [name for name, one in found.items() if one is None]
        if self._tier is not None and bare:
            raise OptionInvalid(
                f"tier={self._tier}: stream {bare[0]} is no table; leave the option out, or say tier=hot"
            )
        tables = {name: _ColdTable(one) for name, one in found.items() if one is not None}
        tier = self._tier or "all"
        if tables and tier == "all" and not self._committed:
            raise OptionInvalid(
                f"kafka.isolation.level: stream {min(tables)} is a table, which has committed records only; leave the"
                " option out, or say tier=hot to read what is in the log alone"
            )
        return Places(consumer, tables, tier, ids, fail=fail)


class _ColdTable:
    """A table, opened when it is first asked for; what it says stays the same from then on."""

    def __init__(self, declared: "Declared") -> None:
        self.declaration = declared.declaration
        self._state: State | None = None

    def _opened(self) -> State:
        if self._state is None:
            from duramen.spark.tables.opening import find_table

            try:
                table: Table | None = find_table(self.declaration)
                self._state = _NO_STATE if table is None else table.state()
            except DuramenError as error:
                raise type(error)(f"{error}; tier=hot reads what is in the log alone") from None
        return self._state

    def extent(self, partition: int) -> tuple[int, int] | None:
        """Its offsets of a partition, `[first, end)`; None where there is nothing of it."""
        state = self._opened()
        return None if partition not in state.ends else (state.begins.get(partition, 0), state.ends[partition])

    def floor(self, partition: int) -> int:
        """Below it rows are where their own offsets are; 0 where all of them know where they count."""
        return self._opened().floors.get(partition, 0)

    def next_ends(self, begin: Mapping[int, int], most: int | None, upto: Mapping[int, int]) -> Mapping[int, int]:
        """How far to read on from `begin`, for about `most` offsets: to where the table was whole. Empty where it ends.

        An upserted table is what it is now only.
        """
        state = self._opened()
        rounds = [state.ends] if self.declaration.upsert else state.rounds
        return next_ends(rounds, begin, most, upto) or {}

    def files(self, partition: int, first: int, end: int) -> list[DataFile]:
        """Those with rows of a partition that may count there."""
        return [
            file for file in self._opened().files
            if file.partition == partition and file.first_offset < end and file.last_counted >= first
        ]  # fmt: skip

    def begun_below(self, partition: int, floor: int, first: int, end: int) -> set[int]:
        """The commit markers in `[first, end)` of transactions that have rows below a floor."""
        import pyarrow.compute as pc

        from duramen.spark.tables.columns import COMMIT, OFFSET

        found: set[int] = set()
        for rows in self._rows([file for file in self.files(partition, first, end) if file.first_offset < floor]):
            early = rows.filter(pc.less(rows.column(OFFSET), floor)).column(COMMIT)
            found.update(at for at in pc.unique(early).to_pylist() if at is not None and first <= at < end)
        return found

    def _rows(self, files: Iterable[DataFile]) -> Iterator["pa.RecordBatch"]:
        """Where the rows of files lie, where they count, and their times."""
        import pyarrow as pa

        from duramen.spark.tables.columns import COMMIT, OFFSET, ROW_FIELDS, TIMESTAMP
        from duramen.spark.tables.reading import read_file
        from duramen.spark.tables.storage import Place

        place = Place(self.declaration.storage)
        for file in files:
            yield from read_file(place, file, pa.schema(ROW_FIELDS), columns=(OFFSET, COMMIT, TIMESTAMP))

    def first_at(self, partition: int, time_ms: int, end: int) -> int | None:
        """The first offset below `end` of a record at or after a time."""
        import pyarrow as pa
        import pyarrow.compute as pc

        moment = pa.array([time_ms * 1000], pa.int64()).cast(TIMESTAMP_TYPE)[0]
        found: list[int] = []
        for file in self.files(partition, 0, end):
            if (found and min(found) < file.first_offset) or _ends_before(file, time_ms):
                continue
            for rows in self._rows([file]):
                is_late = pc.greater_equal(rows.column("_timestamp"), moment)
                late = rows.filter(pc.and_(is_late, pc.less(rows.column("_offset"), end)))
                if late.num_rows:
                    found.append(pc.min_max(late.column("_offset")).as_py()["min"])
        return min(found, default=None)


def _ends_before(file: DataFile, time_ms: int) -> bool:
    """Whether the file's statistics say that nothing in it is that new."""
    try:
        newest = json.loads(file.statistics)["maxValues"]["_timestamp"]
        return datetime.fromisoformat(newest).timestamp() * 1000 + 1 < time_ms
    except (ValueError, KeyError, TypeError):
        return False


class Parts(NamedTuple):
    """What is read, by where it lies.

    `joined` has, of partitions that are gone on with in the log, below which offset all is read from the table.
    `upserted` has the spans of partitions of which each key comes once: what of them is in the log is among `hot`.
    """

    hot: list[Range]
    cold: list[Range]
    joined: dict[TopicPartition, int]
    upserted: dict[TopicPartition, tuple[int, int]]


class Places:
    """Where records lie at one moment: what is read is planned with it, and no longer used."""

    def __init__(
        self, consumer: Consumer, tables: Mapping[str, _ColdTable], tier: Tier, ids: Mapping[str, str], *, fail: bool
    ) -> None:
        self._consumer = consumer
        self._tables = tables
        self._tier = tier
        self._ids = ids
        self._fail = fail

    @property
    def has_log(self) -> bool:
        """Whether the log is read at all."""
        return self._tier != "cold"

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """As `Consumer.offsets`: the earliest, the latest, or the first at a time, of the tiers together."""
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
        # The log is asked behind the tables: no row of theirs lies beyond its end.
        hot = self._consumer.bounds(ats)
        return {at: Extent(self._tier if at in cold else "hot", hot[at], cold.get(at)) for at in ats}

    def in_log(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """These offsets, or where the log begins where they lie before it and in a table."""
        tabled = {at: EARLIEST for at in offsets if at.topic in self._tables}
        begins = self._consumer.offsets(tabled) if tabled else {}
        return {at: max(offset, begins.get(at, offset)) for at, offset in offsets.items()}

    def cold_ends(
        self, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int | None
    ) -> dict[TopicPartition, int]:
        """Where to go to in streams whose tables have what the log has not, or that are read from there alone.

        All partitions of a stream go on together, to where its table was whole: about `most` offsets, and not beyond
        `end` where that can be.
        """
        there = self.in_log(begin)
        needed = {
            at.topic for at in begin if at.topic in self._tables and (self._tier == "cold" or there[at] > begin[at])
        }
        found: dict[TopicPartition, int] = {}
        for topic in sorted(needed):
            from_ = {at.partition: offset for at, offset in begin.items() if at.topic == topic}
            upto = {at.partition: offset for at, offset in end.items() if at.topic == topic}
            share = None if most is None else max(1, most // len(needed))
            ends = self._tables[topic].next_ends(from_, share, upto)
            if ends or self._tier == "cold":
                found |= {
                    TopicPartition(topic, partition): max(offset, ends.get(partition, 0))
                    for partition, offset in from_.items()
                }
        return found

    def table_end(self, at: TopicPartition) -> int:
        """Below it the table has what counts there, where it is read; 0 where there is none."""
        extent = self._tables[at.topic].extent(at.partition) if at.topic in self._tables else None
        return 0 if extent is None else extent[1]

    def floors(self, ats: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Below which offsets tables have all records that are committed, wherever their markers are."""
        found = {at: self._tables[at.topic].floor(at.partition) for at in ats if at.topic in self._tables}
        return {at: floor for at, floor in found.items() if floor}

    def cut(self, spans: Iterable[Range], *, streaming: bool, reach: Mapping[TopicPartition, int] = _NO_REACH) -> Parts:
        """Spans by where they are read; of the log a span needs what is behind its `reach`, if that is before it.

        Raises RecordsLost, OptionInvalid.
        """
        spans = list(spans)
        tabled = self._extents({at for at, first, end in spans if at.topic in self._tables and first < end})
        parts = Parts([], [], {}, {})
        for at, first, end in spans:
            extent = tabled.get(at)
            if extent is None:
                parts.hot.append((at, first, end))
                continue
            cut = extent.cut(first, end, prefer_hot=streaming and reach.get(at, first) >= extent.hot[0])
            self._report(at, cut.lost, extent.tier)
            if self._tables[at.topic].declaration.upsert:
                self._require_whole(at, extent, first, end, streaming=streaming, cold=cut.cold[0] < cut.cold[1])
                if not streaming:
                    parts.upserted[at] = (first, end)
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

    def _require_whole(
        self, at: TopicPartition, extent: Extent, first: int, end: int, *, streaming: bool, cold: bool
    ) -> None:
        if streaming and not cold:
            return
        if first > extent.earliest or (not streaming and end < extent.latest):
            raise OptionInvalid(
                f"the table of {at.topic} has each key once, at its newest, so it is read whole: leave out where to"
                " begin and to end, or say tier=hot to read the log's own records"
            )

    def tasks(
        self,
        parts: Parts,
        newer: Mapping[TopicPartition, Span],
        narrowing: Narrowing,
        floors: Floors,
        ends: Mapping[TopicPartition, int] = _NO_REACH,
    ) -> list[InputPartition]:
        """The shares of tables for tasks of their own, as far as filters leave any.

        `newer` is what is to be read of the log for upserted partitions, and `ends` are those that were named.
        """
        made: list[InputPartition] = []
        for at, first, end in parts.cold:
            if narrowing.takes(at):
                made += self._cold(at, first, end, narrowing, floors, None, named=ends.get(at) == end)
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
        newer: Span | None,
        *,
        named: bool = False,
    ) -> list[InputPartition]:
        """Files of about a task's worth together. Before an end that was `named` is also what counts behind it."""
        table = self._tables[at.topic]
        below = end if named else None
        end = max(end, self.table_end(at)) if named else end
        whole = floors.whole.get(at, 0)
        skipped = table.begun_below(at.partition, whole, first, end) if whole else set()
        # Where a record counts is not before its own offset, but it may be behind all that a filter lets through.
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
            Piece(storage, *at, group, first, end, floor, tuple(sorted(skipped)), newer, below) for group in groups
        ]
        return [ColdPartition(piece) for piece in pieces]
