"""Positions in a queue as text: `epoch.offset`, the leader epoch and the log offset of an entry. Pure.

Leases have the same form: a leader epoch, and a number.
"""

import re
from typing import Final

from duramen.base.errors import RequestInvalid
from duramen.base.ids import Position

__all__ = ["FIRST", "LARGEST_OFFSET", "parse_numbers", "parse_position", "position_text"]

LARGEST_OFFSET: Final = (1 << 63) - 1
FIRST: Final = Position(0, 0)
"""Before all entries of every queue."""

_LARGEST_EPOCH: Final = (1 << 31) - 1
_FORM: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,18})")


def position_text(position: Position) -> str:
    """The text of a position."""
    return f"{position.leader_epoch}.{position.offset}"


def parse_numbers(text: str) -> tuple[int, int] | None:
    """A leader epoch and an offset or number, both as large as they can be; None if the text has another form."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    leader_epoch, number = int(found[1]), int(found[2])
    return (leader_epoch, number) if leader_epoch <= _LARGEST_EPOCH and number < LARGEST_OFFSET else None


def parse_position(text: str) -> Position:
    """The position of a text. Raises RequestInvalid."""
    found = parse_numbers(text)
    if found is None:
        raise RequestInvalid(f"{text[:40]!r} is not a position: use one from a response, such as 3.1700")
    return Position(*found)
