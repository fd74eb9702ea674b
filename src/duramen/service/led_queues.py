"""Queue state that only shard leaders know, available on any node: leases, names, sizes of queues."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, cast

from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError, StateDamaged
from duramen.broker.list_offsets import PartitionBounds
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.partitioner import partition_of
from duramen.coordinators.queue.shard import hash_of
from duramen.queues.leases import LeasedEntry
from duramen.queues.machine import Ack, Nack, split_leased
from duramen.queues.reading import Counted, Names
from duramen.queues.requests import RequestId
from duramen.queues.topics import TopicBounds
from duramen.queues.totals import ShardTotals
from duramen.service.broker import Broker
from duramen.service.queues import Shards, queue_of
from duramen.service.shard_queries import BoundsQuery, CountQuery, ExtendQuery, NamesQuery, Refused, TotalsQuery

__all__ = ["FoundNames", "FoundTotals", "LedQueues", "LostShards", "Refused"]

RefusedDone = Callable[[Refused], None]
LostShards = Mapping[int, StateDamaged]
"""Shards whose state is lost, so that a response lacks their queues, and why."""


class FoundNames(NamedTuple):
    """Names of queues, and the place of the next ones; None: there are no more."""

    names: list[bytes]
    next: tuple[int, bytes] | None
    lost: LostShards


class FoundTotals(NamedTuple):
    """The number of the entries of each shard, and their bytes; None: unknown since an older version, or lost."""

    shards: Sequence[ShardTotals | None]
    lost: LostShards


def _by_shard(space: Stream, entries: Sequence[tuple[bytes, LeasedEntry]]) -> Mapping[int, list[int]]:
    """The numbers of the entries of each shard."""
    found: dict[int, list[int]] = {}
    for number, (queue, _) in enumerate(entries):
        found.setdefault(partition_of(queue, space.shards), []).append(number)
    return found


class _Gathered:
    """Refused entries of a request from all its parts, by their numbers in the request."""

    def __init__(self, parts: Sequence[Sequence[int]], done: RefusedDone) -> None:
        self._parts = parts
        self._left = len(parts)
        self._refused = dict[int, DuramenError]()
        self._done = done

    def answered(self, part: int, answer: Refused | DuramenError) -> None:
        """The entries of a part that its shard refused, or the error for which it did nothing."""
        numbers = self._parts[part]
        if isinstance(answer, DuramenError):
            self._refused.update(dict.fromkeys(numbers, answer))
        else:
            self._refused.update({numbers[place]: error for place, error in answer.items()})
        self._left -= 1
        if not self._left:
            self._done(dict(sorted(self._refused.items())))


class LedQueues:
    """The queues of spaces, as the leaders of their shards report them."""

    def __init__(self, broker: Broker, shards: Shards) -> None:
        self._broker = broker
        self._shards = shards

    def acknowledge(
        self, space: Stream, entries: Sequence[tuple[bytes, LeasedEntry]], done: RefusedDone,
        request: RequestId | None = None, release_ms: int | None = None,
    ) -> None:  # fmt: skip
        """Acknowledge leased entries; with `release_ms` give them back, to be leased again after that time.

        `done` gets those that were refused.
        """
        numbers_of, commands, parts = _by_shard(space, entries), list[list[Ack | Nack]](), list[Sequence[int]]()
        for numbers in numbers_of.values():
            some = [(queue_of(space, entries[number][0]), entries[number][1]) for number in numbers]
            command = Ack(some, request) if release_ms is None else Nack(some, release_ms, request)
            commands.append(split_leased(command, space.max_message_bytes, hash_of(space)))
            left = iter(numbers)
            parts += [list(islice(left, len(one.entries))) for one in commands[-1]]
        gathered, part = _Gathered(parts, done), 0
        for shard, split in zip(numbers_of, commands, strict=True):
            self._settle(space.partition(shard), split, part, gathered)
            part += len(split)

    def _settle(self, partition: Partition, commands: Sequence[Ack | Nack], part: int, gathered: _Gathered) -> None:
        """Execute the commands of a shard; with a request id, the others after the first, if it is not refused."""

        def first_done(answer: Refused | DuramenError) -> None:
            gathered.answered(part, answer)
            for number, command in enumerate(commands[1:], part + 1):
                if isinstance(answer, DuramenError):
                    gathered.answered(number, answer)
                else:
                    self._shards.settle(partition, command, partial(gathered.answered, number))

        if commands[0].request is not None:
            self._shards.settle(partition, commands[0], first_done)
            return
        for number, command in enumerate(commands, part):
            self._shards.settle(partition, command, partial(gathered.answered, number))

    def extend(
        self, space: Stream, entries: Sequence[tuple[bytes, LeasedEntry]], lease_ms: int, done: RefusedDone
    ) -> None:
        """Extend leases to this time from now; `done` gets the entries that are no longer leased."""
        by_shard = _by_shard(space, entries)
        gathered = _Gathered(list(by_shard.values()), done)
        for part, (shard, numbers) in enumerate(by_shard.items()):
            query = ExtendQuery([entries[number] for number in numbers], lease_ms)
            self._shards.ask(space, shard, query, partial(gathered.answered, part))

    def names(
        self, space: Stream, prefix: bytes, after: tuple[int, bytes], limit: int,
        done: Callable[[FoundNames | DuramenError], None],
    ) -> None:  # fmt: skip
        """Names of queues behind a place, in no order that means something; those of lost shards are missing.

        A place is a shard and a hash in it: it means the same whichever node leads the shard.
        """
        found, lost, (shard, behind) = list[bytes](), dict[int, StateDamaged](), after

        def answered(answer: Names | DuramenError) -> None:
            nonlocal shard, behind
            if isinstance(answer, StateDamaged):
                lost[shard] = answer
            elif isinstance(answer, DuramenError):
                done(answer)
                return
            else:
                found.extend(answer.names)
                if answer.next is not None:
                    done(FoundNames(found, (shard, answer.next), lost))
                    return
            shard, behind = shard + 1, b""
            if shard >= space.shards:
                done(FoundNames(found, None, lost))
            elif len(found) >= limit:
                done(FoundNames(found, (shard, behind), lost))
            else:
                self._broker.store.soon(ask)

        def ask() -> None:
            query = NamesQuery(prefix, behind, limit - len(found))
            self._shards.ask(space, shard, query, answered)

        ask()

    def count(
        self, space: Stream, queue: bytes, done: Callable[[tuple[Counted, int] | DuramenError], None]
    ) -> None:  # fmt: skip
        """The size of a queue, and the number of leased entries."""
        counted, shard = Counted(0, 0, 0, None, None, 0, 0), partition_of(queue, space.shards)

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
            self._shards.ask(space, shard, CountQuery(queue, counted.next), answered)

        ask()

    def totals(self, space: Stream, done: Callable[[FoundTotals | DuramenError], None]) -> None:
        """The number of the entries of each shard, and their bytes."""
        found, lost = dict[int, ShardTotals | None](), dict[int, StateDamaged]()
        error: DuramenError | None = None

        def answered(shard: int, answer: ShardTotals | DuramenError | None) -> None:
            nonlocal error
            if isinstance(answer, StateDamaged):
                lost[shard], answer = answer, None
            elif isinstance(answer, DuramenError):
                error, answer = error or answer, None
            found[shard] = answer
            parts.count_down()

        def ended() -> None:
            done(error or FoundTotals([found[shard] for shard in range(space.shards)], dict(sorted(lost.items()))))

        parts = Countdown(ended, space.shards)
        for shard in range(space.shards):
            self._shards.ask(space, shard, TotalsQuery(), partial(answered, shard))

    def find_bounds(
        self, space: Stream, queue: bytes, since_ms: int, last: int,
        done: Callable[[PartitionBounds | DuramenError], None],
    ) -> None:  # fmt: skip
        """The bounds of a queue's topic, and the first offset since a time or of the last records.

        -1: not requested.
        """
        shard = partition_of(queue, space.shards)

        def answered(answer: TopicBounds | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            elif answer.next < 0:
                done(PartitionBounds(answer.start, answer.end, answer.found))
            else:
                self._broker.store.soon(partial(ask, answer.next))

        def ask(start: int) -> None:
            self._shards.ask(space, shard, BoundsQuery(queue, since_ms, last, start), answered)

        ask(0)
