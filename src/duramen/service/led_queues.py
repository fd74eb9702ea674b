"""What only the node that leads a shard knows of its queues: leases, names, how much is in a queue."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, cast

from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.broker.streams import Stream
from duramen.codec.partitioner import partition_of
from duramen.coordinators.queue.shard import QueueOutcome, QueueShard, hash_of
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.queues.leases import LeasedEntry
from duramen.queues.machine import Ack, Nack, QueueCommand, check_size
from duramen.queues.reading import Counted, Names, count_entries, names
from duramen.queues.requests import RequestId
from duramen.service.broker import Broker
from duramen.service.queues import patiently, queue_of

__all__ = ["LedQueues", "Refused"]

Refused = Mapping[int, DuramenError]
"""Why entries of a request were refused, by their numbers in it."""

_LOOKED_AT: Final = 10_000  # entries or names in one turn


class LedQueues:
    """The queues of the shards that this node leads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def acknowledge(
        self, space: Stream, entries: Sequence[tuple[bytes, LeasedEntry]], done: Callable[[Refused], None],
        request: RequestId | None = None, release_ms: int | None = None,
    ) -> None:  # fmt: skip
        """Acknowledge leased entries; with `release_ms` give them back, to be leased again after that time.

        `done` gets those that were refused. Raises QueueBatchTooLarge, and nothing is done then.
        """
        by_shard: dict[int, list[int]] = {}
        for number, (queue, _) in enumerate(entries):
            by_shard.setdefault(partition_of(queue, space.shards), []).append(number)
        commands = dict[int, QueueCommand]()
        for shard, numbers in by_shard.items():
            some = [(queue_of(space, entries[number][0]), entries[number][1]) for number in numbers]
            commands[shard] = Ack(some, request) if release_ms is None else Nack(some, release_ms, request)
            check_size(commands[shard], space.max_message_bytes)
        refused, left = dict[int, DuramenError](), len(commands)

        def answered(shard: int, answer: ShardAnswer | DuramenError) -> None:
            nonlocal left
            left -= 1
            numbers = by_shard[shard]
            if isinstance(answer, DuramenError):
                refused.update(dict.fromkeys(numbers, answer))
            else:
                found = cast("QueueOutcome", answer.response).refused
                refused.update({numbers[place]: error for place, error in found.items()})
            if not left:
                done(dict(sorted(refused.items())))

        for shard, command in commands.items():
            submit = partial(self._broker.coordinators.submit, space.name, shard, command)
            patiently(self._broker, submit, partial(answered, shard))

    def extend(
        self, space: Stream, entries: Sequence[tuple[bytes, LeasedEntry]], lease_ms: int,
        done: Callable[[Refused], None],
    ) -> None:  # fmt: skip
        """Have leases last so much longer from now on; `done` gets the entries of which none is left."""
        refused, left, now_ms = dict[int, DuramenError](), len(entries), self._broker.now_ms()

        def query(queue: bytes, one: LeasedEntry, shard: QueueShard, rows: StateRows) -> None:
            shard.leases.extend(rows, queue_of(space, queue), one, now_ms + lease_ms, now_ms)

        def answered(number: int, answer: object) -> None:
            nonlocal left
            left -= 1
            if isinstance(answer, DuramenError):
                refused[number] = answer
            if not left:
                done(dict(sorted(refused.items())))

        for number, (queue, one) in enumerate(entries):
            shard = partition_of(queue, space.shards)
            self._ask(space, shard, partial(query, queue, one), partial(answered, number))

    def _ask(
        self, space: Stream, shard: int, query: Callable[[QueueShard, StateRows], object],
        done: Callable[[object], None],
    ) -> None:  # fmt: skip
        """What a query finds in a shard that has all that was acknowledged."""
        at_least = space.partition(shard).log.high_watermark
        read = partial(self._broker.coordinators.read, space.name, shard, query, at_least=at_least)
        patiently(self._broker, read, done)

    def names(
        self, space: Stream, prefix: bytes, after: tuple[int, bytes], limit: int,
        done: Callable[[tuple[list[bytes], tuple[int, bytes] | None] | DuramenError], None],
    ) -> None:  # fmt: skip
        """Names of queues behind a place, in no order that means something, and the place of the next ones."""
        shard, behind = after

        def answered(answer: object) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
                return
            found = cast("Names", answer)
            if found.next is not None:
                done((found.names, (shard, found.next)))
            elif shard + 1 >= space.shards:
                done((found.names, None))
            elif len(found.names) >= limit:
                done((found.names, (shard + 1, b"")))
            else:
                more = partial(_with_more, found.names, done)
                self.names(space, prefix, (shard + 1, b""), limit - len(found.names), more)

        self._ask(space, shard, lambda _, rows: names(rows, prefix, behind, limit, _LOOKED_AT), answered)

    def count(
        self, space: Stream, queue: bytes, done: Callable[[tuple[Counted, int] | DuramenError], None]
    ) -> None:  # fmt: skip
        """What is in a queue, and how many of its entries are leased."""
        hashed, counted = hash_of(space.id)(queue), Counted(0, 0, 0, None, None, 0, 0)

        def query(shard: QueueShard, rows: StateRows) -> tuple[Counted, int]:
            found = count_entries(rows, hashed, counted.next, _LOOKED_AT, self._broker.now_ms())
            return found, shard.leases.count(hashed)

        def answered(answer: object) -> None:
            nonlocal counted
            if isinstance(answer, DuramenError):
                done(answer)
                return
            found, leased = cast("tuple[Counted, int]", answer)
            known = [one.oldest_ms for one in (counted, found) if one.entries]
            counted = Counted(
                counted.entries + found.entries, counted.bytes + found.bytes, counted.delayed + found.delayed,
                counted.first or found.first, found.last or counted.last, min(known, default=0), found.next,
            )  # fmt: skip
            if counted.next < 0:
                done((counted, leased))
            else:
                self._broker.later(0, ask)

        def ask() -> None:
            self._ask(space, partition_of(queue, space.shards), query, answered)

        ask()


def _with_more(
    found: list[bytes], done: Callable[[tuple[list[bytes], tuple[int, bytes] | None] | DuramenError], None],
    more: tuple[list[bytes], tuple[int, bytes] | None] | DuramenError,
) -> None:  # fmt: skip
    done(more if isinstance(more, DuramenError) else ([*found, *more[0]], more[1]))
