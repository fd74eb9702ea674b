"""Subscriptions to the inventory: what happens to an entity or a prefix from a position on, read or waited for."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt, DuramenError, InventoryPositionLost, RequestInvalid, StorageFailed
from duramen.codec.batch import batches, records
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

__all__ = ["ChangePage", "InventoryFeed"]

_PIECE_BYTES: Final = 256 << 10
_PIECES: Final = 64  # read for one answer


class ChangePage(NamedTuple):
    """Changes in the order of each shard's log, and the position behind them."""

    changes: Sequence[tuple[InventoryChange, str]]
    position: str


class InventoryFeed:
    """Those who wait for changes, by what concerns them."""

    def __init__(self, shards: InventoryShards, store: Store) -> None:
        self._shards = shards
        self.store = store
        self._waiting: dict[FeedKey, dict[Poll, None]] = {}

    def poll(
        self, scope: Callable[[], FeedScope], position: str, limit: int, wait_ms: int, done: Done
    ) -> Callable[[], None]:
        """`done` gets a `ChangePage` of changes from a position on: at once, or as soon as there are some.

        Without a position it begins here. After `wait_ms`, or much that concerns others, the page is empty. Raises to
        `done` InventoryPositionLost, RequestInvalid, and what `scope` raises. Returns what ends it.
        """
        poll = Poll(self, self._shards, limit, wait_ms, done)
        self._shards.read(partial(poll.prepare, scope, position), poll.begin)
        return poll.cancel

    def enter(self, poll: "Poll", keys: frozenset[FeedKey]) -> None:
        """From now on tell it of what has one of its keys."""
        for key in keys:
            self._waiting.setdefault(key, {})[poll] = None
        for shard in self._shards.loaded():
            shard.told = self._told

    def leave(self, poll: "Poll", keys: frozenset[FeedKey]) -> None:
        """Tell it no more."""
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
        except DuramenError:  # whom it concerns is not known now
            for poll in {poll: None for waiting in self._waiting.values() for poll in waiting}:
                poll.interrupt()
            return
        for poll in found:
            poll.tell(shard, offset, event)


class Poll:
    """One request for changes."""

    def __init__(self, feed: InventoryFeed, shards: InventoryShards, limit: int, wait_ms: int, done: Done) -> None:
        self._feed = feed
        self._shards = shards
        self._limit = limit
        self._wait_ms = wait_ms
        self._done: Done | None = done
        self._scope = FeedScope("")
        self._keys = frozenset[FeedKey]()
        self._next = list[int]()
        self._found = list[tuple[InventoryChange, str]]()
        self._pieces = _PIECES
        self._entered = list[tuple[InventoryShard, int]]()

    def prepare(self, scope: Callable[[], FeedScope], position: str) -> None:
        """Find what is followed, and where. Raises InventoryPositionLost, RequestInvalid."""
        if not self._shards.alone:
            raise RequestInvalid("only standalone nodes tell changes of the inventory so far")
        self._scope = scope()
        self._keys = scope_keys(self._scope)
        self._shards.rows()  # all shards are loaded
        ends = [self._shards.applied_offset(shard) for shard in range(self._shards.count)]
        self._next = ends if not position else read_position(position, ends)

    def begin(self, error: DuramenError | None) -> None:
        """Read what there is behind the position."""
        if error is not None:
            self._end(error)
        else:
            self._go_on()

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._done = None
        self._feed.leave(self, self._keys)

    def _end(self, answer: ChangePage | DuramenError) -> None:
        done, self._done = self._done, None
        self._feed.leave(self, self._keys)
        if done is not None:
            done(answer)

    def _answer(self) -> None:
        self._end(ChangePage(self._found, self._position()))

    def _position(self) -> str:
        return ",".join(map(str, self._next))

    # -- reading ------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._done is None:
            return
        behind = (shard for shard, at in enumerate(self._next) if at < self._shards.applied_offset(shard))
        shard = next(behind, None)
        if len(self._found) >= self._limit or self._pieces <= 0:
            self._answer()
        elif shard is not None:
            self._pieces -= 1
            self._read(shard)
        elif self._found or not self._wait_ms:
            self._answer()
        else:
            self._entered = self._loaded()
            self._feed.enter(self, self._keys)  # in the turn in which nothing is left: nothing comes between
            self._shards.later(self._wait_ms, self._waited)

    def _read(self, shard: int) -> None:
        log = self._shards.log(shard)
        try:
            if self._next[shard] < log.start_offset:
                raise InventoryPositionLost(_lost(shard, self._next[shard], log.start_offset))
            plan = log.plan_read(self._next[shard], _PIECE_BYTES)
        except DuramenError as error:
            self._end(error)
            return
        if isinstance(plan, Blocked):
            self._feed.store.unblock(plan, self._unblocked)
        elif plan is None:
            self._end(StorageFailed(f"nothing can be read at offset {self._next[shard]} of shard {shard}"))
        else:
            read_slice(self._feed.store, plan, partial(self._taken, shard))

    def _unblocked(self, error: BaseException | None) -> None:
        if error is None:
            self._go_on()
        else:
            self._end(error if isinstance(error, DuramenError) else StorageFailed(f"reading failed: {error}"))

    def _taken(self, shard: int, data: bytes | DuramenError | OSError) -> None:
        if not isinstance(data, bytes):
            self._end(data if isinstance(data, DuramenError) else StorageFailed(f"reading failed: {data}"))
            return
        end_offset = self._shards.applied_offset(shard)
        try:
            for at, head in batches(data):
                for record in records(data[at : at + head.size]):
                    if self._next[shard] <= record.offset < end_offset and len(self._found) < self._limit:
                        self._take(shard, record.offset, decode_event(record))
        except (BatchCorrupt, DuramenError) as error:
            self._end(error)
            return
        self._feed.store.soon(self._go_on)

    def _take(self, shard: int, offset: int, event: InventoryEvent) -> None:
        self._next[shard] = offset + 1
        directory = self._shards.directory()
        if self._keys.isdisjoint(event_keys(event, shard, directory)):
            return
        change = change_of(event, shard, self._scope, directory, self._shards.inventory_id)
        if change is not None:
            self._found.append((change, self._position()))

    # -- waiting ------------------------------------------------------------------------------------

    def tell(self, shard: int, offset: int, event: InventoryEvent) -> None:
        """Something that concerns it has happened while it waits."""
        change = change_of(event, shard, self._scope, self._shards.directory(), self._shards.inventory_id)
        if change is None or self._done is None:
            return
        self._next[shard] = offset + 1
        self._found.append((change, self._position()))
        if len(self._found) == 1:
            self._feed.store.soon(self._waited)  # with all that comes in this turn

    def interrupt(self) -> None:
        """It may not be told of something: what comes after the position is read by the next request."""
        if self._done is not None:
            self._feed.store.soon(self._answer)

    def _loaded(self) -> list[tuple[InventoryShard, int]]:
        return [(shard, shard.loads) for shard in self._shards.loaded()]

    def _waited(self) -> None:
        """Answer; where it was told of all that concerns it, what is applied need not be read."""
        loaded = self._loaded()
        if len(loaded) == self._shards.count and loaded == self._entered:
            self._next = [self._shards.applied_offset(shard) for shard in range(self._shards.count)]
        self._answer()


def _lost(shard: int, offset: int, start: int) -> str:
    return f"the log of shard {shard} has nothing before offset {start} any more, and the position has {offset}"


def read_position(position: str, ends: Sequence[int]) -> list[int]:
    """The offset in each shard. Raises RequestInvalid, InventoryPositionLost."""
    try:
        offsets = [int(part) for part in position.split(",")]
    except ValueError:
        offsets = []
    if len(offsets) != len(ends) or min(offsets) < 0:
        raise RequestInvalid(
            f"{position[:80]!r} is no position of this inventory: that is what `position` was in an answer"
        )
    for shard, (offset, end) in enumerate(zip(offsets, ends, strict=True)):
        if offset > end:
            raise InventoryPositionLost(f"the log of shard {shard} ends at {end}, and the position has {offset}")
    return offsets
