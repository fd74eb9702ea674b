"""Reads whole record batches from many partitions, as views into received bytes, and looks up offsets."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from duramen.base.errors import DuramenError, OffsetOutOfRange, RequestTimedOut, ServerUnreachable
from duramen.client.answers import PASSING, failure
from duramen.client.cluster import BrokerCluster, RetryPatience, TopicPartition
from duramen.client.connection import BrokerConnection
from duramen.client.coordinator import GroupCoordinatorClient
from duramen.client.fetch_result import FetchedPartition, Isolation, whole_batches
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, decode_response, encode_request
from duramen.codec.kafka.versions import ApiKey

__all__ = ["EARLIEST", "LATEST", "Consumer"]

LATEST: Final = -1
EARLIEST: Final = -2

_MIB: Final = 1024 * 1024


class _Pending(NamedTuple):
    connection: BrokerConnection
    sent: int
    positions: Mapping[TopicPartition, int]
    ids: Mapping[UUID, str]


class Consumer:
    """Reads from a cluster; keeps no positions."""

    def __init__(
        self,
        cluster: BrokerCluster,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        max_bytes: int = 50 * _MIB,
        partition_max_bytes: int = 1 * _MIB,
    ) -> None:
        """`max_bytes` of records at most in one answer, `partition_max_bytes` of one partition."""
        self.cluster = cluster
        self._isolation = isolation
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes

    # -- offsets ------------------------------------------------------------------------------------

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after a timestamp in ms (-1: none), or at LATEST or EARLIEST, for each partition.

        Raises StreamNotFound, ServerUnreachable or the broker's error, once the timeout is over.
        """
        return self._found(wanted, -1)

    def last(self, wanted: Sequence[TopicPartition], count: int) -> dict[TopicPartition, int]:
        """The offset from which each partition has `count` more records; its start if it has fewer.

        Other brokers cannot compute that: there it is `count` offsets before the end. Raises as `offsets`.
        """
        return self._found(dict.fromkeys(wanted, LATEST), count)

    def _found(self, wanted: Mapping[TopicPartition, int], last_records: int) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        patience = RetryPatience(self.cluster.timeout_s)
        while len(found) < len(wanted):
            error = self._offsets({at: wanted[at] for at in wanted if at not in found}, last_records, found)
            if error is not None:
                self.cluster.forget({at.topic for at in wanted if at not in found})
                patience.pause(error)
        return found

    def _offsets(
        self, wanted: Mapping[TopicPartition, int], last_records: int, found: dict[TopicPartition, int]
    ) -> DuramenError | None:
        failed: DuramenError | None = None
        try:
            for node_id, ats in self.cluster.by_leader(wanted).items():
                topics: dict[str, list[dict[str, int]]] = {}
                for at in ats:
                    one = {"partition_index": at.partition, "timestamp": wanted[at], "last_records": last_records}
                    topics.setdefault(at.topic, []).append(one)
                asked: dict[str, Any] = {
                    "replica_id": -1,
                    "isolation_level": self._isolation,
                    "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
                    "timeout_ms": int(1000 * self.cluster.timeout_s),
                }
                answer = self.cluster.node(node_id).request(ApiKey.LIST_OFFSETS, asked)
                for topic in answer["topics"]:
                    for partition in topic["partitions"]:
                        at = TopicPartition(topic["name"], partition["partition_index"])
                        code = partition["error_code"]
                        if code == ErrorCode.NONE:
                            found[at] = partition["offset"]
                            if last_records >= 0 and partition["last_offset"] < 0:
                                found[at] = max(0, found[at] - last_records)
                        else:
                            failed = failure(code, f"the offsets of {at}")
                            if code not in PASSING:
                                raise failed
        except ServerUnreachable as error:
            failed = error
        return failed

    def bounds(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset of each partition and the one after its last. Raises as `offsets`."""
        first = self.offsets(dict.fromkeys(wanted, EARLIEST))
        last = self.offsets(dict.fromkeys(wanted, LATEST))
        return {at: (first[at], last[at]) for at in wanted}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the next offsets of a consumer group that has no members. Raises ServerUnreachable, RequestInvalid …"""
        GroupCoordinatorClient(self.cluster, group).commit(offsets)

    # -- many partitions ----------------------------------------------------------------------------

    def fetch(self, positions: Mapping[TopicPartition, int], *, max_wait_ms: int = 500) -> list[FetchedPartition]:
        """Whole batches from `positions` on, from every leader at once; empty where nothing came in `max_wait_ms`.

        The first batch may begin before its position. Raises OffsetOutOfRange, StreamNotFound, ServerUnreachable.
        """
        patience = RetryPatience(self.cluster.timeout_s)
        while True:
            try:
                fetched, errors = self._fetch(positions, max_wait_ms)
                if fetched or not errors:
                    return fetched
                error = errors[0]
            except ServerUnreachable as lost:
                error = lost
            self.cluster.forget({at.topic for at in positions})
            patience.pause(error)

    def _fetch(
        self, positions: Mapping[TopicPartition, int], max_wait_ms: int
    ) -> tuple[list[FetchedPartition], list[DuramenError]]:
        nodes = self.cluster.by_leader(positions)
        pending: list[_Pending] = []
        fetched: list[FetchedPartition] = []
        errors: list[DuramenError] = []
        try:
            for node_id, ats in nodes.items():
                connection = self.cluster.node(node_id)
                pending.append(self._begin(connection, {at: positions[at] for at in ats}, max_wait_ms))
            while pending:
                self._finish(pending.pop(), max_wait_ms, fetched, errors)
        finally:
            for one in pending:
                one.connection.close()
        return fetched, errors

    def _begin(
        self, connection: BrokerConnection, positions: Mapping[TopicPartition, int], max_wait_ms: int
    ) -> _Pending:
        topics: dict[str, list[FetchPartition]] = {}
        for at, offset in positions.items():
            topics.setdefault(at.topic, []).append(FetchPartition(at.partition, offset, self._partition_max_bytes))
        ids = {self.cluster.topic(name).id: name for name in topics}
        request = FetchRequest(
            -1, max_wait_ms, 1, self._max_bytes, self._isolation, 0, -1,
            [FetchTopic(topic_id, topics[name]) for topic_id, name in ids.items()],
        )  # fmt: skip
        body = encode_request(connection.version(ApiKey.FETCH), request)
        return _Pending(connection, connection.send(ApiKey.FETCH, [body]), positions, ids)

    def _finish(
        self, pending: _Pending, max_wait_ms: int, fetched: list[FetchedPartition], errors: list[DuramenError]
    ) -> None:
        version, frame, start = pending.connection.receive(pending.sent, wait_s=max_wait_ms / 1000)
        code, answers = decode_response(version, frame, start)
        if code != ErrorCode.NONE:
            raise failure(code, "fetching")
        for answer in answers:
            name = pending.ids.get(answer.topic) if isinstance(answer.topic, UUID) else answer.topic
            if name is None:
                continue
            at = TopicPartition(name, answer.partition)
            if answer.error_code == ErrorCode.NONE:
                fetched.append(whole_batches(at, pending.positions[at], answer, self._isolation))
            elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise OffsetOutOfRange(f"{at} has no offset {pending.positions[at]}")
            else:
                error = failure(answer.error_code, f"fetching {at}")
                if answer.error_code not in PASSING:
                    raise error
                errors.append(error)

    # -- one partition ------------------------------------------------------------------------------

    def read(
        self,
        at: TopicPartition,
        first: int,
        end: int,
        *,
        topic_id: UUID | None = None,
        on_gap: Callable[[int, int], int] | None = None,
    ) -> Generator[memoryview, None, None]:
        """Whole batches with the records with offsets in `[first, end)`, in order.

        The next fetch is in flight while a response is processed. If offset `first` is out of range, `on_gap(wanted
        offset, first existing offset)` returns the offset to continue at, or raises; without it OffsetOutOfRange is
        raised. With a `topic_id`, another stream of the same name is not read: StreamNotFound. An unreachable broker is
        retried until the cluster's timeout; then ServerUnreachable or RequestTimedOut.
        """
        reading = _Reading(self.cluster, self, at, topic_id, end)
        position = first
        try:
            while position < end:
                try:
                    fetched = reading.next(position)
                except OffsetOutOfRange:
                    start, last = self.bounds([at])[at]
                    if on_gap is None:
                        raise OffsetOutOfRange(f"{at} has offsets {start} to {last - 1}, not {position}") from None
                    position = on_gap(position, start if position < start else end)
                    continue
                position = fetched.next_offset
                yield from fetched.pieces
        finally:
            reading.close()

    def begin(self, at: TopicPartition, offset: int, max_wait_ms: int) -> _Pending:
        """Ask for one partition's batches."""
        return self._begin(self.cluster.node(self.cluster.leader(at)), {at: offset}, max_wait_ms)

    def finish(self, pending: _Pending, max_wait_ms: int) -> FetchedPartition | DuramenError:
        """The response to `begin`, or the error. Raises as `fetch`."""
        fetched: list[FetchedPartition] = []
        errors: list[DuramenError] = []
        self._finish(pending, max_wait_ms, fetched, errors)
        return fetched[0] if fetched else errors[0]


_WAIT_MS: Final = 500


class _Reading:
    """One partition being read with one request ahead."""

    def __init__(self, cluster: BrokerCluster, consumer: Consumer, at: TopicPartition, topic_id: UUID | None, end: int):
        self._cluster = cluster
        self._consumer = consumer
        self._at = at
        self._topic_id = topic_id
        self._end = end
        self._ahead: _Pending | None = None

    def close(self) -> None:
        """Close the connection with the outstanding response, which nobody will read."""
        if self._ahead is not None:
            self._ahead.connection.close()

    def next(self, position: int) -> FetchedPartition:
        """The batches from `position` on, at least one. Raises as `Consumer.read`."""
        patience = RetryPatience(self._cluster.timeout_s)
        while True:
            error: DuramenError
            try:
                if self._ahead is None:
                    self._check_id()
                    self._ahead = self._consumer.begin(self._at, position, _WAIT_MS)
                pending, self._ahead = self._ahead, None
                result = self._consumer.finish(pending, _WAIT_MS)
                if isinstance(result, FetchedPartition):
                    if result.next_offset > position:
                        if result.next_offset < self._end:
                            self._ahead = self._consumer.begin(self._at, result.next_offset, _WAIT_MS)
                        return result
                    error = RequestTimedOut(
                        f"{self._at} ends at {result.high_watermark}; records up to {self._end} were promised"
                    )
                else:
                    error = result
            except ServerUnreachable as lost:
                error = lost
            self._cluster.forget([self._at.topic])
            patience.pause(error)

    def _check_id(self) -> None:
        if self._topic_id is not None and self._cluster.topic(self._at.topic).id != self._topic_id:
            self._cluster.check_id(self._at.topic, self._topic_id)
