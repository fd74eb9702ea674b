"""A streaming query, without Spark around it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from pyspark.sql.streaming.datasource import ReadMaxRows

from duramen.spark.options import Options
from duramen.spark.read.stream import StreamReader

__all__ = ["FOREVER", "Query"]

FOREVER: Final = 10_000
Row = TypeVar("Row")


class Query(Generic[Row]):
    """Of these options; `rows` reads what the partitions of a micro-batch have."""

    def __init__(self, given: Mapping[str, str], rows: Callable[[StreamReader, Any], list[Row]]) -> None:
        self._given = given
        self._rows = rows
        self._reader = self._new_reader()
        self.at = self._reader.initialOffset()
        self.batches: list[tuple[dict[str, Any], dict[str, Any], list[Row]]] = []

    def _new_reader(self) -> StreamReader:
        return StreamReader(Options(dict(self._given), "stream"))

    def run(self, most: int = FOREVER) -> Iterator[list[Row]]:
        """Micro-batches until there is nothing new."""
        while True:
            end = self._reader.latestOffset(self.at, ReadMaxRows(most))
            if end == self.at:
                return
            found = self._rows(self._reader, self._reader.partitions(self.at, end))
            self.batches.append((self.at, end, found))
            self.at = end
            yield found

    def run_to_now(self, most: int = FOREVER) -> Iterator[list[Row]]:
        """Started again with the trigger AvailableNow, from where it is: micro-batches until it ends."""
        self._reader = self._new_reader()
        self._reader.prepareForTriggerAvailableNow()
        return self.run(most)

    def replay(self) -> None:
        """A batch that is planned again after a restart is the same, wherever its records lie now."""
        other = self._new_reader()
        for start, end, found in self.batches:
            assert self._rows(other, other.partitions(start, end)) == found
