"""The row of each name, which has its own or is in a block of names that were created together. Pure."""

from collections.abc import Container, Iterator, Sequence
from heapq import merge

from duramen.base.ports import StateRows
from duramen.inventory.packing import find_name, find_names, unpack_names
from duramen.inventory.rows import (
    ALIAS,
    SEQUENCE_BYTES,
    Block,
    block_end,
    block_key,
    name_end,
    name_key,
    pending_key,
    read_block,
)

__all__ = [
    "GONE",
    "RowsReadAhead",
    "changed_row",
    "in_block",
    "is_topic",
    "name_blocks",
    "own_name_rows",
    "row_instead",
    "value_of_name",
    "values_by_name",
    "values_of_names",
]

GONE = b""
"""The row of a name that is in a block, and no longer exists."""

_SKIPPED = len(name_key(0, b""))


def _sequence(block: Block, place: int) -> bytes:
    return (block.first + place).to_bytes(SEQUENCE_BYTES, "big")


def in_block(rows: StateRows, namespace: int, name: bytes) -> bytes | None:
    """The value of a name in a block."""
    found = rows.ceiling(block_key(namespace, name), block_end(namespace))
    if found is None:
        return None
    block = read_block(found[1])
    place = find_name(block.body, name)
    return None if place is None else _sequence(block, place)


def in_blocks(rows: StateRows, names: Sequence[tuple[int, bytes]]) -> list[bytes | None]:
    """The values of names of namespaces in blocks, in order."""
    values: list[bytes | None] = [None] * len(names)
    if not names:
        return values
    keys = [block_key(*one) for one in names]
    # One call for all namespaces: a block of the next one may be found.
    found = rows.ceilings(keys, block_end(max(namespace for namespace, _ in names)))
    places, blocks = list[int](), list[Block]()
    for at, (key, row) in enumerate(zip(keys, found, strict=True)):
        if row is not None and row[0].startswith(key[:_SKIPPED]):
            places.append(at)
            blocks.append(read_block(row[1]))
    inside = find_names([block.body for block in blocks], [names[at][1] for at in places])
    for at, block, place in zip(places, blocks, inside, strict=True):
        if place is not None:
            values[at] = _sequence(block, place)
    return values


def is_topic(value: bytes | None) -> bool:
    """Whether a row is of a topic's name, not of an alias."""
    return value is not None and value != GONE and (len(value) == SEQUENCE_BYTES or not value[0] & ALIAS)


def changed_row(rows: StateRows, namespace: int, name: bytes, value: bytes | None) -> tuple[bytes | None, int]:
    """A name's own row for a new value, None: removed; and the increase of the number of topics."""
    # If there is an own row, the block matters only for its removal.
    return row_instead(*_own_and_block(rows, namespace, name, both=value is None), value)


def row_instead(own: bytes | None, block: bytes | None, value: bytes | None) -> tuple[bytes | None, int]:
    """As of `changed_row`, for a name with this own row, and this value in a block."""
    before = own if own is not None else block
    return GONE if value is None and block is not None else value, is_topic(value) - is_topic(before)


def value_of_name(rows: StateRows, namespace: int, name: bytes) -> bytes | None:
    """The value of a name's row; None without one."""
    own, block = _own_and_block(rows, namespace, name)
    return block if own is None else own or None


def _own_and_block(
    rows: StateRows, namespace: int, name: bytes, *, both: bool = False
) -> tuple[bytes | None, bytes | None]:
    """A name's own row, and its value in a block: that is read only without an own row, or with `both`."""
    known = rows.known_names.get((namespace, name)) if type(rows) is RowsReadAhead else None
    if known is not None:
        return known
    own = rows.get(name_key(namespace, name))
    return own, in_block(rows, namespace, name) if both or own is None else None


def values_of_names(rows: StateRows, names: Sequence[tuple[int, bytes]]) -> list[bytes | None]:
    """The values of the rows of names in namespaces, in order; None without one."""
    own = rows.get_many([name_key(*one) for one in names])
    blocks = iter(in_blocks(rows, [one for one, value in zip(names, own, strict=True) if value is None]))
    return [next(blocks) if value is None else value or None for value in own]


class RowsReadAhead(StateRows):
    """Rows, some of them read ahead: names with their values in blocks, and others."""

    def __init__(self, rows: StateRows) -> None:
        self._rows = rows
        self._values: dict[bytes, bytes | None] = {}
        self.known_names: dict[tuple[int, bytes], tuple[bytes | None, bytes | None]] = {}

    def read(self, keys: Sequence[bytes]) -> None:
        """Read rows ahead."""
        self._values.update(zip(keys, self._rows.get_many(keys), strict=True))

    def read_names(self, names: Sequence[tuple[int, bytes]], removed: Container[tuple[int, bytes]]) -> None:
        """Read the rows of names ahead; for those that may be `removed` their values in blocks too."""
        own = self._rows.get_many([name_key(*one) for one in names])
        asked = [one for one, value in zip(names, own, strict=True) if value is None or one in removed]
        blocks = dict(zip(asked, in_blocks(self._rows, asked), strict=True))
        self.known_names.update(zip(names, zip(own, map(blocks.get, names), strict=True), strict=True))

    def know(
        self, place: tuple[int, bytes], own: bytes | None, block: bytes | None, pending: bytes
    ) -> None:  # fmt: skip
        """The rows of a name with a pending change are known without reading them."""
        self.known_names[place] = own, block
        self._values[pending_key(*place)] = pending

    def get(self, key: bytes) -> bytes | None:
        """See `StateRows`."""
        return self._values[key] if key in self._values else self._rows.get(key)

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """See `StateRows`."""
        return [self.get(key) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See `StateRows`."""
        return self._rows.scan(first, end)


def own_name_rows(
    rows: StateRows, namespace: int, first: bytes, end: bytes | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Own rows of names with `first <= name < end`, in order."""
    last = name_end(namespace) if end is None else name_key(namespace, end)
    for key, value in rows.scan(name_key(namespace, first), last):
        yield key[_SKIPPED:], value


def name_blocks(rows: StateRows, namespace: int, first: bytes) -> Iterator[tuple[bytes, Block]]:
    """The blocks that end at or after `first`, by their last names, in order."""
    for key, value in rows.scan(block_key(namespace, first), block_end(namespace)):
        yield key[_SKIPPED:], read_block(value)


def _rows_of_blocks(rows: StateRows, namespace: int, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    for last, block in name_blocks(rows, namespace, first):
        for place, name in enumerate(unpack_names(block.body)):
            if end is not None and name >= end:
                return
            if name >= first:
                yield name, _sequence(block, place)
        if end is not None and last >= end:
            return


def values_by_name(
    rows: StateRows, namespace: int, first: bytes, end: bytes | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Names with `first <= name < end` that have a row, in order, with its value."""
    own = own_name_rows(rows, namespace, first, end)
    before = None
    for name, value in merge(own, _rows_of_blocks(rows, namespace, first, end), key=lambda row: row[0]):
        # Of two rows of one name its own comes first.
        if name != before and value:
            yield name, value
        before = name
