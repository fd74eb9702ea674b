"""Produce and Fetch below every client: the bytes of batches, as a test wants them."""

from typing import Final, NamedTuple
from uuid import UUID

from duramen.client.connection import BrokerConnection
from duramen.codec.batch import BatchInput, encode
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionRecords
from duramen.codec.kafka.fetch import decode_response as decode_fetch
from duramen.codec.kafka.fetch import encode_request as encode_fetch
from duramen.codec.kafka.produce import PartitionData, PartitionResponse, ProduceRequest, TopicData
from duramen.codec.kafka.produce import decode_response as decode_produce
from duramen.codec.kafka.produce import encode_request as encode_produce
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

__all__ = ["Wanted", "batch_of", "connect", "fetch_bytes", "produce_bytes", "stream_id"]

_WAIT_S: Final = 60.0


class Wanted(NamedTuple):
    """What a fetch wants of one partition."""

    partition: int
    offset: int
    max_bytes: int = 1 << 20


def connect(node: NodeProcess, client_id: str = "raw") -> BrokerConnection:
    """A connection to the Kafka door."""
    host, _, port = node.kafka.rpartition(":")
    return BrokerConnection(host, int(port), client_id=client_id, timeout_s=_WAIT_S)


def batch_of(*values: bytes, codec: int = 0, timestamp_ms: int = 1) -> bytearray:
    """A batch of records without keys."""
    return encode([BatchInput(timestamp_ms, None, value, ()) for value in values], codec=codec)


def produce_bytes(
    connection: BrokerConnection, stream: str, batch: bytes | bytearray, *, partition: int = 0, acks: int = -1
) -> PartitionResponse:
    """Produce bytes as a batch; what is answered for the partition."""
    topics = [TopicData(stream, [PartitionData(partition, memoryview(batch))])]
    version = connection.version(ApiKey.PRODUCE)
    sent = connection.send(ApiKey.PRODUCE, encode_produce(version, ProduceRequest(None, acks, 30_000, topics)))
    _, frame, start = connection.receive(sent)
    return decode_produce(version, frame, start)[0].partitions[0]


def stream_id(connection: BrokerConnection, stream: str) -> UUID:
    """The topic id of a stream; it is created where there is none."""
    answer = connection.request(ApiKey.METADATA, {"topics": [{"name": stream}], "allow_auto_topic_creation": True})
    found: UUID = answer["topics"][0]["topic_id"]
    return found


def fetch_bytes(
    connection: BrokerConnection, stream: str, *wanted: Wanted, max_bytes: int = 1 << 24, min_bytes: int = 1,
    max_wait_ms: int = 0,
) -> list[PartitionRecords]:  # fmt: skip
    """Fetch; what is answered for each partition, in the order of the answer."""
    partitions = [FetchPartition(one.partition, one.offset, one.max_bytes) for one in wanted]
    topics = [FetchTopic(stream_id(connection, stream), partitions)]
    request = FetchRequest(-1, max_wait_ms, min_bytes, max_bytes, 0, 0, -1, topics)
    version = connection.version(ApiKey.FETCH)
    sent = connection.send(ApiKey.FETCH, [encode_fetch(version, request)])
    _, frame, start = connection.receive(sent, wait_s=max_wait_ms / 1000)
    code, answers = decode_fetch(version, frame, start)
    assert code == 0
    return answers
