"""Consumers of a cluster, and clients that ask the leader or another replica for a partition's end."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from duramen.base.errors import DuramenError, OffsetNotAvailable, OffsetOutOfRange
from duramen.broker.fetch import FetchResult, PartitionFetch
from duramen.broker.partition import LATEST
from duramen.codec.batch import batches
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.cluster.clients.producers import PASSING
from duramen.sim.machine.trace import BrokenPromise
from duramen.storage.scan import read_slice

__all__ = ["ClusterConsumer", "Inquirer"]

_MOST_BYTES: Final = 4_000
_WAIT_MS: Final = 100
_READS: Final = (3, 30)  # of one partition, before another


class _Read(NamedTuple):
    data: bytes
    aborted: Sequence[tuple[int, int]]


def _with_aborted(aborted: Sequence[tuple[int, int]], reply: Reply, data: bytes | DuramenError | OSError) -> None:
    reply(_Read(data, aborted) if isinstance(data, bytes) and data else data)


class ClusterConsumer(ClusterClient):
    """Reads a partition on, mostly from its leader, then another one."""

    def __init__(self, calls: ClientCalls, seed: str, think_us: int) -> None:
        super().__init__(calls, seed, think_us)
        self.place: PartitionId | None = None
        self._left = 0
        self._reads = self.chance.choice(_READS)
        self._from_follower = False
        self._positions: dict[PartitionId, int] = {}
        self._isolation = self.chance.choice((0, 1))
        self._rack = self.chance.choice(("", *(node.rack for node in calls.nodes.values())))
        self._sent_to: dict[PartitionId, int] = {}  # nodes that are to be read from, in the place of leaders

    def step(self) -> None:
        self._left -= 1
        if self.place is None or self._left < 0:
            self.place = self.some_place()
            self._left = self._reads
            self._from_follower = self.chance.random() < 0.25
        place = self.place
        if place is None:
            self.next(50_000)
        elif self._from_follower:
            self._fetch(self.calls.any_node(), -1, place)
        elif place in self._sent_to:
            self._fetch(self._sent_to[place], -1, place)
        else:
            self.leader(place, lambda node_id, epoch: self._fetch(node_id, epoch, place))

    def _fetch(self, node_id: int, epoch: int, place: PartitionId) -> None:
        offset = self._positions.get(place, 0)

        def fetch(broker: Broker, reply: Reply) -> None:
            partition = partition_at(broker, place)

            def found(answers: list[FetchResult]) -> None:
                (answer,) = answers
                if answer.high_watermark >= 0:
                    self.calls.witness.shows(node_id, place, answer.high_watermark)
                if answer.error is not None:
                    told_epoch = -1 if partition.role is None else partition.role.epoch
                    reply((answer.error, answer.start_offset, told_epoch))
                elif answer.preferred_replica >= 0:
                    self.calls.witness.redirected(place, node_id, answer.preferred_replica, offset)
                    reply(answer.preferred_replica)
                elif answer.slice is None:
                    reply(b"")
                else:
                    read_slice(broker.store, answer.slice, partial(_with_aborted, answer.aborted, reply))

            wanted = PartitionFetch(partition, offset, _MOST_BYTES, epoch, None, self._isolation, self._rack)
            broker.fetches.fetch([wanted], min_bytes=1, max_bytes=_MOST_BYTES, max_wait_ms=_WAIT_MS, done=found)

        self.calls.ask(node_id, fetch, lambda value: self._read(node_id, epoch, place, offset, value))

    def _read(self, node_id: int, epoch: int, place: PartitionId, offset: int, value: Any) -> None:
        if isinstance(value, _Read):
            page = self.calls.book.page(place)
            self._positions[place] = page.read(offset, value.data)
            if self._isolation:
                page.read_committed(value.data, value.aborted)
            self.saw(place, max(head.leader_epoch for _, head in batches(value.data)))
            self.next()
            return
        if value == b"":
            self.next()
            return
        if isinstance(value, int):
            self.calls.trace("who reads %s from %d is sent to node %d", place, offset, value)
            self._sent_to[place] = value
            self.next()
            return
        redirected = self._sent_to.pop(place, None) is not None
        error, start_offset, told_epoch = value if isinstance(value, tuple) else (value, -1, -1)
        if isinstance(error, OffsetOutOfRange) and offset < start_offset:
            page = self.calls.book.page(place)
            if start_offset > page.trimmed_offset:
                raise BrokenPromise(f"{page.name} begins at {start_offset}; nobody wanted so much deleted")
            self._positions[place] = start_offset
            self.saw(place, told_epoch)  # an earlier leader may not know that start
        elif not isinstance(error, (*PASSING, OffsetNotAvailable)) and not (redirected or self._is_behind(error)):
            where = f"at {offset} of {place}, of node {node_id} in epoch {epoch},"
            raise BrokenPromise(f"a read {where} ends with {type(error).__name__}: {error}")
        self.forget(place, error)
        self.next(50_000)

    def _is_behind(self, error: DuramenError) -> bool:
        """A following replica may not know yet the high watermark that was read elsewhere."""
        return self._from_follower and isinstance(error, OffsetOutOfRange)

    def lost(self, place: PartitionId) -> None:
        if self.place == place:
            self.place = None


class Inquirer(ClusterClient):
    """Asks leaders where their partitions end."""

    def step(self) -> None:
        place = self.some_place()
        if place is None:
            self.next(50_000)
        else:
            self.leader(place, lambda node_id, _: self._ask(node_id, place))

    def _ask(self, node_id: int, place: PartitionId) -> None:
        def ask(broker: Broker, reply: Reply) -> None:
            partition = partition_at(broker, place)
            partition.check_leads()

            def found(offset: int, _: int, error: DuramenError | OSError | None) -> None:
                if error is None and partition.role is not None:
                    self.calls.witness.ledger(place).shown_end(partition.role.epoch, offset)
                reply(offset if error is None else error)

            partition.find_offset(LATEST, found)

        def answered(value: Any) -> None:
            if isinstance(value, DuramenError):
                if not isinstance(value, (*PASSING, OffsetNotAvailable)):
                    raise BrokenPromise(f"where {place} ends is refused with {type(value).__name__}: {value}")
                self.forget(place, value)
            self.next()

        self.calls.ask(node_id, ask, answered)
