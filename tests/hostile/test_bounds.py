"""What a client declares, asks for and does not read costs the node no more than what the client sent."""

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from tests.clients import metric, until
from tests.hostile.process import resident_bytes
from tests.raw import Wanted, batch_of, connect, fetch_bytes, produce_bytes, stream_id

from duramen.base.errors import BatchCorrupt, RequestInvalid
from duramen.base.units import MIB
from duramen.client.cluster import BrokerCluster
from duramen.codec.compression import compress, decompress
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from duramen.codec.kafka.fetch import encode_request as encode_fetch
from duramen.codec.kafka.header import encode_request
from duramen.codec.kafka.messages import REQUESTS
from duramen.codec.kafka.produce import PartitionData, ProduceRequest, TopicData
from duramen.codec.kafka.produce import encode_request as encode_produce
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.node.process import NodeProcess

_SLACK_BYTES: Final = 24 * MIB
_WAIT_S: Final = 60.0


@pytest.fixture
def attacked(new_node: Callable[..., NodeProcess]) -> Iterator[NodeProcess]:
    """A node of the test's own, that has seen a client."""
    node = new_node().start()
    connection = connect(node)
    stream_id(connection, "there")
    assert produce_bytes(connection, "there", batch_of(b"one")).error_code == 0
    connection.close()
    yield node
    assert node.stop() == 0
    assert "Traceback" not in node.log_path.read_text()


def _open(node: NodeProcess) -> socket.socket:
    host, _, port = node.kafka.rpartition(":")
    return socket.create_connection((host, int(port)), _WAIT_S)


def _is_closed(opened: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        while opened.recv(65536):
            continue
    return True


@pytest.mark.variants(1)
@pytest.mark.parametrize("version", [-1, 99])
def test_a_large_frame_of_an_unknown_version_is_refused_by_its_header(attacked: NodeProcess, version: int) -> None:
    for api in APIS.values():
        with _open(attacked) as opened:
            opened.sendall(struct.pack(">ihhi", 65_537, api.key, version, 1))
            assert _is_closed(opened)


def test_what_frames_declare_is_not_allocated(attacked: NodeProcess) -> None:
    before = resident_bytes(attacked.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            opened = stack.enter_context(_open(attacked))
            opened.sendall(struct.pack(">ihhi", 32 * MIB, ApiKey.PRODUCE, 9, 1))
        connection = connect(attacked)  # answered: what came before has been looked at
        assert produce_bytes(connection, "there", batch_of(b"two")).error_code == 0
        connection.close()
        assert resident_bytes(attacked.pid) - before < _SLACK_BYTES


def test_answers_that_nobody_reads_are_bounded(attacked: NodeProcess) -> None:
    """Thousands of small requests for large answers at once: those are handled whose answers have room."""
    with BrokerCluster(attacked.kafka) as cluster:
        topics = [
            {"name": f"many-{at}", "num_partitions": 500, "replication_factor": 1, "assignments": [], "configs": []}
            for at in range(5)
        ]
        cluster.ask(ApiKey.CREATE_TOPICS, {"topics": topics, "timeout_ms": 60_000, "validate_only": False})
    before = resident_bytes(attacked.pid)
    one = encode_request(ApiKey.METADATA, 1, 1, "", REQUESTS[ApiKey.METADATA].encode(1, {"topics": None}))
    with _open(attacked) as reader, _open(attacked) as silent:
        reader.sendall(one)
        (size,) = struct.unpack(">i", reader.recv(4, socket.MSG_WAITALL))
        assert size * 3000 > 5 * _SLACK_BYTES
        silent.sendall(one * 3000)
        reader.recv(size, socket.MSG_WAITALL)
        for _ in range(20):
            reader.sendall(one)
            reader.recv(4 + size, socket.MSG_WAITALL)
        assert resident_bytes(attacked.pid) - before < _SLACK_BYTES
        # And they are answered to a client that reads after all.
        left = 300 * (4 + size)
        while left:
            got = len(silent.recv(1 << 20))
            assert got
            left -= got


@pytest.mark.long
def test_answers_behind_a_long_poll_are_bounded(attacked: NodeProcess) -> None:
    connection = connect(attacked)
    topic = FetchTopic(stream_id(connection, "there"), [FetchPartition(0, 1, 1 << 20)])
    wait = encode_fetch(16, FetchRequest(-1, (1 << 31) - 1, 1, 1 << 20, 0, 0, -1, [topic]))
    asked = REQUESTS[ApiKey.DESCRIBE_CONFIGS].encode(
        3,
        {
            "resources": [{"resource_type": 2, "resource_name": "there", "configuration_keys": None}],
            "include_synonyms": True, "include_documentation": True,
        },
    )  # fmt: skip
    one = encode_request(ApiKey.DESCRIBE_CONFIGS, 3, 1, "", asked)
    before = resident_bytes(attacked.pid)
    with _open(attacked) as silent:
        silent.sendall(encode_request(ApiKey.FETCH, 16, 1, "", wait) + one * 8000)
        for _ in range(5):
            assert produce_bytes(connection, "other", b"").error_code
        assert resident_bytes(attacked.pid) - before < _SLACK_BYTES
    connection.close()


@pytest.mark.parametrize("partitions", [1, pytest.param(20_000, marks=pytest.mark.long)])
def test_fetches_end_with_their_connection(attacked: NodeProcess, partitions: int) -> None:
    """A long poll that nobody waits for any more holds nothing; one that holds much does not wait for long."""
    connection = connect(attacked)
    wanted = [FetchPartition(0, 1, 1 << 20)] * partitions
    topic = FetchTopic(stream_id(connection, "there"), wanted)
    body = encode_fetch(16, FetchRequest(-1, (1 << 31) - 1, 1, 1 << 20, 0, 0, -1, [topic]))
    frame = encode_request(ApiKey.FETCH, 16, 1, "", body)
    before = resident_bytes(attacked.pid)
    for _ in range(20):
        with _open(attacked) as opened:
            opened.sendall(frame)
            opened.shutdown(socket.SHUT_WR)
            assert _is_closed(opened)
    until(lambda: metric(attacked, "duramen_kafka_request_bytes") == 0)
    assert metric(attacked, "duramen_fetches_waiting") == 0
    assert resident_bytes(attacked.pid) - before < 2 * _SLACK_BYTES
    assert fetch_bytes(connection, "there", Wanted(0, 0))[0].error_code == 0
    connection.close()


def test_a_batch_does_not_keep_the_rest_of_its_request(attacked: NodeProcess) -> None:
    """A stored batch of 20 kB in a request of 8 MB that is refused but for it."""
    connection = connect(attacked)
    batch = batch_of(bytes(20_000))
    before = resident_bytes(attacked.pid)
    for _ in range(20):
        partitions = [PartitionData(0, memoryview(batch)), PartitionData(0, memoryview(bytes(8 * MIB)))]
        request = ProduceRequest(None, -1, 30_000, [TopicData("there", partitions)])
        version = connection.version(ApiKey.PRODUCE)
        connection.receive(connection.send(ApiKey.PRODUCE, encode_produce(version, request)))
    assert resident_bytes(attacked.pid) - before < 2 * _SLACK_BYTES
    connection.close()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_decompression_makes_no_more_than_it_may(codec: int) -> None:
    bomb = compress(codec, bytes(64 * MIB))
    with pytest.raises(BatchCorrupt, match="more than"):
        decompress(codec, bomb, 8 * MIB)


@pytest.mark.parametrize("block", [b"\xff\xff\xff\x7f", b"\xff\xff\xff\x7f\0a"])
def test_a_length_that_snappy_declares_is_not_believed(block: bytes) -> None:
    framed = b"\x82SNAPPY\0" + bytes(8) + len(block).to_bytes(4, "big") + block
    for data in (block, framed):
        with pytest.raises(BatchCorrupt, match="cannot hold"):
            decompress(2, data, 256 * MIB)


def test_what_is_in_an_array_is_never_null() -> None:
    """An array that may be null has no nulls in it."""
    asked = {"resource_type": 2, "resource_name": "a", "configuration_keys": [None]}
    for version in (1, 4):
        body = REQUESTS[ApiKey.DESCRIBE_CONFIGS].encode(version, {"resources": [asked]})
        with pytest.raises(RequestInvalid, match="configuration_keys is null"):
            REQUESTS[ApiKey.DESCRIBE_CONFIGS].decode(version, body)
