"""The native package's loops, behind the same signatures as their twins in `plain`.

They run without the GIL: while a call runs nobody may touch the buffers that it was given.
"""

from collections.abc import Sequence
from functools import cache

from duramen.base.errors import BatchCorrupt
from duramen.base.native import is_installed
from duramen.base.ports import Buffer
from duramen.keyed.hashing import SIPHASH
from duramen.keyed.kernel import AppliedBatches, Extracted, Kernel
from duramen.keyed.plain import PLAIN

__all__ = ["kernel", "native_kernel"]


@cache
def kernel() -> Kernel:
    """The quickest there is: the native one, else numpy's, else plain Python's."""
    if is_installed():
        return native_kernel()
    try:
        from duramen.keyed.vectors import VECTORS
    except ImportError:
        return PLAIN
    return VECTORS


def native_kernel() -> Kernel:
    """That of the native package, which has to be installed."""
    import duramen_native

    return Kernel("native", SIPHASH, _apply, duramen_native.copy, duramen_native.visible, _extract)


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


def _extract(data: Buffer, position: int, first: int, end: int, bits: Buffer, base: int, most_bytes: int) -> Extracted:
    import duramen_native

    try:
        return Extracted(*duramen_native.extract(data, position, first, end, bits, base, most_bytes))
    except ValueError as error:
        raise BatchCorrupt(str(error)) from None
