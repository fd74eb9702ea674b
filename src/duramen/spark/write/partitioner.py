"""The partition of each row of a key column: `codec.partitioner` on whole columns. Pure."""

from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duramen.codec import partitioner

__all__ = ["NO_KEY", "murmur2", "partitions_of", "split"]

NO_KEY: Final = -1
"""The partition of a row without a key."""

_SEED: Final = np.uint32(0x9747B28C)
_FACTOR: Final = np.uint32(0x5BD1E995)
_WORD_BYTES: Final = 4
_LONG_BYTES: Final = 1024  # from this size on, hashing a key individually is faster

_Words = NDArray[np.uint32]


def murmur2(keys: pa.Array) -> _Words:
    """The hash of each key, as in `codec.partitioner.murmur2`; a null has that of an empty key."""
    starts, lengths, data = _bytes_of(keys)
    long = np.flatnonzero(lengths > _LONG_BYTES)
    alone = [partitioner.murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes()) for row in long]
    lengths[long] = 0
    hashed = _SEED ^ lengths.astype(np.uint32)
    words = lengths // _WORD_BYTES
    # Word by word, each time for the keys that are long enough: sorted, these are the last ones.
    order = np.argsort(words, kind="stable")
    sorted_words = words[order]
    for step in range(int(sorted_words[-1]) if len(order) else 0):
        rows = order[np.searchsorted(sorted_words, step, side="right") :]
        at = starts[rows] + step * _WORD_BYTES
        mixed = _word(data, at, _WORD_BYTES) * _FACTOR
        mixed ^= mixed >> np.uint32(24)
        hashed[rows] = (hashed[rows] * _FACTOR) ^ (mixed * _FACTOR)
    rests = lengths % _WORD_BYTES
    for size in range(1, _WORD_BYTES):
        rows = np.flatnonzero(rests == size)
        rest = _word(data, starts[rows] + words[rows] * _WORD_BYTES, size)
        hashed[rows] = (hashed[rows] ^ rest) * _FACTOR
    hashed = (hashed ^ (hashed >> np.uint32(13))) * _FACTOR
    hashed ^= hashed >> np.uint32(15)
    hashed[long] = alone
    return hashed


def _bytes_of(keys: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """The start and length of each key, and the bytes of all."""
    _, offsets, data = (np.zeros(0, np.uint8) if one is None else _view(one) for one in keys.buffers())
    edges = offsets.view(np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    return edges[:-1], np.diff(edges), data


def _view(buffer: pa.Buffer) -> NDArray[np.uint8]:
    return np.frombuffer(memoryview(buffer), np.uint8)


def _word(data: NDArray[np.uint8], at: NDArray[np.int64], size: int) -> _Words:
    """`size` little-endian bytes from each place on."""
    word = np.zeros(len(at), np.uint32)
    for index in range(size):
        word |= data[at + index].astype(np.uint32) << np.uint32(8 * index)
    return word


def partitions_of(keys: pa.Array, count: int) -> NDArray[np.int32]:
    """The partition of each row, of that many; NO_KEY for a null."""
    found = ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)
    if keys.null_count:
        found[keys.is_null().to_numpy(zero_copy_only=False)] = NO_KEY
    return found


def split(rows: pa.RecordBatch, partitions: NDArray[np.int32]) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of each partition, in their order."""
    order = np.argsort(partitions, kind="stable")
    ordered = partitions[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    if not len(cuts):
        return [(int(ordered[0]), rows)] if len(ordered) else []
    taken = rows.take(pa.array(order))
    edges = [0, *cuts.tolist(), len(order)]
    return [(int(ordered[first]), taken.slice(first, end - first)) for first, end in pairwise(edges)]
