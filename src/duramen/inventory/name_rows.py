"""The row of each name, whether it has one of its own or is in a block of names that were made together. Pure."""

from collections.abc import Iterator, Sequence
from heapq import merge

from duramen.base.ports import StateRows
from duramen.inventory.packing import find_name, unpack_names
from duramen.inventory.rows import (
    SEQUENCE_BYTES,
    Block,
    block_end,
    block_key,
    name_end,
    name_key,
    read_block,
)

__all__ = ["GONE", "in_block", "name_blocks", "own_name_rows", "value_of_name", "values_by_name", "values_of_names"]

GONE = b""
"""The row of a name that is in a block, and is there no more."""

_SKIPPED = len(name_key(0, b""))


def _sequence(block: Block, place: int) -> bytes:
    return (block.first + place).to_bytes(SEQUENCE_BYTES, "big")


def in_block(rows: StateRows, namespace: int, name: bytes) -> bytes | None:
    """The value that a block has for a name."""
    found = next(rows.scan(block_key(namespace, name), block_end(namespace)), None)
    if found is None:
        return None
    block = read_block(found[1])
    place = find_name(block.body, name)
    return None if place is None else _sequence(block, place)


def value_of_name(rows: StateRows, namespace: int, name: bytes) -> bytes | None:
    """The value of a name's row; None: there is none."""
    value = rows.get(name_key(namespace, name))
    return in_block(rows, namespace, name) if value is None else value or None


def values_of_names(rows: StateRows, namespace: int, names: Sequence[bytes]) -> list[bytes | None]:
    """The values of names' rows, in their order; None: there is none."""
    own = rows.get_many([*map(name_key(namespace, b"").__add__, names)])
    return [
        in_block(rows, namespace, name) if value is None else value or None
        for name, value in zip(names, own, strict=True)
    ]


def own_name_rows(
    rows: StateRows, namespace: int, first: bytes, end: bytes | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Rows of their own of names with `first <= name < end`, in order."""
    last = name_end(namespace) if end is None else name_key(namespace, end)
    for key, value in rows.scan(name_key(namespace, first), last):
        yield key[_SKIPPED:], value


def name_blocks(rows: StateRows, namespace: int, first: bytes) -> Iterator[tuple[bytes, Block]]:
    """The blocks that end with `first` or behind it, by their last names, in order."""
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
        # Of two of one name its own row comes first.
        if name != before and value:
            yield name, value
        before = name
