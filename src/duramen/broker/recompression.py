"""`compression.type`: compresses batches of another codec again before they are appended.

This takes long, so it runs off the event loop, one batch of a partition at a time; later batches of the partition wait.
A batch keeps its records, offsets and producer fields.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt, DuramenError
from duramen.codec.batch import CODEC_MASK, Header, recompress
from duramen.codec.compression import CODECS
from duramen.storage.store import Store

__all__ = ["PRODUCER", "Form", "Recompressing"]

Ready = Callable[[bytearray | memoryview | DuramenError], None]

PRODUCER: Final = "producer"


class Form(NamedTuple):
    """How batches are compressed: a codec's number, or None to keep their own; and the level."""

    codec: int | None
    level: int | None = None

    @classmethod
    def of(cls, name: str, levels: Callable[[str], int]) -> "Form":
        """The form of a `compression.type`; `levels` gives the values of the configs of levels."""
        if name == PRODUCER:
            return cls(None)
        codec = 0 if name == "uncompressed" else CODECS.index(name)
        return cls(codec, levels(f"compression.{name}.level") if name in ("gzip", "lz4", "zstd") else None)

    def fits(self, head: Header) -> bool:
        """Whether a batch has the codec. As in Apache Kafka, a batch of the same codec is kept, whatever its level."""
        return self.codec is None or head.attributes & CODEC_MASK == self.codec


class _Entry(NamedTuple):
    batch: bytearray | memoryview
    head: Header
    ready: Ready


class Recompressing:
    """The batches of a stream that are compressed again, and those that wait behind them, by partition."""

    __slots__ = ("_queues", "_store", "form", "limit_bytes")

    def __init__(self, store: Store) -> None:
        """`limit_bytes`: how large the records of one batch may be when they are not compressed."""
        self.form = Form(None)
        self.limit_bytes = 0
        self._store = store
        self._queues: dict[int, deque[_Entry]] = {}

    def take(self, partition: int, batch: bytearray | memoryview, head: Header, ready: Ready) -> None:
        """Call `ready` with the batch in the stream's form, or an error, after those that came before it."""
        queue = self._queues.get(partition)
        if queue is None and self.form.fits(head):
            ready(batch)
            return
        entry = _Entry(batch, head, ready)
        if queue is not None:
            queue.append(entry)
            return
        self._queues[partition] = deque([entry])
        self._begin(partition, entry)

    def _begin(self, partition: int, entry: _Entry) -> None:
        form = self.form
        job = partial(recompress, bytes(entry.batch), form.codec or 0, form.level, limit_bytes=self.limit_bytes)
        self._store.run(job, lambda result: self._done(partition, result))

    def _done(self, partition: int, result: bytearray | BaseException) -> None:
        queue = self._queues[partition]
        entry = queue.popleft()
        if isinstance(result, BaseException) and not isinstance(result, DuramenError):
            result = BatchCorrupt(f"records are damaged: {result}")
        entry.ready(result)
        while queue and self.form.fits(queue[0].head):
            following = queue.popleft()
            following.ready(following.batch)
        if queue:
            self._begin(partition, queue[0])
        else:
            del self._queues[partition]
