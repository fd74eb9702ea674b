"""Share groups across the nodes of a cluster: requests to other nodes, and responses to theirs. Also for one node."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.countdown import Countdown
from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, NotLeader, OutcomeUnknown
from duramen.base.ids import StreamId
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.base.settings import Settings
from duramen.broker.membership import NodeMembership
from duramen.broker.streams import BrokerStreams, Stream
from duramen.coordinators.group.offsets import GroupOffsets
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.share.coordinator import ShareCoordinator
from duramen.coordinators.share.group_metadata import ShareGroupMetadata
from duramen.coordinators.share.persister import SharePersister
from duramen.coordinators.share.requests import (
    CHANGE_STATES,
    DROP,
    LOCATE,
    READ_STATE,
    WRITE_STATE,
    Drop,
    Locate,
    Located,
    Place,
    StatesChanged,
    share_key,
)
from duramen.coordinators.share.shares import ShareOffset, Sharing
from duramen.coordinators.share.state import SHARE_STATE_STREAM, Kept, StateStream
from duramen.coordinators.share.topics import LastingTopics, ShareTopics
from duramen.groups.share_records import ShareKey
from duramen.rpc.caller import Caller
from duramen.rpc.errors import Refused
from duramen.rpc.server import Done as Answered
from duramen.storage.store import Store

__all__ = ["Located", "ShareDependencies", "ShareNodes"]

_LAGS_MS: Final = 2_000
_COUNTED_AT_ONCE: Final = 20
_SILENT: Final = NotLeader("the leader of the partition did not answer")
_DELETED_MS: Final = 1_000
"""States of topics that are deleted within this time are deleted together: that reads the keys of all states."""

Done = Callable[[DuramenError | None], None]
LocatedDone = Callable[[Mapping[ShareKey, ShareOffset | DuramenError | None]], None]


class ShareDependencies(NamedTuple):
    """Dependencies. `configs` returns the configs that a group overrides."""

    runtime: Runtime
    caller: Caller
    membership: NodeMembership
    streams: BrokerStreams
    lasting: LastingTopics
    offsets: GroupOffsets
    store: Store
    clock: Clock
    deadlines: Deadlines
    settings: Settings
    configs: Callable[[str], Mapping[str, str]]
    metrics: Metrics


class ShareNodes:
    """`sharing` delivers records, `states` keeps states, `inventory` has the groups that this node coordinates."""

    def __init__(self, kit: ShareDependencies) -> None:
        self._kit = kit
        self._alone = kit.membership.first_role is None
        self.stream = StateStream(kit.streams)
        self.topics = topics = ShareTopics(kit.streams, kit.lasting)
        self.states = ShareCoordinator(self.stream, kit.runtime, kit.store, self.is_gone, alone=self._alone)
        self._persister = SharePersister(self.stream, topics, kit.membership, kit.caller)
        self.sharing = Sharing(
            self._persister, kit.streams, topics, kit.store, kit.clock, kit.deadlines, kit.settings, kit.configs,
            kit.metrics,
        )  # fmt: skip
        self.inventory = ShareGroupMetadata(
            kit.offsets,
            topics,
            self._persister,
            lambda place: kit.membership.partition(topics.stored_in(place)).leader_epoch,
        )
        self._deleted: set[UUID] = set()  # topics of the inventory whose states are to be deleted
        kit.streams.listeners.append(self._stream_changed)
        server = kit.caller.server
        server.handle(READ_STATE, self.states.read)
        server.handle(WRITE_STATE, self.states.write)
        server.handle(CHANGE_STATES, self.states.change)
        server.handle(LOCATE, self._locate)
        server.handle(DROP, self._drop)

    # -- locations of groups ------------------------------------------------------------------------

    def locate(self, keys: Iterable[ShareKey], done: LocatedDone) -> None:
        """The group's offsets in partitions, at any leader: None if it has no state for one."""
        found: dict[ShareKey, ShareOffset | DuramenError | None] = {}
        self._ask_leaders(keys, found, partial(done, found))

    def _ask_leaders(
        self, keys: Iterable[ShareKey], found: dict[ShareKey, ShareOffset | DuramenError | None],
        done: Callable[[], None],
    ) -> None:  # fmt: skip
        by_leader: dict[int | None, list[ShareKey]] = {}
        for key in keys:
            leader = self._kit.membership.partition(self._persister.stored_in(key)).leader
            by_leader.setdefault(leader, []).append(key)
        parts = Countdown(done, len(by_leader) + 1)

        def answered(mine: Sequence[ShareKey], answer: Located | DuramenError) -> None:
            found.update(_located(mine, answer))
            parts.count_down()

        for mine in by_leader.values():
            self._persister.locate(mine, partial(answered, mine))
        parts.count_down()

    def lags(self, groups: Sequence[str], done: Callable[[Sequence[int | None]], None]) -> None:
        """The number of records that groups are not done with, each over the partitions that it has begun to read.

        None: it has begun to read none, or a leader did not answer within two seconds.
        """
        keys = [self._keys(group) for group in groups]

        def located(found: Mapping[ShareKey, ShareOffset | DuramenError | None]) -> None:
            done([_lag([found[key] for key in mine]) for mine in keys])

        self.locate_in_time([*chain.from_iterable(keys)], located)

    def locate_in_time(self, keys: Sequence[ShareKey], done: LocatedDone) -> None:
        """As `locate`; partitions whose leaders did not answer within two seconds have an error."""
        found: dict[ShareKey, ShareOffset | DuramenError | None] = {}
        waiting = True

        def answer() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                deadline.cancel()
                done({key: found.get(key, _SILENT) for key in keys})

        deadline = self._kit.deadlines.at(self._kit.clock.monotonic_ms() + _LAGS_MS, answer)
        self._ask_leaders(keys, found, answer)

    def _keys(self, group: str) -> list[ShareKey]:
        """The share partitions of a group; none if its record cannot be read now."""
        try:
            return self.inventory.keys(group)
        except DuramenError:
            return []

    def _locate(self, request: Locate, done: Answered[Located]) -> None:
        """Answer for partitions led here, some at a time: the lag in a queue takes a count of its entries."""
        places: list[Place] = [None] * len(request.keys)
        refused: list[Refused | None] = [None] * len(request.keys)
        parts = Countdown(lambda: done(Located(tuple(places), tuple(refused))), len(request.keys) + 1)

        def answered(at: int, found: ShareOffset | DuramenError | None) -> None:
            if isinstance(found, DuramenError):
                refused[at] = Refused.of(found)
            elif found is not None:
                places[at] = (found.start_offset, found.leader_epoch, found.lag)
            parts.count_down()

        def step(begin: int) -> None:
            for at, key in enumerate(request.keys[begin : begin + _COUNTED_AT_ONCE], begin):
                self.sharing.offset(share_key(key), partial(answered, at))
            if begin + _COUNTED_AT_ONCE < len(request.keys):
                self._kit.store.soon(partial(step, begin + _COUNTED_AT_ONCE))
            else:
                parts.count_down()

        step(0)

    def _drop(self, request: Drop, done: Answered[StatesChanged]) -> None:
        self.sharing.drop(map(share_key, request.keys))
        done(StatesChanged())

    # -- the node -----------------------------------------------------------------------------------

    def started(self, done: Done) -> None:
        """A standalone node repairs the leftovers of a crash or of an earlier version, once its states are loaded."""
        if not self._alone or not self.stream.ready:
            done(None)
            return

        def loaded(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self.states.each(mend)

        def mend(kept: list[Kept]) -> None:
            keys = [key for key, _ in kept]
            self.states.forget_deleted(keys)
            self.inventory.adopt(keys, done)

        self._kit.runtime.when_loaded(SHARE_STATE_STREAM, loaded)

    def is_gone(self, stream_id: StreamId) -> bool:
        """Whether a stream, or the space of a queue with that topic id, is known to be deleted."""
        return not self.topics.exists(stream_id) and (self._alone or self._kit.membership.is_gone(stream_id))

    def _stream_changed(self, stream: Stream) -> None:
        if stream.deleted:
            self.states.forget_topics(self.topics.gone_with(stream))

    def tidy(self) -> None:
        """Drop unused share partitions, truncate the log of states, and forget topics of the inventory that are gone.

        A deleted topic may be known here no earlier: its shard and its states may have other leaders.
        """
        self.sharing.tidy()
        self.states.tidy()
        self.states.each(self._find_gone)

    def _find_gone(self, kept: Sequence[Kept]) -> None:
        topics = self.sharing.topic_ids | self.inventory.topic_ids() | {key.topic_id for key, _ in kept}
        lasting = [topic_id for topic_id in topics if self.topics.lasting.is_lasting(topic_id)]
        if lasting:
            self.topics.lasting.find_gone(lasting, self._forget)

    def topic_deleted(self, lasting_id: UUID) -> None:
        """A topic of the inventory is deleted, on a standalone node."""
        if not self._deleted:
            self._kit.deadlines.at(self._kit.clock.monotonic_ms() + _DELETED_MS, self._forget_deleted)
        self._deleted.add(lasting_id)

    def _forget_deleted(self) -> None:
        deleted, self._deleted = frozenset(self._deleted), set()
        self._forget(deleted)

    def _forget(self, gone: frozenset[UUID]) -> None:
        if gone:
            self.inventory.forget_topics(gone.__contains__)
            self.states.forget_topics(gone.__contains__)
            self.sharing.forget_topics(gone)


def _lag(found: Sequence[ShareOffset | DuramenError | None]) -> int | None:
    """Of partitions in which a group has this offset, an error, or none."""
    if any(isinstance(one, DuramenError) for one in found):
        return None
    lags = [one.lag for one in found if isinstance(one, ShareOffset) and one.lag >= 0]
    return sum(lags) if lags else None


def _located(
    keys: Sequence[ShareKey], answer: Located | DuramenError
) -> dict[ShareKey, ShareOffset | DuramenError | None]:
    if isinstance(answer, DuramenError):
        return dict.fromkeys(keys, answer)
    if not len(keys) == len(answer.places) == len(answer.refused):
        return dict.fromkeys(keys, OutcomeUnknown(f"{len(answer.places)} places answer for {len(keys)}"))
    return {
        key: refused.error() if refused is not None else None if place is None else ShareOffset(*place)
        for key, place, refused in zip(keys, answer.places, answer.refused, strict=True)
    }
