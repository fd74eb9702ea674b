"""Whatever bytes come to a door: the node stays up, silent and small, and no other client notices."""

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clients import CONFLUENT, Place, Record
from tests.examples import examples
from tests.raw import batch_of, connect, produce_bytes, stream_id

from duramen.codec.batch import BatchInput, encode
from duramen.codec.crc import crc32c
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.header import encode_request
from duramen.codec.kafka.messages import REQUESTS
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.node.process import NodeProcess

_LIMIT_BYTES = 256 << 20
_EXAMPLES = 150


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that every test here sends nonsense to; in the end it is as well as it was."""
    directory = tmp_path_factory.mktemp("attacked") / "data"
    with NodeProcess(directory, {"memory.limit.bytes": _LIMIT_BYTES}) as node:
        yield node
        _still_well(node)
        peak = next(line for line in Path(f"/proc/{node.pid}/status").read_text().splitlines() if "VmHWM" in line)
        assert int(peak.split()[1]) * 1024 <= _LIMIT_BYTES
        assert node.stop() == 0
        assert "Traceback" not in node.log_path.read_text()


_stored: list[bytes] = []


def _still_well(node: NodeProcess) -> None:
    """Another client writes and reads what it always did."""
    place = Place(0, len(_stored))
    _stored.append(b"%d" % len(_stored))
    assert CONFLUENT.produce(node.kafka, "well", [Record(_stored[-1])]) == [place]
    assert [read.value for read in CONFLUENT.consume(node.kafka, "well", 1, len(_stored))] == _stored


def _send(address: str, *pieces: bytes) -> bytes:
    """Send bytes, say that there are no more, and read whatever is answered until the door closes."""
    host, _, port = address.rpartition(":")
    answer = b""
    with contextlib.suppress(ConnectionError), socket.create_connection((host, int(port)), 30) as opened:
        for piece in pieces:
            opened.sendall(piece)
        with contextlib.suppress(OSError):  # where it is closed already
            opened.shutdown(socket.SHUT_WR)
        while got := opened.recv(65536):
            answer += got
    return answer


# -- the Kafka door -----------------------------------------------------------------------------------

_frames = st.binary(max_size=300).map(lambda body: struct.pack(">i", len(body)) + body)
_requests = st.builds(
    lambda api, version, body: struct.pack(">ihhi", 10 + len(body), api, version, 7) + b"\xff\xff" + body,
    st.sampled_from(sorted(APIS)) | st.integers(-(1 << 15), (1 << 15) - 1),
    st.integers(0, 20) | st.integers(-(1 << 15), (1 << 15) - 1),
    st.binary(max_size=200),
)
_sized = st.builds(
    lambda size, body: struct.pack(">i", size) + body, st.integers(-(1 << 31), (1 << 31) - 1), st.binary()
)


@settings(max_examples=examples(_EXAMPLES))
@given(st.lists(st.binary(max_size=2000) | _frames | _requests | _sized, max_size=5))
def test_any_bytes_at_the_kafka_door(attacked: NodeProcess, pieces: list[bytes]) -> None:
    _send(attacked.kafka, *pieces)


def _valid_requests() -> list[bytes]:
    """A valid request of each API in each version that our own codec writes."""
    made = []
    for api in APIS.values():
        if api.key not in (ApiKey.PRODUCE, ApiKey.FETCH):
            for version in range(api.low, api.high + 1):
                body = REQUESTS[api.key].encode(version, {})
                made.append(encode_request(api.key, version, 1, "fuzz", body))
    return made


def test_valid_requests_with_bytes_changed_cut_and_added(attacked: NodeProcess) -> None:
    _still_well(attacked)
    chance = random.Random(9)
    valid = _valid_requests()
    for request in valid:
        damaged = bytearray(request)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(4, len(damaged))
            damaged[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        longer = damaged + chance.randbytes(chance.randrange(50))
        longer[:4] = struct.pack(">i", len(longer) - 4)
        _send(attacked.kafka, bytes(damaged), request)
        _send(attacked.kafka, bytes(longer))
        _send(attacked.kafka, request[: chance.randrange(len(request))])
    _still_well(attacked)


@pytest.mark.parametrize("size", [-1, 0, 3, 7, 1 << 20, 104_857_601, (1 << 31) - 1, -(1 << 31)])
def test_hostile_lengths_of_a_request(attacked: NodeProcess, size: int) -> None:
    for api_key in (-1, 999, ApiKey.METADATA, ApiKey.PRODUCE):
        assert _send(attacked.kafka, struct.pack(">ihhi", size, api_key, 0, 1)) == b""


@pytest.mark.parametrize("count", [1, 1000, 1 << 20, (1 << 31) - 1, -2, -(1 << 31)])
def test_hostile_counts_inside_of_a_request(attacked: NodeProcess, count: int) -> None:
    for api in APIS.values():
        for version in {api.low, api.high}:
            number = struct.pack(">i", count)
            varint = b"\xff\xff\xff\xff\x07" if count < 0 else b"\x80\x80\x80\x04"
            body = (varint if version >= api.flexible else number) * 8
            _send(attacked.kafka, encode_request(api.key, version, 1, "fuzz", body))


def test_unknown_apis_close_and_unknown_versions_of_api_versions_are_answered(attacked: NodeProcess) -> None:
    for api_key in (4, 5, 6, 7, 1000, -5):
        assert _send(attacked.kafka, struct.pack(">ihhih", 10, api_key, 0, 1, -1)) == b""
    for api in APIS.values():
        answer = _send(attacked.kafka, struct.pack(">ihhih", 10, api.key, api.high + 1, 1, -1))
        if api.key == ApiKey.API_VERSIONS:
            assert struct.unpack_from(">iih", answer) == (len(answer) - 4, 1, ErrorCode.UNSUPPORTED_VERSION)
        else:
            assert answer == b""


_GOOD = batch_of(b"one", b"two")


def _changed(at: int, value: bytes) -> bytearray:
    """A batch with a field overwritten, its CRC left as it was."""
    batch = bytearray(_GOOD)
    batch[at : at + len(value)] = value
    return batch


def _resealed(at: int, value: bytes) -> bytearray:
    """A batch with a field overwritten and a CRC that fits."""
    batch = _changed(at, value)
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


@pytest.mark.parametrize(
    ("batch", "codes"),
    [
        (_changed(17, b"\0\0\0\0"), {ErrorCode.CORRUPT_MESSAGE}),
        (_changed(70, b"\xff"), {ErrorCode.CORRUPT_MESSAGE}),
        (_changed(8, struct.pack(">i", 1 << 30)), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (_changed(8, struct.pack(">i", -1)), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (_changed(16, b"\x01"), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (_resealed(57, struct.pack(">i", 3)), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (_resealed(57, struct.pack(">i", 0)), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (_resealed(23, struct.pack(">i", 5)), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (_resealed(21, struct.pack(">h", 0x20)), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (_resealed(21, struct.pack(">h", 7)), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (_GOOD[:-1], {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (_GOOD + _GOOD, {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (b"", {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (b"\0" * 61, {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (batch_of(bytes(1_048_588)), {ErrorCode.MESSAGE_TOO_LARGE}),
        (batch_of(b"x", timestamp_ms=1 << 60), {ErrorCode.INVALID_TIMESTAMP}),
    ],
)
def test_batches_that_are_not_taken(attacked: NodeProcess, batch: bytes | bytearray, codes: set[ErrorCode]) -> None:
    connection = connect(attacked)
    stream_id(connection, "batches")
    before = produce_bytes(connection, "batches", _GOOD).base_offset
    refused = produce_bytes(connection, "batches", batch)
    assert refused.error_code in codes
    # On the same connection, and nothing of it was stored.
    assert produce_bytes(connection, "batches", _GOOD).base_offset == before + 2
    connection.close()


def test_records_that_only_a_compacted_stream_looks_into(attacked: NodeProcess) -> None:
    connection = connect(attacked)
    config = [{"name": "cleanup.policy", "value": "compact"}]
    topic = {
        "name": "compacted", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": config,
    }  # fmt: skip
    connection.request(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 10_000, "validate_only": False})
    assert produce_bytes(connection, "compacted", _GOOD).error_code == ErrorCode.INVALID_RECORD
    keyed = encode([BatchInput(1, b"key", b"value", ())])
    assert produce_bytes(connection, "compacted", keyed).error_code == 0
    bomb = encode([BatchInput(1, b"key", bytes(200 << 20), ())], codec=4)
    assert len(bomb) < 1_000_000
    assert produce_bytes(connection, "compacted", bomb).error_code in (
        ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE,
    )  # fmt: skip
    connection.close()
    _still_well(attacked)


@pytest.mark.parametrize("partitions", [0, -2, 1_000_000, (1 << 31) - 1, -(1 << 31)])
def test_absurd_counts_of_partitions(attacked: NodeProcess, partitions: int) -> None:
    connection = connect(attacked)
    stream_id(connection, "grown")
    topic = {
        "name": "absurd", "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": [],
    }  # fmt: skip
    wish = {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}
    (found,) = connection.request(ApiKey.CREATE_TOPICS, wish)["topics"]
    assert found["error_code"] == ErrorCode.INVALID_PARTITIONS
    assert found["error_message"]
    more = {"topics": [{"name": "grown", "count": partitions, "assignments": None}], "timeout_ms": 10_000}
    (found,) = connection.request(ApiKey.CREATE_PARTITIONS, more | {"validate_only": False})["results"]
    assert found["error_code"] == ErrorCode.INVALID_PARTITIONS
    connection.close()


@pytest.mark.parametrize("name", ["", ".", "..", "a/../../b", "a\0b", "ü" * 100, "x" * 250, "a\nb", "__x"])
def test_names_that_cannot_be_are_never_created(attacked: NodeProcess, name: str) -> None:
    connection = connect(attacked)
    asked = connection.request(ApiKey.METADATA, {"topics": [{"name": name}], "allow_auto_topic_creation": True})
    assert asked["topics"][0]["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    answer = produce_bytes(connection, name, _GOOD)
    assert answer.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
    connection.close()


# -- the HTTP door ------------------------------------------------------------------------------------

_methods = st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT", "X"])
_paths = st.sampled_from(
    [
        "/",
        "/metrics",
        "/v1/streams",
        "/v1/streams/x",
        "/v1/node",
        "/%00",
        "/v1/streams/%ff",
        "/v1/streams/x/records",
        "/v1/streams/x/records?offset=-1",
    ]
)


@settings(max_examples=examples(_EXAMPLES))
@given(st.binary(max_size=500))
def test_any_bytes_at_the_http_door(attacked: NodeProcess, data: bytes) -> None:
    _send(attacked.http, data)


@settings(max_examples=examples(_EXAMPLES))
@given(_methods, _paths, st.binary(max_size=300), st.integers(-5, 400) | st.just(1 << 40))
def test_any_body_at_the_http_door(attacked: NodeProcess, method: str, path: str, body: bytes, length: int) -> None:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {attacked.http}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    answer = _send(attacked.http, head.encode(), body)
    assert b"Traceback" not in answer
    assert not answer.startswith(b"HTTP/1.1 500")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'{"name": 1}', b'{"name": "x", "partitions": 1e30}', b'{"name": "x", "more": 1}',
        b'{"name": "x", "partitions": 2000000000}', b'{"name": "../x"}', b'{"name": "x", "config": {"a": "b"}}',
        b'{"name": "x", "subjects": ["a..b"]}', b"[" * 100_000, b'{"name": "' + b"x" * 2_000_000 + b'"}',
    ],
)  # fmt: skip
def test_bodies_that_are_refused_with_a_reason(attacked: NodeProcess, body: bytes) -> None:
    head = (
        f"POST /v1/streams HTTP/1.1\r\nHost: {attacked.http}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = _send(attacked.http, head.encode(), body)
    assert answer.startswith(b"HTTP/1.1 4")
    assert b'"detail":' in answer


def test_everything_at_once_beside_a_client_that_goes_on(attacked: NodeProcess) -> None:
    chance = random.Random(11)
    stop = threading.Event()

    def attack(seed: int) -> None:
        own = random.Random(seed)
        while not stop.is_set():
            address = own.choice((attacked.kafka, attacked.http))
            _send(address, own.randbytes(own.randrange(2000)))
            _send(attacked.kafka, struct.pack(">i", own.randrange(1, 5000)) + own.randbytes(own.randrange(5000)))

    threads = [threading.Thread(target=attack, args=(chance.randrange(1 << 30),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        records = [Record(b"%d" % number) for number in range(20_000)]
        places = CONFLUENT.produce(attacked.kafka, "beside", records, idempotent=True)
        assert places == [Place(0, offset) for offset in range(len(records))]
        found = CONFLUENT.consume(attacked.kafka, "beside", 1, len(records))
        assert [read.value for read in found] == [record.value for record in records]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
