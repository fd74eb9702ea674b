"""Where records of streams lie, in the log and in tables: offsets and tasks for `tier=hot`, `cold` and `all`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pyspark.sql.datasource import InputPartition

from duramen.base.catalogue_tables import STREAM_SETTINGS, storage_problem
from duramen.base.errors import DuramenError, OptionInvalid
from duramen.client import Admin, Consumer, TopicPartition
from duramen.client.consumer import EARLIEST, LATEST
from duramen.spark.cold import ColdPartition, NewestPartition, Piece
from duramen.spark.columns import TIMESTAMP_TYPE
from duramen.spark.filters import Narrowing
from duramen.spark.options import Options
from duramen.spark.planning import Span as Range
from duramen.spark.reading import Span, report_lost
from duramen.spark.tables.port import DataFile
from duramen.spark.tables.port import Span as TableSpan
from duramen.spark.tiers import TIERS, Extent, Tier

if TYPE_CHECKING:
    from duramen.spark.tables.port import Table
    from duramen.spark.translation.declared import Declared

__all__ = ["Offsets", "Parts", "Places", "Tiers"]

_NO_END: Final = 1 << 62
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
        return Places(consumer, tables, self._tier or "all", ids, fail=fail)


class _ColdTable:
    """A table, opened when it is first asked for; what it says stays the same from then on."""

    def __init__(self, declared: "Declared") -> None:
        self.declaration = declared.declaration
        self._state: tuple[Mapping[int, int], Mapping[int, int], Sequence[DataFile]] | None = None

    def _opened(self) -> tuple[Mapping[int, int], Mapping[int, int], Sequence[DataFile]]:
        if self._state is None:
            from duramen.spark.tables.opening import find_table

            try:
                table: Table | None = find_table(self.declaration)
                # Files are listed behind the ends: they may have more than these say, never less.
                self._state = ({}, {}, ()) if table is None else (table.begins(), table.ends(), table.scan())
            except DuramenError as error:
                raise type(error)(f"{error}; tier=hot reads what is in the log alone") from None
        return self._state

    def extent(self, partition: int) -> tuple[int, int] | None:
        """Its offsets of a partition, `[first, end)`; None where there is nothing of it."""
        begins, ends, _ = self._opened()
        return None if partition not in ends else (begins.get(partition, 0), ends[partition])

    def files(self, partition: int, first: int, end: int) -> list[DataFile]:
        """Those with rows of a partition that may have such offsets."""
        return [
            file for file in self._opened()[2]
            if file.partition == partition and file.first_offset < end and file.last_offset >= first
        ]  # fmt: skip

    def first_at(self, partition: int, time_ms: int, end: int) -> int | None:
        """The first offset below `end` of a record at or after a time."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from duramen.spark.tables.columns import RAW_FIELDS
        from duramen.spark.tables.reading import read_file
        from duramen.spark.tables.storage import Place

        place = Place(self.declaration.storage)
        spans = [TableSpan(partition, 0, end)]
        moment = pa.array([time_ms * 1000], pa.int64()).cast(TIMESTAMP_TYPE)[0]
        found: list[int] = []
        for file in self.files(partition, 0, end):
            if (found and min(found) < file.first_offset) or _ends_before(file, time_ms):
                continue
            rows = read_file(place, file, pa.schema(RAW_FIELDS), columns=("_offset", "_timestamp"), spans=spans)
            for batch in rows:
                late = batch.filter(pc.greater_equal(batch.column("_timestamp"), moment))
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

    `joined` has where the log is gone on with behind a table, `upserted` the spans of partitions of which each key
    comes once: what of them is in the log is among `hot`.
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

    def cold_ends(self, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """How far those partitions are read from their tables that are not read from the log at first."""
        there = self.in_log(begin)
        tabled = [at for at in begin if at.topic in self._tables and (self._tier == "cold" or there[at] > begin[at])]
        cold = {at: self._tables[at.topic].extent(at.partition) for at in tabled}
        return {at: one[1] for at, one in cold.items() if one is not None and one[0] <= begin[at] < one[1]}

    def cut(self, spans: Iterable[Range], *, streaming: bool) -> Parts:
        """Spans by where they are read. Raises RecordsLost, OptionInvalid."""
        spans = list(spans)
        tabled = self._extents({at for at, first, end in spans if at.topic in self._tables and first < end})
        parts = Parts([], [], {}, {})
        for at, first, end in spans:
            extent = tabled.get(at)
            if extent is None:
                parts.hot.append((at, first, end))
                continue
            cut = extent.cut(first, end, prefer_hot=streaming)
            self._report(at, cut.lost, extent.tier)
            if self._tables[at.topic].declaration.upsert:
                self._require_whole(at, extent, first, end, streaming=streaming, cold=cut.cold[0] < cut.cold[1])
                if not streaming:
                    # Rows may be newer than the ends that were read before them; without a log they are the only ones.
                    parts.upserted[at] = (first, end if extent.tier == "all" else _NO_END)
            if cut.cold[0] < cut.cold[1]:
                parts.joined[at] = cut.hot[0]
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

    def tasks(self, parts: Parts, newer: Mapping[TopicPartition, Span], narrowing: Narrowing) -> list[InputPartition]:
        """The shares of tables for tasks of their own, as far as filters leave any.

        `newer` is what is to be read of the log for upserted partitions.
        """
        made: list[InputPartition] = []
        for at, first, end in parts.cold:
            if narrowing.takes(at):
                made += self._cold(at, narrowing.cut(first, end), None)
        for at, span in parts.upserted.items():
            if narrowing.takes(at):
                shown = narrowing.cut(*span)
                made += self._cold(at, shown, newer.get(at))
                if at in newer:
                    made.append(NewestPartition(newer[at], shown))
        return made

    def _cold(self, at: TopicPartition, span: tuple[int, int], newer: Span | None) -> list[InputPartition]:
        """Files of about a task's worth together."""
        if span[0] >= span[1]:
            return []
        table = self._tables[at.topic]
        groups: list[list[DataFile]] = []
        room = 0
        for file in table.files(at.partition, *span):
            if not groups or file.size_bytes > room:
                groups.append([])
                room = _TASK_BYTES
            groups[-1].append(file)
            room -= file.size_bytes
        storage = table.declaration.storage
        return [ColdPartition(Piece(storage, *at, group, *span, newer)) for group in groups]
