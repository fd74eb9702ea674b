"""The required content of a queue: the acknowledged entries, in order, at their positions, and nothing else.

Some entries go without a request: they expire, retention removes them, or they are dead letters. Such an entry may be
there or not while its removal was not observed, within the known bounds of the times at which a node decided.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from duramen.base.ids import Position
from duramen.queues.answers import entry_size
from duramen.queues.leases import Lease
from duramen.queues.retention import Retention
from duramen.queues.runs import QueueEntry
from duramen.sim.checkers.dead_letters import DeadLetters
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["Fate", "ModelEntries", "ModelEntry", "ModelTimes", "QueueModel", "Seen", "Unsure", "identity"]

_SLACK_MS: Final = 1_000
"""The delay after its time within which an entry can be leased."""
_PATIENCE_MS: Final = 30_000
"""So long a request may take until it is decided."""


class ModelEntry(NamedTuple):
    """The state of an entry. Its value has a unique beginning, up to a colon."""

    at: Position
    version: int
    value: bytes


ModelEntries = tuple[ModelEntry, ...]
After = Callable[[ModelEntries, Position], ModelEntries]
"""The effect of an operation on the entries, by the position of its first record."""


def identity(value: bytes) -> bytes:
    """The parts of an entry that no edit changes."""
    return value.partition(b":")[0]


class ModelTimes(NamedTuple):
    """When an entry was requested and existed, 0: unknown; how long it is hidden, and lasts, 0: for ever."""

    asked_ms: int
    there_ms: int = 0
    delay_ms: int = 0
    ttl_ms: int = 0

    def is_shown(self, now_ms: int) -> bool:
        """Whether its delay is over for sure."""
        return not self.delay_ms or 0 < self.there_ms <= now_ms - self.delay_ms

    def may_be_shown(self, now_ms: int) -> bool:
        """Whether its delay may be over."""
        return self.asked_ms + self.delay_ms <= now_ms

    def is_over(self, ttl_ms: int, now_ms: int) -> bool:
        """Whether it is older than that for sure."""
        return 0 < self.there_ms <= now_ms - ttl_ms

    def may_be_over(self, ttl_ms: int, now_ms: int) -> bool:
        """Whether it may be older than that."""
        return self.asked_ms + ttl_ms <= now_ms

    def expired(self, now_ms: int) -> bool:
        """Whether it has expired for sure."""
        return self.ttl_ms > 0 and self.is_over(self.ttl_ms, now_ms)

    def may_have_expired(self, now_ms: int) -> bool:
        """Whether it may have expired."""
        return self.ttl_ms > 0 and self.may_be_over(self.ttl_ms, now_ms)


class Seen(NamedTuple):
    """A read: when it began and ended, whether hidden entries are in it, and whether the queue was trimmed before."""

    began_ms: int
    ended_ms: int
    delayed: bool
    trimmed: bool


class Fate:
    """Whether a request that was not answered was done: the same for all of its queues in a shard."""

    def __init__(self) -> None:
        self.done: bool | None = None
        self.is_open = True  # whether it can be known yet


class Unsure(NamedTuple):
    """An operation without a response, its effect on the entries, and the consequences if it took effect.

    `done` gets the entries then, None if that can no longer be known. The operation was last sent in the process
    `boot`: before the next one a missing effect may still come.
    """

    what: str
    after: After
    fate: Fate
    done: Callable[[ModelEntries | None], None]
    boot: int


class _Held(NamedTuple):
    lease: Lease
    deliveries: int
    until_ms: int
    boot: int


class QueueModel:
    """A queue. One operation at a time is under way on it."""

    def __init__(self, name: bytes, kept: Retention, dead: DeadLetters) -> None:
        """`kept` is the retention limit; `dead` has the entries that were delivered too often."""
        self.name = name
        self.entries: ModelEntries = ()
        self.unsure: Unsure | None = None
        self.busy = False
        self.ever: dict[Position, bytes] = {}
        self.taken: list[tuple[int, int]] | None = []  # from one offset to that of the replace record; None: not known
        self.listed: bool | None = False  # whether its name is among those of the space
        self.held: dict[Position, _Held] = {}
        self.not_before_ms: dict[Position, int] = {}
        self._waits_ms: dict[Position, int] = {}  # when each that was given back can be leased, at the latest
        self._where: dict[bytes, Position] = {}
        self._times: dict[bytes, ModelTimes] = {}
        self._kept = kept
        self._over: set[bytes] = set()  # entries beyond the retention limit
        self._dead = dead
        self._delivered: dict[Position, int] = {}  # how often at most
        self._counted: dict[Position, int] = {}  # the minimum that every later delivery has to count

    def __str__(self) -> str:
        return self.name.decode()

    def put(self, values: Iterable[bytes], times: ModelTimes) -> None:
        """Entries are asked for."""
        self._times.update({identity(value): times for value in values})

    def ask(self, unsure: Unsure) -> None:
        """An operation is sent: until its response its effect is unknown."""
        self.unsure = unsure
        self._note_over(unsure.after(self.entries, Position(0, 0)))

    def set(self, entries: ModelEntries) -> None:
        """These are in it from here on. Raises BrokenPromise where a position was that of another entry."""
        for one in entries:
            known = identity(one.value)
            if self.ever.setdefault(one.at, known) != known:
                raise BrokenPromise(f"{self}: the position {one.at} was of {self.ever[one.at]!r}, and is of {known!r}")
            if self._where.setdefault(known, one.at) != one.at:
                raise BrokenPromise(f"{self}: {known!r} is at {self._where[known]} and at {one.at}")
        self.entries = entries
        if entries:
            self.listed = True
        self._note_over(entries)
        there = {one.at for one in entries}
        for position in [position for position in self.held if position not in there]:
            del self.held[position]

    def _note_over(self, entries: ModelEntries) -> None:
        """The oldest entries beyond the retention limit may be gone from here on."""
        count, size = 0, 0
        for one in reversed(entries):
            count, size = count + 1, size + _size(one)
            if 0 <= self._kept.entries < count or 0 <= self._kept.bytes < size:
                self._over.add(identity(one.value))

    def take_back(self, start: Position, end: int) -> None:
        """Entries from a position up to the replace record at an offset were taken back."""
        if self.taken is not None:
            self.taken.append((start.offset, end))

    def drop(self, *, known: bool) -> None:
        """It is gone with its name and its history; `known`: whether that can be known."""
        self.taken, self.listed = ([], False) if known else (None, None)

    def is_rewritten(self, offset: int) -> bool:
        """Whether a reader that continues at this offset has read entries that were taken back."""
        return any(start < offset <= end for start, end in self.taken or ())

    def is_taken_back(self, offset: int) -> bool:
        """Whether the entry at this offset was."""
        return any(start <= offset <= end for start, end in self.taken or ())

    # -- background work ------------------------------------------------------------------------------

    def may_go(self, entry: ModelEntry, now_ms: int) -> bool:
        """Whether an entry may be gone by itself."""
        known, times = identity(entry.value), self._times_of(entry)
        outdated = self._kept.ms >= 0 and times.may_be_over(self._kept.ms, now_ms)
        return outdated or known in self._over or self._dead.may_have(known) or times.may_have_expired(now_ms)

    def lasting(self, now_ms: int) -> Sequence[ModelEntry]:
        """Entries that stay until they are deleted."""
        return [one for one in self.entries if not self.may_go(one, now_ms)]

    def explains(self, positions: Iterable[Position], now_ms: int) -> bool:
        """Whether one of these entries may be gone by itself."""
        there = {one.at: one for one in self.entries}
        return any(at not in there or self.may_go(there[at], now_ms) for at in positions)

    def _times_of(self, entry: ModelEntry) -> ModelTimes:
        return self._times[identity(entry.value)]

    # -- reading --------------------------------------------------------------------------------------

    def asked_again(self, boot: int) -> None:
        """The operation with no answer is asked for in this process too."""
        if self.unsure is not None:
            self.unsure = self.unsure._replace(boot=boot)

    def check(self, found: Sequence[ModelEntry], seen: Seen, boot: int) -> None:
        """The content of a read in this process while nothing is under way. Raises BrokenPromise."""
        there, unsure = tuple(found), self.unsure
        missing = self._missing(self.entries, there, seen, exact=True)
        if unsure is None:
            if missing is None:
                raise BrokenPromise(f"{self} has {_shown(there)}, and {_shown(self.entries)} was acknowledged")
            self._conclude(self.entries, there, missing, seen)
            return
        after = unsure.after(self.entries, Position(0, 0))
        missing_after = self._missing(after, there, seen, exact=False)
        if missing is None and missing_after is None:
            raise BrokenPromise(
                f"{self} has {_shown(there)}; it was {_shown(self.entries)}, and {unsure.what} was not answered"
            )
        if missing is None:
            self._resolve(unsure, after, there, missing_after or (), seen, done=True)
        elif unsure.boot != boot and missing_after is None:
            self._resolve(unsure, self.entries, there, missing, seen, done=False)
        elif unsure.boot != boot and missing_after is not None:
            self._resolve(unsure, self.entries, there, missing_after, seen, done=None)

    def check_part(self, found: Sequence[ModelEntry], start: int, seen: Seen) -> None:
        """The content from an offset on. Raises BrokenPromise."""
        expected = tuple(one for one in self.entries if one.at.offset >= start)
        if self._missing(expected, tuple(found), seen, exact=True) is None:
            raise BrokenPromise(f"{self} has {_shown(tuple(found))} from {start} on, and {_shown(expected)} is there")

    def check_count(self, count: int, seen: Seen) -> None:
        """How many entries are in it. Raises BrokenPromise."""
        least = sum(not self._may_be_missing(one, seen) for one in self.entries)
        most = sum(self._may_be_there(one, seen) for one in self.entries)
        if not least <= count <= most:
            raise BrokenPromise(f"{self} counts {count} entries, and has {least} to {most}: {_shown(self.entries)}")

    def _missing(
        self, wanted: ModelEntries, there: ModelEntries, seen: Seen, *, exact: bool
    ) -> Sequence[ModelEntry] | None:
        """The wanted entries that are missing; None if the given ones cannot be the remaining ones.

        Unless `exact`, the positions of new ones, and their versions, are unknown.
        """
        missing, at = list[ModelEntry](), 0
        for one in wanted:
            if at < len(there) and (there[at] == one if exact else there[at].value == one.value):
                at += 1
            elif self._may_be_missing(one, seen):
                missing.append(one)
            else:
                return None
        if at < len(there) or not all(self._may_be_there(one, seen) for one in there):
            return None
        if not exact and not self._are_new_ones_last(there, wanted):
            return None
        return missing if not seen.trimmed or self._is_trimmed(there, seen) else None

    def _may_be_missing(self, entry: ModelEntry, seen: Seen) -> bool:
        hidden = not seen.delayed and not self._times_of(entry).is_shown(seen.began_ms)
        return hidden or self.may_go(entry, seen.ended_ms)

    def _may_be_there(self, entry: ModelEntry, seen: Seen) -> bool:
        times = self._times_of(entry)
        return not times.expired(seen.began_ms) and (seen.delayed or times.may_be_shown(seen.ended_ms))

    def _is_trimmed(self, there: ModelEntries, seen: Seen) -> bool:
        """Whether it is within the retention limit."""
        kept = self._kept
        if 0 <= kept.entries < len(there) or 0 <= kept.bytes < sum(map(_size, there)):
            return False
        return kept.ms < 0 or not there or not self._times_of(there[0]).is_over(kept.ms, seen.began_ms)

    def _are_new_ones_last(self, there: ModelEntries, wanted: ModelEntries) -> bool:
        known = {one.at for one in wanted if one.at in self.ever}
        last = max((one.offset for one in self.ever), default=-1)
        positions = [one.at for one in there]
        return positions == sorted(positions) and all(at.offset > last for at in positions if at not in known)

    def _conclude(self, wanted: ModelEntries, there: ModelEntries, missing: Sequence[ModelEntry], seen: Seen) -> None:
        """Of the missing entries, hidden ones stay; the others are gone for ever."""
        hidden = [one for one in missing if not seen.delayed and not self._times_of(one).is_shown(seen.began_ms)]
        for one in missing:
            known, times = identity(one.value), self._times_of(one)
            if one not in hidden and self._dead.may_have(known) and not times.may_have_expired(seen.ended_ms):
                self._dead.owe(known)
        found: Mapping[bytes, ModelEntry] = {one.value: one for one in (*there, *hidden)}
        self.set(tuple(found[one.value] for one in wanted if one.value in found))

    def _resolve(
        self, unsure: Unsure, wanted: ModelEntries, there: ModelEntries, missing: Sequence[ModelEntry], seen: Seen,
        *, done: bool | None,
    ) -> None:  # fmt: skip
        """The outcome of an operation is known; with None it does not matter any more."""
        known = unsure.fate.done
        if known is not None and done == (not known) and there != unsure.after(there, Position(0, 0)):
            raise BrokenPromise(f"{self}: {unsure.what} was done in part")
        self.unsure = None
        self._conclude(wanted, there, missing, seen)
        self._finish(seen.ended_ms)
        if done is None:
            unsure.fate.is_open, self.listed = False, None
        else:
            unsure.fate.done = done
        if done is not False:
            unsure.done(there if done else None)

    def _finish(self, now_ms: int) -> None:
        """Entries that were asked for are there."""
        for one in self.entries:
            known = identity(one.value)
            if not self._times[known].there_ms:
                self._times[known] = self._times[known]._replace(there_ms=now_ms)

    def resolved(self, at: Position, now_ms: int) -> None:
        """The operation was done, and is at that position."""
        unsure = self.unsure
        if unsure is not None:
            there = unsure.after(self.entries, at)
            self._resolve(unsure, there, there, (), Seen(now_ms, now_ms, delayed=True, trimmed=False), done=True)

    # -- leases ---------------------------------------------------------------------------------------

    def ask_lease(self, now_ms: int) -> None:
        """Its entries are about to be leased, perhaps: each has one delivery more then."""
        for one in self.entries:
            delivered = self._delivered.get(one.at, 0)
            if 0 < self._dead.deliveries <= delivered:
                self._dead.may_die(identity(one.value), now_ms)
            self._delivered[one.at] = delivered + 1

    def leased(self, positions: AbstractSet[Position]) -> None:
        """These were leased, and no others."""
        for one in self.entries:
            if one.at not in positions and not self._dead.may_have(identity(one.value)):
                self._delivered[one.at] -= 1

    def lease(
        self, entry: ModelEntry, lease: Lease, deliveries: int, lease_ms: int, seen: Seen, boot: int, *, sure: bool
    ) -> None:
        """An entry is leased. `sure`: nothing happened that leases end with. Raises BrokenPromise."""
        if entry not in self.entries:
            raise BrokenPromise(f"{self}: {entry} is leased, and {_shown(self.entries)} is there")
        if not self._may_be_there(entry, seen):
            raise BrokenPromise(f"{self}: {entry} is leased before it is shown, or after it has expired")
        held = self.held.get(entry.at)
        if sure and held is not None and held.boot == boot and held.until_ms > seen.ended_ms:
            raise BrokenPromise(f"{self}: {entry.at} has the leases {held.lease} and {lease} at once")
        if self.not_before_ms.get(entry.at, 0) > seen.ended_ms:
            raise BrokenPromise(f"{self}: {entry.at} is leased before its delay is over")
        if deliveries <= self._counted.get(entry.at, 0):
            raise BrokenPromise(f"{self}: {entry.at} is leased with {deliveries} deliveries, and had as many before")
        if deliveries > self._delivered[entry.at]:
            raise BrokenPromise(f"{self}: {entry.at} has {deliveries} deliveries, and was leased less often")
        self.held[entry.at] = _Held(lease, deliveries, seen.began_ms + lease_ms, boot)

    def check_left(self, leased: AbstractSet[Position], seen: Seen, boot: int) -> None:
        """No other client could have more than these leases, unless an operation failed. Raises BrokenPromise."""
        before_ms = seen.began_ms - _SLACK_MS
        for one in self.entries:
            held, free_ms = self.held.get(one.at), self._waits_ms.get(one.at, 0)
            is_free = held is None or held.boot != boot or held.until_ms <= before_ms
            waits = not self._times_of(one).is_shown(before_ms) or free_ms > seen.began_ms
            if is_free and not waits and one.at not in leased and not self.may_go(one, seen.ended_ms):
                raise BrokenPromise(f"{self}: {one.at} can be leased, and is not: {_shown(self.entries)}")

    def ask_release(self, at: Position, delay_ms: int, now_ms: int) -> None:
        """An entry is about to be given back for some time."""
        self._waits_ms[at] = now_ms + delay_ms + _PATIENCE_MS

    def release(self, at: Position, delay_ms: int, asked_ms: int, deliveries: int) -> None:
        """An entry was given back for some time, with so many deliveries."""
        self.held.pop(at, None)
        self.not_before_ms[at] = asked_ms + delay_ms if delay_ms else 0
        self._counted[at] = deliveries


def _size(entry: ModelEntry) -> int:
    return entry_size(QueueEntry(entry.at, entry.version, 0, None, entry.value, ()))


def _shown(entries: ModelEntries) -> str:
    texts = [one.value.decode().rstrip("x") for one in entries]
    return " ".join(f"{one.at.leader_epoch}.{one.version}={text}" for one, text in zip(entries, texts, strict=True))
