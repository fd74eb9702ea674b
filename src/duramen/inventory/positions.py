"""Positions of the inventory as text: `epoch.offset` per shard, in order; on a standalone node only offsets. Pure."""

from duramen.base.errors import RequestInvalid

__all__ = ["split_position"]


def split_position(position: str) -> list[tuple[int, int]]:
    """The epochs and offsets of shards. Raises RequestInvalid."""
    found = list[tuple[int, int]]()
    for part in position.split(",") if position else ():
        epoch, _, offset = part.rpartition(".")
        if not (epoch.removeprefix("-") or "0").isdecimal() or not offset.removeprefix("-").isdecimal():
            raise RequestInvalid(f"{position[:80]!r} is no position of the inventory: take that of a response")
        found.append((int(epoch or 0), int(offset)))
    return found
