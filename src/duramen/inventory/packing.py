"""Packed names of topics: sorted, separated by line ends, and compressed. Pure except for the native package."""

from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt
from duramen.base.native import is_installed
from duramen.codec.compression import compress
from duramen.codec.exports import PACKED, RAW, ZSTD, joined_names
from duramen.inventory.names import LONGEST_TOPIC_BYTES, NamedProblem, by_shard, sorted_names

__all__ = [
    "NAMES_OF_A_BLOCK",
    "NameBlock",
    "SortedNames",
    "empty_names",
    "find_name",
    "find_names",
    "pack_names",
    "plain_find_name",
    "plain_sort_names",
    "plain_unpack_names",
    "sort_names",
    "unpack_names",
]

NAMES_OF_A_BLOCK: Final = 128
"""The largest number of names in a block: a lookup unpacks one."""

_ZSTD_LEVEL: Final = 1
_LEAST_PACKED: Final = 4
_MOST_BYTES: Final = 16 << 20


class NameBlock(NamedTuple):
    """Adjacent new names of a shard: the first, the last, their number, and all of them packed."""

    first: bytes
    last: bytes
    size: int
    body: bytes


class SortedNames(NamedTuple):
    """Valid topic names without duplicates: their number, and the ordered blocks of each shard; and the other names."""

    total: int
    blocks: Sequence[Sequence[NameBlock]]
    problems: Sequence[NamedProblem]


def pack_names(names: Sequence[bytes]) -> bytes:
    """Names, in order and without line ends, packed as the body of an event and of a row."""
    joined = b"\n".join(names)
    if len(names) < _LEAST_PACKED:
        return RAW + joined
    return PACKED + compress(ZSTD, joined, _ZSTD_LEVEL)


def empty_names(count: int) -> bytes:
    """That many empty names."""
    return RAW + b"\n" * (count - 1)


def unpack_names(body: bytes) -> list[bytes]:
    """The names of a body. Raises BatchCorrupt."""
    if not is_installed():
        return plain_unpack_names(body)
    import duramen_native

    try:
        return duramen_native.unpack_names(body, _MOST_BYTES).split(b"\n")
    except ValueError as error:
        raise BatchCorrupt(str(error)) from None


def plain_unpack_names(body: bytes) -> list[bytes]:
    """`unpack_names` in plain Python."""
    return joined_names(body).split(b"\n")


def find_name(body: bytes, name: bytes) -> int | None:
    """The index of a name among those of a body; None if it is not one of them. Raises BatchCorrupt."""
    if not is_installed():
        return plain_find_name(body, name)
    import duramen_native

    try:
        return duramen_native.find_name(body, name, _MOST_BYTES)
    except ValueError as error:
        raise BatchCorrupt(str(error)) from None


def find_names(bodies: Sequence[bytes], names: Sequence[bytes]) -> list[int | None]:
    """`find_name` for the name at each index in the body at that index."""
    if not is_installed():
        return [*map(plain_find_name, bodies, names)]
    import duramen_native

    try:
        return [*map(duramen_native.find_name, bodies, names, repeat(_MOST_BYTES))]
    except ValueError as error:
        raise BatchCorrupt(str(error)) from None


def plain_find_name(body: bytes, name: bytes) -> int | None:
    """`find_name` in plain Python."""
    joined = b"\n" + joined_names(body) + b"\n"
    at = joined.find(b"\n" + name + b"\n")
    return None if at < 0 else joined.count(b"\n", 0, at)


def sort_names(names: Sequence[str], namespace: int, shards: int) -> SortedNames:
    """Requested names, sorted and packed: blocking if they are many."""
    if is_installed() and namespace < 1 << 32:
        import duramen_native

        found = duramen_native.pack_names([*names], namespace, shards, LONGEST_TOPIC_BYTES, NAMES_OF_A_BLOCK)
        if found is not None:
            blocks: list[list[NameBlock]] = [[] for _ in range(shards)]
            for shard, first, last, size, body in found[1]:
                blocks[shard].append(NameBlock(first, last, size, body))
            return SortedNames(found[0], blocks, ())
    return plain_sort_names(names, namespace, shards)


def plain_sort_names(names: Sequence[str], namespace: int, shards: int) -> SortedNames:
    """`sort_names` in plain Python."""
    good, problems = sorted_names(names)
    blocks = [_blocks(some) for some in by_shard(namespace, good, shards)]
    return SortedNames(len(good), blocks, problems)


def _blocks(names: Sequence[bytes]) -> list[NameBlock]:
    pieces = [names[at : at + NAMES_OF_A_BLOCK] for at in range(0, len(names), NAMES_OF_A_BLOCK)]
    return [NameBlock(some[0], some[-1], len(some), pack_names(some)) for some in pieces]
