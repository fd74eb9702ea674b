"""Lookups of names and ids, and pages of names, from the rows of all shards. Pure."""

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import NamedTuple

from duramen.base.ports import StateRows
from duramen.inventory.events import Policies
from duramen.inventory.ids import TopicKey
from duramen.inventory.name_rows import value_of_name, values_by_name, values_of_names
from duramen.inventory.names import shard_of
from duramen.inventory.policies import read_policies
from duramen.inventory.rows import (
    ALIAS,
    TOTAL,
    NameRow,
    Place,
    alias_end,
    alias_key,
    count_key,
    current_place,
    name_row,
    topic_policies_key,
)

__all__ = ["InventoryRows", "TopicName"]


class TopicName(NamedTuple):
    """A name that counts: of a topic, or an alias of it."""

    name: bytes
    key: TopicKey
    alias: bool


class InventoryRows:
    """The rows of all shards. `lives` says whether a namespace is there."""

    def __init__(self, shards: Sequence[StateRows], lives: Callable[[int], bool]) -> None:
        self._shards = shards
        self._lives = lives

    # -- names --------------------------------------------------------------------------------------

    def find(self, namespace: int, name: bytes) -> TopicName | None:
        """What a name leads to; None: nothing."""
        shard = shard_of(namespace, name, len(self._shards))
        value = value_of_name(self._shards[shard], namespace, name)
        return None if value is None else self._counted(namespace, name, name_row(value, shard))

    def find_many(self, namespace: int, names: Sequence[bytes]) -> list[TopicName | None]:
        """What names lead to, in their order; None: nothing."""
        return self.find_all([(namespace, name) for name in names])

    def find_all(self, names: Sequence[tuple[int, bytes]]) -> list[TopicName | None]:
        """What names in namespaces lead to, in their order; None: nothing."""
        found: list[TopicName | None] = [None] * len(names)
        by_shard = [list[int]() for _ in self._shards]
        for at, one in enumerate(names):
            by_shard[shard_of(*one, len(self._shards))].append(at)
        for shard, places in enumerate(by_shard):
            values = values_of_names(self._shards[shard], [names[at] for at in places])
            for at, value in zip(places, values, strict=True):
                if value is not None:
                    found[at] = self._counted(*names[at], name_row(value, shard))
        return found

    def _counted(self, namespace: int, name: bytes, row: NameRow) -> TopicName | None:
        if row.flags:
            rows = self._shards[row.key.shard]
            if row.flags & ALIAS:
                added = rows.get(alias_key(row.key.sequence, namespace, name)) is not None
                counts = added and self._lives(self.place(row.key).namespace)
            else:
                counts = self.place(row.key) == (namespace, name)
            if not counts:
                return None
        return TopicName(name, row.key, bool(row.flags & ALIAS))

    def names(self, namespace: int, first: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes, int]]:
        """The names with `first <= name < end` in order, each with its row and the shard of that: see `counted`."""
        found = [
            _with_shard(shard, values_by_name(rows, namespace, first, end)) for shard, rows in enumerate(self._shards)
        ]
        return found[0] if len(found) == 1 else merge(*found)

    def counted(self, namespace: int, name: bytes, value: bytes, shard: int) -> TopicName | None:
        """What the row of a name leads to; None where it does not count now."""
        return self._counted(namespace, name, name_row(value, shard))

    def count(self, namespace: int = TOTAL) -> int:
        """How many topics a namespace has, or all of them have."""
        return sum(int.from_bytes(rows.get(count_key(namespace)) or b"", "big") for rows in self._shards)

    # -- topics -------------------------------------------------------------------------------------

    def place(self, key: TopicKey) -> Place:
        """The name that a topic has now; one that is gone has the namespace 0. Raises TopicNotFound where none was."""
        return current_place(self._shards[key.shard], key.sequence)

    def policies(self, key: TopicKey) -> Policies:
        """A topic's own policies."""
        return read_policies(self._shards[key.shard].get(topic_policies_key(key.sequence)))

    def aliases(self, key: TopicKey, most: int) -> list[Place]:
        """Aliases of a topic, at most so many."""
        found = list[Place]()
        skipped = len(alias_key(key.sequence))
        for row, _ in self._shards[key.shard].scan(alias_key(key.sequence), alias_end(key.sequence)):
            found.append(Place(int.from_bytes(row[skipped : skipped + 4], "big"), row[skipped + 4 :]))
            if len(found) == most:
                break
        return found


def _with_shard(shard: int, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes, int]]:
    for name, value in rows:
        yield name, value, shard
