"""The share partitions in use on this node, each at the leader of its partition."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.countdown import ErrorCountdown
from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, NotLeader, ShareGroupUnknown, StreamNotFound
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.base.settings import Settings
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams, Stream
from duramen.coordinators.group.share_configs import ShareConfig, share_config
from duramen.coordinators.share.fetch import Answer, ShareFetcher, ShareLimits
from duramen.coordinators.share.partition import Acknowledged, ShareCounts, SharePartition
from duramen.coordinators.share.persister import SharePersister
from duramen.coordinators.share.topics import SharedQueue, ShareTopics
from duramen.delivery.spans import DeliveryPhase
from duramen.groups.share_fencing import ANYBODY
from duramen.groups.share_records import UNKNOWN_START, ShareKey, ShareState
from duramen.storage.log.log import LogKey
from duramen.storage.store import Store

__all__ = ["ShareOffset", "Sharing"]

_IDLE_MS: Final = 600_000
_MOST_CONFIGS: Final = 10_000

Done = Callable[[DuramenError | None], None]
OffsetDone = Callable[["ShareOffset | DuramenError | None"], None]
"""Called with the group's offset, None if it has no state for the partition, or an error."""


class ShareOffset(NamedTuple):
    """A group's offset in a partition: -1 and no lag before its first read."""

    start_offset: int
    leader_epoch: int
    lag: int


class Sharing:
    """The share partitions of this node."""

    def __init__(
        self,
        persister: SharePersister,
        streams: BrokerStreams,
        topics: ShareTopics,
        store: Store,
        clock: Clock,
        deadlines: Deadlines,
        settings: Settings,
        configs: Callable[[str], Mapping[str, str]],
        metrics: Metrics,
    ) -> None:
        """`configs` returns the configs that a group overrides."""
        self._persister = persister
        self._topics = topics
        self._store = store
        self._clock = clock
        self._deadlines = deadlines
        self._settings = settings
        self._configs = configs
        self._counts = ShareCounts(metrics)
        self._partitions: dict[ShareKey, SharePartition] = {}
        self._groups: dict[LogKey, set[ShareKey]] = {}  # the share partitions in use, by partition that stores them
        self._config: dict[str, ShareConfig] = {}
        streams.listeners.append(self._stream_changed)

    # -- consumers ----------------------------------------------------------------------------------

    def config(self, group: str) -> ShareConfig:
        """The effective config of a group."""
        found = self._config.get(group)
        if found is None:
            if len(self._config) >= _MOST_CONFIGS:
                self._config.clear()
            found = self._config[group] = share_config(self._settings, self._configs(group))
        return found

    def reconfigured(self, group: str) -> None:
        """A group's configs have changed."""
        self._config.pop(group, None)

    def find(self, key: ShareKey) -> SharePartition | DuramenError:
        """A share partition, created if it is not in use; or the error."""
        source = self._topics.source((key.topic_id, key.partition))
        if source is None:
            return StreamNotFound("no such topic")
        found = self._partitions.get(key)
        if found is not None:
            return found
        partition, queue = source
        try:
            partition.check_leads()
        except DuramenError as error:
            return error
        found = SharePartition(
            key, partition, queue, self._persister, self._clock, self._deadlines, partial(self.config, key.group),
            self._counts, self._gone,
        )  # fmt: skip
        self._partitions[key] = found
        self._groups.setdefault(partition.log.key, set()).add(key)
        return found

    def _gone(self, one: SharePartition) -> None:
        """Later requests get a new one, which reads the stored state."""
        key = one.key
        if self._partitions.get(key) is one:
            del self._partitions[key]
            place = one.partition.log.key
            self._groups[place].discard(key)
            if not self._groups[place]:
                del self._groups[place]

    def fetch(self, keys: Sequence[ShareKey], owner: str, limits: ShareLimits, done: Answer) -> ShareFetcher:
        """Acquire records of one group's share partitions for `owner`, in their order."""
        wanted = [self.find(key) for key in keys]
        committed = bool(keys) and self.config(keys[0].group).committed
        fetcher = ShareFetcher(
            self._store, self._clock, self._deadlines, wanted, owner, limits, committed, done
        )  # fmt: skip
        fetcher.start()
        return fetcher

    def acknowledge(self, key: ShareKey, owner: str, batches: Sequence[Acknowledged], done: Done) -> None:
        """Apply a consumer's acknowledgements; calls `done` once they are durable."""
        found = self.find(key)
        if isinstance(found, DuramenError):
            done(found)
            return

        def loaded(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                found.acknowledge(owner, batches, done)

        found.load(loaded)

    def release(self, owner: str, keys: Iterable[ShareKey], done: Callable[[], None]) -> None:
        """A consumer's session ends: release its acquired records; calls `done` once that is durable."""
        parts = ErrorCountdown(lambda _: done())
        for key in keys:
            found = self._partitions.get(key)
            if found is not None and found.loaded:
                parts.add()
                found.release(owner, parts.count_down)
        parts.count_down()

    # -- requests of coordinators --------------------------------------------------------------------

    def drop(self, keys: Iterable[ShareKey]) -> None:
        """The stored states have changed: stop delivering by the ones in memory."""
        for key in keys:
            self._drop(key)

    def _drop(self, key: ShareKey) -> None:
        found = self._partitions.get(key)
        if found is not None:
            found.close()

    def offset(self, key: ShareKey, done: OffsetDone) -> None:
        """The group's offset in a partition that this node leads."""
        source = self._topics.source((key.topic_id, key.partition))
        if source is None:
            done(None)
            return
        try:
            source[0].check_leads()
        except DuramenError as error:
            done(error)
            return

        def read(state: ShareState | DuramenError) -> None:
            if isinstance(state, ShareGroupUnknown):
                done(None)
            else:
                done(state if isinstance(state, DuramenError) else _offset(state, *source))

        found = self._partitions.get(key)
        if found is not None and found.loaded:
            done(_offset(found.state(), *source))
        else:
            self._persister.read(key, ANYBODY, read)

    # -- the node -----------------------------------------------------------------------------------

    @property
    def topic_ids(self) -> set[UUID]:
        """The topics of share partitions in use."""
        return {key.topic_id for key in self._partitions}

    def forget_topics(self, gone: Collection[UUID]) -> None:
        """Topics are deleted."""
        self.drop([key for key in self._partitions if key.topic_id in gone])

    def led(self, partition: Partition) -> None:
        """The leader or the leader epoch of a partition has changed: states read in another epoch are obsolete."""
        for key in list(self._groups.get(partition.log.key, ())):
            self._partitions[key].close(NotLeader("this node led the partition in another epoch"))

    def _stream_changed(self, stream: Stream) -> None:
        if stream.deleted:
            for key in [key for key, found in self._partitions.items() if found.partition.stream is stream]:
                self._drop(key)

    def tidy(self) -> None:
        """Unload idle share partitions."""
        before_ms = self._clock.monotonic_ms() - _IDLE_MS
        for key, found in list(self._partitions.items()):
            if found.used_ms < before_ms and found.idle:
                self._drop(key)


def _offset(state: ShareState, partition: Partition, queue: SharedQueue | None) -> ShareOffset | DuramenError:
    if state.start_offset == UNKNOWN_START:
        return ShareOffset(UNKNOWN_START, state.leader_epoch, -1)
    if queue is not None:
        return _queue_offset(state, queue)
    log = partition.log
    start = max(state.start_offset, log.start_offset)
    over = 0
    for first, last, phase, _ in state.states:
        if phase is DeliveryPhase.AVAILABLE or last < start:
            continue
        if first <= start:
            start = last + 1
        else:
            over += last - first + 1
    return ShareOffset(start, state.leader_epoch, max(0, log.high_watermark - start - over))


def _queue_offset(state: ShareState, queue: SharedQueue) -> ShareOffset | DuramenError:
    """The lag counts entries, up to a number: offsets have gaps."""
    over = [(one.first, one.last) for one in state.states if one.phase is not DeliveryPhase.AVAILABLE]

    def is_over(offset: int) -> bool:
        at = bisect_right(over, (offset, offset)) - 1
        return any(first <= offset <= last for first, last in over[max(0, at) : at + 2])

    try:
        start, lag = queue.left_of(state.start_offset, is_over)
    except DuramenError as error:
        return error
    return ShareOffset(start, state.leader_epoch, lag)
