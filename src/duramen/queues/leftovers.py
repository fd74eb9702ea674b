"""Queues that nobody may need any more: the queues of a shard to examine. Pure.

Queues of owners that do not exist are examined when such an owner appears. All queues are examined once after each load
of the shard, because what was known of deleted ones is lost with the memory, and because some have no owner.
"""

from collections.abc import Callable, Collection, Hashable
from itertools import islice
from typing import Final, NamedTuple

from duramen.base.ports import StateRows
from duramen.queues.names import Queue
from duramen.queues.owners import NO_OWNER, owned_queues, owner_of_key, owners
from duramen.queues.rows import name_key

__all__ = ["Examined", "KnownOwners", "LeftoverSweep"]

_OWNERS_AT_ONCE: Final = 1_000
_ROWS_AT_ONCE: Final = 1_000
_QUEUES_AT_ONCE: Final = 50
_QUEUES_OF_ALL: Final = 20
"""Those of the pass over all queues, which the node can afford beside its work."""


class KnownOwners(NamedTuple):
    """Which owners exist; with another `version` some may not exist any more."""

    version: Hashable
    exists: Callable[[int], bool]


class Examined(NamedTuple):
    """Queues to examine, and the hash of the last queue of this part of the rows; None: there are no others.

    `owned`: they are queues of owners that do not exist.
    """

    queues: list[Queue]
    last: bytes | None
    owned: bool


class LeftoverSweep:
    """The parts of the rows that were examined. A part counts once `passed` is called."""

    def __init__(self) -> None:
        self._version: Hashable = None
        self._touched: dict[int, None] = {}  # owners whose bytes have changed
        self._owners_after: int | None = NO_OWNER  # None: all owners were checked
        self._owned_after: bytes | None = None  # None: nothing to do
        self._again = False  # an owner disappeared during the pass over its queues
        self._all_after: bytes | None = b""

    def written(self, keys: Collection[bytes]) -> None:
        """Rows of these keys were written."""
        for key in keys:
            if key[:1] == b"g":
                self._touched[owner_of_key(key)] = None

    def step(self, rows: StateRows, known: KnownOwners) -> Examined | None:
        """The next queues to examine; None: there is nothing to do now."""
        if known.version != self._version:
            self._version = known.version
            self._owners_after = NO_OWNER
        if not all(map(known.exists, self._next_owners(rows))):
            self._again = self._owned_after is not None
            self._owned_after = self._owned_after or b""
        if self._owned_after is not None:
            return _of_missing_owners(rows, self._owned_after, known)
        if self._all_after is not None:
            return _of_all(rows, self._all_after)
        return None

    def passed(self, examined: Examined) -> None:
        """No queue of this part has to be examined again."""
        if not examined.owned:
            self._all_after = examined.last
            return
        self._owned_after = examined.last
        if examined.last is None and self._again:
            self._owned_after, self._again = b"", False

    def _next_owners(self, rows: StateRows) -> list[int]:
        found = list(islice(self._touched, _OWNERS_AT_ONCE))
        for owner in found:
            del self._touched[owner]
        if self._owners_after is not None:
            more = [owner for owner, _ in islice(owners(rows, self._owners_after), _OWNERS_AT_ONCE)]
            self._owners_after = more[-1] if len(more) == _OWNERS_AT_ONCE else None
            found += more
        return found


def _of_missing_owners(rows: StateRows, after: bytes, known: KnownOwners) -> Examined:
    found = list[bytes]()
    last: bytes | None = after
    for number, (queue, owned) in enumerate(owned_queues(rows, after)):
        if number == _ROWS_AT_ONCE or len(found) == _QUEUES_AT_ONCE:
            break
        last = queue
        if owned.owner != NO_OWNER and not known.exists(owned.owner):
            found.append(queue)
    else:
        last = None
    names = rows.get_many([*map(name_key, found)])
    queues = [Queue(name, queue) for name, queue in zip(names, found, strict=True) if name is not None]
    return Examined(queues, last, owned=True)


def _of_all(rows: StateRows, after: bytes) -> Examined:
    scanned = rows.scan(name_key(after) + b"\x00", name_key(b"\xff" * 17))
    queues = [Queue(name, key[1:]) for key, name in islice(scanned, _QUEUES_OF_ALL)]
    last = queues[-1].hash if len(queues) == _QUEUES_OF_ALL else None
    return Examined(queues, last, owned=False)
