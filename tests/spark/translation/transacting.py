"""Transactions that interleave over the partitions of one stream or of several, and whether readers have them whole."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.spark.translation.querying import Query
from tests.spark.translation.world import World, transactional

from duramen.client import Producer
from duramen.spark.datasource import BatchReader
from duramen.spark.options import Options
from duramen.spark.read.stream import StreamReader

__all__ = ["Row", "Writers", "batch", "options", "query_of", "rows"]


class Row(NamedTuple):
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    value: str


class Writers:
    """Three producers, and what they have written to streams of two partitions.

    A value names its transaction, or is `p`. Places are the partitions of the first stream, then those of the second.
    Each record has a key of its own, unless it is given one.
    """

    def __init__(self, *worlds: World) -> None:
        self.worlds = worlds
        self.producers = [transactional(worlds[0], name) for name in "abc"]
        self.names = ["a1", "b1", "c1"]
        self.written: Counter[str] = Counter()
        self.committed: Counter[str] = Counter()
        self._keys = 0

    def _key(self) -> bytes:
        self._keys += 1
        return b"%d" % self._keys

    def write(self, index: int, *places: int, key: bytes | None = None) -> None:
        for place in places:
            world, name = self.worlds[place // 2], self.names[index]
            self.producers[index].produce(world.stream, name.encode(), key or self._key(), place % 2)
            assert self.producers[index].flush(30) == 0
            self.written[name] += 1

    def remove(self, index: int, place: int, key: bytes) -> None:
        """A tombstone, which no reader shows once it is applied."""
        self.producers[index].produce(self.worlds[place // 2].stream, None, key, place % 2)
        assert self.producers[index].flush(30) == 0

    def end(self, index: int, *, commit: bool = True) -> None:
        name, producer = self.names[index], self.producers[index]
        if commit:
            producer.commit_transaction(30)
            self.committed[name] = self.written[name]
        else:
            producer.abort_transaction(30)
        self.names[index] = f"{name[0]}{int(name[1:]) + 1}"
        producer.begin_transaction()

    def plain(self, count: int) -> None:
        """So many records of no transaction to each stream."""
        for world in self.worlds:
            with Producer(world.cluster) as producer:
                for number in range(count):
                    producer.produce(world.stream, b"p", key=self._key(), partition=number % 2)
            self.committed["p"] += count

    def work(self) -> None:
        """Some of everything; `c` is left to what has to be open all the time."""
        last = 2 * len(self.worlds) - 1
        self.write(0, 0, last, 0)
        self.write(1, 1, last - 1)
        self.plain(4)
        self.write(1, last, 0)
        self.end(0)
        self.write(0, 1, last - 1)
        self.end(1)
        self.end(0, commit=False)
        self.plain(2)
        self.write(0, last - 1, 0)
        self.end(0)

    def judge(self, found: Iterable[Row]) -> Counter[str]:
        """How many records there are of each transaction. Raise where one is there in part."""
        counts = Counter(row.value for row in found)
        for name, count in counts.items():
            assert name == "p" or count == self.committed[name], f"{name}: {count} of {self.written[name]}"
        return counts

    def batch(self, **more: str) -> list[Row]:
        return batch(*self.worlds, **more)

    def query(self, **more: str) -> Query[Row]:
        return query_of(*self.worlds, **more)


def options(*worlds: World, **more: str) -> dict[str, str]:
    names = ",".join(world.stream for world in worlds)
    return {"kafka.bootstrap.servers": worlds[0].kafka, "subscribe": names, **more}


def batch(*worlds: World, **more: str) -> list[Row]:
    reader = BatchReader(Options(options(*worlds, **more), "batch"))
    return rows(reader, reader.partitions())


def query_of(*worlds: World, **more: str) -> Query[Row]:
    return Query(options(*worlds, **more), rows)


def rows(reader: BatchReader | StreamReader, parts: Any) -> list[Row]:
    """What was read, each once, in order."""
    found = [
        Row(row["topic"], row["partition"], row["offset"], (row["value"] or b"").decode())
        for part in parts
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert len(found) == len({row[:3] for row in found})
    return sorted(found)
