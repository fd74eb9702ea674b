"""Positions in a queue as text: `epoch.offset`, the leader epoch and the log offset of an entry. Pure."""

import re
from typing import Final

from duramen.base.errors import RequestInvalid
from duramen.base.ids import Position

__all__ = ["FIRST", "LARGEST_OFFSET", "parse_position", "position_text"]

LARGEST_OFFSET: Final = (1 << 63) - 1
FIRST: Final = Position(0, 0)
"""Before all entries of every queue."""

_LARGEST_EPOCH: Final = (1 << 31) - 1
_FORM: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,18})")


def position_text(position: Position) -> str:
    """The text of a position."""
    return f"{position.leader_epoch}.{position.offset}"


def parse_position(text: str) -> Position:
    """The position of a text. Raises RequestInvalid."""
    found = _FORM.fullmatch(text)
    if found is not None:
        position = Position(int(found[1]), int(found[2]))
        if position.leader_epoch <= _LARGEST_EPOCH and position.offset < LARGEST_OFFSET:
            return position
    raise RequestInvalid(f"{text[:40]!r} does not fit: a position is EPOCH.OFFSET, such as 3.1700, as an answer had it")
