"""Requests about more queues than one may name: split into parts. Pure."""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from duramen.codec.queue_entries import MOST_QUEUES

__all__ = ["LONGEST_WAIT_MS", "rotated", "shares", "split_queues", "turns"]

_PART_BYTES: Final = 96 * 1024
"""What the names of a part and its positions take: a request has 128 KiB at most."""
_POSITION_BYTES: Final = 64
LONGEST_WAIT_MS: Final = 20_000  # of one request: then it is asked again
_ROUND_MS: Final = 1_000
"""For so long at most an entry waits for the turn of its part."""

_rounds: Final = itertools.count()


def split_queues(queues: Iterable[str]) -> list[list[str]]:
    """Unique names of queues in their order, in parts that each fit into a request."""
    parts, size = list[list[str]](), 0
    for queue in dict.fromkeys(queues):
        more = len(json.dumps(queue)) + _POSITION_BYTES
        if not parts or len(parts[-1]) >= MOST_QUEUES or size + more > _PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(queue)
        size += more
    return parts


def rotated(parts: Sequence[list[str]]) -> list[list[str]]:
    """The parts, each time starting with another one."""
    first = next(_rounds) % max(1, len(parts))
    return [*parts[first:], *parts[:first]]


def shares(parts: Sequence[list[str]], limit: int) -> Iterator[tuple[list[str], int]]:
    """The parts, and the number of entries for each, in proportion to its queues."""
    left, queues = limit, sum(map(len, parts))
    for part in parts:
        share = -(-left * len(part) // queues)
        yield part, share
        left, queues = left - share, queues - len(part)


def turns(parts: Sequence[list[str]], wait_ms: int) -> Iterator[tuple[list[str], int]]:
    """Parts to wait for in rotation, and the time of each wait."""
    turn_ms = LONGEST_WAIT_MS if len(parts) == 1 else max(1, _ROUND_MS // max(1, len(parts)))
    for part in itertools.cycle(parts):
        if wait_ms <= 0:
            return
        yield part, min(wait_ms, turn_ms)
        wait_ms -= turn_ms
