"""Leases on entries of several queues: fair over queues, with waiting, and a dead-letter queue."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from duramen.base.catalogue.queues import DEAD_LETTER_QUEUE, DELIVERY_COUNT_LIMIT
from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError, QueueRequestReused
from duramen.broker.streams import Stream
from duramen.codec.partitioner import partition_of
from duramen.queues.leases import Leased, LeasedEntry, answered_size
from duramen.queues.operations import NewEntry
from duramen.queues.positions import position_text
from duramen.service.broker import Broker
from duramen.service.led_queues import LedQueues
from duramen.service.queue_wait import QueueWait
from duramen.service.queues import Enqueued, QueueRequests, request_of
from duramen.service.shard_queries import LeaseQuery, WaitQuery

__all__ = ["LeasePoll", "LeaseRequest"]

_HEADER: Final = b"duramen-dead-letter-"
_WAIT_MS: Final = 5_000
_AT_ONCE: Final = 50
"""Queues that are looked through in one turn: a few milliseconds at most."""


class LeaseRequest(NamedTuple):
    """A request to lease `most` entries of these queues for `lease_ms`; it waits if there are none.

    With `fifo` a queue has one lease at a time, and delivers its entries in order. `max_bytes` is of all entries; the
    first may be larger, except `as_json`, where it is the size of a JSON response.
    """

    queues: Sequence[bytes]
    most: int
    lease_ms: int
    wait_ms: int = 0
    fifo: bool = False
    max_bytes: int = 1 << 20
    as_json: bool = False


def _parts(space: Stream, names: Sequence[bytes], turn: int) -> list[tuple[int, list[bytes]]]:
    """Queues by their shards, some at a time, beginning with that one."""
    first, shards = turn % max(1, len(names)), dict[int, list[bytes]]()
    for name in [*names[first:], *names[:first]]:
        shards.setdefault(partition_of(name, space.shards), []).append(name)
    return [
        (shard, queues[begin : begin + _AT_ONCE])
        for shard, queues in shards.items()
        for begin in range(0, len(queues), _AT_ONCE)
    ]


class _PartWait:
    """The wait of a request for one of its parts; `watched`: this node leads the shard, and reports its changes."""

    def __init__(self, wait: QueueWait) -> None:
        self._wait = wait
        self.watched = False

    @property
    def over(self) -> bool:
        return self._wait.over

    def watch(self, leave: Iterable[Callable[[], None]]) -> None:
        self.watched = True
        self._wait.watch(leave)

    def wake(self) -> None:
        self._wait.wake()


class LeasePoll:
    """A request for leases in progress. `done` gets the leased entries, or the error."""

    def __init__(
        self, broker: Broker, requests: QueueRequests, space: Stream, request: LeaseRequest, turn: int,
        done: Callable[[list[Leased] | DuramenError], None],
    ) -> None:  # fmt: skip
        """`turn` selects the first queue, so that no queue is first each time."""
        self._broker = broker
        self._requests = requests
        self._shards = requests.shards
        self._space = space
        self._request = request
        self._done = done
        self._parts = _parts(space, request.queues, turn)
        self._left: list[tuple[int, int]] = []  # parts that are still to be asked, and for how many entries
        self._full: list[int] = []  # parts that may have more
        self._looked_through = 0  # queues, since others had their turn
        self._found: list[Leased] = []
        self._room = request.max_bytes
        self._dead: list[Leased] = []
        self._error: DuramenError | None = None
        self._elsewhere: dict[int, Callable[[], None]] = {}  # parts that are waited for at other nodes
        self._wait = QueueWait(broker, request.wait_ms, self._ask_all, self._answer_found)
        dead_letters = space.config.text(DEAD_LETTER_QUEUE).encode()
        self._dead_letters = dead_letters
        self._deliveries = space.config.integer(DELIVERY_COUNT_LIMIT) if dead_letters else 0

    def begin(self) -> None:
        """Ask the shards."""
        self._wait.begin()

    def end(self) -> None:
        """Wait for nothing any more."""
        self._wait.end()
        self._leave_elsewhere()

    # -- asking the shards --------------------------------------------------------------------------

    def _ask_all(self) -> None:
        self._full = []
        count, queues, left = self._request.most, len(self._request.queues), list[tuple[int, int]]()
        for part, (_, some) in enumerate(self._parts):
            share = -(-count * len(some) // queues)
            left.append((part, share))
            count, queues = count - share, queues - len(some)
        self._left = [one for one in left if one[1]]
        self._full = [part for part, share in left if not share]
        self._ask_next()

    def _ask_next(self) -> None:
        if self._wait.over:
            return
        missing = 0 if self._room <= 0 else self._request.most - len(self._found)
        if not self._left and missing > 0 and self._full:
            self._left, self._full = [(part, missing) for part in self._full], []
        if not self._left or missing <= 0:
            self._asked()
            return
        part, share = self._left.pop(0)
        shard, queues = self._parts[part]
        most, request = min(share, missing), self._request
        query = LeaseQuery(
            queues, most, request.lease_ms, self._room, request.fifo, self._deliveries, self._dead_letters,
            request.as_json,
        )  # fmt: skip
        waiter = _PartWait(self._wait)
        self._shards.ask(self._space, shard, query, partial(self._got, part, most, waiter), waiter)

    def _got(self, part: int, most: int, waiter: "_PartWait", answer: object) -> None:
        if self._wait.over:
            return
        if isinstance(answer, DuramenError):
            self._error = answer
            self._ask_next()  # others may have something
            return
        leased = cast("list[Leased]", answer)
        alive = [one for one in leased if not one.dead]
        self._found += alive
        self._room -= sum(answered_size(one, as_json=self._request.as_json) for one in alive)
        self._dead += [one for one in leased if one.dead]
        if len(alive) >= most:
            self._full.append(part)
        if not alive and not waiter.watched:
            self._wait_elsewhere(part)
        self._looked_through += len(self._parts[part][1])
        if self._looked_through < _AT_ONCE:
            self._ask_next()
        else:
            self._looked_through = 0
            self._broker.later(0, self._ask_next)  # others get their turn

    def _wait_elsewhere(self, part: int) -> None:
        """Wait for the queues of a shard at the node that leads it, for some time: others may lead it then."""
        if part in self._elsewhere or not self._request.wait_ms:
            return
        shard, queues = self._parts[part]
        query = WaitQuery(queues, self._request.fifo, min(self._request.wait_ms, _WAIT_MS))

        def woken(_: object) -> None:
            self._elsewhere.pop(part, None)
            self._wait.wake()

        self._elsewhere[part] = lambda: None
        end = self._shards.wait(self._space, shard, query, woken)
        if part in self._elsewhere:
            self._elsewhere[part] = end

    def _asked(self) -> None:
        dead, self._dead = self._dead, []
        if dead and not self._found:
            self._move(dead, self._end_round)  # the next request finds them in the dead-letter queue
            return
        self._move(dead, lambda: None)
        self._end_round()

    def _end_round(self) -> None:
        error, self._error = self._error, None
        if error is not None and not self._found:
            self._answer(error)
        else:
            self._wait.ended(found=bool(self._found))

    def _answer_found(self) -> None:
        self._answer(self._found)

    def _answer(self, answer: list[Leased] | DuramenError) -> None:
        if self._wait.end():
            self._leave_elsewhere()
            self._done(answer)

    def _leave_elsewhere(self) -> None:
        elsewhere, self._elsewhere = self._elsewhere, {}
        for end in elsewhere.values():
            end()

    # -- dead letters -------------------------------------------------------------------------------

    def _move(self, dead: Sequence[Leased], done: Callable[[], None]) -> None:
        """Add entries to the dead-letter queue, then acknowledge them; a repeat adds nothing twice.

        If it fails, it is retried with the next lease, because the present one expires. `done` is called at the end.
        """
        parts = Countdown(done, len(dead))

        def ended(_: object) -> None:
            parts.count_down()

        for one in dead:
            position, shard = position_text(one.entry.position), partition_of(one.queue, self._space.shards)
            request = request_of(self._space, f"duramen dead letter {shard}/{position}")
            headers = (
                *one.entry.headers, (_HEADER + b"queue", one.queue), (_HEADER + b"position", position.encode()),
                (_HEADER + b"deliveries", b"%d" % (one.deliveries - 1)),
            )  # fmt: skip
            entry = NewEntry(one.entry.value, one.entry.key, headers, one.entry.timestamp)
            moved = partial(self._moved, one, ended)
            self._requests.enqueue(self._space, [(self._dead_letters, entry)], moved, request, moved=True)

    def _moved(self, one: Leased, ended: Callable[[object], None], found: Enqueued) -> None:
        if found.error is not None and not isinstance(found.error, QueueRequestReused):
            ended(found.error)
            return
        # QueueRequestReused: it was moved before, with another count of deliveries.
        entry = LeasedEntry(one.entry.position, one.lease)
        LedQueues(self._broker, self._shards).acknowledge(self._space, [(one.queue, entry)], ended)
