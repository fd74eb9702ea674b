"""Searches the log of a stream that becomes keyed for records without a key, which snapshots could not show."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from duramen.base.errors import ConfigInvalid, DuramenError, StorageFailed
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.broker.views.batch_reader import ReadResult, read_batches
from duramen.codec.batch import CONTROL, batches
from duramen.codec.batch_filter import body, spans
from duramen.storage.store import Store

__all__ = ["UnkeyedSearch"]

_Done = Callable[[DuramenError | None], None]
_NOTHING: Final = -1


class UnkeyedSearch:
    """One search through the partitions of a stream, one after another, up to where they end now."""

    def __init__(
        self, stream: Stream, store: Store, done: _Done, partitions: Sequence[Partition] | None = None
    ) -> None:
        """`done` gets ConfigInvalid, which names the first record without a key, or the reason why the search failed.

        It searches all partitions, or these.
        """
        self._stream = stream
        self._store = store
        self._done = done
        searched = stream.partitions if partitions is None else partitions
        self._left = [(partition, partition.log.high_watermark) for partition in reversed(searched)]

    def start(self) -> None:
        """Begin with the first partition, or with the next one."""
        if not self._left:
            self._done(None)
            return
        partition, end = self._left.pop()
        # Below where compaction has come it has removed them.
        self._look(partition, max(partition.log.start_offset, partition.log.cleaned_offset), end)

    def _look(self, partition: Partition, offset: int, end: int) -> None:
        if self._stream.deleted:
            self._done(None)  # the stream to be changed no longer exists, which is then the error
            return
        offset = partition.log.behind_lost(offset)
        if offset >= end:
            self.start()
        else:
            read_batches(self._store, partition.log, offset, partial(self._took, partition, offset, end))

    def _took(self, partition: Partition, offset: int, end: int, data: ReadResult) -> None:
        if not isinstance(data, bytes):
            self._failed(data)
        elif not data:
            self.start()
        else:
            self._store.run(partial(_first_unkeyed, data, offset), partial(self._found, partition, end))

    def _found(self, partition: Partition, end: int, result: tuple[int, int] | BaseException) -> None:
        if isinstance(result, BaseException):
            self._failed(result)
            return
        unkeyed, following = result
        if unkeyed == _NOTHING:
            self._store.soon(partial(self._look, partition, following, end))
            return
        self._done(
            ConfigInvalid(
                f"keyed=true needs a key in every record, and the one at offset {unkeyed} of partition"
                f" {partition.index} of {self._stream.name} has none: with cleanup.policy=compact, compaction removes"
                " such records once their segments are closed (segment.ms); or copy those with a key to a new stream"
            )
        )

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, DuramenError):
            self._done(error)
        elif isinstance(error, OSError):
            self._done(StorageFailed(f"reading failed: {error}"))
        else:
            raise error


def _first_unkeyed(data: bytes, first: int) -> tuple[int, int]:
    """The offset of the first record from `first` on without a key, or -1; and the one behind all of them."""
    following, view = first, memoryview(data)
    for at, head in batches(data):
        following = max(following, head.next_offset)
        if head.attributes & CONTROL or head.next_offset <= first:
            continue
        for span in spans(body(view[at : at + head.size], head), head.records):
            if span.key is None and head.base_offset + span.offset_delta >= first:
                return head.base_offset + span.offset_delta, following
    return _NOTHING, following
