"""Requests about one partition other than appends: reads, which replicas serve too, deletions, groups, snapshots."""

from collections.abc import Callable
from typing import NamedTuple

from duramen.base.errors import DuramenError
from duramen.base.positions import Position
from duramen.broker.fetch import FetchCoordinator
from duramen.broker.partition import Partition
from duramen.rpc.methods import Method
from duramen.service.forwarded_requests import (
    READ,
    SNAPSHOT,
    AskSnapshot,
    Bytes,
    Delete,
    DeleteRecordsResponse,
    Manage,
    Managed,
    Read,
    method_of,
    where_of,
)
from duramen.service.forwarding import local as here
from duramen.service.forwarding.local import Fetching, LocalSlice

__all__ = ["Deleting", "Managing", "ReadRequest", "Snapshotting"]


class ReadRequest(NamedTuple):
    """A read. This node serves records that it knows are committed; the leader serves later ones."""

    fetches: FetchCoordinator
    partition: Partition
    position: Position
    max_bytes: int
    max_wait_ms: int

    @property
    def method(self) -> Method[Read, Bytes]:
        return READ

    def begin(self, done: Callable[[LocalSlice | Bytes | DuramenError | OSError], None]) -> Callable[[], None] | None:
        if not here.has(self.partition, self.position):
            return None
        return Fetching(
            self.fetches, self.partition, self.position, self.max_bytes, self.max_wait_ms, done
        ).cancel  # fmt: skip

    def message(self, spent_ms: int) -> Read:
        key = self.partition.log.key
        wait_ms = max(0, self.max_wait_ms - spent_ms)
        return Read(key.stream_id.bytes, key.partition, where_of(self.position), self.max_bytes, wait_ms)


class Deleting(NamedTuple):
    """A deletion of the oldest records. It is not retried if a repeat would delete more."""

    partition: Partition
    before: int

    @property
    def method(self) -> Method[Delete, DeleteRecordsResponse]:
        return method_of(self.message(0))

    def begin(
        self, done: Callable[[DeleteRecordsResponse | DuramenError | OSError], None]
    ) -> Callable[[], None] | None:
        if not self.partition.leads:
            return None
        here.delete(self.partition, self.before, done)
        return _nothing  # a deletion that has begun ends

    def message(self, spent_ms: int) -> Delete:
        del spent_ms
        key = self.partition.log.key
        return Delete(key.stream_id.bytes, key.partition, self.before)


class Managing(NamedTuple):
    """A group request, executed by the leader of the `partition` that stores the group's offsets.

    `do` executes it here and returns a function that cancels it.
    """

    partition: Partition
    wanted: Manage
    do: Callable[[Callable[[Managed | DuramenError | OSError], None]], Callable[[], None]]

    @property
    def method(self) -> Method[Manage, Managed]:
        return method_of(self.wanted)

    def begin(self, done: Callable[[Managed | DuramenError | OSError], None]) -> Callable[[], None] | None:
        return self.do(done) if self.partition.leads else None

    def message(self, spent_ms: int) -> Manage:
        del spent_ms
        return self.wanted


class Snapshotting(NamedTuple):
    """A snapshot request to the leader of a partition. `do` executes it here and returns a function that cancels it."""

    partition: Partition
    wanted: AskSnapshot
    do: Callable[[Callable[[Managed | DuramenError | OSError], None]], Callable[[], None]]

    @property
    def method(self) -> Method[AskSnapshot, Managed]:
        return SNAPSHOT

    def begin(self, done: Callable[[Managed | DuramenError | OSError], None]) -> Callable[[], None] | None:
        return self.do(done) if self.partition.leads else None

    def message(self, spent_ms: int) -> AskSnapshot:
        del spent_ms
        return self.wanted


def _nothing() -> None:
    """Nothing to cancel."""
