"""Leases on entries of several queues: fair over them, waited for, and dead entries moved to the dead-letter queue."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from duramen.base.catalogue_queues import DEAD_LETTER_QUEUE, DELIVERY_COUNT_LIMIT
from duramen.base.errors import DuramenError, QueueRequestReused
from duramen.base.ports import StateRows
from duramen.broker.streams import Stream
from duramen.codec.partitioner import partition_of
from duramen.coordinators.queue.shard import QueueShard, hash_of
from duramen.queues.leases import Leased, LeasedEntry, LeaseWish
from duramen.queues.names import Queue
from duramen.queues.operations import NewEntry
from duramen.queues.positions import position_text
from duramen.service.broker import Broker
from duramen.service.led_queues import LedQueues
from duramen.service.queue_wait import QueueWait
from duramen.service.queues import Enqueued, QueueRequests, patiently, request_of

__all__ = ["LeasePoll", "LeaseRequest"]

_HEADER: Final = b"duramen-dead-letter-"
_AT_ONCE: Final = 50
"""Queues that are looked through in one turn: a few milliseconds at most."""


class LeaseRequest(NamedTuple):
    """What is to be leased: `most` entries of these queues in all, for `lease_ms`; waited for where there is none.

    With `fifo` a queue has one lease at a time, and its entries come in their order.
    """

    queues: Sequence[bytes]
    most: int
    lease_ms: int
    wait_ms: int = 0
    fifo: bool = False
    max_bytes: int = 1 << 20


def _parts(space: Stream, names: Sequence[bytes], turn: int) -> list[tuple[int, list[Queue]]]:
    """Queues by their shards, some at a time, beginning with that one."""
    hash_name, first = hash_of(space.id), turn % max(1, len(names))
    shards = dict[int, list[Queue]]()
    for name in [*names[first:], *names[:first]]:
        shards.setdefault(partition_of(name, space.shards), []).append(Queue(name, hash_name(name)))
    return [
        (shard, queues[begin : begin + _AT_ONCE])
        for shard, queues in shards.items()
        for begin in range(0, len(queues), _AT_ONCE)
    ]


class LeasePoll:
    """A request for leases. `done` gets what was leased, or why nothing can be."""

    def __init__(
        self, broker: Broker, requests: QueueRequests, space: Stream, request: LeaseRequest, turn: int,
        done: Callable[[list[Leased] | DuramenError], None],
    ) -> None:  # fmt: skip
        """`turn` says with which queue it begins, so that no queue comes first each time."""
        self._broker = broker
        self._requests = requests
        self._space = space
        self._request = request
        self._done = done
        self._parts = _parts(space, request.queues, turn)
        self._left: list[tuple[int, int]] = []  # parts that are still to be asked, and for how many entries
        self._full: list[int] = []  # parts that may have more
        self._looked_through = 0  # queues, since others had their turn
        self._found: list[Leased] = []
        self._dead: list[Leased] = []
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
        missing = self._request.most - len(self._found)
        if not self._left and missing > 0 and self._full:
            self._left, self._full = [(part, missing) for part in self._full], []
        if not self._left or missing <= 0:
            self._asked()
            return
        part, share = self._left.pop(0)
        shard, queues = self._parts[part]
        partition = self._space.partition(shard)
        most = min(share, missing)
        query = partial(self._query, queues, most, partition.leader_epoch)
        read = partial(
            self._broker.coordinators.read, self._space.name, shard, query, at_least=partition.log.high_watermark
        )
        patiently(self._broker, read, partial(self._got, part, most))

    def _query(
        self, queues: Sequence[Queue], most: int, leader_epoch: int, shard: QueueShard, rows: StateRows
    ) -> list[Leased]:
        """Lease in a shard: as many of each queue, then what others leave."""
        now_ms, request, found = self._broker.now_ms(), self._request, list[Leased]()
        share, asked, left = max(1, most // len(queues)), list(queues), most
        while asked and left > 0 and not self._wait.over:
            more = list[Queue]()
            for queue in asked:
                some, size = min(share, left), request.max_bytes
                if some <= 0:
                    break
                limit = 0 if queue.name == self._dead_letters else self._deliveries
                wish = LeaseWish(some, size, now_ms + request.lease_ms, request.fifo, limit)
                leased = shard.leases.lease(rows, queue, wish, now_ms, leader_epoch)
                alive = sum(not one.dead for one in leased)
                left -= alive
                found += leased
                if alive == some and not request.fifo:
                    more.append(queue)
            asked, share = more, left
        if left == most and not self._wait.over:
            # In the turn of the read: nothing comes between.
            self._wait.watch(shard.wait(queue.hash, self._wait.wake) for queue in queues)
        return found

    def _got(self, part: int, most: int, answer: object) -> None:
        if self._wait.over:
            return
        if isinstance(answer, DuramenError):
            if self._found or self._dead:
                self._ask_next()  # what other shards have is leased already
            else:
                self._answer(answer)
            return
        leased = cast("list[Leased]", answer)
        alive = [one for one in leased if not one.dead]
        self._found += alive
        self._dead += [one for one in leased if one.dead]
        if len(alive) >= most:
            self._full.append(part)
        self._looked_through += len(self._parts[part][1])
        if self._looked_through < _AT_ONCE:
            self._ask_next()
        else:
            self._looked_through = 0
            self._broker.later(0, self._ask_next)  # others get their turn

    def _asked(self) -> None:
        dead, self._dead = self._dead, []
        if dead and not self._found:
            self._move(dead, self._end_round)  # whoever asks next finds them in the dead-letter queue
            return
        self._move(dead, lambda: None)
        self._end_round()

    def _end_round(self) -> None:
        self._wait.ended(found=bool(self._found))

    def _answer_found(self) -> None:
        self._answer(self._found)

    def _answer(self, answer: list[Leased] | DuramenError) -> None:
        if self._wait.end():
            self._done(answer)

    # -- dead letters -------------------------------------------------------------------------------

    def _move(self, dead: Sequence[Leased], done: Callable[[], None]) -> None:
        """Put entries into the dead-letter queue, then acknowledge them; a repeat puts nothing in twice.

        What fails is tried again with the next lease: theirs expires. `done` is called once all is over.
        """
        left = len(dead)

        def ended(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for one in dead:
            position, shard = position_text(one.entry.position), partition_of(one.queue, self._space.shards)
            request = request_of(self._space, f"duramen dead letter {shard}/{position}")
            headers = (
                *one.entry.headers, (_HEADER + b"queue", one.queue), (_HEADER + b"position", position.encode()),
                (_HEADER + b"deliveries", b"%d" % (one.deliveries - 1)),
            )  # fmt: skip
            entry = NewEntry(one.entry.value, one.entry.key, headers, one.entry.timestamp)
            moved = partial(self._moved, one, ended)
            try:
                self._requests.enqueue(self._space, [(self._dead_letters, entry)], moved, request)
            except DuramenError as error:
                ended(error)

    def _moved(self, one: Leased, ended: Callable[[object], None], found: Enqueued) -> None:
        if found.error is not None and not isinstance(found.error, QueueRequestReused):
            ended(found.error)
            return
        # QueueRequestReused: it was moved before, with another count of deliveries.
        entry = LeasedEntry(one.entry.position, one.lease)
        LedQueues(self._broker).acknowledge(self._space, [(one.queue, entry)], ended)
