"""The views of the keyed streams of a node: one for each partition with a replica on it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from duramen.base.catalogue.keyed import KEYED, LIVE_TOPIC
from duramen.base.countdown import Countdown
from duramen.base.deadlines import Deadlines
from duramen.base.errors import ConfigInvalid, DuramenError, NodeStopping, SnapshotNotReached, StreamNotKeyed
from duramen.base.ids import StreamId
from duramen.base.ports import Clock, Randomness
from duramen.base.units import format_bytes
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams, Stream
from duramen.broker.views.files import VIEWS_DIRECTORY, ViewFiles
from duramen.broker.views.floorfile import FLOORS_DIRECTORY, FloorFile
from duramen.broker.views.floors import ReplicaFloor
from duramen.broker.views.keys import ClusterKeys
from duramen.broker.views.parts import ViewLimits, ViewParts, ViewTimes
from duramen.broker.views.running_view import RunningView
from duramen.broker.views.unkeyed_records import UnkeyedSearch
from duramen.keyed.hashing import SECRET_BYTES
from duramen.keyed.native import kernel
from duramen.metadata.features import LATEST_LEVEL, MetadataFeature
from duramen.storage.planning.compaction import Superseded
from duramen.storage.store import Store

__all__ = ["KeyedViews"]

_LIMITS: Final = ViewLimits()
_LEAST_FILED_BYTES: Final = 1 << 20
"""A smaller table does not go into files to make room."""
_TOO_OLD: Final = (
    "keyed=true needs the feature level {level}, and the cluster is at {now}: once all nodes are of this version, raise"
    " it with `duramen cluster upgrade`"
)


class _Undecided:
    """`LogView` of a partition that has no view yet: nothing of it goes."""

    def decide(
        self, first: int, end: int, cleaned_as_of: int | None, done: Callable[[Superseded | None], None]
    ) -> None:
        del first, end, cleaned_as_of
        done(None)

    def dropped(self, decided: Superseded, kept: bytearray) -> None:
        """Nothing was decided."""


_UNDECIDED: Final = _Undecided()


class KeyedViews:
    """By stream id and partition."""

    def __init__(
        self,
        streams: BrokerStreams,
        store: Store,
        clock: Clock,
        deadlines: Deadlines,
        randomness: Randomness,
        report: Callable[[str], None],
        oldest_lease: Callable[[StreamId, int], int | None] = lambda _stream_id, _partition: None,
        oldest_reader: Callable[[Stream, int], int | None] = lambda _stream, _partition: None,
        *,
        alone: bool,
        limit_bytes: int,
        feature_level: Callable[[], int] = lambda: LATEST_LEVEL,
        limits: ViewLimits = _LIMITS,
    ) -> None:
        """All views together take at most `limit_bytes` of memory, plus the last piece of a log.

        `oldest_reader` is the position of the furthest-behind reader of a live topic.
        `oldest_lease` is the oldest position of a partition that a lease holds; None if there is none.
        """
        self._streams = streams
        self._store = store
        self._clock = clock
        self._deadlines = deadlines
        self._randomness = randomness
        self._report = report
        self._alone = alone
        self._feature_level = feature_level
        self._limits = limits
        self._running: dict[str, RunningView] = {}
        self._closing: set[str] = set()
        self._stopping = False
        self.keys: ClusterKeys | None = None  # on a cluster
        self._openings: dict[object, tuple[StreamId, Mapping[int, int]]] = {}
        self._oldest_lease = oldest_lease
        self._oldest_reader = oldest_reader
        self._limit_bytes = limit_bytes
        store.scrubber.others.append(self.running)
        streams.listeners.append(self._changed)

    def find(self, partition: Partition, stream: Stream) -> RunningView | None:
        """The view of a partition; None where it has none."""
        return self._running.get(_name(stream, partition.index))

    def get(self, stream: Stream, index: int) -> RunningView:
        """The view of a partition. Raises StreamNotFound, StreamNotKeyed, NotLeader, SnapshotNotReached …"""
        partition = stream.partition(index)
        if not stream.keyed:
            raise StreamNotKeyed(f"stream {stream.name} is not keyed")
        partition.check_holds()
        found = self.find(partition, stream)
        if found is not None:
            return found
        if self._stopping:
            raise NodeStopping("the node is stopping")
        if not self._alone or _name(stream, index) in self._closing:
            raise SnapshotNotReached(f"the view of a partition of {stream.name} is not open yet: retry")
        raise StreamNotKeyed(f"stream {stream.name} has no view: its durability is memory")

    def hold(self, stream: Stream, positions: Mapping[int, int]) -> Callable[[], None]:
        """Hold S0 at these positions, while a lease on them is stored, until the result is called."""
        opening = object()
        self._openings[opening] = stream.id, positions

        def release() -> None:
            self._openings.pop(opening, None)

        return release

    def _oldest_held(self, stream_id: StreamId, partition: int) -> int | None:
        openings = [positions for held_id, positions in self._openings.values() if held_id == stream_id]
        held = [positions[partition] for positions in openings if partition in positions]
        lease = self._oldest_lease(stream_id, partition)
        return min(held if lease is None else [lease, *held], default=None)

    @property
    def memory_bytes(self) -> int:
        """The memory of all views."""
        return sum(view.facts.memory_bytes for view in self._running.values())

    def _crowded(self) -> str:
        taken = self.memory_bytes
        if taken < self._limit_bytes:
            return ""
        filled = [view for view in self._running.values() if view.facts.table_bytes >= _LEAST_FILED_BYTES]
        if filled:
            max(filled, key=lambda view: view.facts.table_bytes).file_table()
        return (
            f"the views of keyed streams take {format_bytes(taken)}, and {format_bytes(self._limit_bytes)} of "
            "memory.limit.bytes are allowed: raise it"
        )

    def running(self) -> Sequence[RunningView]:
        """All there are."""
        return list(self._running.values())

    def check_keys(
        self, name: str, config: Mapping[str, str | None], done: Callable[[DuramenError | None], None]
    ) -> None:
        """Look for records without a key where this config makes a stream keyed; `done` gets ConfigInvalid, or None."""
        stream = self._streams.find(name)
        wanted = (config.get(KEYED) or "").strip().lower() == "true"
        if stream is None or stream.keyed or not wanted:
            done(None)
        elif self.keys is not None:
            self.keys.check(stream, done)
        else:
            UnkeyedSearch(stream, self._store, done).start()

    def check_config(self, config: Mapping[str, str | None]) -> None:
        """Raise ConfigInvalid where a stream is to be keyed and cannot be here."""
        wanted = (config.get(KEYED) or "").strip().lower() == "true"
        level = self._feature_level()
        if wanted and not self._alone and level < MetadataFeature.KEYED:
            raise ConfigInvalid(_TOO_OLD.format(level=int(MetadataFeature.KEYED), now=level))

    def remove_leftovers(self) -> None:
        """Remove the files of views that no stream has any more."""
        keyed = [stream for stream in self._streams if stream.keyed]
        if not (keyed or self._alone):
            return  # a member of a cluster without keyed streams has other things to do as it joins
        known = frozenset(_name(stream, partition.index) for stream in keyed for partition in stream.partitions)
        self._store.run(self._leftovers(known), lambda _: None)

    def _leftovers(self, known: frozenset[str]) -> Callable[[], None]:
        files = self._store.files

        def job() -> None:
            if files.exists(VIEWS_DIRECTORY):
                for name in files.names(VIEWS_DIRECTORY):
                    if name not in known:
                        files.remove_directory(f"{VIEWS_DIRECTORY}/{name}")
            if files.exists(FLOORS_DIRECTORY):
                for name in files.names(FLOORS_DIRECTORY):
                    if name not in known:
                        files.unlink(f"{FLOORS_DIRECTORY}/{name}")

        return job

    def stop(self, done: Callable[[], None]) -> None:
        """Write checkpoints; nothing is applied any more."""
        self._stopping = True
        left = list(self._running.values())
        self._running = {}
        parts = Countdown(done, len(left) + 1)
        for one in left:
            one.close(remove=False, done=parts.count_down)
        parts.count_down()

    def _changed(self, stream: Stream) -> None:
        if self._stopping:
            return
        keyed = stream.keyed and not stream.deleted and stream.config.text("durability") != "memory"
        config = stream.config
        times = ViewTimes(
            config.integer("snapshot.retention.ms"),
            config.integer("delete.retention.ms"),
            bool(config.text(LIVE_TOPIC)),
        )
        for partition in stream.partitions:
            name = _name(stream, partition.index)
            found = self._running.get(name)
            wanted = keyed and (self._alone or partition.log.replicated is not None)
            self._watch(partition, stream, keyed=keyed)
            if name in self._closing:
                continue  # it is looked at again once its files are gone
            if found is None and wanted:
                self._start(name, stream, partition, times)
            elif found is not None and wanted:
                found.use(times)
            elif found is not None:
                del self._running[name]
                self._closing.add(name)
                gone = not keyed or found.log is not partition.log
                found.close(remove=gone, done=partial(self._removed, name, stream))

    def _watch(self, partition: Partition, stream: Stream, *, keyed: bool) -> None:
        """Of a keyed partition nothing is compacted without a view, and whether it has a replica here may change."""
        if self._alone:
            return
        if keyed and partition.placed is None:
            partition.placed = lambda _: self._changed(stream)
        elif not keyed:
            partition.placed = partition.snapshots = None
        log = partition.log
        if keyed and log.view is None:
            log.view = _UNDECIDED
        elif not keyed and log.view is _UNDECIDED:
            log.view = None

    def _removed(self, name: str, stream: Stream) -> None:
        self._closing.discard(name)
        if not stream.deleted:
            self._changed(stream)

    def _start(self, name: str, stream: Stream, partition: Partition, times: ViewTimes) -> None:
        parts = ViewParts(
            self._store, self._clock, self._deadlines, kernel(), self._report, self._crowded, self._limits,
            self._limit_bytes,
        )  # fmt: skip
        files = ViewFiles(self._store.files, f"{VIEWS_DIRECTORY}/{name}", self._limits.page_records)
        secret = self._randomness.token(SECRET_BYTES)
        held = partial(self._oldest_held, stream.id, partition.index)
        file = FloorFile(self._store.files, name)
        floor = None if self._alone else ReplicaFloor(partition, file, held)
        self._running[name] = view = RunningView(
            partition, stream.id.bytes, files, secret, times, parts, held, floor,
            partial(self._oldest_reader, stream, partition.index),
        )  # fmt: skip
        view.start()


def _name(stream: Stream, index: int) -> str:
    return f"{stream.id}-{index}"
