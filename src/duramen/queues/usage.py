"""The bytes of the queues of each owner: changes within a shard, and the totals over many shards. Pure."""

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final, NamedTuple

from duramen.base.ports import StateRows
from duramen.queues.owners import NO_OWNER, owned_bytes, owner_of_key, owners

__all__ = ["BEGINNING", "OwnerChanges", "OwnerTotals", "UsagePage"]

_AT_ONCE: Final = 5_000


class UsagePage(NamedTuple):
    """Owners whose bytes changed after a version, with their present bytes. `life` names the state they are from."""

    life: tuple[int, int]
    version: int
    bytes: Mapping[int, int]
    more: bool


BEGINNING: Final = UsagePage((-1, -1), 0, {}, more=True)
"""The state of a reader that knows nothing of a shard."""


class OwnerChanges:
    """The owners of a shard in the order of their last changes."""

    def __init__(self) -> None:
        self._loads = 0
        self._version = 0
        self._changed: dict[int, int] = {}

    def load(self, rows: StateRows) -> None:
        """Rebuild from rows."""
        self._loads += 1
        self._changed = {owner: number for number, (owner, _) in enumerate(owners(rows, NO_OWNER), 1)}
        self._version = len(self._changed)

    def written(self, keys: Collection[bytes]) -> None:
        """Rows of these keys were written."""
        for key in keys:
            if key[:1] == b"g":
                owner = owner_of_key(key)
                self._version += 1
                self._changed.pop(owner, None)
                self._changed[owner] = self._version

    def since(self, rows: StateRows, leader_epoch: int, known: tuple[int, int], version: int) -> UsagePage:
        """The changes after a version of a life."""
        life = leader_epoch, self._loads
        if known != life:
            version = 0
        if version == self._version:
            return UsagePage(life, version, {}, more=False)
        found = list[tuple[int, int]]()
        for owner, changed in reversed(self._changed.items()):
            if changed <= version:
                break
            found.append((changed, owner))
        found.reverse()
        more = len(found) > _AT_ONCE
        found = found[:_AT_ONCE]
        last = found[-1][0] if more else self._version
        return UsagePage(life, last, {owner: owned_bytes(rows, owner) for _, owner in found}, more)


class OwnerTotals:
    """The bytes of owners over all shards. `changed` gets each increase of an owner's bytes."""

    def __init__(self, changed: Callable[[int, int], None]) -> None:
        self._changed = changed
        self._pages: dict[Hashable, UsagePage] = {}
        self._of: dict[Hashable, dict[int, int]] = {}
        self._bytes: dict[int, int] = {}

    def known(self, shard: Hashable) -> UsagePage:
        """The last page of a shard."""
        return self._pages.get(shard, BEGINNING)

    def take(self, shard: Hashable, page: UsagePage) -> None:
        """Add the changes of a shard since `known`."""
        of = self._of.setdefault(shard, {})
        if self.known(shard).life != page.life:
            for owner in [owner for owner in of if owner not in page.bytes]:
                self._put(of, owner, 0)
        elif self.known(shard).version > page.version:
            return  # a late page
        for owner, size in page.bytes.items():
            self._put(of, owner, size)
        self._pages[shard] = page._replace(bytes={})

    def _put(self, of: dict[int, int], owner: int, size: int) -> None:
        more = size - of.pop(owner, 0)
        if size:
            of[owner] = size
        if more:
            self.add(owner, more)

    def add(self, owner: int, more: int) -> None:
        """Add bytes of an owner that are in no shard yet; a negative number removes them."""
        total = self._bytes.pop(owner, 0) + more
        if total:
            self._bytes[owner] = total
        self._changed(owner, more)

    def bytes(self, owner: int) -> int:
        """The bytes of an owner's queues."""
        return self._bytes.get(owner, 0)
