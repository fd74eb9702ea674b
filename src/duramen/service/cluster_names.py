"""Names of light topics as groups know them on a cluster: other nodes are asked for what this one does not have."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.errors import CoordinatorLoading, DuramenError
from duramen.broker.streams import Stream
from duramen.codec.partitioner import partition_of
from duramen.coordinators.group.topics import LASTING, LightFound, LightLag
from duramen.coordinators.inventory.shard import INVENTORY_QUEUES
from duramen.coordinators.queue.shard import hash_of
from duramen.metadata.partitions import PartitionId
from duramen.queues.topics import lag
from duramen.rpc.caller import Gathered
from duramen.rpc.server import Done
from duramen.service.broker import Broker
from duramen.service.forwarded_requests import FIND_LAGS, FindLags, LagsFound, QueueOffset
from duramen.service.light_names import KNOWN_NAMES, InventoryTopicNames, LightTopicFinder

__all__ = ["ClusterTopicNames"]

_ASKED_AT_ONCE: Final = 500
_COUNTED_AT_ONCE: Final = 20


class _Place(NamedTuple):
    """Where the records of a topic are, and what it is called now."""

    name: str
    space: Stream
    queue: bytes

    @property
    def partition(self) -> PartitionId:
        return PartitionId(self.space.id, partition_of(self.queue, self.space.shards))


class ClusterTopicNames(InventoryTopicNames):
    """The names are those of when they were asked for last. What was once gone stays so."""

    def __init__(self, broker: Broker, topics: LightTopicFinder) -> None:
        super().__init__(broker, topics)
        self._broker = broker
        self._known: OrderedDict[str, Sequence[str] | None] = OrderedDict()
        broker.caller.server.handle(FIND_LAGS, self._count)

    def read_names(self, stored: str) -> Sequence[str] | None:
        """As of `InventoryTopicNames`. Raises CoordinatorLoading where nobody was asked."""
        if stored not in self._known:
            raise CoordinatorLoading(f"the name of topic {stored} has to be asked for first")
        return self._known[stored]

    def when_known(self, stored: Iterable[str], done: Callable[[DuramenError | None], None]) -> None:
        """As of `LightTopicNames`: they are asked for now."""
        self._ask_names([one for one in dict.fromkeys(stored) if one.startswith(LASTING)], done)

    def _ask_names(self, stored: Sequence[str], done: Callable[[DuramenError | None], None]) -> None:
        now, later = stored[:_ASKED_AT_ONCE], stored[_ASKED_AT_ONCE:]

        def query() -> dict[str, Sequence[str] | None]:
            read = super(ClusterTopicNames, self).read_names
            return {one: read(one) for one in now}

        def answered(found: dict[str, Sequence[str] | None] | DuramenError) -> None:
            if isinstance(found, DuramenError):
                done(found)
                return
            self._learn(found)
            self._ask_names(later, done)

        if now:
            self._inventory.read(query, answered)
        else:
            done(None)

    def _learn(self, found: Mapping[str, Sequence[str] | None]) -> None:
        for stored, names in found.items():
            self._known[stored] = names
            self._known.move_to_end(stored)
        while len(self._known) > KNOWN_NAMES:
            self._known.popitem(last=False)

    # -- how far offsets are behind -----------------------------------------------------------------

    def find_behind(
        self, wanted: Sequence[tuple[str, int]], most: int, done: Callable[[Sequence[LightFound | None]], None]
    ) -> None:
        """As of `LightTopicNames`: the leaders of the topics' shards count, each asked once."""
        self.when_known((stored for stored, _ in wanted), lambda _: self._find_behind(wanted, most, done))

    def _find_behind(
        self, wanted: Sequence[tuple[str, int]], most: int, done: Callable[[Sequence[LightFound | None]], None]
    ) -> None:
        places = [self._place(stored) for stored, _ in wanted]
        found = [None if place is None else LightFound(place.name, None) for place in places]
        by_leader: dict[int, list[int]] = {}
        for at, place in enumerate(places):
            leader = None if place is None else self._broker.membership.partition(place.partition).leader
            if leader is not None:
                by_leader.setdefault(leader, []).append(at)

        def gathered(result: Gathered[LagsFound]) -> None:
            for leader, answer in result.answers.items():
                for at, one in zip(by_leader[leader], answer.lags, strict=False):
                    place = places[at]
                    if place is not None and one is not None:
                        found[at] = LightFound(place.name, LightLag(*one))
            done(found)

        def asked(at: int) -> QueueOffset:
            place = places[at]
            assert place is not None
            return QueueOffset(place.space.id.bytes, place.queue, wanted[at][1])

        requests = {leader: FindLags([asked(at) for at in some], most) for leader, some in by_leader.items()}
        self._broker.caller.gather(FIND_LAGS, requests, gathered)

    def _place(self, stored: str) -> _Place | None:
        if not stored.startswith(LASTING):
            topic = self._topics.find(stored)
            return None if topic is None else _Place(topic.name, *topic.place)
        name, space = next(iter(self.names_of(stored)), None), self._broker.streams.find(INVENTORY_QUEUES)
        return None if name is None or space is None else _Place(name, space, stored.removeprefix(LASTING).encode())

    def _count(self, request: FindLags, done: Done[LagsFound]) -> None:
        """Count for another node what is led here, some at a time."""
        found = list[tuple[int, int, int, int] | None]()

        def step() -> None:
            for one in request.wanted[len(found) : len(found) + _COUNTED_AT_ONCE]:
                found.append(self._count_one(one, request.most))
            if len(found) < len(request.wanted):
                self._broker.store.soon(step)
            else:
                done(LagsFound(found))

        step()

    def _count_one(self, wanted: QueueOffset, most: int) -> tuple[int, int, int, int] | None:
        space = self._broker.streams.find_id(UUID(bytes=wanted.stream_id)) if len(wanted.stream_id) == 16 else None
        if space is None or space.deleted:
            return None
        coordinators, shard = self._broker.coordinators, partition_of(wanted.queue, space.shards)
        try:
            space.partition(shard).check_leads()
            coordinators.check(space.name, shard)
            rows = coordinators.rows(space.name, shard)
            return lag(rows, hash_of(space.id)(wanted.queue), wanted.offset, most, self._broker.now_ms())
        except DuramenError:
            return None
