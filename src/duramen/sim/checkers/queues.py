"""The required content of a queue: the acknowledged entries, in order, at their positions, and nothing else."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from duramen.base.ids import Position
from duramen.queues.leases import Lease
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["Fate", "ModelEntries", "ModelEntry", "QueueModel", "Unsure", "identity"]


class ModelEntry(NamedTuple):
    """An entry as it is. Its value begins with what no other entry's value does, up to a colon."""

    at: Position
    version: int
    value: bytes


ModelEntries = tuple[ModelEntry, ...]
After = Callable[[ModelEntries, Position], ModelEntries]
"""What an operation makes of the entries, by the position of its first record."""


def identity(value: bytes) -> bytes:
    """What an entry keeps however often it is edited."""
    return value.partition(b":")[0]


class Fate:
    """Whether a request that was not answered was done: the same for all of its queues in a shard."""

    def __init__(self) -> None:
        self.done: bool | None = None


class Unsure(NamedTuple):
    """An operation with no answer, what it would make of the entries, and what else follows where it was done.

    It was asked for last in the process `boot`: before the next one what is not there may still come.
    """

    what: str
    after: After
    fate: Fate
    done: Callable[[ModelEntries], None]
    boot: int


class _Held(NamedTuple):
    lease: Lease
    until_ms: int
    boot: int


class QueueModel:
    """A queue. One operation at a time is under way on it."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.entries: ModelEntries = ()
        self.unsure: Unsure | None = None
        self.busy = False
        self.ever: dict[Position, bytes] = {}
        self.taken: list[tuple[int, int]] = []  # from one offset to that of the replace record
        self.held: dict[Position, _Held] = {}
        self.not_before_ms: dict[Position, int] = {}
        self._where: dict[bytes, Position] = {}

    def __str__(self) -> str:
        return self.name.decode()

    def set(self, entries: ModelEntries) -> None:
        """These are in it from here on. Raises BrokenPromise where a position was that of another entry."""
        for one in entries:
            known = identity(one.value)
            if self.ever.setdefault(one.at, known) != known:
                raise BrokenPromise(f"{self}: the position {one.at} was of {self.ever[one.at]!r}, and is of {known!r}")
            if self._where.setdefault(known, one.at) != one.at:
                raise BrokenPromise(f"{self}: {known!r} is at {self._where[known]} and at {one.at}")
        self.entries = entries
        there = {one.at for one in entries}
        for position in [position for position in self.held if position not in there]:
            del self.held[position]

    def take_back(self, start: Position, end: int) -> None:
        """What lay from a position up to the replace record at an offset was taken back."""
        self.taken.append((start.offset, end))

    def is_rewritten(self, offset: int) -> bool:
        """Whether who goes on at this offset has read what was taken back."""
        return any(start < offset <= end for start, end in self.taken)

    def is_taken_back(self, offset: int) -> bool:
        """Whether the entry at this offset was."""
        return any(start <= offset <= end for start, end in self.taken)

    # -- reading --------------------------------------------------------------------------------------

    def asked_again(self, boot: int) -> None:
        """The operation with no answer is asked for in this process too."""
        if self.unsure is not None:
            self.unsure = self.unsure._replace(boot=boot)

    def check(self, found: Sequence[ModelEntry], boot: int) -> None:
        """What is in it by a read in this process while nothing is under way. Raises BrokenPromise."""
        there = tuple(found)
        unsure = self.unsure
        if unsure is None:
            if there != self.entries:
                raise BrokenPromise(f"{self} has {_shown(there)}, and {_shown(self.entries)} was acknowledged")
            return
        done = there != self.entries
        if done and not _same_but_positions(there, unsure.after(self.entries, Position(0, 0)), self.ever):
            raise BrokenPromise(
                f"{self} has {_shown(there)}; it was {_shown(self.entries)}, and {unsure.what} was not answered"
            )
        if done or unsure.boot != boot:
            self._resolve(unsure, there, done=done)

    def _resolve(self, unsure: Unsure, there: ModelEntries, *, done: bool) -> None:
        if unsure.fate.done not in (None, done) and there != unsure.after(there, Position(0, 0)):
            raise BrokenPromise(f"{self}: {unsure.what} was done in part")
        unsure.fate.done = done
        self.unsure = None
        self.set(there)
        if done:
            unsure.done(there)

    def resolved(self, at: Position) -> None:
        """The operation with no answer was done again with its id, and is at that position."""
        unsure = self.unsure
        if unsure is not None:
            self._resolve(unsure, unsure.after(self.entries, at), done=True)

    # -- leases ---------------------------------------------------------------------------------------

    def lease(self, entry: ModelEntry, lease: Lease, until_ms: int, now_ms: int, boot: int, *, sure: bool) -> None:
        """An entry is leased. `sure`: nothing happened that leases end with. Raises BrokenPromise."""
        if entry not in self.entries:
            raise BrokenPromise(f"{self}: {entry} is leased, and {_shown(self.entries)} is there")
        held = self.held.get(entry.at)
        if sure and held is not None and held.boot == boot and held.until_ms > now_ms:
            raise BrokenPromise(f"{self}: {entry.at} has the leases {held.lease} and {lease} at once")
        if self.not_before_ms.get(entry.at, 0) > now_ms:
            raise BrokenPromise(f"{self}: {entry.at} is leased before its delay is over")
        self.held[entry.at] = _Held(lease, until_ms, boot)

    def release(self, at: Position, not_before_ms: int) -> None:
        """An entry was given back."""
        self.held.pop(at, None)
        self.not_before_ms[at] = not_before_ms


def _shown(entries: ModelEntries) -> str:
    texts = [one.value.decode().rstrip("x") for one in entries]
    return " ".join(f"{one.at.leader_epoch}.{one.version}={text}" for one, text in zip(entries, texts, strict=True))


def _same_but_positions(there: ModelEntries, wanted: ModelEntries, ever: dict[Position, Any]) -> bool:
    """Whether these are the entries that are wanted; where new ones are, and in which version, nobody has said."""
    if [one.value for one in there] != [one.value for one in wanted]:
        return False
    known = {one.at: one for one in wanted if one.at in ever}
    new = [one for one in there if one.at not in known]
    last = max((one.offset for one in ever), default=-1)
    return all(one.at.offset > last for one in new) and [one.at for one in there] == sorted(one.at for one in there)
