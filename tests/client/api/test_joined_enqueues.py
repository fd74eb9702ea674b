"""Enqueues of several tasks: they travel together, and what is wrong with one is told to its task alone."""

import asyncio
from collections.abc import Sequence

import pytest

from duramen.base.errors import QueueNameInvalid, QueueSpaceFull, ServerUnreachable
from duramen.client.api.queues.joined_enqueues import JoinedEnqueues
from duramen.codec.batch import BatchInput

GOOD, BAD = BatchInput(1, b"ann", b"v"), BatchInput(1, b"", b"v")


class Node:
    """Answers once it is let."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[int] = []
        self.may = asyncio.Event()

    async def ask(self, new: Sequence[BatchInput]) -> list[str]:
        first = sum(self.asked)
        self.asked.append(len(new))
        await self.may.wait()
        if self.error is not None:
            raise self.error
        if BAD in new:
            raise QueueNameInvalid("a queue needs a name")
        return [f"0.{first + number}" for number in range(len(new))]


def test_entries_that_come_while_others_are_under_way_travel_together() -> None:
    async def main() -> None:
        node = Node()
        joined = JoinedEnqueues(node.ask)
        tasks = []
        for _ in range(20):
            tasks.append(asyncio.create_task(joined.put([GOOD, GOOD])))
            await asyncio.sleep(0)
        node.may.set()
        found = [position for task in tasks for position in await task]
        assert len(node.asked) <= 4
        assert sorted(found, key=lambda one: int(one[2:])) == [f"0.{number}" for number in range(40)]

    asyncio.run(main())


def test_a_wrong_entry_harms_nobody_else() -> None:
    async def main() -> None:
        node = Node()
        joined = JoinedEnqueues(node.ask)
        good, bad, other = (asyncio.create_task(joined.put([one])) for one in (GOOD, BAD, GOOD))
        await asyncio.sleep(0)
        node.may.set()
        with pytest.raises(QueueNameInvalid):
            await bad
        assert len([*await good, *await other]) == 2

    asyncio.run(main())


def test_a_task_whose_entries_are_stored_gets_their_positions_although_others_are_refused() -> None:
    async def main() -> None:
        full = QueueSpaceFull("shard 1 is full; 2 of 4 entries are stored, 0 may be")
        full.stored = {0: "0.7", 1: "0.8", 3: "0.9"}
        node = Node(full)
        joined = JoinedEnqueues(node.ask)
        tasks = [asyncio.create_task(joined.put(new)) for new in ([GOOD], [GOOD, GOOD], [GOOD])]
        await asyncio.sleep(0)
        node.may.set()
        first, refused, last = await asyncio.gather(*tasks, return_exceptions=True)
        assert (first, last, node.asked) == (["0.7"], ["0.9"], [4])
        assert isinstance(refused, QueueSpaceFull)
        assert refused.stored == {0: "0.8"}

    asyncio.run(main())


def test_what_may_have_been_done_is_told_to_all_and_not_asked_again() -> None:
    async def main() -> None:
        node = Node(ServerUnreachable("it may have been done all the same"))
        joined = JoinedEnqueues(node.ask)
        tasks = [asyncio.create_task(joined.put([GOOD])) for _ in range(3)]
        await asyncio.sleep(0)
        node.may.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, ServerUnreachable) for one in found)
        assert sum(node.asked) == 3

    asyncio.run(main())


def test_tasks_get_the_room_that_there_is_if_there_is_not_enough_for_all() -> None:
    async def main() -> None:
        room = 2
        asked: list[int] = []

        async def ask(new: Sequence[BatchInput]) -> list[str]:
            nonlocal room
            asked.append(len(new))
            if len(new) > room:
                raise QueueSpaceFull("the shard is full")
            room -= len(new)
            return [f"0.{number}" for number in range(len(new))]

        joined = JoinedEnqueues(ask)
        tasks = [asyncio.create_task(joined.put([GOOD])) for _ in range(4)]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(type(one).__name__ for one in found) == ["QueueSpaceFull", "QueueSpaceFull", "list", "list"]
        assert room == 0

    asyncio.run(main())
