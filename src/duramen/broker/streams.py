"""The streams of a node, from the metadata, with their partitions and effective configs."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from uuid import uuid5

import msgspec

from duramen.base.catalogue.keyed import KEYED, LIVE_TOPIC
from duramen.base.catalogue.queues import KIND, LOG_RETENTION_MS, QUEUES, SHARD_MAX_BYTES, SHARD_MAX_ENTRIES
from duramen.base.errors import DuramenError, LiveTopicReadOnly, StreamNotFound
from duramen.base.ids import StreamId
from duramen.base.metrics import Counter, Metrics
from duramen.base.ports import Clock
from duramen.base.settings import Settings
from duramen.broker.partition import Partition
from duramen.broker.recompression import Form, Recompressing
from duramen.broker.role import Role
from duramen.broker.stream_configs import UNCHANGED, ChangedDefaults, StreamConfig
from duramen.metadata.state import StreamState
from duramen.storage.log.log import NEVER, LogKey
from duramen.storage.store import Store

__all__ = ["BrokerStreams", "Stream"]

_PARTITIONS_AT_ONCE: Final = 200  # a few milliseconds
_DECODED_SHARE: Final = 8  # a batch that the broker decompresses may take an eighth of memory.limit.bytes


class Stream:
    """A stream and its partitions. The config's values that the hot path needs are plain attributes."""

    __slots__ = (
        "_decoded_limit_bytes",
        "_store",
        "append_time",
        "batch_bytes",
        "batch_records",
        "bytes_in",
        "bytes_out",
        "compacted",
        "config",
        "decoded_limit_bytes",
        "deleted",
        "hash_key",
        "id",
        "kept",
        "keyed",
        "kind",
        "live_of",
        "log_retention_ms",
        "max_message_bytes",
        "name",
        "owned",
        "partitions",
        "recompressing",
        "records_in",
        "records_out",
        "shard_limits",
        "shards",
        "state",
        "takes_as_is",
        "timestamp_after_ms",
        "timestamp_before_ms",
    )

    def __init__(
        self, state: StreamState, config: StreamConfig, metrics: Metrics, store: Store, *, decoded_limit_bytes: int
    ) -> None:
        """`decoded_limit_bytes`: how large a batch may become where the broker has to look into it."""
        self._store = store
        self._decoded_limit_bytes = decoded_limit_bytes
        self.recompressing: Recompressing | None = None
        self.live_of: Stream | None = None
        self.name = state.name
        self.id: StreamId = state.id
        self.partitions: list[Partition] = []
        self.deleted = False
        # Not among the metrics by name, which would cost many idle streams their memory: they are looked up here.
        self.records_in = Counter()
        self.bytes_in = Counter()
        self.records_out = Counter()
        self.bytes_out = Counter()
        self.batch_records = metrics.histogram("duramen_batch_records")
        self.batch_bytes = metrics.histogram("duramen_batch_bytes")
        self.update(state, config)

    def update(self, state: StreamState, config: StreamConfig) -> None:
        """Take over a changed definition."""
        self.state = state
        self.config = config
        self.max_message_bytes = config.integer("max.message.bytes")
        self.append_time = config.text("message.timestamp.type") == "LogAppendTime"
        self.timestamp_before_ms = config.integer("message.timestamp.before.max.ms")
        self.timestamp_after_ms = config.integer("message.timestamp.after.max.ms")
        self.decoded_limit_bytes = min(self._decoded_limit_bytes, config.integer("max.decompressed.message.bytes"))
        form = Form.of(config.text("compression.type"), config.integer)
        if form.codec is not None and self.recompressing is None:
            self.recompressing = Recompressing(self._store)
        if self.recompressing is not None:
            self.recompressing.form, self.recompressing.limit_bytes = form, self.decoded_limit_bytes
        self.compacted = "compact" in config.text("cleanup.policy")
        self.keyed = bool(config[KEYED])
        self.kind = config.text(KIND)
        self.log_retention_ms = config.integer(LOG_RETENTION_MS)
        self.shards = state.partitions if self.kind == QUEUES else 0
        self.hash_key = state.hash_key
        self.shard_limits = config.integer(SHARD_MAX_ENTRIES), config.integer(SHARD_MAX_BYTES)
        self.owned = bool(self.shards) and state.internal
        self.kept = ""
        if self.shards:
            self.kept = f"{self.name} is a queue space: its entries are deleted one by one"
        elif state.internal:
            self.kept = f"{self.name} is the broker's own"
        elif self.compacted and "delete" not in config.text("cleanup.policy"):
            self.kept = f"the cleanup.policy of {self.name} is compact: records are deleted by tombstones"
        self.takes_as_is = not (
            state.internal
            or self.shards
            or self.compacted
            or self.append_time
            or self.recompressing is not None
            or self.timestamp_before_ms < NEVER
        )

    @property
    def internal(self) -> bool:
        """Whether it is one of the broker's own."""
        return self.state.internal

    @property
    def subjects(self) -> tuple[str, ...]:
        """The NATS subjects bound to it."""
        return self.state.subjects

    def partition(self, index: int) -> Partition:
        """The partition of that number. Raises StreamNotFound."""
        if 0 <= index < len(self.partitions):
            return self.partitions[index]
        raise StreamNotFound(f"stream {self.name} has no partition {index}")


class BrokerStreams:
    """Every stream, by name and by id."""

    def __init__(
        self, store: Store, settings: Settings, clock: Clock, metrics: Metrics, first_role: Role | None = None
    ) -> None:
        """`first_role` is this node's role for a partition before its first state."""
        self._first_role = first_role
        self._store = store
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._by_name: dict[str, Stream] = {}
        self._names: list[str] = []  # in order, so that a page of them costs no look at the others
        self._by_key: dict[str | StreamId, Stream] = {}  # by name and by id
        self._topics: dict[str | StreamId, Stream] = {}  # these, and live topics
        self._live: dict[StreamId, Stream] = {}  # live topics by the ids of their streams
        self._read_only: dict[str | StreamId, DuramenError] = {}
        self._growing: dict[StreamId, Stream] = {}  # those whose partitions are being made
        self._waiting: dict[StreamId, list[Callable[[], None]]] = {}  # for the partitions of such a stream
        self._configs: dict[frozenset[tuple[str, str]], StreamConfig] = {}
        self._changed = UNCHANGED
        self._decoded_limit_bytes = settings.integer("memory.limit.bytes") // _DECODED_SHARE
        self._gauge = metrics.counter("duramen_streams")
        self.listeners: list[Callable[[Stream], object]] = []  # called with a stream that is new, changed or deleted

    def __iter__(self) -> Iterator[Stream]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def by_name(self) -> Mapping[str, Stream]:
        """Streams by name."""
        return MappingProxyType(self._by_name)

    @property
    def by_key(self) -> Mapping[str | StreamId, Stream]:
        """Streams and live topics by name and by id."""
        return MappingProxyType(self._topics)

    @property
    def read_only(self) -> Mapping[str | StreamId, DuramenError]:
        """By names and ids of live topics why they cannot be changed."""
        return MappingProxyType(self._read_only)

    @property
    def live_topics(self) -> Sequence[Stream]:
        """The live topics, in the order of their names."""
        return sorted(self._live.values(), key=lambda topic: topic.name)

    def readable(self, key: str | StreamId) -> Stream | None:
        """The stream or live topic of that name or id."""
        return self._topics.get(key)

    def from_name(self, first: str) -> Iterator[Stream]:
        """The streams in the order of their names, from that one on, or from the next where there is none."""
        for at in range(bisect_left(self._names, first), len(self._names)):
            yield self._by_name[self._names[at]]

    def find(self, name: str) -> Stream | None:
        """The stream of that name."""
        return self._by_name.get(name)

    def find_id(self, stream_id: StreamId) -> Stream | None:
        """The stream of that id."""
        return self._by_key.get(stream_id)

    def get(self, name: str) -> Stream:
        """The stream of that name. Raises StreamNotFound."""
        stream = self._by_name.get(name)
        if stream is None:
            raise StreamNotFound(f"there is no stream {name}")
        return stream

    def put(self, state: StreamState, *, at_once: bool = False) -> Stream:
        """The stream is defined like this from here on.

        Many partitions are created a few at a time, so that only the request for them waits, unless `at_once`. A new
        stream is found when all of them exist: see `when_whole`.
        """
        config = self._config(state)
        growing = self._growing.get(state.id)
        stream = growing or self._by_key.get(state.id)
        if stream is None:
            stream = Stream(state, config, self._metrics, self._store, decoded_limit_bytes=self._decoded_limit_bytes)
        else:
            stream.update(state, config)
        log_config = config.log_config()
        for partition in stream.partitions:
            self._store.configure(partition.log, log_config)
        if state.name in self._by_name:
            self._show_live(stream)
        if growing is None:
            self._growing[state.id] = stream
            self._grow(stream, state.partitions if at_once else _PARTITIONS_AT_ONCE)
        return stream

    def _grow(self, stream: Stream, count: int) -> None:
        if stream.deleted:
            return
        log_config = stream.config.log_config()
        end = min(stream.state.partitions, len(stream.partitions) + count)
        for index in range(len(stream.partitions), end):
            key, forgotten_id = LogKey(stream.id, index), stream.state.forgotten_producer_id
            log = self._store.ensure(key, log_config, forgotten_id=forgotten_id)
            stream.partitions.append(Partition(stream, index, log, self._store, self._clock, self._first_role))
        if end < stream.state.partitions:
            self._store.soon(lambda: self._grow(stream, count))
            return
        del self._growing[stream.id]
        if stream.name not in self._by_name:
            insort(self._names, stream.name)
        self._by_name[stream.name] = self._by_key[stream.name] = self._by_key[stream.id] = stream
        self._topics[stream.name] = self._topics[stream.id] = stream
        self._show_live(stream)
        self._gauge.value = len(self._by_name)
        self._tell(stream)
        self._wake(stream)

    def _show_live(self, stream: Stream) -> None:
        """A live topic has the partitions of its stream; only reads find it."""
        before, name = self._live.pop(stream.id, None), "" if stream.deleted else stream.config.text(LIVE_TOPIC)
        if before is not None:
            for key in (before.name, before.id):
                del self._topics[key], self._read_only[key]
            before.deleted = before.name != name
        if not name:
            return
        state = msgspec.structs.replace(stream.state, name=name, id=uuid5(stream.id, name), subjects=())
        topic = Stream(
            state, stream.config, self._metrics, self._store, decoded_limit_bytes=self._decoded_limit_bytes
        )  # fmt: skip
        topic.partitions, topic.live_of = stream.partitions, stream
        self._live[stream.id] = topic
        for key in (topic.name, topic.id):
            self._topics[key] = topic
            self._read_only[key] = LiveTopicReadOnly(
                f"{name} is the live topic of stream {stream.name}: Kafka consumers read it, and it cannot be changed"
            )

    def _wake(self, stream: Stream) -> None:
        for action in self._waiting.pop(stream.id, ()):
            action()

    def when_whole(self, name: str, action: Callable[[], None]) -> None:
        """Do `action` once no partition of the stream is still to be made: now, or later, or when it is deleted."""
        growing = next((stream.id for stream in self._growing.values() if stream.name == name), None)
        if growing is None:
            action()
        else:
            self.when_made(growing, action)

    def when_made(self, stream_id: StreamId, action: Callable[[], None]) -> None:
        """As `when_whole`, of a stream by its id."""
        if stream_id in self._growing:
            self._waiting.setdefault(stream_id, []).append(action)
        else:
            action()

    def _tell(self, stream: Stream) -> None:
        for listener in self.listeners:
            listener(stream)

    def _config(self, state: StreamState) -> StreamConfig:
        # Most streams share a few configs: one object each keeps a hundred thousand streams small.
        key = frozenset(state.config.items())
        if key not in self._configs:
            self._configs[key] = StreamConfig(self._settings, state.config, self._changed)
        return self._configs[key]

    def reconfigure(self, changed: ChangedDefaults) -> None:
        """Settings of the node have changed: the streams whose defaults they are follow, a few at a time."""
        self._changed = changed
        self._configs = {}
        self._follow([*self._by_name.values(), *self._growing.values()])

    def _follow(self, left: list[Stream]) -> None:
        for stream in left[:_PARTITIONS_AT_ONCE]:
            if not stream.deleted:
                self.put(stream.state)
        if len(left) > _PARTITIONS_AT_ONCE:
            self._store.soon(lambda: self._follow(left[_PARTITIONS_AT_ONCE:]))

    def remove(self, stream_id: StreamId) -> Stream | None:
        """The stream is deleted: its logs are deleted, and requests that wait for its records get an error."""
        growing = self._growing.pop(stream_id, None)
        stream = self._by_key.pop(stream_id, None)
        if stream is not None:
            del self._by_name[stream.name], self._by_key[stream.name]
            del self._names[bisect_left(self._names, stream.name)]
        stream = stream or growing
        if stream is None:
            return None
        stream.deleted = True
        self._topics.pop(stream.name, None)
        self._topics.pop(stream.id, None)
        self._show_live(stream)
        self._gauge.value = len(self._by_name)
        for partition in stream.partitions:
            self._store.delete(partition.log)
            partition.log.notify()
        self._metrics.forget("stream", stream.name)
        self._tell(stream)
        self._wake(stream)
        return stream
