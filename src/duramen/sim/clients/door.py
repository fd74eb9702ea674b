"""Clients through the Kafka door: requests and responses are bytes."""

import logging
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from duramen.base import errors
from duramen.base.errors import DuramenError
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.codec.kafka import fetch, produce
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.coordinators.group.coordinator import CommitMember
from duramen.doors.kafka.door import KafkaDoor
from duramen.groups.records import OffsetKey
from duramen.service.admission import Service
from duramen.service.broker import Broker
from duramen.sim.clients.access import CommitDone, FetchDone, FetchedData, OffsetDone, ProducerDone
from duramen.sim.clients.wire import WireConnection
from duramen.sim.machine.scheduler import SeededWorker
from duramen.sim.machine.trace import BrokenPromise
from duramen.storage.store import AppendDone

__all__ = ["AtTheDoor"]

logging.getLogger("duramen.kafka").addHandler(logging.NullHandler())  # its log lines go to its clients' trace

_PRODUCE_VERSIONS: Final = range(produce.FLEXIBLE, min(APIS[ApiKey.PRODUCE].high, 12) + 1)  # with topics' names
_FETCH_VERSIONS: Final = range(13, APIS[ApiKey.FETCH].high + 1)
_BREAKS_OFF: Final = ConnectionAbortedError("the door broke the connection off")

_ERRORS: Final[Mapping[int, type[BaseException]]] = {
    ErrorCode.CORRUPT_MESSAGE: errors.LogDamaged,
    ErrorCode.KAFKA_STORAGE_ERROR: errors.StorageFailed,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: errors.NodeStopping,
    ErrorCode.OFFSET_OUT_OF_RANGE: errors.OffsetOutOfRange,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: errors.OutOfOrderSequence,
    ErrorCode.UNKNOWN_SERVER_ERROR: OSError,
    ErrorCode.UNKNOWN_TOPIC_ID: errors.StreamNotFound,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: errors.StreamNotFound,
}


class AtTheDoor:
    """Requests to one process. Those that change something share a connection, each fetch has one of its own."""

    later = True

    def __init__(
        self, broker: Broker, worker: SeededWorker, clock: Clock, chance: random.Random, stopping: Callable[[], bool]
    ) -> None:
        """`stopping` says whether the node is."""
        self._worker = worker
        self._chance = chance
        self._stopping = stopping
        self._door = KafkaDoor(
            broker, clock, worker.deadlines, service=Service(broker), cluster_id="simulated", advertise=""
        )
        self._context = self._door.context("node.example", 9092)
        self._connection = self.connect()

    def connect(self, *, slow: bool = False) -> WireConnection:
        """A connection more."""
        return WireConnection(self._door, self._context, self._worker, self._chance, slow=slow)

    def _error(self, code: int) -> BaseException | None:
        if code == ErrorCode.NONE:
            return None
        if code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return errors.NodeStopping("stopping") if self._stopping() else errors.StorageFailed("not available")
        known = _ERRORS.get(code)
        if known is None:
            raise BrokenPromise(f"the door answers {ErrorCode(code).name}")
        return known(ErrorCode(code).name)

    def _duramen_error(self, code: int) -> DuramenError | None:
        error = self._error(code)
        if error is not None and not isinstance(error, DuramenError):
            raise BrokenPromise(f"the door answers {ErrorCode(code).name}")
        return error

    @property
    def is_stopping(self) -> bool:
        """Whether the node is."""
        return self._stopping()

    def ask(
        self, api: ApiKey, version: int, message: Mapping[str, Any], done: Callable[[Message], None],
        connection: WireConnection | None = None,
    ) -> None:  # fmt: skip
        """A request that is a message, over a connection of its own or that of all."""

        def replied(frame: memoryview | None, start: int) -> None:
            done(RESPONSES[api].decode(version, _sure(frame), start))

        (connection or self._connection).ask(api, version, [REQUESTS[api].encode(version, message)], replied)

    # -- producing ----------------------------------------------------------------------------------

    def produce(self, partition: Partition, batch: bytes, done: AppendDone) -> None:
        """Append a batch."""
        self.produce_in(None, partition, batch, lambda offset, code: done(offset, self._duramen_error(code)))

    def produce_in(
        self, transactional_id: str | None, partition: Partition, batch: bytes, done: Callable[[int, int], None]
    ) -> None:
        """The same, in a transaction; `done` gets the base offset and Kafka's error number."""
        version = self._chance.choice(_PRODUCE_VERSIONS)
        data = produce.PartitionData(partition.index, memoryview(batch))
        topics = [produce.TopicData(partition.stream.name, [data])]
        request = produce.ProduceRequest(transactional_id, -1, 30_000, topics)

        def replied(frame: memoryview | None, start: int) -> None:
            answer = produce.decode_response(version, _sure(frame), start)[0].partitions[0]
            done(answer.base_offset, answer.error_code)

        self._connection.ask(ApiKey.PRODUCE, version, produce.encode_request(version, request), replied)

    def new_producer_id(self, done: ProducerDone) -> None:
        """An id for an idempotent producer."""

        def replied(answer: Message) -> None:
            done(answer["producer_id"], self._duramen_error(answer["error_code"]))

        self.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 60_000}, replied)

    # -- fetching -----------------------------------------------------------------------------------

    def fetch(self, partition: Partition, offset: int, max_bytes: int, done: FetchDone, *, committed: bool) -> None:
        """Whole batches from `offset` on; with `committed` those that are decided."""
        stream = self._context.broker.streams.find(partition.stream.name)
        if stream is None:
            done(FetchedData(b"", errors.StreamNotFound("no such stream"), -1, -1, offset))
            return
        version, wait_ms = self._chance.choice(_FETCH_VERSIONS), self._chance.choice((0, 0, 100))
        wanted = fetch.FetchPartition(partition.index, offset, max_bytes)
        request = fetch.FetchRequest(
            -1, wait_ms, 1, max_bytes, int(committed), 0, -1, [fetch.FetchTopic(stream.id, [wanted])], rack_id=""
        )
        connection = self.connect(slow=self._chance.random() < 0.3)
        connection.ask(
            ApiKey.FETCH, version, [fetch.encode_request(version, request)],
            partial(self._fetched, connection, version, offset, done),
        )  # fmt: skip

    def _fetched(
        self,
        connection: WireConnection,
        version: int,
        offset: int,
        done: FetchDone,
        frame: memoryview | None,
        start: int,
    ) -> None:
        if frame is None:
            done(FetchedData(b"", _BREAKS_OFF, -1, -1, offset))
            return
        code, answers = fetch.decode_response(version, frame, start)
        connection.close()
        if code:
            raise BrokenPromise(f"a fetch is answered with {ErrorCode(code).name}")
        one = answers[0]
        data = bytes(one.records)
        reach = one.high_watermark if data else offset
        done(FetchedData(data, self._error(one.error_code), one.high_watermark, one.start_offset, reach, one.aborted))

    # -- groups -------------------------------------------------------------------------------------

    def commit(self, key: OffsetKey, offset: int, member: CommitMember, done: CommitDone) -> None:
        """Store the offset of a group."""
        message = {
            "group_id": key.group,
            "generation_id_or_member_epoch": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "topics": [
                {
                    "name": key.topic,
                    "partitions": [
                        {"partition_index": key.partition, "committed_offset": offset, "committed_metadata": ""}
                    ],
                }
            ],
        }

        def replied(answer: Message) -> None:
            done(self._duramen_error(answer["topics"][0]["partitions"][0]["error_code"]))

        self.ask(ApiKey.OFFSET_COMMIT, 9, message, replied)

    def committed(self, key: OffsetKey, done: OffsetDone) -> None:
        """The offset that a group has stored."""
        topics = [{"name": key.topic, "partition_indexes": [key.partition]}]
        groups = [{"group_id": key.group, "member_id": None, "topics": topics}]

        def replied(answer: Message) -> None:
            (group,) = answer["groups"]
            if group["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return  # just after a start
            found = group["topics"][0]["partitions"][0]["committed_offset"]
            done(None if found < 0 else found)

        self.ask(ApiKey.OFFSET_FETCH, 9, {"groups": groups, "require_stable": True}, replied)


def _sure(frame: memoryview | None) -> memoryview:
    """A response's frame. Raises BrokenPromise where the connection was broken off: no such request is a reason."""
    if frame is None:
        raise BrokenPromise("the door broke a connection off")
    return frame
