"""The loops over bits, which numpy runs faster than plain Python. The other loops are those of `plain`."""

from typing import Final

import numpy as np
import numpy.typing as npt

from duramen.keyed.kernel import BACK, DEAD, FAR, FORWARD, KEEP
from duramen.keyed.plain import PLAIN, checked_entries

__all__ = ["VECTORS", "visible"]

_AT_ONCE: Final = 1 << 15
"""Records per step, so that their arrays stay in the processor's cache."""


def visible(
    bits: bytearray | memoryview, base: int, runs: memoryview, distances: memoryview, far: memoryview, step: int
) -> None:
    """See `Visible`."""
    if step not in (FORWARD, BACK, KEEP):
        raise ValueError("a step is 0 forward, 1 back or 2 keep")
    pairs = checked_entries(runs, distances, far)
    content = np.frombuffer(bits, np.uint8)
    wide = np.unpackbits(content, bitorder="little").view(np.bool_)
    values = np.frombuffer(distances, np.uint32) if len(distances) else np.zeros(0, np.uint32)
    distant = dict(zip(far[::2], far[1::2], strict=True))
    size, at = len(wide), 0
    for first, count in pairs:
        if step == FORWARD:
            wide[_clamped(first - base, size) : _clamped(first + count - base, size)] = True
        for begin in range(0, count, _AT_ONCE):
            some = values[at + begin : at + min(count, begin + _AT_ONCE)]
            wide[_places(some, first + begin, base, size, distant, step)] = step != FORWARD
        at += count
    if step == BACK:
        for first, count in pairs:
            wide[_clamped(first - base, size) : _clamped(first + count - base, size)] = False
    content[:] = np.packbits(wide, bitorder="little")


def _places(
    some: npt.NDArray[np.uint32], first: int, base: int, size: int, distant: dict[int, int], step: int
) -> npt.NDArray[np.int64]:
    """The existing bits of superseded records; for dead ones, going forward, their own."""
    at = np.flatnonzero(some)
    chosen = some[at]
    places = at - chosen.astype(np.int64)
    special = np.flatnonzero(chosen >= DEAD)
    for index in special.tolist():
        offset = first + int(at[index])
        if chosen[index] == FAR:
            if offset not in distant:
                raise ValueError(f"nothing says what the record at offset {offset} supersedes")
            places[index] = distant[offset] - first
        else:
            places[index] = at[index] if step == FORWARD else np.iinfo(np.int64).min // 2
    shift = first - base
    low, high = max(-shift, -(1 << 62)), min(size - shift, 1 << 62)
    found = places[(places >= low) & (places < high)]
    return found + shift if len(found) else found


def _clamped(place: int, size: int) -> int:
    return min(max(place, 0), size)


VECTORS: Final = PLAIN._replace(name="numpy", visible=visible)
