"""What share groups have of the streams: share partitions that are in use, and what an operator does with them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, ShareGroupUnknown, StreamNotFound, UnsupportedFeature
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.base.settings import Settings
from duramen.broker.partition import Partition
from duramen.broker.sharing_configs import ShareConfig, share_config
from duramen.broker.sharing_fetch import Answer, ShareFetcher, ShareLimits
from duramen.broker.sharing_partition import Acknowledged, ShareCounts, SharePartition
from duramen.broker.sharing_state import ShareStates
from duramen.broker.streams import Stream, Streams
from duramen.delivery.spans import Phase
from duramen.groups.share_records import UNKNOWN_START, ShareKey, ShareState
from duramen.storage.store import Store

__all__ = ["ShareOffset", "Sharing"]

_IDLE_MS: Final = 600_000
_MOST_CONFIGS: Final = 10_000
_MOST_STATE_RECORDS: Final = 100_000

Done = Callable[[DuramenError | None], None]


class ShareOffset(NamedTuple):
    """Where a group is in a partition: -1 and no lag where it has not begun to read it."""

    start_offset: int
    leader_epoch: int
    lag: int


class Sharing:
    """The share partitions of this node."""

    def __init__(
        self,
        states: ShareStates,
        streams: Streams,
        store: Store,
        clock: Clock,
        deadlines: Deadlines,
        settings: Settings,
        configs: Callable[[str], Mapping[str, str]],
        metrics: Metrics,
    ) -> None:
        """`configs` gives the configs that a group has of its own."""
        self.states = states
        self._streams = streams
        self._store = store
        self._clock = clock
        self._deadlines = deadlines
        self._settings = settings
        self._configs = configs
        self._counts = ShareCounts(metrics)
        self._updates_per_snapshot = settings.integer("share.coordinator.snapshot.update.records.per.snapshot")
        self._partitions: dict[ShareKey, SharePartition] = {}
        self._config: dict[str, ShareConfig] = {}
        streams.listeners.append(self._stream_changed)

    def check_served(self) -> None:
        """Raise UnsupportedFeature where share groups cannot be served: their state would lie with another leader."""
        if not self.states.alone:
            raise UnsupportedFeature("share groups are served by a node that is alone, not by a cluster")

    # -- consumers ----------------------------------------------------------------------------------

    def config(self, group: str) -> ShareConfig:
        """What a group is configured like."""
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
        """A share partition, taken into use if need be; or why there is none."""
        found = self._partitions.get(key)
        if found is not None:
            return found
        stream = self._streams.find_id(key.topic_id)
        if stream is None or not 0 <= key.partition < len(stream.partitions):
            return StreamNotFound("no such topic")
        if self.states.get(key) is None:
            return ShareGroupUnknown(f"group {key.group} has no share of partition {key.partition} of {stream.name}")
        found = SharePartition(
            key, stream.partitions[key.partition], self.states, self._clock, self._deadlines,
            partial(self.config, key.group), self._updates_per_snapshot, self._counts,
        )  # fmt: skip
        self._partitions[key] = found
        return found

    def fetch(self, keys: Sequence[ShareKey], owner: str, limits: ShareLimits, done: Answer) -> ShareFetcher:
        """Have `owner` acquire records of share partitions of one group, looked at in their order."""
        wanted = [self.find(key) for key in keys]
        committed = bool(keys) and self.config(keys[0].group).committed
        fetcher = ShareFetcher(
            self._store, self._clock, self._deadlines, wanted, owner, limits, committed, done
        )  # fmt: skip
        fetcher.start()
        return fetcher

    def acknowledge(self, key: ShareKey, owner: str, batches: Sequence[Acknowledged], done: Done) -> None:
        """Take in what a consumer says of records that it holds; `done` once it is durable."""
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
        """A consumer's session ends: what it holds of these is available again; `done` once that is durable."""
        left = 1

        def released(_: DuramenError | None) -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for key in keys:
            found = self._partitions.get(key)
            if found is not None and found.loaded:
                left += 1
                found.release(owner, released)
        released(None)

    # -- groups -------------------------------------------------------------------------------------

    def prepare(self, group: str, wanted: Iterable[Partition], done: Done) -> None:
        """See to it that a group has a share of these partitions, durably.

        As in Apache Kafka it begins with the first record of a partition that is new in a stream which it reads
        already: what was written there before the group came to it is not left out.
        """
        read = {key.topic_id for key in self.states.of_group(group)}
        new = []
        for partition in wanted:
            key = self.key(group, partition)
            if not self.states.knows(key):
                start = 0 if key.topic_id in read else UNKNOWN_START
                new.append((key, ShareState(start, leader_epoch=partition.leader_epoch)))
        self.states.write_all(new, done)

    def key(self, group: str, partition: Partition) -> ShareKey:
        """The share partition of a group and a partition."""
        return ShareKey(group, partition.log.key.stream_id, partition.index)

    def remove(self, keys: Sequence[ShareKey], done: Done) -> None:
        """Forget share partitions."""
        for key in keys:
            self._drop(key)
        self.states.write_all([(key, None) for key in keys], done)

    def _drop(self, key: ShareKey) -> None:
        found = self._partitions.pop(key, None)
        if found is not None:
            found.close()

    def reset(self, group: str, starts: Sequence[tuple[Partition, int]], done: Done) -> None:
        """Have a group without members begin anew at these offsets; what was acknowledged is forgotten."""
        states = []
        for partition, start in starts:
            key = self.key(group, partition)
            self._drop(key)
            known = self.states.get(key) or ShareState()
            states.append(
                (
                    key,
                    ShareState(
                        start, (), known.snapshot_epoch + 1, known.state_epoch + 1, partition.leader_epoch,
                        known.created_ms,
                    ),
                )
            )  # fmt: skip
        self.states.write_all(states, done)

    def offset(self, key: ShareKey) -> ShareOffset | None:
        """Where a group is in a partition; None where it has no share of it. Raises BatchCorrupt."""
        found = self._partitions.get(key)
        state = found.state() if found is not None and found.loaded else self.states.get(key)
        stream = self._streams.find_id(key.topic_id)
        if state is None or stream is None or not key.partition < len(stream.partitions):
            return None
        if state.start_offset == UNKNOWN_START:
            return ShareOffset(UNKNOWN_START, state.leader_epoch, -1)
        log = stream.partitions[key.partition].log
        start = max(state.start_offset, log.start_offset)
        over = 0
        for first, last, phase, _ in state.states:
            if phase is Phase.AVAILABLE or last < start:
                continue
            if first <= start:
                start = last + 1
            else:
                over += last - first + 1
        return ShareOffset(start, state.leader_epoch, max(0, log.high_watermark - start - over))

    # -- the node -----------------------------------------------------------------------------------

    def _stream_changed(self, stream: Stream) -> None:
        if not stream.deleted:
            return
        gone = [key for key in self.states.each() if key.topic_id == stream.id] if self.states.ready else []
        for key in [key for key in self._partitions if key.topic_id == stream.id]:
            self._drop(key)
        self.states.write_all([(key, None) for key in gone], lambda _: None)

    def forget_deleted(self) -> None:
        """After a start: a crash may have come between a stream's deletion and this."""
        gone = [key for key in self.states.each() if self._streams.find_id(key.topic_id) is None]
        if self.states.ready and self.states.alone:
            self.states.write_all([(key, None) for key in gone], lambda _: None)

    def tidy(self) -> None:
        """Forget share partitions that nobody has used for a while, and cut the log of their states."""
        before_ms = self._clock.monotonic_ms() - _IDLE_MS
        for key, found in list(self._partitions.items()):
            if found.used_ms < before_ms and found.idle:
                self._drop(key)
        if self.states.alone:
            self.states.prune(_MOST_STATE_RECORDS, self._rewrite)

    def _rewrite(self, key: ShareKey) -> None:
        found = self._partitions.get(key)
        if found is not None and found.loaded:
            found.rewrite()
            return
        state = self.states.get(key)
        if state is not None and found is None:
            self.states.write_all([(key, state._replace(snapshot_epoch=state.snapshot_epoch + 1))], lambda _: None)
