"""The partitions of each share group: records of `__consumer_offsets`, stored by the group's coordinator.

A partition is in the record before its state is stored, and until the state is deleted. So an interrupted change is
found again, and this coordinator may repeat every step as long as there is no other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from duramen.base.errors import BatchCorrupt, DuramenError, NotCoordinator
from duramen.base.ids import StreamId
from duramen.coordinators.group.offsets import GroupOffsets
from duramen.coordinators.share.persister import Begin, Mandate, SharePersister
from duramen.coordinators.share.requests import StateChange
from duramen.coordinators.share.topics import ShareTopics
from duramen.groups.records import OtherKey
from duramen.groups.share_assignor import Place
from duramen.groups.share_group_records import GroupPlaces, decode_places, encode_places, encode_places_key
from duramen.groups.share_records import UNKNOWN_START, ShareKey

__all__ = ["ShareGroupMetadata"]

Done = Callable[[DuramenError | None], None]
EpochOf = Callable[[Place], int]
"""The known leader epoch of a partition."""


class _Newest:
    """The last appended record of a group, until it is durable."""

    __slots__ = ("open", "places")

    def __init__(self, places: GroupPlaces) -> None:
        self.places = places
        self.open = 0


class ShareGroupMetadata:
    """The share groups that this node coordinates."""

    def __init__(
        self, offsets: GroupOffsets, topics: ShareTopics, persister: SharePersister, epoch_of: EpochOf
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._persister = persister
        self._epoch_of = epoch_of
        self._newest: dict[str, _Newest] = {}

    # -- reading ------------------------------------------------------------------------------------

    def has(self, group: str) -> bool:
        """Whether a group has a record."""
        return self._offsets.ready and self._offsets.record(_key(group)) is not None

    def each(self) -> Iterator[str]:
        """The names of all groups with a record."""
        return (group for group in self._offsets.each_other() if self.has(group)) if self._offsets.ready else iter(())

    def check(self, group: str) -> None:
        """Raise NotCoordinator, CoordinatorLoading or StorageFailed unless the group is coordinated here."""
        self._offsets.check(group)

    def get(self, group: str) -> GroupPlaces:
        """The partitions of a group. Raises BatchCorrupt."""
        newest = self._newest.get(group)
        return self._stored(group) if newest is None else newest.places

    def _stored(self, group: str) -> GroupPlaces:
        value = self._offsets.record(_key(group)) if self._offsets.ready else None
        if value is None:
            return GroupPlaces()
        places, names = decode_places(value)
        self._topics.learn(names)
        return places

    def keys(self, group: str) -> list[ShareKey]:
        """The share partitions of a group, by topic id and partition."""
        return [ShareKey(group, *place) for place in sorted(self.get(group).kept)]

    def topic_ids(self) -> set[StreamId]:
        """The topics of all groups whose records can be read, by the ids under which their states are stored."""
        return set[StreamId]().union(*(found for _, found in self.each_with_topics()))

    def each_with_topics(self) -> Iterator[tuple[str, frozenset[StreamId]]]:
        """The names of all groups whose records can be read, and their topics."""
        for group in self.each():
            with suppress(BatchCorrupt):
                yield group, frozenset(topic_id for topic_id, _ in self.get(group).every)

    # -- changing -----------------------------------------------------------------------------------

    def prepare(self, group: str, wanted: Iterable[Place], done: Done) -> None:
        """Make sure, durably, that a group has states for these partitions.

        As in Apache Kafka, a partition that is new in a stream of the group starts at its first record: records written
        before the group learned of it are delivered. For uncertain partitions the keeper is asked too, which fences
        requests of earlier coordinators.
        """
        try:
            kept, unsure = self.get(group)
        except DuramenError as error:
            done(error)
            return
        read = {topic_id for topic_id, _ in kept}
        missing = [place for place in wanted if place not in kept or place in unsure]
        begins = [self._begin(group, place, 0 if place[0] in read else UNKNOWN_START) for place in missing]
        self._bring_about(group, StateChange.BEGIN, begins, done)

    def begin_anew(self, group: str, starts: Sequence[tuple[Place, int]], done: Done) -> None:
        """Reset a group without members to these offsets; its acknowledgements are discarded."""
        begins = [self._begin(group, place, start) for place, start in starts]

        def begun(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._persister.drop([begin.key for begin in begins], done)

        self._bring_about(group, StateChange.BEGIN_ANEW, begins, begun)

    def forget(self, group: str, places: Iterable[Place], done: Done) -> None:
        """Delete the group's states of these partitions; a group without partitions ends."""
        mine = frozenset(places)
        begins = [self._begin(group, place, UNKNOWN_START) for place in sorted(mine)]
        keys = [begin.key for begin in begins]
        try:
            mandate = self._mandate(group)
        except DuramenError as error:
            done(error)
            return
        self._steps(
            done,
            partial(self._store, group, lambda now: GroupPlaces(now.kept - mine, now.unsure | (now.kept & mine))),
            partial(self._persister.change, StateChange.FORGET, begins, mandate),
            partial(self._persister.drop, keys),
            partial(self._store, group, lambda now: GroupPlaces(now.kept - mine, now.unsure - mine)),
        )

    def forget_topics(self, gone: Callable[[StreamId], bool]) -> None:
        """Topics are deleted: the keepers of their states delete them by themselves."""
        for group, topics in list(self.each_with_topics()):
            if any(map(gone, topics)):
                self.forget_topics_of(group, gone)

    def forget_topics_of(self, group: str, gone: Callable[[StreamId], bool]) -> None:
        """Topics of a group are deleted."""

        def without(now: GroupPlaces) -> GroupPlaces:
            kept, unsure = (frozenset(place for place in places if not gone(place[0])) for places in now)
            return GroupPlaces(kept, unsure)

        self._store(group, without, lambda _: None)

    def adopt(self, keys: Iterable[ShareKey], done: Done) -> None:
        """States exist for groups without a record: an earlier version wrote none."""
        found: dict[str, set[Place]] = {}
        for key in keys:
            if not self.has(key.group):
                found.setdefault(key.group, set()).add((key.topic_id, key.partition))
        self._steps(
            done,
            *(partial(self._store, group, partial(_with, frozenset(places))) for group, places in found.items()),
        )

    def let_go(self, those: Callable[[str], bool]) -> None:
        """The node no longer coordinates these groups."""
        for group in [group for group in self._newest if those(group)]:
            del self._newest[group]

    def _mandate(self, group: str) -> Mandate:
        """The epoch in which this node coordinates a group. Raises NotCoordinator, CoordinatorLoading."""
        place = self._offsets.place_of(group)
        epoch = self._epoch_of(place)
        self._offsets.check_epoch(group, epoch)

        def mandate() -> int:
            now = self._epoch_of(place)
            if now != epoch:
                raise NotCoordinator(f"group {group} is coordinated in epoch {now} by now, not {epoch}")
            return epoch

        return mandate

    # -- steps --------------------------------------------------------------------------------------

    def _begin(self, group: str, place: Place, start: int) -> Begin:
        return Begin(ShareKey(group, *place), start, self._epoch_of(place))

    def _bring_about(self, group: str, change: StateChange, begins: Sequence[Begin], done: Done) -> None:
        mine = frozenset((begin.key.topic_id, begin.key.partition) for begin in begins)
        if not mine:
            done(None)
            return
        try:
            mandate = self._mandate(group)
        except DuramenError as error:
            done(error)
            return
        self._steps(
            done,
            partial(self._store, group, lambda now: GroupPlaces(now.kept, now.unsure | mine)),
            partial(self._persister.change, change, begins, mandate),
            partial(self._store, group, partial(_with, mine)),
        )

    def _steps(self, done: Done, *steps: Callable[[Done], None]) -> None:
        left = list(steps)

        def go_on(error: DuramenError | None) -> None:
            if error is not None or not left:
                done(error)
            else:
                left.pop(0)(go_on)

        go_on(None)

    def _store(self, group: str, change: Callable[[GroupPlaces], GroupPlaces], done: Done) -> None:
        """Store a group's partitions after a change; calls `done` once that is durable."""
        try:
            self._offsets.check(group)
            places = change(self.get(group))
        except DuramenError as error:
            done(error)
            return
        newest = self._newest.setdefault(group, _Newest(places))
        newest.places = places
        newest.open += 1

        def stored(error: DuramenError | None) -> None:
            newest.open -= 1
            # After a failure, the records that build on it are in doubt too.
            if (error is not None or not newest.open) and self._newest.get(group) is newest:
                del self._newest[group]
            done(error)

        value = encode_places(places, self._name_of) if places.every else None
        self._offsets.store_records(group, [(encode_places_key(group), value)], stored)

    def _name_of(self, topic_id: StreamId) -> str:
        return self._topics.name_of(topic_id) or ""


def _with(mine: frozenset[Place], now: GroupPlaces) -> GroupPlaces:
    return GroupPlaces(now.kept | mine, now.unsure - mine)


def _key(group: str) -> OtherKey:
    return OtherKey(group, encode_places_key(group))
