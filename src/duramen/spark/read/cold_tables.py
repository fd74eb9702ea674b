"""The table of a stream as a source: the offsets of each file, and the known transactions."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from duramen.base.errors import DuramenError
from duramen.client.transaction_states import EndedAt
from duramen.spark.columns import TIMESTAMP_TYPE
from duramen.spark.tables.history import next_ends
from duramen.spark.tables.port import DataFile, TableSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from duramen.spark.declared import DeclaredTable
    from duramen.spark.tables.port import LakeTable

__all__ = ["ColdTable", "EndedIn"]

_BACK_MS: Final = 300_000
"""Well below the ten minutes for which a job keeps earlier states at least."""

_NO_STATE: Final = TableSnapshot({}, {}, {}, (), ())

EndedIn = MutableMapping[str, list[EndedAt] | None]
"""By file (files never change): the transactions with rows in it; None if an older version wrote it, with less data."""


class ColdTable:
    """A table, opened on first use; its state is constant from then on, except for `go_back`."""

    def __init__(self, declared: "DeclaredTable", ended_in: EndedIn) -> None:
        """`ended_in` caches the results by file; it is updated."""
        self.declaration = declared.declaration
        self._ended_in = ended_in
        self._state: TableSnapshot | None = None
        self._earlier: Iterator[TableSnapshot] | None = None

    def _opened(self) -> TableSnapshot:
        if self._state is None:
            from duramen.spark.tables.registry import find_table

            try:
                table: LakeTable | None = find_table(self.declaration)
                self._state = _NO_STATE if table is None else table.state()
            except DuramenError as error:
                raise type(error)(f"{error}; tier=hot reads what is in the log alone") from None
        return self._state

    def go_back(self) -> bool:
        """Use the state of an earlier end; False if its files may be deleted already."""
        if self._earlier is None:
            from duramen.spark.tables.registry import find_table

            table = find_table(self.declaration)
            since_ms = time.time_ns() // 1_000_000 - _BACK_MS
            self._earlier = iter(()) if table is None else table.earlier(since_ms=since_ms)
        state = next(self._earlier, None)
        self._state = state or self._state
        return state is not None

    def be_at(self, spans: Mapping[int, tuple[int, int]]) -> bool:
        """Use the state in which reads of these spans, by partition, ended; False, and unchanged, if there is none."""
        newest = self._opened()
        while any(max(begin, self._opened().ends.get(at, 0)) != end for at, (begin, end) in spans.items()):
            if not self.go_back():
                self._state = newest
                return False
        return True

    def extent(self, partition: int) -> tuple[int, int] | None:
        """Its offsets of a partition, `[first, end)`; None if it has none."""
        state = self._opened()
        return None if partition not in state.ends else (state.begins.get(partition, 0), state.ends[partition])

    def floor(self, partition: int) -> int:
        """Below it rows count at their own offsets; 0 if all rows know where they count."""
        return self._opened().floors.get(partition, 0)

    @property
    def newest(self) -> int:
        """The last commit sequence of transactions whose rows may be gone; -1 if there are none, or it is unknown."""
        return self._opened().newest

    def next_ends(self, begin: Mapping[int, int], most: int | None, upto: Mapping[int, int]) -> Mapping[int, int]:
        """The ends for a read from `begin` of about `most` offsets: where the table was consistent. Empty at its end.

        An upserted table has only its present state.
        """
        state = self._opened()
        rounds = [state.ends] if self.declaration.upsert else state.rounds
        return next_ends(rounds, begin, most, upto) or {}

    def files(self, partition: int, first: int, end: int) -> list[DataFile]:
        """The files with rows of a partition that may count there."""
        return [
            file for file in self._opened().files
            if file.partition == partition and file.first_offset < end and file.last_counted >= first
        ]  # fmt: skip

    def begun_below(self, partition: int, floor: int, first: int, end: int) -> set[int]:
        """The commit markers in `[first, end)` of transactions that have rows below a floor."""
        import pyarrow.compute as pc

        from duramen.spark.tables.columns import COMMIT, OFFSET

        found: set[int] = set()
        files = [file for file in self.files(partition, first, end) if file.first_offset < floor]
        for rows in self._rows(files, OFFSET, COMMIT):
            early = rows.filter(pc.less(rows.column(OFFSET), floor)).column(COMMIT)
            found.update(at for at in pc.unique(early).to_pylist() if at is not None and first <= at < end)
        return found

    def ended(self, partition: int, first: int, end: int) -> list[EndedAt] | None:
        """The commit markers in `[first, end)` of a partition, for transactions with rows.

        None if unknown: for rows that an earlier version wrote.
        """
        if first < self.floor(partition):
            return None
        found: dict[int, EndedAt] = {}
        for file in self.files(partition, first, end):
            if file.path not in self._ended_in:
                self._ended_in[file.path] = self._read_ended(file)
            there = self._ended_in[file.path]
            if there is None:
                return None
            for one in there:
                if first <= one.offset < end:
                    other = found.get(one.offset, one)
                    found[one.offset] = min(one, other, key=lambda each: each.first_offset)
        return [found[offset] for offset in sorted(found)]

    def forget_ended(self, begin: Mapping[int, int]) -> None:
        """Forget the results of files that are not read from these offsets on, or are deleted."""
        kept = {one.path for one in self._opened().files if one.last_counted >= begin.get(one.partition, 0)}
        for path in self._ended_in.keys() - kept:
            del self._ended_in[path]

    def _read_ended(self, file: DataFile) -> list[EndedAt] | None:
        import pyarrow as pa
        import pyarrow.compute as pc

        from duramen.spark.tables.columns import COMMIT, OFFSET, PRODUCER, SEQUENCE

        found: list[EndedAt] = []
        for rows in self._rows([file], COMMIT, SEQUENCE, PRODUCER, OFFSET):
            ended = rows.filter(pc.is_valid(rows.column(COMMIT)))
            if pc.any(pc.invert(pc.is_valid(ended.column(SEQUENCE)))).as_py():
                return None
            whose = pa.Table.from_batches([ended]).group_by([COMMIT, SEQUENCE, PRODUCER])
            found += [
                EndedAt(row[COMMIT], row[PRODUCER], row[f"{OFFSET}_min"], row[SEQUENCE], commit=True)
                for row in whose.aggregate([(OFFSET, "min")]).to_pylist()
            ]
        return found

    def _rows(self, files: Iterable[DataFile], *columns: str) -> Iterator["pa.RecordBatch"]:
        """The rows of files, with these columns."""
        import pyarrow as pa

        from duramen.spark.tables.columns import ROW_FIELDS
        from duramen.spark.tables.reader import read_file
        from duramen.spark.tables.storage import TableLocation

        place = TableLocation(self.declaration.storage)
        for file in files:
            yield from read_file(place, file, pa.schema(ROW_FIELDS), columns=columns)

    def first_at(self, partition: int, time_ms: int, end: int) -> int | None:
        """The first offset below `end` of a record at or after a time."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from duramen.spark.tables.columns import OFFSET, TIMESTAMP

        moment = pa.array([time_ms * 1000], pa.int64()).cast(TIMESTAMP_TYPE)[0]
        found: list[int] = []
        for file in self.files(partition, 0, end):
            if (found and min(found) < file.first_offset) or _ends_before(file, time_ms):
                continue
            for rows in self._rows([file], OFFSET, TIMESTAMP):
                is_late = pc.greater_equal(rows.column("_timestamp"), moment)
                late = rows.filter(pc.and_(is_late, pc.less(rows.column("_offset"), end)))
                if late.num_rows:
                    found.append(pc.min_max(late.column("_offset")).as_py()["min"])
        return min(found, default=None)


def _ends_before(file: DataFile, time_ms: int) -> bool:
    """Whether the file's statistics show that all its rows are older."""
    try:
        newest = json.loads(file.statistics)["maxValues"]["_timestamp"]
        return datetime.fromisoformat(newest).timestamp() * 1000 + 1 < time_ms
    except (ValueError, KeyError, TypeError):
        return False
