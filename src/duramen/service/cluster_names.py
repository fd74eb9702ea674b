"""Names of light topics for groups on a cluster: other nodes have those that this one does not."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from duramen.base.errors import CoordinatorLoading, DuramenError
from duramen.codec.partitioner import partition_of
from duramen.coordinators.group.topics import LASTING, LightFound, LightLag, LightQueue
from duramen.coordinators.inventory.shard import queue_space_of
from duramen.coordinators.inventory.topics import FoundTopic
from duramen.coordinators.queue.shard import hash_of
from duramen.groups.topics import GroupTopic
from duramen.inventory.names import kafka_path
from duramen.metadata.partitions import PartitionId
from duramen.queues.topics import lag
from duramen.rpc.caller import Gathered
from duramen.rpc.server import Done
from duramen.service.broker import Broker
from duramen.service.followed_names import FollowedNames, Wanted
from duramen.service.forwarded_requests import FIND_LAGS, FindLags, LagsFound, QueueOffset
from duramen.service.light_names import (
    KNOWN_NAMES,
    MOST_LISTED,
    InventoryTopicNames,
    LightTopicFinder,
    kafka_names,
    namespace_of,
)
from duramen.service.light_topics import LastingId

__all__ = ["ClusterTopicNames"]

_ASKED_AT_ONCE: Final = 500
_COUNTED_AT_ONCE: Final = 20


class ClusterTopicNames(InventoryTopicNames):
    """The names are those of when they were asked for last. What was once gone stays so."""

    def __init__(self, broker: Broker, topics: LightTopicFinder) -> None:
        super().__init__(broker, topics)
        self._broker = broker
        self._known: OrderedDict[str, Sequence[str] | None] = OrderedDict()
        self._followed = FollowedNames(broker, MOST_LISTED)
        broker.caller.server.handle(FIND_LAGS, self._count)

    def read_names(self, stored: str) -> Sequence[str] | None:
        """See `InventoryTopicNames`. Raises CoordinatorLoading if no node was asked."""
        if stored not in self._known:
            raise CoordinatorLoading(f"the name of topic {stored} has to be asked for first")
        return self._known[stored]

    def when_known(self, stored: Iterable[str], done: Callable[[DuramenError | None], None]) -> None:
        """See `LightTopicNames`: they are requested now."""
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

    def find_stored(self, names: Sequence[str], done: Callable[[Mapping[str, str] | DuramenError], None]) -> None:
        """See `LightTopicNames`: from the leaders of the shards."""
        found = {name: topic.stored_as for name in names if (topic := self._topics.find(name)) is not None}
        asked = [name for name in names if name not in found and self._broker.names_inventory(name)]
        paths = {name: path for name in asked if (path := kafka_path(name)) is not None}

        def query() -> dict[str, tuple[str, Sequence[str] | None]]:
            read = super(ClusterTopicNames, self).read_names
            topics = zip(paths, self._inventory.lookup_paths(self._account, [*paths.values()]), strict=True)
            stored = {name: LASTING + topic.id.hex for name, topic in topics if topic is not None}
            return {name: (one, read(one)) for name, one in stored.items()}

        def answered(answer: dict[str, tuple[str, Sequence[str] | None]] | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
                return
            self._learn(dict(answer.values()))
            done(found | {name: stored for name, (stored, _) in answer.items()})

        if paths:
            self._inventory.read(query, answered)
        else:
            done(found)

    def _learn(self, found: Mapping[str, Sequence[str] | None]) -> None:
        for stored, names in found.items():
            self._known[stored] = names
            self._known.move_to_end(stored)
        while len(self._known) > KNOWN_NAMES:
            self._known.popitem(last=False)

    # -- what groups mean ---------------------------------------------------------------------------

    def when_named(
        self, names: Iterable[str], patterns: Iterable[str], done: Callable[[DuramenError | None], None]
    ) -> None:  # fmt: skip
        """As of `LightTopicNames`: the namespaces are followed from then on."""
        wanted: dict[tuple[str, str], set[str]] = {}
        for name in names:
            path = kafka_path(name) if self._broker.names_inventory(name) else None
            if path is not None:
                wanted.setdefault((path.tenant, path.namespace), set()).add(path.topic)
        every = {place for pattern in patterns for place in self._places(pattern)}
        places = sorted(wanted.keys() | every)
        self._followed.when_known(
            [Wanted(*place, frozenset(wanted.get(place, ())), place in every) for place in places], done
        )

    def find(self, key: str | UUID) -> GroupTopic | None:
        """As of `LightTopicNames`; a topic of the inventory is what it was `when_named`, and what has become of it."""
        topic = self._topics.shared(key)
        return None if topic is None else GroupTopic(topic.name, topic.id, 1)

    def entry(self, name: str) -> FoundTopic | None:
        """As of `InventoryTopicNames`."""
        path = kafka_path(name)
        return None if path is None else self._followed.find(path)

    def version(self) -> object:
        """As of `LightTopicNames`."""
        return self._followed.version

    def listed(self) -> list[str]:
        """See `InventoryTopicNames`: those that are known; the others are requested."""
        names = self._every_of("")
        self.when_named((), [""] if self._shown else (), lambda _: None)
        return names

    def matching(self, pattern: str) -> Iterable[str]:
        """As of `LightTopicNames`."""
        return self._every_of(pattern)

    def _places(self, pattern: str) -> list[tuple[str, str]]:
        """The namespaces whose names a pattern may mean: the one that it begins with, and the one that is shown."""
        where, (tenant, _, namespace) = namespace_of(pattern), self._shown.partition("/")
        shown = [(tenant, namespace)] if namespace else []
        return [*shown, *([] if where is None else [where])]

    def _every_of(self, pattern: str) -> list[str]:
        places = dict.fromkeys(self._places(pattern))
        return [name for place in places for name in kafka_names(one.path for one in self._followed.every(*place))]

    # -- lags of offsets ----------------------------------------------------------------------------

    def find_behind(
        self, wanted: Sequence[tuple[str, int]], most: int, done: Callable[[Sequence[LightFound | None]], None]
    ) -> None:
        """As of `LightTopicNames`: the leaders of the topics' shards count, each asked once."""
        self.when_known((stored for stored, _ in wanted), lambda _: self._find_behind(wanted, most, done))

    def _find_behind(
        self, wanted: Sequence[tuple[str, int]], most: int, done: Callable[[Sequence[LightFound | None]], None]
    ) -> None:
        places = [self.place_of(stored) for stored, _ in wanted]
        found = [None if place is None else LightFound(place.name, None) for place in places]
        by_leader: dict[int, list[int]] = {}
        for at, place in enumerate(places):
            leader = None if place is None else self._broker.membership.partition(_partition(place)).leader
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

    def place_of(self, stored: str) -> LightQueue | None:
        """As of `LightTopicNames`; of a topic of the inventory, once its name is known."""
        if not stored.startswith(LASTING):
            return super().place_of(stored)
        name, id_ = next(iter(self.names_of(stored)), None), LastingId.of_stored(stored)
        space = None if id_ is None else self._broker.streams.find(queue_space_of(id_))
        return None if name is None or space is None else LightQueue(name, space, stored.removeprefix(LASTING).encode())

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
            return lag(rows, hash_of(space)(wanted.queue), wanted.offset, most, self._broker.now_ms())
        except DuramenError:
            return None


def _partition(place: LightQueue) -> PartitionId:
    return PartitionId(place.space.id, partition_of(place.queue, place.space.shards))
