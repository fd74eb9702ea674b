"""Past ends of a table at which it had only whole transactions, so that reads may end there. Pure.

A table's metadata has a bounded number of them, spread over its history: if there are too many, the one with the
closest neighbours is dropped.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["from_text", "next_ends", "to_text", "with_ends"]

_MOST_NUMBERS: Final = 2048
_MOST: Final = 64

Ends = Mapping[int, int]
"""The offset after the last that counts, by partition."""


def with_ends(history: Sequence[Ends], ends: Ends) -> list[Ends]:
    """The history, oldest first, with the newest ends."""
    most = max(2, min(_MOST, _MOST_NUMBERS // max(1, len(ends))))
    kept = [*(one for one in history if one != ends), ends]
    while len(kept) > most:
        sums = [sum(one.values()) for one in kept]
        gaps = [sums[index + 1] - sums[index - 1] if index else sums[1] for index in range(len(kept) - 1)]
        del kept[gaps.index(min(gaps))]
    return kept


def next_ends(history: Sequence[Ends], begin: Ends, most: int | None = None, upto: Ends | None = None) -> Ends | None:
    """The end of a read from `begin`: the farthest ends with at most `most` offsets, else the nearest; else None.

    None of them is beyond `upto`, unless all later ones are; partitions without a `begin` do not matter.
    """
    ahead = [one for one in history if any(one.get(at, 0) > offset for at, offset in begin.items())]
    if upto is not None:
        near = [one for one in ahead if all(one.get(at, 0) <= max(end, begin.get(at, end)) for at, end in upto.items())]
        ahead = near or ahead[:1]
    if not ahead:
        return None
    small = [one for one in ahead if most is None or _count(begin, one) <= most]
    return small[-1] if small else ahead[0]


def _count(begin: Ends, ends: Ends) -> int:
    return sum(max(0, ends.get(at, 0) - offset) for at, offset in begin.items())


def to_text(history: Sequence[Ends]) -> str:
    """As JSON for a table's metadata."""
    return json.dumps([{str(at): end for at, end in one.items()} for one in history], separators=(",", ":"))


def from_text(text: str) -> list[Ends]:
    """The history in a `to_text` document."""
    return [{int(at): int(end) for at, end in one.items()} for one in json.loads(text)]
