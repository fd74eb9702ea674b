"""Where records of streams lie, in the log and in tables: offsets and tasks for `tier=hot`, `cold` and `all`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql.datasource import InputPartition

from duramen.base.catalogue_tables import STREAM_SETTINGS
from duramen.base.errors import DuramenError, OptionInvalid
from duramen.client import Admin, Cluster, Consumer, Isolation, TopicPartition
from duramen.client.consumer import EARLIEST, LATEST
from duramen.spark.cold import ColdPartition, NewestPartition, Piece
from duramen.spark.columns import TIMESTAMP_TYPE
from duramen.spark.options import Options
from duramen.spark.planning import Span as Range
from duramen.spark.reading import Span, report_lost
from duramen.spark.tables.port import DataFile
from duramen.spark.tables.port import Span as TableSpan
from duramen.spark.tiers import TIERS, Extent, Tier

if TYPE_CHECKING:
    from duramen.spark.tables.port import Table
    from duramen.spark.translation.declared import Declared

__all__ = ["Offsets", "Places", "Tiers"]

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
        self._storage = storage
        self._declared: dict[tuple[str, str], Declared | None] = {}

    def look(self, consumer: Consumer, ids: Mapping[str, str], *, fail: bool) -> "Places":
        """Of these streams, by their names with their ids; `fail` where records are lost.

        Raises OptionInvalid where the option wants a table and there is none, and what reaching the brokers raises.
        """
        if self._tier == "hot":
            return Places(consumer, {}, "hot", ids, fail=fail)
        self._find(consumer.cluster, ids)
        found = {name: self._declared[name, id_] for name, id_ in ids.items()}
        bare = [name for name, one in found.items() if one is None]
        if self._tier is not None and bare:
            raise OptionInvalid(
                f"tier={self._tier}: stream {bare[0]} is no table; leave the option out, or say tier=hot"
            )
        tables = {name: _ColdTable(one) for name, one in found.items() if one is not None}
        return Places(consumer, tables, self._tier or "all", ids, fail=fail)

    def keep_newest(self, cluster: Cluster, ids: Mapping[str, str]) -> bool:
        """Whether a table of these streams has each key once. Raises what reaching the brokers raises."""
        if self._tier == "hot":
            return False
        self._find(cluster, ids)
        declared = (self._declared[name, id_] for name, id_ in ids.items())
        return any(one is not None and one.declaration.upsert for one in declared)

    def _find(self, cluster: Cluster, ids: Mapping[str, str]) -> None:
        """Find out which of these are tables, where that is not known."""
        unknown = [name for name in ids if (name, ids[name]) not in self._declared]
        if unknown:
            from duramen.spark.translation.declared import declared

            configs = Admin(cluster).configs_of(unknown, _KEYS)
            for name in unknown:
                self._declared[name, ids[name]] = declared(name, ids[name], configs[name], self._storage)


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

    def seams(self, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Up to where tables are read of the partitions that go on in one, from `begin` on."""
        found = self._extents({at for at in begin if at.topic in self._tables})
        return {
            at: extent.cold[1] for at, extent in found.items()
            if extent.cold is not None and begin[at] < extent.cold[1]
            and (extent.tier == "cold" or begin[at] < extent.hot[0])
        }  # fmt: skip

    def _extents(self, ats: Iterable[TopicPartition]) -> dict[TopicPartition, Extent]:
        ats = sorted(ats)
        if not ats:
            return {}
        cold = {at: self._tables[at.topic].extent(at.partition) for at in ats if at.topic in self._tables}
        # The log is asked behind the tables: no row of theirs lies beyond its end.
        hot = self._consumer.bounds(ats)
        return {at: Extent(self._tier if at in cold else "hot", hot[at], cold.get(at)) for at in ats}

    def cut(self, spans: Iterable[Range], *, streaming: bool) -> tuple[list[Range], list[InputPartition]]:
        """Spans of the log, and the tasks that read what lies in tables. Raises RecordsLost, OptionInvalid."""
        spans = list(spans)
        tabled = self._extents({at for at, first, end in spans if at.topic in self._tables and first < end})
        hot, tasks = [], []
        for at, first, end in spans:
            extent = tabled.get(at)
            if extent is None:
                hot.append((at, first, end))
                continue
            cut = extent.cut(first, end, prefer_hot=streaming)
            upserted = self._tables[at.topic].declaration.upsert
            if upserted:
                self._require_whole(at, extent, (first, end), streaming=streaming, cold=cut.cold[0] < cut.cold[1])
            for low, high in cut.lost:
                report_lost(f"{at}: the records {low} to {high - 1} are neither in the table nor in the log"
                            if extent.tier == "all" else f"{at}: the records {low} to {high - 1} are not in the table",
                            fail=self._fail)  # fmt: skip
            if upserted and (not streaming or cut.cold[0] < cut.cold[1]):
                tasks += self._newest(at, extent, (first, end), cut.hot)
            else:
                hot.append((at, *cut.hot))
                tasks += self._cold(at, cut.cold, None)
        return hot, tasks

    def _require_whole(
        self, at: TopicPartition, extent: Extent, span: tuple[int, int], *, streaming: bool, cold: bool
    ) -> None:
        if streaming and not cold:
            return
        if span[0] > extent.earliest or (not streaming and span[1] < extent.latest):
            raise OptionInvalid(
                f"the table of {at.topic} has each key once, at its newest, so it is read whole: leave out where to"
                " begin and to end, or say tier=hot to read the log's own records"
            )

    def _newest(
        self, at: TopicPartition, extent: Extent, span: tuple[int, int], hot: tuple[int, int]
    ) -> list[InputPartition]:
        """All of an upserted table's partition, and of the log behind it what is newer."""
        newer = (
            Span(at, self._ids[at.topic], *hot, committed=self._consumer.isolation is Isolation.READ_COMMITTED)
            if hot[0] < hot[1]
            else None
        )
        # Rows may be newer than the ends that were read before them; without the log they are a key's only ones.
        cold = span if extent.tier == "all" else (span[0], _NO_END)
        return [*self._cold(at, cold, newer), *([] if newer is None else [NewestPartition(newer)])]

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
