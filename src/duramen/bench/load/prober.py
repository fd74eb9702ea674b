"""A client that retries at once, without a library's backoff: for failover times."""

import itertools
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.errors import DuramenError
from duramen.client.connection import BrokerConnection
from duramen.codec.batch import BatchInput, encode
from duramen.codec.kafka import produce
from duramen.codec.kafka.produce import PartitionData, ProduceRequest, TopicData
from duramen.codec.kafka.versions import ApiKey

__all__ = ["ProbedLayout", "Prober", "acknowledged_s", "agreed"]

_ANSWER_S: Final = 2.0
_AGAIN_S: Final = 0.001
_NOBODY: Final = UUID(int=0)


class ProbedLayout(NamedTuple):
    """What a node says of a stream: the controller, and each partition's leader and number of in-sync replicas."""

    controller: int
    leaders: Mapping[int, int]
    in_sync: Mapping[int, int]


class Prober:
    """A connection to one node, made again where it was lost. `address` is HOST:PORT of its Kafka listener."""

    def __init__(self, address: str, stream: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._stream = stream
        self._connection: BrokerConnection | None = None

    def _connected(self) -> BrokerConnection:
        if self._connection is None:
            self._connection = BrokerConnection(*self._address, client_id="bench", timeout_s=_ANSWER_S)
        return self._connection

    def write(self, partition: int = 0) -> bool:
        """Whether all in-sync replicas acknowledge a record."""
        batch = memoryview(encode([BatchInput(0, None, b"x")]))
        topics = [TopicData(self._stream, [PartitionData(partition, batch)])]
        request = ProduceRequest(None, -1, int(1000 * _ANSWER_S), topics)
        try:
            connection = self._connected()
            version = connection.version(ApiKey.PRODUCE)
            sent = connection.send(ApiKey.PRODUCE, produce.encode_request(version, request))
            (topic,) = produce.decode_response(*connection.receive(sent))
        except DuramenError:
            self.close()
            return False
        return topic.partitions[0].error_code == 0

    def layout(self) -> ProbedLayout | None:
        """What this node says of the stream, which is created where it is missing; None without an answer."""
        request = {"topics": [{"name": self._stream, "topic_id": _NOBODY}], "allow_auto_topic_creation": True}
        try:
            answer = self._connected().request(
                ApiKey.METADATA, {**request, "include_topic_authorized_operations": False}
            )
        except DuramenError:
            self.close()
            return None
        found = {one["partition_index"]: one for one in answer["topics"][0]["partitions"]}
        if not found or any(one["leader_id"] < 0 for one in found.values()):
            return None
        return ProbedLayout(
            answer["controller_id"],
            {number: one["leader_id"] for number, one in found.items()},
            {number: len(one["isr_nodes"]) for number, one in found.items()},
        )

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def agreed(probers: Collection[Prober]) -> ProbedLayout | None:
    """What all nodes say, once it is the same and as many replicas of each partition are in sync; else None."""
    first, *others = [prober.layout() for prober in probers]
    is_whole = first is not None and all(count == len(probers) for count in first.in_sync.values())
    return first if is_whole and all(other == first for other in others) else None


def acknowledged_s(probers: Iterable[Prober], partition: int, began_s: float, limit_s: float) -> float:
    """Ask these in turns until one acknowledges: seconds since `began_s` (monotonic). Raises DuramenError."""
    for prober in itertools.cycle(list(probers)):
        if prober.write(partition):
            return time.monotonic() - began_s
        if time.monotonic() > began_s + limit_s:
            raise DuramenError(f"no node acknowledges a record within {limit_s:g} s")
        time.sleep(_AGAIN_S)
    raise DuramenError("there is no node to ask")
