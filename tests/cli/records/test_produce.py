"""`duramen produce`."""

import socket
import subprocess
import sys

import pytest
from tests.cli.command import Run, command_environment, run

from duramen.client import BrokerCluster, Consumer, StreamAdmin, TopicPartition
from duramen.codec.batch import DecodedRecord, batches, records
from duramen.codec.partitioner import partition_of
from duramen.node.process import NodeProcess

PARTITIONS = 3


@pytest.fixture
def stream(node: NodeProcess, stream_name: str) -> str:
    """A stream of three partitions."""
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(stream_name, PARTITIONS)
    return stream_name


def stored(node: NodeProcess, stream: str) -> dict[int, list[DecodedRecord]]:
    """Every record of a stream, by partition."""
    found: dict[int, list[DecodedRecord]] = {}
    with BrokerCluster(node.kafka) as cluster:
        consumer = Consumer(cluster)
        for at, (start, end) in consumer.bounds([TopicPartition(stream, index) for index in range(PARTITIONS)]).items():
            found[at.partition] = [
                record
                for piece in consumer.read(at, start, end)
                for place, head in batches(piece)
                for record in records(piece[place : place + head.size])
            ]
    return found


def test_lines_become_values(duramen: Run, node: NodeProcess, stream: str) -> None:
    ended = duramen("produce", stream, stdin=b"one\n\n \xff\xfe\r\nlast without an end")
    assert ended == (0, "", f"4 records written to {stream}\n")
    values = sorted(record.value or b"" for found in stored(node, stream).values() for record in found)
    assert values == [b"", b" \xff\xfe\r", b"last without an end", b"one"]
    assert duramen("produce", stream) == (0, "", f"0 records written to {stream}\n")


def test_many_and_long_lines_stay_in_order(duramen: Run, node: NodeProcess, stream: str) -> None:
    lines = [b"%06d" % number for number in range(50_000)] + [b"x" * 900_000, b"y" * 900_000]
    ended = duramen("produce", stream, "--partition", "2", stdin=b"\n".join(lines))
    assert ended == (0, "", f"50002 records written to {stream}\n")
    found = stored(node, stream)
    assert [record.value for record in found[2]] == lines
    assert found[0] == found[1] == []


def test_keys_and_headers(duramen: Run, node: NodeProcess, stream: str) -> None:
    ended = duramen(
        "produce", stream, "--key-separator", "::", "--header", "from=a=b", "--header", "empty=",
        stdin="jfk::late::very\n::empty key\nno key\nümlaut::x\n".encode(),
    )  # fmt: skip
    assert ended.code == 0
    found = {record.value: (partition, record) for partition, group in stored(node, stream).items() for record in group}
    assert {value: record.key for value, (_, record) in found.items()} == {
        b"late::very": b"jfk", b"empty key": b"", b"no key": None, b"x": "ümlaut".encode(),
    }  # fmt: skip
    for partition, record in found.values():
        assert list(record.headers) == [(b"from", b"a=b"), (b"empty", b"")]
        assert record.key is None or partition == partition_of(record.key, PARTITIONS)


def test_a_line_is_written_while_the_input_is_open(node: NodeProcess, stream: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "duramen", "produce", stream, "--partition", "0"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=command_environment(node.http),
    ) as process, BrokerCluster(node.kafka) as cluster:  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(b"now\n")
        process.stdin.flush()
        found: list[bytes | None] = []
        at = TopicPartition(stream, 0)
        # The node answers when the record is there; the client gives up by its own deadline.
        while not found:
            (fetched,) = Consumer(cluster).fetch({at: 0}, max_wait_ms=20_000)
            found = [record.value for piece in fetched.pieces for record in records(piece)]
        assert found == [b"now"]
        assert process.poll() is None
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, f"1 records written to {stream}\n".encode())


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("words", "line", "said"),
    [
        (("nobody-made-this",), b"x\n", "`duramen stream create nobody-made-this` creates one [stream-not-found]"),
        (("STREAM", "--partition", "3"), b"x\n", "STREAM has no partition 3; it has 3 [stream-not-found]"),
        (("STREAM",), b"x" * 3_000_000, "max.message.bytes"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    duramen: Run, stream: str, words: tuple[str, ...], line: bytes, said: str
) -> None:
    ended = duramen("produce", *(word.replace("STREAM", stream) for word in words), stdin=line)
    assert (ended.code, ended.out) == (1, "")
    assert said.replace("STREAM", stream) in ended.err
    assert ended.err.startswith("duramen: ")
    assert ended.err.count("\n") == 1


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    "words",
    [(), ("s", "--header", "without"), ("s", "--header", "=x"), ("s", "--partition", "-1"), ("s", "--partition", "x"),
     ("s", "--wrong"), ("s", "--server", "nowhere"), ("s", "--server", "a:b")],
)  # fmt: skip
def test_wrong_usage(duramen: Run, words: tuple[str, ...]) -> None:
    ended = duramen("produce", *words, stdin=b"x\n")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1


def test_no_node_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    ended = run("produce", "s", server=f"127.0.0.1:{port}", stdin=b"x\n")
    assert (ended.code, ended.out) == (1, "")
    assert f"no node answers at 127.0.0.1:{port}" in ended.err
    assert "start one with `duramen serve`" in ended.err
    assert ended.err.count("\n") == 1
