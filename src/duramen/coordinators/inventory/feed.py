"""Subscriptions to the inventory: changes of an entity or a prefix after a position, with waiting."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt, DuramenError, InventoryPositionLost, RequestInvalid, StorageFailed
from duramen.codec.batch import DecodedRecord, batches, records
from duramen.coordinators.inventory.shard import InventoryShard
from duramen.coordinators.inventory.shards import Done, InventoryShards
from duramen.inventory.events import InventoryEvent, decode_event
from duramen.inventory.feed import (
    FeedKey,
    FeedScope,
    InventoryChange,
    change_of,
    event_keys,
    scope_keys,
)
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import Store

__all__ = ["ChangePage", "ChangeRequest", "EventReader", "InventoryFeed"]

_PIECE_BYTES: Final = 256 << 10
_PIECES: Final = 64  # pieces read for one response


class ChangePage(NamedTuple):
    """Changes of a scope in the order of each shard's log, and the position after them."""

    changes: Sequence[tuple[InventoryChange, str]]
    position: str
    scope: FeedScope


Take = Callable[[int, InventoryEvent], bool]
"""Gets the offset of an event and the event; returns whether more are wanted."""


class EventReader:
    """Reads events of the shards that this node has loaded, in pieces."""

    def __init__(self, shards: InventoryShards, store: Store) -> None:
        self._shards = shards
        self._store = store
        self.soon = store.soon

    def read(self, shard: int, offset: int, take: Take, done: Callable[[DuramenError | None], None]) -> None:
        """Read applied events from an offset on, then call `done`, possibly before the end of the log.

        `done` gets InventoryPositionLost if the events no longer exist.
        """
        log = self._shards.log(shard)
        try:
            if offset < log.start_offset:
                raise InventoryPositionLost(_lost(shard, offset, log.start_offset))
            plan = log.plan_read(offset, _PIECE_BYTES)
        except DuramenError as error:
            done(error)
            return
        if isinstance(plan, Blocked):
            self._store.unblock(plan, partial(self._unblocked, done))
        elif plan is None:
            done(StorageFailed(f"nothing can be read at offset {offset} of shard {shard}"))
        else:
            read_slice(self._store, plan, partial(self._taken, shard, offset, take, done))

    def _unblocked(self, done: Callable[[DuramenError | None], None], error: BaseException | None) -> None:
        if error is None or isinstance(error, DuramenError):
            done(error)
        else:
            done(StorageFailed(f"reading failed: {error}"))

    def _taken(
        self, shard: int, offset: int, take: Take, done: Callable[[DuramenError | None], None],
        data: bytes | DuramenError | OSError,
    ) -> None:  # fmt: skip
        if not isinstance(data, bytes):
            done(data if isinstance(data, DuramenError) else StorageFailed(f"reading failed: {data}"))
            return
        end_offset = self._shards.applied_offset(shard)
        try:
            for record in _records(data):
                if offset <= record.offset < end_offset and not take(record.offset, decode_event(record)):
                    break
        except (BatchCorrupt, DuramenError) as error:
            done(error)
            return
        self._store.soon(partial(done, None))


def _records(data: bytes) -> Iterator[DecodedRecord]:
    for at, head in batches(data):
        yield from records(data[at : at + head.size])


class InventoryFeed:
    """Polls that wait for changes, by the keys that they wait for."""

    def __init__(self, shards: InventoryShards, store: Store) -> None:
        self._shards = shards
        self.reader = EventReader(shards, store)
        self._waiting: dict[FeedKey, dict[Poll, None]] = {}

    def poll(
        self, scope: Callable[[], FeedScope], position: str, limit: int, wait_ms: int, done: Done
    ) -> Callable[[], None]:
        """`done` gets a `ChangePage` of changes after a position: at once, or as soon as there are some.

        Without a position the poll starts at the end. After `wait_ms`, or after many changes in other scopes, the page
        is empty. `done` also gets InventoryPositionLost, RequestInvalid, and the errors of `scope`. Returns a function
        that cancels the poll.
        """
        poll = Poll(self, self._shards, limit, wait_ms, done)
        self._shards.read(partial(poll.prepare, scope, position), poll.begin)
        return poll.cancel

    def enter(self, poll: "Poll", keys: frozenset[FeedKey]) -> None:
        """Start to notify a poll of changes with one of its keys."""
        for key in keys:
            self._waiting.setdefault(key, {})[poll] = None
        for shard in self._shards.loaded():
            shard.told = self._told

    def leave(self, poll: "Poll", keys: frozenset[FeedKey]) -> None:
        """Stop to notify it."""
        for key in keys:
            waiting = self._waiting.get(key, {})
            waiting.pop(poll, None)
            if not waiting:
                self._waiting.pop(key, None)
        if not self._waiting:
            for shard in self._shards.loaded():
                shard.told = None

    def _told(self, shard: int, offset: int, event: InventoryEvent) -> None:
        found = dict[Poll, None]()
        try:
            for key in event_keys(event, shard, self._shards.directory()):
                found |= self._waiting.get(key, {})
        except DuramenError:  # its keys are unknown at present
            for poll in {poll: None for waiting in self._waiting.values() for poll in waiting}:
                poll.interrupt()
            return
        for poll in found:
            poll.tell(shard, offset, event)


class ChangeRequest(ABC):
    """A request for changes that gets one response, unless it is cancelled."""

    def __init__(self, done: Done) -> None:
        self.done: Done | None = done
        self.found = list[tuple[InventoryChange, str]]()
        self.scope = FeedScope("")

    @abstractmethod
    def leave(self) -> None:
        """Stop waiting."""

    @abstractmethod
    def position(self) -> str:
        """The position after all events that were read."""

    def cancel(self) -> None:
        """The client no longer waits."""
        self.done = None
        self.leave()

    def end(self, answer: ChangePage | DuramenError) -> None:
        """Respond."""
        done, self.done = self.done, None
        self.leave()
        if done is not None:
            done(answer)

    def answer(self) -> None:
        """Respond with the changes found."""
        self.end(ChangePage(self.found, self.position(), self.scope))


class Poll(ChangeRequest):
    """One poll for changes."""

    def __init__(self, feed: InventoryFeed, shards: InventoryShards, limit: int, wait_ms: int, done: Done) -> None:
        super().__init__(done)
        self._feed = feed
        self._shards = shards
        self._limit = limit
        self._wait_ms = wait_ms
        self._keys = frozenset[FeedKey]()
        self._next = list[int]()
        self._pieces = _PIECES
        self._entered = list[tuple[InventoryShard, int]]()

    def prepare(self, scope: Callable[[], FeedScope], position: str) -> None:
        """Resolve the scope and the position. Raises InventoryPositionLost, RequestInvalid."""
        self.scope = scope()
        self._keys = scope_keys(self.scope)
        self._shards.rows()  # raises unless all shards are loaded
        ends = [self._shards.applied_offset(shard) for shard in range(self._shards.count)]
        self._next = ends if not position else read_position(position, ends)

    def begin(self, error: DuramenError | None) -> None:
        """Read the changes after the position."""
        if error is not None:
            self.end(error)
        else:
            self._go_on()

    def leave(self) -> None:
        """See `ChangeRequest`."""
        self._feed.leave(self, self._keys)

    def position(self) -> str:
        """See `ChangeRequest`."""
        return ",".join(map(str, self._next))

    # -- reading ------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self.done is None:
            return
        behind = (shard for shard, at in enumerate(self._next) if at < self._shards.applied_offset(shard))
        shard = next(behind, None)
        if len(self.found) >= self._limit or self._pieces <= 0:
            self.answer()
        elif shard is not None:
            self._pieces -= 1
            self._read(shard)
        elif self.found or not self._wait_ms:
            self.answer()
        else:
            self._entered = self._loaded()
            self._feed.enter(self, self._keys)  # in the same turn in which the log ends, so that no event is missed
            self._shards.later(self._wait_ms, self._waited)

    def _read(self, shard: int) -> None:
        self._feed.reader.read(shard, self._next[shard], partial(self._take, shard), self._read_some)

    def _read_some(self, error: DuramenError | None) -> None:
        if error is None:
            self._go_on()
        else:
            self.end(error)

    def _take(self, shard: int, offset: int, event: InventoryEvent) -> bool:
        self._next[shard] = offset + 1
        directory = self._shards.directory()
        if not self._keys.isdisjoint(event_keys(event, shard, directory)):
            change = change_of(event, shard, self.scope, directory, self._shards.inventory_id)
            if change is not None:
                self.found.append((change, self.position()))
        return len(self.found) < self._limit

    # -- waiting ------------------------------------------------------------------------------------

    def tell(self, shard: int, offset: int, event: InventoryEvent) -> None:
        """A change with one of its keys, while it waits."""
        change = change_of(event, shard, self.scope, self._shards.directory(), self._shards.inventory_id)
        if change is None or self.done is None:
            return
        self._next[shard] = offset + 1
        self.found.append((change, self.position()))
        if len(self.found) == 1:
            self._feed.reader.soon(self._waited)  # with all further events of this turn

    def interrupt(self) -> None:
        """The poll may miss events from now on: the next request reads the changes after the position."""
        if self.done is not None:
            self._feed.reader.soon(self.answer)

    def _loaded(self) -> list[tuple[InventoryShard, int]]:
        return [(shard, shard.loads) for shard in self._shards.loaded()]

    def _waited(self) -> None:
        """Respond. If the poll was notified of every event with its keys, it need not read the applied ones."""
        loaded = self._loaded()
        if len(loaded) == self._shards.count and loaded == self._entered:
            self._next = [self._shards.applied_offset(shard) for shard in range(self._shards.count)]
        self.answer()


def _lost(shard: int, offset: int, start: int) -> str:
    return f"the log of shard {shard} no longer has records before offset {start}, and the position has {offset}"


def read_position(position: str, ends: Sequence[int]) -> list[int]:
    """The offset in each shard. Raises RequestInvalid, InventoryPositionLost."""
    try:
        offsets = [int(part) for part in position.split(",")]
    except ValueError:
        offsets = []
    if len(offsets) != len(ends) or min(offsets) < 0:
        raise RequestInvalid(f"{position[:80]!r} is not a position of this inventory; use the `position` of a response")
    for shard, (offset, end) in enumerate(zip(offsets, ends, strict=True)):
        if offset > end:
            raise InventoryPositionLost(f"the log of shard {shard} ends at {end}, and the position has {offset}")
    return offsets
