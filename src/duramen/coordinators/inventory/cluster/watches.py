"""Changes in the shards that this node leads, sent to the nodes whose clients subscribe to them.

The keys of an event depend on the directory: the event is examined with one that is read after the event was applied.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from duramen.base.errors import DuramenError, InventoryPositionLost, NotLeader
from duramen.coordinators.inventory.cluster.requests import (
    READ_CHANGES,
    WATCH_CHANGES,
    ChangesRead,
    ChangesWatched,
    ReadChanges,
    WatchChanges,
)
from duramen.coordinators.inventory.cluster.shards import RoutedShards
from duramen.coordinators.inventory.feed import EventReader
from duramen.coordinators.inventory.shard import InventoryShard
from duramen.inventory.directory import Directory
from duramen.inventory.events import InventoryEvent
from duramen.inventory.feed import FeedKey, InventoryChange, change_of, event_keys, scope_keys
from duramen.rpc.server import Done, RpcServer

__all__ = ["ShardWatches"]

_PIECES: Final = 64
_MOST_NAMES: Final = 20_000
_LOOK_MS: Final = 500
"""The period within which a watch learns that its shard moved to another leader or was reloaded."""


class ShardWatches:
    """Serves READ_CHANGES and WATCH_CHANGES. A node has one watch per shard: the newest."""

    def __init__(self, shards: RoutedShards, reader: EventReader, server: RpcServer) -> None:
        self.shards = shards
        self.reader = reader
        self._watches: dict[tuple[int, int], _Watch] = {}
        self._applied: dict[int, list[tuple[int, InventoryEvent]]] = {}
        """The events of each shard that no watch was notified of yet."""
        server.handle(READ_CHANGES, self.read)
        server.handle(WATCH_CHANGES, self.watch)

    def read(self, request: ReadChanges, done: Done[ChangesRead]) -> None:
        """Read the changes in a scope. Raises NotLeader."""
        self._begin(request, done, partial(_Page, self, request, done))

    def watch(self, request: WatchChanges, done: Done[ChangesWatched]) -> None:
        """Wait for a change that has one of some keys. Raises NotLeader."""
        place = request.node, request.shard
        before = self._watches.pop(place, None)
        if before is not None:
            before.end()

        def begin(at: int) -> _Reading:
            later = self._watches.get(place)
            if later is not None:
                later.end()
            self._watches[place] = _Watch(self, request, done, at)
            return self._watches[place]

        self._begin(request, done, begin)

    def _begin(
        self, request: ReadChanges | WatchChanges, refuse: Callable[[DuramenError], None],
        begin: Callable[[int], "_Reading"],
    ) -> None:  # fmt: skip
        """Read from a request's offset on, once this leader has applied all that the asking node has seen."""
        shard = request.shard
        self.shards.check_led(shard)
        epoch = self.epoch(shard)
        if epoch < request.epoch:
            raise NotLeader(f"a newer leader of part {shard} of the inventory is known elsewhere")

        def beyond(end_offset: int) -> InventoryPositionLost:
            ends = f"the log of shard {shard} ends at {end_offset}"
            return InventoryPositionLost(f"{ends}, and the position has {request.offset}")

        def there(applied: object) -> None:
            if isinstance(applied, DuramenError):
                refuse(applied)
            elif request.offset > self.shards.applied_offset(shard):
                refuse(beyond(self.shards.applied_offset(shard)))
            else:
                begin(self.shards.applied_offset(shard) if request.offset < 0 else request.offset).go_on()

        if epoch == request.epoch and request.offset > self.shards.log(shard).end_offset:
            raise beyond(self.shards.log(shard).end_offset)
        # A newer leader has every record that was acknowledged before.
        self.shards.when_applied(shard, request.offset if epoch == request.epoch else 0, there)

    def epoch(self, shard: int) -> int:
        """The epoch in which this node leads a shard."""
        return self.shards.place(shard)[0]

    # -- waiting ------------------------------------------------------------------------------------

    def enter(self, watch: "_Watch") -> None:
        """Start to notify a watch of the changes in its shard."""
        for shard in self.shards.loaded():
            if shard.index == watch.shard:
                shard.told = self._told

    def leave(self, watch: "_Watch") -> None:
        """Stop to notify it."""
        if self._watches.get(watch.place) is watch:
            del self._watches[watch.place]
        if not any(shard == watch.shard for _, shard in self._watches):
            for shard in self.shards.loaded():
                if shard.index == watch.shard:
                    shard.told = None

    def passed_offset(self, shard: int) -> int:
        """The watches of a shard were notified of all events below this offset."""
        waiting = self._applied.get(shard)
        return waiting[0][0] if waiting else self.shards.applied_offset(shard)

    def _told(self, shard: int, offset: int, event: InventoryEvent) -> None:
        waiting = self._applied.setdefault(shard, [])
        waiting.append((offset, event))
        if len(waiting) == 1:
            self.reader.soon(partial(self._examine, shard))  # with all further events of this turn

    def _examine(self, shard: int) -> None:
        if any(of == shard for _, of in self._watches):
            self.shards.read(self.shards.directory, partial(self._tell, shard, len(self._applied[shard])))
        else:
            del self._applied[shard]

    def _tell(self, shard: int, count: int, directory: Directory | DuramenError) -> None:
        """Notify the watches of the first `count` events; without a directory later."""
        if isinstance(directory, DuramenError):
            self.shards.later(_LOOK_MS, partial(self._examine, shard))
            return
        waiting = self._applied.pop(shard)
        watches = [one for (_, of), one in self._watches.items() if of == shard]
        for offset, event in waiting[:count]:
            keys = event_keys(event, shard, directory)
            for watch in watches:
                watch.tell(offset, keys)
        if waiting[count:]:
            self._applied[shard] = waiting[count:]
            self._examine(shard)


class _Reading:
    """Reads the events of a shard from an offset on."""

    def __init__(self, watches: ShardWatches, request: ReadChanges | WatchChanges, at: int) -> None:
        self.watches = watches
        self.shard = request.shard
        self.next = at
        self.over = False
        self.directory = Directory()
        """It is at least as new as the events below `_known`."""
        self._known = 0
        self._pieces = _PIECES

    def go_on(self) -> None:
        """Read on until the end of the log, or until there is enough."""
        if self.over:
            return
        shards = self.watches.shards
        try:
            shards.check_led(self.shard)
        except DuramenError as error:
            self.fail(error)
            return
        applied = shards.applied_offset(self.shard)
        if self.next >= applied or not self._pieces or self.is_enough:
            self.read_all(caught_up=self.next >= applied)
        elif self.next >= self._known:
            shards.read(shards.directory, partial(self._has_directory, applied))
        else:
            self._pieces -= 1
            self.watches.reader.read(self.shard, self.next, self._take_known, self._read_some)

    def _has_directory(self, known: int, directory: Directory | DuramenError) -> None:
        if self.over:
            return
        if isinstance(directory, DuramenError):
            self.fail(directory)
        else:
            self.directory, self._known = directory, known
            self.go_on()

    def _take_known(self, offset: int, event: InventoryEvent) -> bool:
        return offset < self._known and self.take(offset, event)

    def _read_some(self, error: DuramenError | None) -> None:
        if error is None:
            self.go_on()
        elif not self.over:
            self.fail(error)

    def take(self, offset: int, event: InventoryEvent) -> bool:
        """Process one event; returns whether more are wanted."""
        raise NotImplementedError

    @property
    def is_enough(self) -> bool:
        """Whether no more events are wanted."""
        raise NotImplementedError

    def read_all(self, *, caught_up: bool) -> None:
        """Reading has ended: there is enough, or the log has no more."""
        raise NotImplementedError

    def fail(self, error: DuramenError) -> None:
        """The log cannot be read."""
        raise NotImplementedError


class _Page(_Reading):
    """The changes in a scope, up to a limit."""

    def __init__(self, watches: ShardWatches, request: ReadChanges, done: Done[ChangesRead], at: int) -> None:
        super().__init__(watches, request, at)
        self._scope = request.scope
        self._keys = scope_keys(request.scope)
        self._limit = request.limit
        self._done = done
        self._changes = list[tuple[int, InventoryChange]]()
        self._names = _MOST_NAMES

    @property
    def is_enough(self) -> bool:
        """See `_Reading`."""
        return len(self._changes) >= self._limit or self._names <= 0

    def take(self, offset: int, event: InventoryEvent) -> bool:
        """See `_Reading`."""
        self.next = offset + 1
        if not self._keys.isdisjoint(event_keys(event, self.shard, self.directory)):
            inventory_id = self.watches.shards.inventory_id
            change = change_of(event, self.shard, self._scope, self.directory, inventory_id)
            if change is not None:
                self._changes.append((self.next, change))
                self._names -= len(change.topics)
        return not self.is_enough

    def read_all(self, *, caught_up: bool) -> None:
        """See `_Reading`."""
        self._done(ChangesRead(self.watches.epoch(self.shard), self.next, self._changes, more=not caught_up))

    def fail(self, error: DuramenError) -> None:
        """See `_Reading`."""
        self._done(error)


class _Watch(_Reading):
    """A node that waits for a change with one of some keys."""

    def __init__(self, watches: ShardWatches, request: WatchChanges, done: Done[ChangesWatched], at: int) -> None:
        super().__init__(watches, request, at)
        self.place = request.node, request.shard
        self._keys = frozenset[FeedKey](request.keys)
        self._found = set[FeedKey]()
        self._done = done
        self._wait_ms = request.wait_ms
        self._entered: list[tuple[InventoryShard, int]] | None = None

    @property
    def is_enough(self) -> bool:
        """See `_Reading`."""
        return bool(self._found)

    def take(self, offset: int, event: InventoryEvent) -> bool:
        """See `_Reading`."""
        self.next = offset + 1
        self._found |= self._keys & event_keys(event, self.shard, self.directory)
        return True

    def read_all(self, *, caught_up: bool) -> None:
        """See `_Reading`: without a change, wait."""
        if self._found or not caught_up:
            self.end()
            return
        self.watches.enter(self)  # in the same turn in which the log ends, so that no event is missed
        self._entered = self._loaded()
        self.watches.shards.later(self._wait_ms, self._late)
        self.watches.shards.later(_LOOK_MS, self._look)

    def tell(self, offset: int, keys: set[FeedKey]) -> None:
        """Note an event of the shard."""
        if self.over or self._entered is None or offset < self.next:
            return
        ends, self.next = bool(self._found), offset + 1
        self._found |= self._keys & keys
        if self._found and not ends:
            self.watches.reader.soon(self.end)  # with all further events of this turn

    def _loaded(self) -> list[tuple[InventoryShard, int]]:
        return [(shard, shard.loads) for shard in self.watches.shards.loaded() if shard.index == self.shard]

    def _look(self) -> None:
        """End the watch if the shard was reloaded or moved: it may miss events."""
        if self.over:
            return
        if self._loaded() != self._entered:
            self.fail(NotLeader(f"part {self.shard} of the inventory is read anew"))
        else:
            self.watches.shards.later(_LOOK_MS, self._look)

    def _late(self) -> None:
        if self.over:
            return
        if self._loaded() == self._entered:
            # The watch was notified of every event with its keys: it need not read those that were applied.
            self.next = max(self.next, self.watches.passed_offset(self.shard))
        self.end()

    def end(self) -> None:
        """Respond with the keys found."""
        self._end(lambda: ChangesWatched(self.watches.epoch(self.shard), self.next, sorted(self._found, key=repr)))

    def fail(self, error: DuramenError) -> None:
        """See `_Reading`."""
        self._end(lambda: error)

    def _end(self, answer: Callable[[], ChangesWatched | DuramenError]) -> None:
        if not self.over:
            self.over = True
            self.watches.leave(self)
            self._done(answer())
