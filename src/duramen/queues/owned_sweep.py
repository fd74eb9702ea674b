"""Retention of queues that have owners: which queues of a shard are to be looked at now. Pure.

The time index names the queues whose first entries are too old, so a look costs what is due. Queues with bounds of
bytes or entries are looked at once they were written to; and all, some at a time, after the shard was loaded or owners
say something else.
"""

from collections.abc import Callable, Collection, Hashable
from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from duramen.base.ports import StateRows
from duramen.queues.names import Queue
from duramen.queues.owners import (
    ENTRY_BYTES,
    NO_OWNER,
    NOT_SAID,
    OwnedQueue,
    aged_queues,
    is_owned_key,
    owned_queue,
    owned_queues,
    owner_of_key,
    owners,
)
from duramen.queues.retention import Retention
from duramen.queues.rows import name_key

__all__ = ["OwnedKept", "OwnedSweep", "kept_of"]

_OWNERS_AT_ONCE: Final = 200
_QUEUES_AT_ONCE: Final = 50
_ROWS_AT_ONCE: Final = 2_000
_COUNTED_BESIDE: Final = 64 - ENTRY_BYTES
"""The largest difference between an entry's counted size and its size in a run."""


class OwnedKept(NamedTuple):
    """The retention by owners; another `version` may differ.

    `counts`: some owner limits bytes or entries.
    """

    version: Hashable
    of: Callable[[int], Retention]
    counts: bool


def kept_of(owned: OwnedQueue, kept: OwnedKept) -> Retention:
    """The retention of a queue: its own values, else its owner's."""
    if NOT_SAID not in owned.own:
        return Retention(*owned.own)
    said = kept.of(owned.owner)
    return Retention(*(theirs if own == NOT_SAID else own for own, theirs in zip(owned.own, said, strict=True)))


def _may_be_over(owned: OwnedQueue, kept: Retention) -> bool:
    if 0 <= kept.entries < owned.entries:
        return True
    return 0 <= kept.bytes < owned.bytes + _COUNTED_BESIDE * owned.entries


class OwnedSweep:
    """The queues to look at in a shard that is led here."""

    def __init__(self) -> None:
        self._version: Hashable = None
        self._owners: dict[int, None] = {}  # owners of queues whose first entries may have changed
        self._owners_after: int | None = None  # how far all owners are looked at; None: completely
        self._grown: dict[bytes, None] = {}
        self._grown_after: bytes | None = b""  # how far all queues are looked at; None: completely
        self._due: list[tuple[int, int]] = []
        self._due_ms: dict[int, int] = {}

    def written(self, keys: Collection[bytes]) -> None:
        """Rows of these keys were written."""
        for key in keys:
            if key[:1] == b"a":
                self._owners[owner_of_key(key)] = None
            elif is_owned_key(key):
                self._grown[key[1:]] = None

    def step(self, rows: StateRows, kept: OwnedKept, now_ms: int) -> list[tuple[Queue, Retention]]:
        """Queues that may have entries to remove, with their retention; some of them, if there are many."""
        if kept.version != self._version:
            self._version = kept.version
            self._owners[NO_OWNER] = None
            self._owners_after = NO_OWNER
            self._grown_after = b"" if kept.counts else self._grown_after
            self._due.clear()
            self._due_ms.clear()
        self._note_owners(rows, kept)
        found = dict[bytes, Retention]()
        self._find_aged(rows, kept, now_ms, found)
        self._find_grown(rows, kept, found)
        names = rows.get_many([name_key(queue) for queue in found])
        return [
            (Queue(name, queue), one)
            for name, (queue, one) in zip(names, found.items(), strict=True)
            if name is not None
        ]

    def _note_owners(self, rows: StateRows, kept: OwnedKept) -> None:
        some = list(islice(self._owners, _OWNERS_AT_ONCE))
        for owner in some:
            del self._owners[owner]
        if self._owners_after is not None and len(some) < _OWNERS_AT_ONCE:
            more = [owner for owner, _ in islice(owners(rows, self._owners_after), _OWNERS_AT_ONCE)]
            self._owners_after = more[-1] if len(more) == _OWNERS_AT_ONCE else None
            some += more
        for owner in some:
            ms = 0 if owner == NO_OWNER else kept.of(owner).ms
            first = next(aged_queues(rows, owner), None) if ms >= 0 else None
            if first is None:
                self._due_ms.pop(owner, None)
            elif self._due_ms.get(owner) != first[0] + ms:
                self._due_ms[owner] = first[0] + ms
                heappush(self._due, (first[0] + ms, owner))

    def _find_aged(self, rows: StateRows, kept: OwnedKept, now_ms: int, found: dict[bytes, Retention]) -> None:
        while self._due and self._due[0][0] <= now_ms and len(found) < _QUEUES_AT_ONCE:
            due_ms, owner = heappop(self._due)
            if self._due_ms.get(owner) != due_ms:
                continue  # its time has changed
            del self._due_ms[owner]
            self._owners[owner] = None
            ms = 0 if owner == NO_OWNER else kept.of(owner).ms
            for time_ms, queue in aged_queues(rows, owner):
                owned = owned_queue(rows, queue)
                if time_ms + ms > now_ms or owned is None or len(found) == _QUEUES_AT_ONCE:
                    break
                found[queue] = kept_of(owned, kept)

    def _find_grown(self, rows: StateRows, kept: OwnedKept, found: dict[bytes, Retention]) -> None:
        left = _ROWS_AT_ONCE
        while self._grown and left and len(found) < _QUEUES_AT_ONCE:
            queue = next(iter(self._grown))
            del self._grown[queue]
            left -= 1
            owned = owned_queue(rows, queue)
            if owned is not None and _may_be_over(owned, kept_of(owned, kept)):
                found[queue] = kept_of(owned, kept)
        if self._grown_after is None or len(found) >= _QUEUES_AT_ONCE:
            return
        for queue, owned in owned_queues(rows, self._grown_after):
            if not left or len(found) >= _QUEUES_AT_ONCE:
                return
            left -= 1
            self._grown_after = queue
            if _may_be_over(owned, kept_of(owned, kept)):
                found[queue] = kept_of(owned, kept)
        self._grown_after = None
