"""Joins enqueues of several tasks into a space: those that arrive during a request travel together in the next.

If only some shards store their entries, a task whose entries are all stored gets their positions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from duramen.base.errors import (
    BatchCorrupt,
    BatchInvalid,
    BatchTooLarge,
    BodyTooLarge,
    DuramenError,
    QueueBatchTooLarge,
    QueueNameInvalid,
    QueueSpaceFull,
    RequestInvalid,
    TimestampInvalid,
)
from duramen.codec.batch import BatchInput

__all__ = ["JoinedEnqueues"]

_MOST_ENTRIES: Final = 2_000
_MOST_BYTES: Final = 256 << 10
_AT_ONCE: Final = 2
"""Requests under way: the node stores one while the next one comes."""
_OF_ONE: Final = (
    BatchCorrupt, BatchInvalid, BatchTooLarge, BodyTooLarge, QueueBatchTooLarge, QueueNameInvalid, QueueSpaceFull,
    RequestInvalid, TimestampInvalid,
)  # fmt: skip
"""Nothing was stored, because of what some of the entries are, or how many."""

_Ask = Callable[[Sequence[BatchInput]], Awaitable[list[str]]]


class _Waiting(NamedTuple):
    entries: Sequence[BatchInput]
    done: asyncio.Future[list[str]]


class JoinedEnqueues:
    """Sends entries of several tasks in one request; if some are refused, each task's entries are sent separately."""

    def __init__(self, ask: _Ask) -> None:
        self._ask = ask
        self._waiting: list[_Waiting] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, entries: Sequence[BatchInput]) -> list[str]:
        """The positions of the entries. Raises the reason of a refusal."""
        loop = asyncio.get_running_loop()
        mine = _Waiting(entries, loop.create_future())
        self._waiting.append(mine)
        if len(self._tasks) < _AT_ONCE:
            task = loop.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await mine.done

    async def _run(self) -> None:
        while self._waiting:
            some, self._waiting = _together(self._waiting)
            try:
                await self._put(some)
            except DuramenError as error:
                alone = len(some) > 1 and isinstance(error, _OF_ONE)
                for one, positions in _stored_of(some, error):
                    if alone and not positions:
                        await self._put_alone(one)
                    else:
                        _end(one, positions, error if len(some) == 1 else type(error)(str(error)))

    async def _put(self, some: Sequence[_Waiting]) -> None:
        positions = await self._ask([entry for one in some for entry in one.entries])
        at = 0
        for one in some:
            if not one.done.done():
                one.done.set_result(positions[at : at + len(one.entries)])
            at += len(one.entries)

    async def _put_alone(self, one: _Waiting) -> None:
        if one.done.done():
            return
        try:
            await self._put([one])
        except DuramenError as error:
            _end(one, error.stored, error)


def _together(waiting: Sequence[_Waiting]) -> tuple[list[_Waiting], list[_Waiting]]:
    """The tasks whose entries fit into one request, and the others; cancelled tasks are dropped."""
    there = [one for one in waiting if not one.done.done()]
    count = size = 0
    for place, one in enumerate(there):
        count += len(one.entries)
        size += sum(len(entry.key or b"") + len(entry.value or b"") for entry in one.entries)
        if place and (count > _MOST_ENTRIES or size > _MOST_BYTES):
            return there[:place], there[place:]
    return there, []


def _stored_of(some: Sequence[_Waiting], error: DuramenError) -> Iterator[tuple[_Waiting, dict[int, str]]]:
    """Each task with the positions of those of its entries that were stored, by their numbers in it."""
    at = 0
    for one in some:
        numbers = range(at, at + len(one.entries))
        at = numbers.stop
        yield one, {number - numbers.start: error.stored[number] for number in numbers if number in error.stored}


def _end(one: _Waiting, positions: Mapping[int, str], error: DuramenError) -> None:
    """End a task of a refused request: with all its positions, or with an error of its own."""
    if one.done.done():
        return
    if len(positions) == len(one.entries):
        one.done.set_result([positions[number] for number in range(len(one.entries))])
    else:
        error.stored = positions
        one.done.set_exception(error)
