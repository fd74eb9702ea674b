"""Positions of the inventory as text: `epoch.offset` per shard, in order; on a standalone node only offsets. Pure."""

import re
from typing import Final

from duramen.base.errors import RequestInvalid

__all__ = ["split_position"]

_PART: Final = re.compile(r"(?:(-?[0-9]{1,10})\.)?(-?[0-9]{1,19})")
_EPOCH_END: Final = 1 << 31
_OFFSET_END: Final = 1 << 63


def split_position(position: str) -> list[tuple[int, int]]:
    """The epochs and offsets of shards. Raises RequestInvalid."""
    found = list[tuple[int, int]]()
    for part in position.split(",") if position else ():
        match = _PART.fullmatch(part)
        epoch, offset = (0, _OFFSET_END) if match is None else (int(match[1] or 0), int(match[2]))
        if not (-_EPOCH_END <= epoch < _EPOCH_END and -_OFFSET_END <= offset < _OFFSET_END):
            raise RequestInvalid(f"{position[:80]!r} is no position of the inventory: take that of a response")
        found.append((epoch, offset))
    return found
