"""Records of topics of the inventory that are gone: the shards that have them find and delete them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.broker.streams import Stream
from duramen.coordinators.inventory.gone import GONE, GoneTopics
from duramen.coordinators.inventory.shard import OS_QUEUES
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.coordinators.queue.shard import QueueShard
from duramen.coordinators.runtime.runtime import Runtime
from duramen.queues.leftovers import Examined, KnownOwners, LeftoverSweep
from duramen.queues.machine import Empty, Own, QueueCommand
from duramen.queues.names import Queue
from duramen.storage.store import Store

__all__ = ["LeftoverRecords"]

_HEX_DIGITS: Final = 32


class LeftoverRecords:
    """Deletes the records of topics that are gone, some topics of each shard at a time."""

    def __init__(self, inventory: InventoryShards, coordinators: Runtime, store: Store) -> None:
        self._inventory = inventory
        self._gone = GoneTopics(inventory)
        self._coordinators = coordinators
        self._store = store
        self._sweeping: set[tuple[Stream, int]] = set()

    def sweep(self, space: Stream) -> None:
        """Continue in the shards of a space that this node leads."""
        for partition in space.partitions:
            place = space, partition.index
            if partition.leads and place not in self._sweeping:
                self._sweeping.add(place)
                self._step(*place)

    def _step(self, space: Stream, shard: int) -> None:
        def query(found: QueueShard, rows: StateRows) -> tuple[LeftoverSweep, Examined | None]:
            known = self._known_owners()
            return found.leftovers, None if known is None else found.leftovers.step(rows, known)

        def stepped(answer: object) -> None:
            if isinstance(answer, tuple) and answer[1] is not None:
                self._examine(space, shard, *answer)
            else:
                self._sweeping.discard((space, shard))

        self._coordinators.read(space.name, shard, query, stepped)

    def _known_owners(self) -> KnownOwners | None:
        directory = self._inventory.known_directory()
        if directory is None:
            return None
        version = directory, directory.removals
        return KnownOwners(version, lambda namespace: directory.namespace_by_id(namespace) is not None)

    def _examine(self, space: Stream, shard: int, sweep: LeftoverSweep, examined: Examined) -> None:
        topics = {id_: queue for queue in examined.queues if (id_ := _lasting_id(queue)) is not None}

        def found(namespaces: Mapping[UUID, int] | DuramenError) -> None:
            if isinstance(namespaces, DuramenError):
                self._sweeping.discard((space, shard))  # the next round examines them again
                return
            drops = [Empty(topics[id_], "drop") for id_, namespace in namespaces.items() if namespace == GONE]
            then = partial(passed, len(drops))
            if examined.owned or space.name != OS_QUEUES:
                self._submit(space, shard, drops, then)
            else:
                self._submit(space, shard, drops, partial(own, namespaces, then))

        def own(namespaces: Mapping[UUID, int], then: Callable[[bool], None], stored: bool) -> None:
            if stored:
                self._own(space, shard, topics, namespaces, then)
            else:
                then(False)

        def passed(dropped: int, done: bool) -> None:
            if done:
                sweep.passed(examined)
            if done and examined.last is not None and (dropped or examined.owned):
                self._store.soon(partial(self._step, space, shard))
            else:
                self._sweeping.discard((space, shard))

        if topics:
            self._gone.find(topics, found)
        else:
            passed(0, True)

    def _own(
        self, space: Stream, shard: int, topics: Mapping[UUID, Queue], namespaces: Mapping[UUID, int],
        done: Callable[[bool], None],
    ) -> None:  # fmt: skip
        """Assign records to the namespaces of their topics: a power failure may have undone that after a move.

        A topic that has moved meanwhile is looked up again, so that the last namespace counts.
        """
        there = {id_: namespace for id_, namespace in namespaces.items() if namespace != GONE}

        def owned(stored: bool) -> None:
            if stored and there:
                self._gone.find(there, found)
            else:
                done(stored)

        def found(now: Mapping[UUID, int] | DuramenError) -> None:
            if isinstance(now, DuramenError):
                done(False)
                return
            moved = {id_: namespace for id_, namespace in now.items() if namespace not in (GONE, there[id_])}
            if moved:
                self._own(space, shard, topics, moved, done)
            else:
                done(True)

        commands = [Own(topics[id_], namespace, None) for id_, namespace in there.items()]
        self._submit(space, shard, commands, owned)

    def _submit(
        self, space: Stream, shard: int, commands: Sequence[QueueCommand], done: Callable[[bool], None]
    ) -> None:  # fmt: skip
        """`done` gets whether all of these commands are stored."""
        left, failed = len(commands) + 1, 0

        def one(answer: object) -> None:
            nonlocal left, failed
            left -= 1
            failed += isinstance(answer, DuramenError)
            if not left:
                done(not failed)

        for command in commands:
            self._coordinators.submit(space.name, shard, command, one)
        one(None)


def _lasting_id(queue: Queue) -> UUID | None:
    """The id of the topic whose records a queue is; None for any other queue."""
    try:
        return UUID(queue.name.decode()) if len(queue.name) == _HEX_DIGITS else None
    except ValueError:
        return None
