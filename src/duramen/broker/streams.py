"""The streams of a node: what the metadata says they are, with their partitions and the config in force."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from duramen.base.errors import StreamNotFound
from duramen.base.ids import StreamId
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.base.settings import Settings
from duramen.broker.configs import StreamConfig
from duramen.broker.partition import Partition
from duramen.controller.state import StreamState
from duramen.storage.log import LogKey
from duramen.storage.store import Store

__all__ = ["Stream", "Streams"]

_DECODED_SHARE: Final = 8  # a batch that the broker decompresses may take an eighth of memory.limit.bytes


class Stream:
    """A stream and its partitions. The config's values that the hot path needs are plain attributes."""

    __slots__ = (
        "append_time",
        "bytes_in",
        "bytes_out",
        "compacted",
        "config",
        "decoded_limit_bytes",
        "deleted",
        "id",
        "max_message_bytes",
        "name",
        "partitions",
        "records_in",
        "state",
        "timestamp_after_ms",
        "timestamp_before_ms",
    )

    def __init__(self, state: StreamState, config: StreamConfig, metrics: Metrics, *, decoded_limit_bytes: int) -> None:
        """`decoded_limit_bytes`: how large a batch may become where the broker has to look into it."""
        self.decoded_limit_bytes = decoded_limit_bytes
        self.name = state.name
        self.id: StreamId = state.id
        self.partitions: list[Partition] = []
        self.deleted = False
        self.records_in = metrics.counter("duramen_records_in_total", state.name)
        self.bytes_in = metrics.counter("duramen_bytes_in_total", state.name)
        self.bytes_out = metrics.counter("duramen_bytes_out_total", state.name)
        self.update(state, config)

    def update(self, state: StreamState, config: StreamConfig) -> None:
        """Take over a changed definition."""
        self.state = state
        self.config = config
        self.max_message_bytes = config.integer("max.message.bytes")
        self.append_time = config.text("message.timestamp.type") == "LogAppendTime"
        self.timestamp_before_ms = config.integer("message.timestamp.before.max.ms")
        self.timestamp_after_ms = config.integer("message.timestamp.after.max.ms")
        self.compacted = "compact" in config.text("cleanup.policy")

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


class Streams:
    """Every stream, by name and by id."""

    def __init__(self, store: Store, settings: Settings, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._by_name: dict[str, Stream] = {}
        self._by_id: dict[StreamId, Stream] = {}
        self._configs: dict[frozenset[tuple[str, str]], StreamConfig] = {}
        self._decoded_limit_bytes = settings.integer("memory.limit.bytes") // _DECODED_SHARE
        self._gauge = metrics.counter("duramen_streams")
        self.listeners: list[Callable[[Stream], object]] = []  # told of a stream that is new, changed or deleted

    def __iter__(self) -> Iterator[Stream]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def by_name(self) -> Mapping[str, Stream]:
        """Streams by name."""
        return MappingProxyType(self._by_name)

    def find(self, name: str) -> Stream | None:
        """The stream of that name."""
        return self._by_name.get(name)

    def find_id(self, stream_id: StreamId) -> Stream | None:
        """The stream of that id."""
        return self._by_id.get(stream_id)

    def get(self, name: str) -> Stream:
        """The stream of that name. Raises StreamNotFound."""
        stream = self._by_name.get(name)
        if stream is None:
            raise StreamNotFound(f"there is no stream {name}")
        return stream

    def put(self, state: StreamState) -> Stream:
        """The stream is defined like this from here on."""
        config = self._config(state)
        stream = self._by_id.get(state.id)
        if stream is None:
            stream = Stream(state, config, self._metrics, decoded_limit_bytes=self._decoded_limit_bytes)
            self._by_name[state.name] = self._by_id[state.id] = stream
            self._gauge.value = len(self._by_name)
        else:
            stream.update(state, config)
        log_config = config.log_config()
        for partition in stream.partitions:
            partition.log.config = log_config
        for index in range(len(stream.partitions), state.partitions):
            log = self._store.ensure(LogKey(state.id, index), log_config)
            stream.partitions.append(Partition(stream, index, log, self._store, self._clock))
        self._tell(stream)
        return stream

    def _tell(self, stream: Stream) -> None:
        for listener in self.listeners:
            listener(stream)

    def _config(self, state: StreamState) -> StreamConfig:
        # Most streams share a few configs: one object each keeps a hundred thousand streams small.
        key = frozenset(state.config.items())
        if key not in self._configs:
            self._configs[key] = StreamConfig(self._settings, state.config)
        return self._configs[key]

    def remove(self, stream_id: StreamId) -> Stream | None:
        """The stream is gone: its logs are deleted, and those who wait for records of it are told."""
        stream = self._by_id.pop(stream_id, None)
        if stream is None:
            return None
        del self._by_name[stream.name]
        stream.deleted = True
        self._gauge.value = len(self._by_name)
        for partition in stream.partitions:
            self._store.delete(partition.log)
            partition.log.notify()
        self._metrics.forget("stream", stream.name)
        self._tell(stream)
        return stream
