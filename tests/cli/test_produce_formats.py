"""`duramen produce`: formats, acknowledgements, and what it says when something fails."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from tests.cli.command import Run, command_environment, run

from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess


@pytest.fixture
def stream(node: NodeProcess, stream_name: str) -> str:
    """A stream of two partitions."""
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(stream_name, 2)
    return stream_name


def values(node: NodeProcess, stream: str, partition: int) -> list[bytes | None]:
    """What an unchanged client reads."""
    consumer = Librdkafka({"bootstrap.servers": node.kafka, "group.id": "nobody", "enable.partition.eof": False})
    at = LibrdkafkaPartition(stream, partition, 0)
    _, end = consumer.get_watermark_offsets(at, timeout=60)
    consumer.assign([at])
    found = consumer.consume(end, timeout=60) if end else []
    consumer.close()
    return [message.value() for message in found]


def test_json(duramen: Run, node: NodeProcess, stream: str) -> None:
    lines = [
        {"value": "one", "partition": 1, "key": "k", "headers": [["a", "1"], ["a", None]], "timestamp": 1234567890123},
        {"value": None, "partition": 1, "key": {"base64": "/w=="}},
    ]
    text = "\n\n".join(map(json.dumps, lines)) + "\r\n"
    ended = duramen("produce", stream, "--format", "json", "--header", "b=2", stdin=text.encode())
    assert ended == (0, "", f"2 records written to {stream}\n")
    consumer = Librdkafka({"bootstrap.servers": node.kafka, "group.id": "nobody"})
    consumer.assign([LibrdkafkaPartition(stream, 1, 0)])
    one, two = consumer.consume(2, timeout=60)
    consumer.close()
    assert (one.value(), one.key(), one.timestamp()[1]) == (b"one", b"k", 1234567890123)
    assert one.headers() == [("a", b"1"), ("a", None), ("b", b"2")]
    assert (two.value(), two.key(), two.headers()) == (None, b"\xff", [("b", b"2")])
    # The option decides, whatever the lines say.
    assert duramen("produce", stream, "--format", "json", "--partition", "0", stdin=text.encode()).code == 0
    assert values(node, stream, 0) == [b"one", None]


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("third", "said"),
    [
        (b'{"value": 1}', "line 3: \"value\": '1' is not text"),
        (b'{"value": "x", "partition": 2}', "line 3: stream STREAM has no partition 2; it has 2"),
        (
            b'{"value": "%b"}' % (b"x" * 1_048_588),
            "line 3: a batch of this record has 1048662 bytes, more than the 1 MiB",
        ),
        (b'{"value": "%b"}' % (b"x" * 9_000_000), "line 3: it has more than"),
    ],
)
def test_a_bad_line_is_named(duramen: Run, node: NodeProcess, stream: str, third: bytes, said: str) -> None:
    good = b'{"value": "good", "partition": 0}'
    ended = duramen("produce", stream, "--format", "json", stdin=b"\n".join((good, good, third, good)))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"duramen: {said.replace('STREAM', stream)}")
    assert "; 2 records before it are written" in ended.err
    assert ended.err.count("\n") == 1
    assert values(node, stream, 0) == [b"good", b"good"]


def test_raw_is_one_record(duramen: Run, node: NodeProcess, stream: str) -> None:
    content = b"\0one\r\ntwo\n" * 90_000
    words = ("produce", stream, "--format", "raw", "--partition", "0")
    assert duramen(*words, stdin=content) == (0, "", f"1 records written to {stream}\n")
    assert duramen(*words) == (0, "", f"1 records written to {stream}\n")
    assert values(node, stream, 0) == [content, b""]
    ended = duramen(*words, stdin=2 * content)
    assert ended.code == 1
    assert ended.err.startswith("duramen: standard input has more than the 1 MiB that the stream's max.message.bytes")


@pytest.mark.long
def test_small_batches_where_the_stream_wants_them(duramen: Run, node: NodeProcess, stream_name: str) -> None:
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(stream_name, 1, {"max.message.bytes": "1000"})
    lines = [b"%d" % number for number in range(5000)]
    assert duramen("produce", stream_name, stdin=b"\n".join(lines)).code == 0
    assert values(node, stream_name, 0) == lines
    ended = duramen("produce", stream_name, stdin=b"good\n" + b"x" * 950)
    assert ended.err.startswith(
        "duramen: line 2: a batch of this record has 1020 bytes, more than the 1000 B that the stream's"
        " max.message.bytes allows; 1 records before it are written"
    )
    assert ended.err.endswith("[batch-too-large]\n")


@pytest.mark.variants(1)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(duramen: Run, node: NodeProcess, stream: str, acks: str) -> None:
    ended = duramen("produce", stream, "--acks", acks, "--partition", "1", stdin=b"1\n2\n")
    said = f"2 records sent to {stream}, none of them acknowledged" if acks == "0" else f"2 records written to {stream}"
    assert ended == (0, "", f"{said}\n")
    assert values(node, stream, 1) == [b"1", b"2"]


def test_ctrl_c_says_what_is_written(node: NodeProcess, stream: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "duramen", "produce", stream, "--partition", "0"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=command_environment(node.http),
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("1\n2\nnot ended")
        process.stdin.flush()
        while values(node, stream, 0) != [b"1", b"2"]:
            pass
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert said.strip() == "duramen: interrupted; 2 records before it are written"


@pytest.mark.long
def test_a_stream_that_is_deleted_meanwhile(new_node: Callable[..., NodeProcess]) -> None:
    """The stream goes under the producer's feet: what was acknowledged is said."""
    with new_node() as node:
        run("stream", "create", "s", server=node.http)
        with subprocess.Popen(
            [sys.executable, "-m", "duramen", "produce", "s"],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=command_environment(node.http),
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write("1\n")
            process.stdin.flush()
            while values(node, "s", 0) != [b"1"]:
                pass
            assert run("stream", "delete", "s", "--yes", server=node.http).code == 0
            process.stdin.write("2\n3\n")
            process.stdin.close()
            said = process.stderr.read()
        assert process.returncode == 1
        assert said.startswith(
            "duramen: there is no stream s; 1 records before it are written, the 2 after them are not"
        )
        assert said.endswith("[stream-not-found]\n")


@pytest.mark.long
def test_a_bar_is_for_terminals_and_for_what_takes_long(node: NodeProcess, stream: str) -> None:
    ours, theirs = pty.openpty()
    read_end, write_end = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "duramen", "produce", stream],
        stdin=read_end, stderr=theirs, env=command_environment(node.http),
    ) as process:  # fmt: skip
        os.close(theirs)
        os.close(read_end)
        said = b""
        os.set_blocking(ours, False)
        while b"writing" not in said:
            os.write(write_end, b"line\n")
            try:
                said += os.read(ours, 1000)
            except BlockingIOError:
                continue
        os.close(write_end)
        os.set_blocking(ours, True)
        try:
            while more := os.read(ours, 1000):
                said += more
        except OSError:  # the terminal's other end is closed
            pass
        assert process.wait(60) == 0
    os.close(ours)
    assert f"records written to {stream}".encode() in said


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    "words",
    [("s", "--format", "xml"), ("s", "--format", "json", "--key-separator", ":"), ("s", "--key-separator", ""),
     ("s", "--format", "raw", "--key-separator", ":"), ("s", "--acks", "2")],
)  # fmt: skip
def test_wrong_usage(duramen: Run, words: tuple[str, ...]) -> None:
    ended = duramen("produce", *words, stdin=b"x\n")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("[usage]\n")
    assert ended.err.count("\n") == 1
