"""The native package's loops, with the same signatures as their twins in `plain`.

They run without the GIL: during a call no other code may touch its buffers.
"""

from collections.abc import Sequence
from functools import cache

from duramen.base.errors import BatchCorrupt
from duramen.base.native import is_installed
from duramen.base.ports import Buffer
from duramen.keyed.hashing import SIPHASH
from duramen.keyed.kernel import NO_PARTITION, AppliedBatches, Entered, Extracted, Kernel
from duramen.keyed.plain import PLAIN

__all__ = ["kernel", "native_kernel"]


@cache
def kernel() -> Kernel:
    """The fastest available kernel: the native one, else numpy's, else plain Python's."""
    if is_installed():
        return native_kernel()
    try:
        from duramen.keyed.vectors import VECTORS
    except ImportError:
        return PLAIN
    return VECTORS


def native_kernel() -> Kernel:
    """The kernel of the native package, which must be installed."""
    import duramen_native

    return Kernel(
        "native", SIPHASH, _apply, duramen_native.copy, _gather, duramen_native.order, _enter, duramen_native.visible,
        _extract,
    )  # fmt: skip


def _apply(
    data: Buffer,
    position: int,
    first: int,
    end: int,
    partitions: Sequence[memoryview],
    counts: memoryview,
    base: int,
    secret: bytes,
    distances: memoryview,
) -> AppliedBatches:
    import duramen_native

    try:
        found = duramen_native.apply(data, position, first, end, partitions, counts, base, secret, distances)
    except ValueError as error:
        raise BatchCorrupt(str(error)) from None
    return AppliedBatches(*found)


def _gather(
    data: Buffer, position: int, first: int, end: int, base: int, secret: bytes, rows: memoryview
) -> AppliedBatches:
    import duramen_native

    try:
        at, next_offset, records, runs = duramen_native.gather(data, position, first, end, base, secret, rows)
    except ValueError as error:
        raise BatchCorrupt(str(error)) from None
    return AppliedBatches(at, next_offset, NO_PARTITION, records, runs, ())


def _enter(
    words: memoryview, keys: int, rows: memoryview, order: memoryview, base: int, distances: memoryview
) -> Entered:
    import duramen_native

    return Entered(*duramen_native.enter(words, keys, rows, order, base, distances))


def _extract(data: Buffer, position: int, first: int, end: int, bits: Buffer, base: int, most_bytes: int) -> Extracted:
    import duramen_native

    try:
        return Extracted(*duramen_native.extract(data, position, first, end, bits, base, most_bytes))
    except ValueError as error:
        raise BatchCorrupt(str(error)) from None
