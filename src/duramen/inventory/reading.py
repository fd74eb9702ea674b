"""Lookups of names and ids, and pages of names, from the rows of all shards. Pure."""

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import Final, NamedTuple

from duramen.base.errors import TopicNotFound
from duramen.base.ports import StateRows
from duramen.inventory.events import Policies, decode_pending
from duramen.inventory.ids import TopicKey
from duramen.inventory.name_rows import value_of_name, values_by_name, values_of_names
from duramen.inventory.names import shard_of
from duramen.inventory.policies import read_policies
from duramen.inventory.rows import (
    ALIAS,
    LEAVING,
    TOTAL,
    NameRow,
    Place,
    alias_end,
    alias_key,
    count_key,
    current_namespace,
    current_place,
    dropped_key,
    name_row,
    pending_key,
    split_name,
    topic_policies_key,
)

__all__ = ["InventoryRows", "TopicName"]

_PENDING: Final = (b"p", b"q")
_OF_TOPICS: Final = ("move", "delete", "arrive")


class TopicName(NamedTuple):
    """A name in use: of a topic, or an alias of it."""

    name: bytes
    key: TopicKey
    alias: bool


class InventoryRows:
    """The rows of all shards. `lives` tells whether a namespace exists."""

    def __init__(self, shards: Sequence[StateRows], lives: Callable[[int], bool]) -> None:
        self._shards = shards
        self._lives = lives

    # -- names --------------------------------------------------------------------------------------

    def find(self, namespace: int, name: bytes) -> TopicName | None:
        """The topic that a name resolves to; None without one."""
        shard = shard_of(namespace, name, len(self._shards))
        value = value_of_name(self._shards[shard], namespace, name)
        return None if value is None else self._counted(namespace, name, name_row(value, shard))

    def is_dangling(self, namespace: int, name: bytes) -> bool:
        """Whether a name that resolves to no topic is an alias: then its topic's namespace was deleted."""
        shard = shard_of(namespace, name, len(self._shards))
        value = value_of_name(self._shards[shard], namespace, name)
        if value is None or not name_row(value, shard).flags & ALIAS:
            return False
        return self._shards[shard].get(pending_key(namespace, name)) is None

    def find_many(self, namespace: int, names: Sequence[bytes]) -> list[TopicName | None]:
        """The topics that names resolve to, in order; None without one."""
        return self.find_all([(namespace, name) for name in names])

    def find_all(self, names: Sequence[tuple[int, bytes]]) -> list[TopicName | None]:
        """The topics that names in namespaces resolve to, in order; None without one."""
        return [
            None if row is None else TopicName(name, row.key, bool(row.flags & ALIAS))
            for (_, name), row in zip(names, self.find_rows(names), strict=True)
        ]

    def find_rows(self, names: Sequence[tuple[int, bytes]]) -> list[NameRow | None]:
        """The valid rows of names in namespaces, in order; None without one."""
        found: list[NameRow | None] = [None] * len(names)
        by_shard = [list[int]() for _ in self._shards]
        for at, one in enumerate(names):
            by_shard[shard_of(*one, len(self._shards))].append(at)
        for shard, places in enumerate(by_shard):
            values = values_of_names(self._shards[shard], [names[at] for at in places])
            for at, value in zip(places, values, strict=True):
                row = None if value is None else name_row(value, shard)
                found[at] = row if row is None or not row.flags else self._valid(*names[at], row)
        return found

    def _valid(self, namespace: int, name: bytes, row: NameRow) -> NameRow | None:
        """The row of a name whose row has flags, if it is valid at present: with ALIAS if it is an alias by now."""
        if not row.flags & ALIAS and self.is_at(row.key, (namespace, name)):
            return row
        if not row.flags & (ALIAS | LEAVING):
            return None
        # A move that keeps the name as an alias adds the alias when it takes effect, before it ends at the name.
        added = self._shards[row.key.shard].get(alias_key(row.key.sequence, namespace, name)) is not None
        return NameRow(row.flags | ALIAS, row.key) if added and self._lives(self.namespace_of(row.key)) else None

    def _counted(self, namespace: int, name: bytes, row: NameRow) -> TopicName | None:
        valid = row if not row.flags else self._valid(namespace, name, row)
        return None if valid is None else TopicName(name, valid.key, bool(valid.flags & ALIAS))

    def names(self, namespace: int, first: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes, int]]:
        """The names with `first <= name < end` in order, each with its row and the row's shard: see `counted`."""
        found = [
            _with_shard(shard, values_by_name(rows, namespace, first, end)) for shard, rows in enumerate(self._shards)
        ]
        return found[0] if len(found) == 1 else merge(*found)

    def counted(self, namespace: int, name: bytes, value: bytes, shard: int) -> TopicName | None:
        """The topic that the row of a name resolves to; None if it is not valid at present."""
        return self._counted(namespace, name, name_row(value, shard))

    def dangling(self, namespace: int, name: bytes, value: bytes, shard: int) -> TopicName | None:
        """The alias in the row of a name, with its former topic, if it is dangling."""
        if self.counted(namespace, name, value, shard) is not None or not self.is_dangling(namespace, name):
            return None
        return TopicName(name, name_row(value, shard).key, alias=True)

    def count(self, namespace: int = TOTAL) -> int:
        """The number of topics in a namespace, or in all."""
        rows = sum(int.from_bytes(rows.get(count_key(namespace)) or b"", "big") for rows in self._shards)
        return rows - self._invalid(namespace)

    def _invalid(self, namespace: int) -> int:
        """The names that count although a change in progress has not made them valid yet, or has ended them."""
        first, end = (pending_key(namespace, b""), pending_key(namespace + 1, b"")) if namespace else _PENDING
        found = 0
        for rows in self._shards:
            for key, value in rows.scan(first, end):
                pending = decode_pending(value)
                found += pending.kind in _OF_TOPICS and not self.is_at(pending.key, split_name(key))
        return found

    # -- topics -------------------------------------------------------------------------------------

    def place(self, key: TopicKey) -> Place:
        """The present name of a topic; a deleted one has the namespace 0.

        Raises TopicNotFound if there never was one.
        """
        return current_place(self._shards[key.shard], key.sequence)

    def namespace(self, key: TopicKey) -> int:
        """As of `place`, without the name."""
        return current_namespace(self._shards[key.shard], key.sequence)

    # A query of a cluster runs to its end also without rows of other nodes, to find all that it lacks in few rounds.

    def is_at(self, key: TopicKey, place: tuple[int, bytes]) -> bool:
        """Whether this is the present name of a topic; False without its rows."""
        try:
            return self.place(key) == place
        except TopicNotFound:
            return False

    def namespace_of(self, key: TopicKey) -> int:
        """As of `namespace`; 0 without the topic's rows."""
        try:
            return self.namespace(key)
        except TopicNotFound:
            return 0

    def is_dropped(self, shard: int, namespace: int) -> bool:
        """Whether a shard lets no topic be created in a namespace, or leave it, any more."""
        return self._shards[shard].get(dropped_key(namespace)) is not None

    def policies(self, key: TopicKey) -> Policies:
        """A topic's own policies."""
        return read_policies(self._shards[key.shard].get(topic_policies_key(key.sequence)))

    def aliases(self, key: TopicKey, most: int) -> list[Place]:
        """Aliases of a topic, up to a number."""
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
