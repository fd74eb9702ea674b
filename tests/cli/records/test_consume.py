"""`duramen consume`."""

import base64
import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.cli.command import Run, command_environment, run

from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.codec.compression import CODECS
from duramen.node.process import NodeProcess

T0 = 1_700_000_000_000


@pytest.fixture
def stream(node: NodeProcess, stream_name: str) -> str:
    """A stream of two partitions with the records 0 to 9, the even ones in partition 0."""
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(stream_name, 2)
        with Producer(cluster) as producer:
            for number in range(10):
                producer.produce(stream_name, b"%d" % number, partition=number % 2, timestamp_ms=T0 + number)
    return stream_name


def lines(text: str) -> list[int]:
    return sorted(map(int, text.splitlines()))


def test_all_of_a_stream(duramen: Run, stream: str) -> None:
    ended = duramen("consume", stream)
    assert (ended.code, ended.err) == (0, "")
    assert lines(ended.out) == list(range(10))
    numbers = [int(line) for line in ended.out.splitlines()]
    assert [number for number in numbers if number % 2] == [1, 3, 5, 7, 9]


@pytest.mark.variants(3)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--partition", "1"), [1, 3, 5, 7, 9]),
        (("--partition", "1", "--offset", "3"), [7, 9]),
        (("--partition", "1", "--offset", "5"), []),
        (("--partition", "0", "--offset", "1", "-n", "2"), [2, 4]),
        (("--offset", "end"), []),
        (("--offset", "start", "-n", "0"), []),
        (("-n", "99"), list(range(10))),
    ],
)
def test_a_part_of_it(duramen: Run, stream: str, words: tuple[str, ...], expected: list[int]) -> None:
    ended = duramen("consume", stream, *words)
    assert (ended.code, ended.err) == (0, "")
    assert lines(ended.out) == expected


def test_count_is_of_all_partitions(duramen: Run, stream: str) -> None:
    assert len(duramen("consume", stream, "-n", "7").out.splitlines()) == 7


def test_json_says_everything(duramen: Run, node: NodeProcess, stream_name: str) -> None:
    odd = b"\xff\xfe"
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(stream_name, 1)
        with Producer(cluster) as producer:
            producer.produce(
                stream_name, "süß\n".encode(), key=b"k", timestamp_ms=T0, headers=[(b"h", b"1"), (b"h", None)]
            )
            producer.produce(stream_name, None, key=odd, timestamp_ms=T0 + 1)
            producer.produce(stream_name, odd, timestamp_ms=T0 + 2, headers=[(b"h", odd)])
    ended = duramen("consume", stream_name, "--format", "json")
    encoded = {"base64": base64.b64encode(odd).decode()}
    expected: list[dict[str, object]] = [
        {"key": "k", "value": "süß\n", "headers": [["h", "1"], ["h", None]]},
        {"key": encoded, "value": None, "headers": []},
        {"key": None, "value": encoded, "headers": [["h", encoded]]},
    ]
    assert [json.loads(line) for line in ended.out.splitlines()] == [
        {"topic": stream_name, "partition": 0, "offset": offset, "timestamp": T0 + offset, **document}
        for offset, document in enumerate(expected)
    ]


@pytest.mark.variants(2)
@pytest.mark.parametrize("codec", range(len(CODECS)), ids=CODECS)
def test_every_compression(duramen: Run, node: NodeProcess, stream_name: str, codec: int) -> None:
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(stream_name, 1)
        with Producer(cluster, codec=codec, batch_bytes=2000) as producer:
            for number in range(1000):
                producer.produce(stream_name, b"%d" % number)
    assert duramen("consume", stream_name).out == "".join(f"{number}\n" for number in range(1000))


def test_follow_goes_on_until_it_is_interrupted(node: NodeProcess, stream: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "duramen", "consume", stream, "--follow", "--partition", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=command_environment(node.http),
    ) as process, BrokerCluster(node.kafka) as cluster:  # fmt: skip
        assert process.stdout is not None
        assert [int(process.stdout.readline()) for _ in range(5)] == [0, 2, 4, 6, 8]
        for number in range(10, 14, 2):
            with Producer(cluster) as producer:
                producer.produce(stream, b"%d" % number, partition=0)
            assert int(process.stdout.readline()) == number
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60)
    assert (process.returncode, rest, said.strip()) == (130, "", "")


@pytest.mark.long
def test_follow_outlives_the_node(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    run("stream", "create", "s", server=node.http)
    run("produce", "s", stdin=b"1\n", server=node.http)
    with subprocess.Popen(
        [sys.executable, "-m", "duramen", "consume", "s", "--follow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=command_environment(node.http),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "1\n"
        for number in (2, 3):
            node.kill()
            said = process.stderr.readline()
            assert said.startswith("duramen: no broker answered within 5 s: ")
            assert said.endswith(f"{node.kafka} cannot be reached: Connection refused; waiting\n")
            node.restart()
            run("produce", "s", stdin=b"%d\n" % number, server=node.http)
            assert process.stdout.readline() == f"{number}\n"
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60)
    assert (process.returncode, rest, said.strip()) == (130, "", "")


def test_a_reader_that_goes_away_is_no_accident(node: NodeProcess, stream_name: str) -> None:
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(stream_name, 1)
        with Producer(cluster) as producer:
            for _ in range(1000):
                producer.produce(stream_name, b"x" * 1000)
    with subprocess.Popen(
        [sys.executable, "-m", "duramen", "consume", stream_name],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=command_environment(node.http),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"x" * 1000 + b"\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nobody-made-this",), "`duramen stream create nobody-made-this` creates one [stream-not-found]"),
        (("STREAM", "--partition", "2"), "stream STREAM has no partition 2; it has 2 [stream-not-found]"),
        (("STREAM", "--partition", "0", "--offset", "6"), "STREAM-0 has the offsets 0 to 4, not 6"),
    ],
)
def test_what_cannot_be_read_is_one_line(duramen: Run, stream: str, words: tuple[str, ...], said: str) -> None:
    ended = duramen("consume", *(word.replace("STREAM", stream) for word in words))
    assert (ended.code, ended.out) == (1, "")
    assert said.replace("STREAM", stream) in ended.err
    assert ended.err.startswith("duramen: ")
    assert ended.err.count("\n") == 1


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    "words",
    [(), ("STREAM", "--offset", "soon"), ("STREAM", "--offset", "--1"), ("STREAM", "-n", "-1"), ("STREAM", "-n", "x"),
     ("STREAM", "--format", "xml"), ("STREAM", "--partition", "x"), ("STREAM", "--wrong"), ("STREAM", "more")],
)  # fmt: skip
def test_wrong_usage(duramen: Run, stream: str, words: tuple[str, ...]) -> None:
    ended = duramen("consume", *(word.replace("STREAM", stream) for word in words))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(" [usage]\n")


def test_an_offset_needs_a_partition(duramen: Run, stream: str) -> None:
    ended = duramen("consume", stream, "--offset", "3")
    assert (ended.code, ended.out) == (2, "")
    assert f"stream {stream} has 2 partitions: an --offset N needs a --partition" in ended.err


def test_something_else_listens_there(node: NodeProcess) -> None:
    ended = run("consume", "s", server=node.kafka)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.count("\n") == 1
    assert "[server-unreachable]" in ended.err
