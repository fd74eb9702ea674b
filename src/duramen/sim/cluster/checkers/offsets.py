"""Committed offsets of groups whose clients commit one after the other: they never fall. Pure."""

from duramen.groups.records import OffsetKey
from duramen.sim.checkers.transaction import SimulatedTransaction
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["Bookmark", "Bookmarks"]


class Bookmark:
    """The offset of a group for a partition, committed by one client only, each time a higher one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.newest = -1  # the highest that was sent
        self.least = -1  # stored ones are not lower
        self._of: dict[int, SimulatedTransaction] = {}  # those that count once a transaction is committed

    def sent(self, transaction: SimulatedTransaction | None = None) -> int:
        """The next offset is sent, in a transaction or by itself."""
        self.newest += 1
        if transaction is not None:
            self._of[self.newest] = transaction
        return self.newest

    def acknowledged(self, offset: int) -> None:
        """It is stored, for good."""
        self.least = max(self.least, offset)

    def read(self, offset: int, *, newest: bool) -> None:
        """A client was told that this offset is stored, -1: none, and that no open transaction may change it.

        `newest`: at the node with the newest state.
        """
        if offset < self.least and newest:
            raise BrokenPromise(f"{self.name} falls from {self.least} to {offset}")
        if offset > self.newest:
            raise BrokenPromise(f"{self.name} is {offset}, which nobody has committed")
        self.least = max(self.least, offset)
        if offset in self._of:
            self._of[offset].seen(self.name, committed=True)


class Bookmarks:
    """All of them."""

    def __init__(self) -> None:
        self._all: dict[OffsetKey, Bookmark] = {}

    def of(self, key: OffsetKey) -> Bookmark:
        """The bookmark of a group for a partition."""
        found = self._all.get(key)
        if found is None:
            found = self._all[key] = Bookmark(f"the offset of {key.group} for partition {key.partition} of {key.topic}")
        return found

    def keys(self) -> list[OffsetKey]:
        """Those that there are."""
        return list(self._all)
