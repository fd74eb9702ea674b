"""Subscriptions on a cluster: pages come from the leaders of the shards, one watch per shard serves all clients.

A client's position has the offset in the log of each shard, so it continues at any node, and under any leader.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from duramen.base.errors import DuramenError, InventoryPositionLost, RequestInvalid
from duramen.coordinators.inventory.cluster.requests import (
    READ_CHANGES,
    WATCH_CHANGES,
    ChangesRead,
    ChangesWatched,
    ReadChanges,
    WatchChanges,
)
from duramen.coordinators.inventory.cluster.shards import RoutedShards
from duramen.coordinators.inventory.cluster.watches import ShardWatches
from duramen.coordinators.inventory.feed import ChangeRequest, InventoryFeed
from duramen.coordinators.inventory.shards import Done
from duramen.inventory.feed import FeedKey, FeedScope, scope_keys
from duramen.inventory.positions import split_position
from duramen.storage.store import Store

__all__ = ["ClusterFeed"]

_WATCHED_MS: Final = 5_000
_AGAIN_MS: Final = 500
_FROM_NOW: Final = (-1, -1)
_Place = tuple[int, int]
"""The leader epoch of a shard, and the first offset that was not read."""


class ClusterFeed(InventoryFeed):
    """Like `InventoryFeed`, on any node of a cluster."""

    def __init__(self, shards: RoutedShards, store: Store) -> None:
        super().__init__(shards, store)
        self._routed = shards
        self._told_by = ShardWatches(shards, self.reader, shards.caller.server)
        self._watches: dict[int, _ShardWatch] = {}

    def poll(
        self, scope: Callable[[], FeedScope], position: str, limit: int, wait_ms: int, done: Done
    ) -> Callable[[], None]:
        """See `InventoryFeed`; a position is valid on every node."""
        poll = _ClusterPoll(self, self._routed, limit, wait_ms, done)
        self._routed.read(partial(poll.prepare, scope, position), poll.begin)
        return poll.cancel

    def ask(self, request: ReadChanges, done: Done) -> None:
        """Read changes of a shard from its leader."""
        here = partial(self._told_by.read, request)
        self._routed.ask_leader(request.shard, READ_CHANGES, request, here, done, idempotent=True)

    def ask_to_watch(self, request: WatchChanges, done: Done) -> None:
        """Watch a shard at its leader."""
        here = partial(self._told_by.watch, request)
        self._routed.ask_leader(request.shard, WATCH_CHANGES, request, here, done, idempotent=True)

    def wait(self, poll: "_ClusterPoll") -> None:
        """Wake the poll once a change has one of its keys."""
        for shard in range(self._routed.count):
            watch = self._watches.setdefault(shard, _ShardWatch(self, self._routed, shard))
            watch.enter(poll)

    def forget(self, poll: "_ClusterPoll") -> None:
        """Stop waking the poll."""
        for watch in self._watches.values():
            watch.polls.pop(poll, None)


class _ShardWatch:
    """The watch of one shard for all polls that wait at this node."""

    def __init__(self, feed: ClusterFeed, shards: RoutedShards, shard: int) -> None:
        self._feed = feed
        self._shards = shards
        self._shard = shard
        self.polls: dict[_ClusterPoll, None] = {}
        self._place: _Place = (-1, 0)
        self._keys = frozenset[FeedKey]()
        self._number = 0
        self._watching = False

    def enter(self, poll: "_ClusterPoll") -> None:
        """Add a poll; the watch is renewed unless it covers the poll already."""
        self.polls[poll] = None
        place = poll.places[self._shard]
        if self._watching and poll.keys <= self._keys and place[1] >= self._place[1]:
            return
        behind = not self._watching or place[1] < self._place[1]
        self._place = place if behind else self._place
        self._watch()

    def _watch(self) -> None:
        self._number += 1
        self._watching = True
        self._keys = frozenset().union(*(poll.keys for poll in self.polls))
        request = WatchChanges(
            self._shards.caller.node_id, self._shard, *self._place, sorted(self._keys, key=repr), _WATCHED_MS
        )  # fmt: skip
        self._feed.ask_to_watch(request, partial(self._answered, self._number))

    def _answered(self, number: int, answer: ChangesWatched | DuramenError) -> None:
        if number != self._number:
            return
        self._watching = False
        if isinstance(answer, ChangesWatched):
            self._place = answer.epoch, answer.next
            found = frozenset(answer.keys)
            for poll in list(self.polls):
                if poll.keys.isdisjoint(found):
                    poll.passed(self._shard, self._place)
                else:
                    del self.polls[poll]
                    poll.wake(self._shard)
        elif isinstance(answer, InventoryPositionLost):
            polls, self.polls = self.polls, {}
            for poll in polls:
                poll.wake(self._shard)
        else:
            self._shards.later(_AGAIN_MS, partial(self._again, number))
            return
        if self.polls and number == self._number:
            self._watch()

    def _again(self, number: int) -> None:
        if self.polls and number == self._number:
            self._watch()


class _ClusterPoll(ChangeRequest):
    """One poll for changes."""

    def __init__(self, feed: ClusterFeed, shards: RoutedShards, limit: int, wait_ms: int, done: Done) -> None:
        super().__init__(done)
        self._feed = feed
        self._shards = shards
        self._limit = limit
        self._wait_ms = wait_ms
        self.keys = frozenset[FeedKey]()
        self.places = list[_Place]()
        self._read = dict[int, ChangesRead | DuramenError]()
        self._asked = 0
        self._woken = set[int]()
        self._waits = False
        self._late = False

    def prepare(self, scope: Callable[[], FeedScope], position: str) -> None:
        """Resolve the scope and the position. Raises RequestInvalid."""
        self.scope = scope()
        self.keys = scope_keys(self.scope)
        count = self._shards.count
        self.places = split_position(position) if position else [_FROM_NOW] * count
        if position and (len(self.places) != count or min(offset for _, offset in self.places) < 0):
            raise RequestInvalid(
                f"{position[:80]!r} is no position of this inventory: that is what `position` was in an answer"
            )

    def begin(self, error: DuramenError | None) -> None:
        """Read the changes after the position."""
        if error is not None:
            self.end(error)
            return
        if self._wait_ms:
            self._shards.later(self._wait_ms, self._time_over)
        self._ask(range(len(self.places)))

    def leave(self) -> None:
        """See `ChangeRequest`."""
        self._feed.forget(self)

    def position(self) -> str:
        """See `ChangeRequest`."""
        return ",".join(f"{epoch}.{offset}" for epoch, offset in self.places)

    # -- reading ------------------------------------------------------------------------------------

    def _ask(self, shards: Collection[int]) -> None:
        if not shards:
            self.answer()  # the inventory is empty
        self._read, self._asked = {}, len(shards)
        for shard in shards:
            request = ReadChanges(shard, *self.places[shard], self.scope, self._limit)
            self._feed.ask(request, partial(self._got, shard))

    def _got(self, shard: int, answer: ChangesRead | DuramenError) -> None:
        self._read[shard] = answer
        if self.done is None or len(self._read) < self._asked:
            return
        problems = [one for one in self._read.values() if isinstance(one, DuramenError)]
        lost = next((one for one in problems if isinstance(one, InventoryPositionLost)), None)
        more = [at for at in sorted(self._read) if self._take(at, self._read[at])]
        if lost is not None or (problems and not self.found):
            self.end(lost or problems[0])
        elif self.found:
            self.answer()
        elif more:
            self._ask(more)
        elif not self._wait_ms or self._late:
            self.answer()
        else:
            self._waits = True
            self._feed.wait(self)

    def _take(self, shard: int, read: ChangesRead | DuramenError) -> bool:
        """Add a leader's changes; returns whether there are more to request."""
        if isinstance(read, DuramenError):
            return False
        for offset, change in read.changes:
            if len(self.found) == self._limit:
                return True
            self.places[shard] = read.epoch, offset
            self.found.append((change, self.position()))
        self.places[shard] = read.epoch, read.next
        return read.more

    # -- waiting ------------------------------------------------------------------------------------

    def passed(self, shard: int, place: _Place) -> None:
        """Advance the position: no change up to `place` concerns this poll."""
        if self._waits and place[1] > self.places[shard][1]:
            self.places[shard] = place

    def wake(self, shard: int) -> None:
        """A change in a shard may concern this poll."""
        if not self._woken:
            self._feed.reader.soon(self._read_woken)
        self._woken.add(shard)

    def _read_woken(self) -> None:
        woken, self._woken = self._woken, set()
        if self.done is not None and self._waits:
            self._waits = False
            self._feed.forget(self)
            self._ask(sorted(woken))

    def _time_over(self) -> None:
        self._late = True
        if self._waits:
            self.answer()
