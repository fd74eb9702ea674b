"""Executes requests on this node, for its own clients and those of other nodes, in partitions that it can serve."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from duramen.base.errors import DuramenError
from duramen.base.positions import At, Last, Position, Since
from duramen.broker.fetch import FetchCoordinator, Fetcher, FetchResult, PartitionFetch
from duramen.broker.partition import LATEST, Partition
from duramen.service.forwarded_requests import DeleteRecordsResponse
from duramen.storage.segment.reader import Slice

__all__ = ["Fetching", "LocalSlice", "delete", "has"]


class LocalSlice(NamedTuple):
    """The records from `offset` on: a slice of whole batches; None if there are none yet."""

    offset: int
    high_watermark: int
    content: Slice | None


def delete(partition: Partition, before: int, done: Callable[[DeleteRecordsResponse | DuramenError], None]) -> None:
    """Delete the records before an offset; `done` gets the first that is left, or why not."""
    partition.delete_before(before, lambda start, error: done(DeleteRecordsResponse(start) if error is None else error))


def has(partition: Partition, position: Position) -> bool:
    """Whether this node may read there: it leads, or it knows that the records there are committed."""
    if partition.leads:
        return True
    log = partition.log
    if not partition.holds or not (position == "start" or isinstance(position, At)):
        return False
    offset = position.offset if isinstance(position, At) else log.start_offset
    return log.start_offset <= offset < log.high_watermark


class Fetching:
    """A read in progress: finds the offset, then waits if there are no records yet."""

    def __init__(
        self, fetches: FetchCoordinator, partition: Partition, position: Position, max_bytes: int, max_wait_ms: int,
        done: Callable[[LocalSlice | DuramenError | OSError], None],
    ) -> None:  # fmt: skip
        self._fetches = fetches
        self._partition = partition
        self._max_bytes = max_bytes
        self._max_wait_ms = max_wait_ms
        self._done: Callable[[LocalSlice | DuramenError | OSError], None] | None = done
        self._fetcher: Fetcher | None = None
        self._find(position)

    def cancel(self) -> None:
        """The client no longer waits."""
        self._done = None
        if self._fetcher is not None:
            self._fetcher.cancel()

    def _find(self, position: Position) -> None:
        log = self._partition.log
        match position:
            case At():
                self._fetch(position.offset)
            case "start":
                self._fetch(log.start_offset)
            case Since():
                self._partition.find_offset(position.timestamp_ms, self._found)
            case Last():
                self._partition.find_last(position.count, self._found)
            case _:
                self._partition.find_offset(LATEST, self._found)

    def _found(self, offset: int, _: int, error: DuramenError | OSError | None) -> None:
        if error is not None:
            self._finish(error)
        else:
            self._fetch(offset if offset >= 0 else self._partition.log.high_watermark)

    def _fetch(self, offset: int) -> None:
        if self._done is not None:
            self._fetcher = self._fetches.fetch(
                [PartitionFetch(self._partition, offset, self._max_bytes)], min_bytes=1, max_bytes=self._max_bytes,
                max_wait_ms=self._max_wait_ms, done=partial(self._fetched, offset),
            )  # fmt: skip

    def _fetched(self, offset: int, fetched: list[FetchResult]) -> None:
        (one,) = fetched
        self._finish(one.error or LocalSlice(offset, one.high_watermark, one.slice))

    def _finish(self, outcome: LocalSlice | DuramenError | OSError) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcome)
