"""`duramen consume`: positions, ends, formats, copies, and streams that change meanwhile."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from tests.cli.command import Run, command_environment, run

from duramen import connect
from duramen.client import BrokerCluster, Consumer, Producer, StreamAdmin, TopicPartition
from duramen.client.http import HttpNode
from duramen.codec.batch import BatchInput, encode
from duramen.codec.compression import CODECS
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

T0 = 1_700_000_000_000


@pytest.fixture
def stream(node: NodeProcess, stream_name: str) -> str:
    """A stream of two partitions with the records 0 to 9, the even ones in partition 0, a second apart."""
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(stream_name, 2)
        with Producer(cluster) as producer:
            for number in range(10):
                producer.produce(stream_name, b"%d" % number, partition=number % 2, timestamp_ms=T0 + 1000 * number)
    return stream_name


@pytest.mark.variants(4)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--offset", "-2"), [6, 7, 8, 9]),
        (("--offset", "-99"), list(range(10))),
        (("--offset", "-2", "-n", "3"), None),
        (("--offset", "earliest", "--until", "latest"), list(range(10))),
        (("--offset", "latest"), []),
        (("--offset", "@2023-11-14T22:13:25Z"), [5, 6, 7, 8, 9]),
        (("--offset", f"@{T0 + 8500}"), [9]),
        (("--offset", "@-1h"), []),
        (("--until", "@2023-11-14T22:13:23"), [0, 1, 2]),
        (("--until", "@-1h"), list(range(10))),
        (("--offset", f"@{T0 + 3000}", "--until", f"@{T0 + 6000}"), [3, 4, 5]),
        (("--until", "-3"), [0, 1, 2, 3]),
        (("--offset", "@0"), list(range(10))),
        (("--until", "@0"), []),
        (("--until", "start"), []),
        (("--offset", "-1", "--until", "-3"), []),
        (("--partition", "1", "--offset", "1", "--until", "3"), [3, 5]),
        (("--partition", "1", "--until", "99"), [1, 3, 5, 7, 9]),
        (("--partition", "0", "--offset", "-1"), [8]),
    ],
)
def test_from_here_to_there(duramen: Run, stream: str, words: tuple[str, ...], expected: list[int] | None) -> None:
    ended = duramen("consume", stream, *words)
    assert (ended.code, ended.err) == (0, "")
    numbers = sorted(map(int, ended.out.splitlines()))
    if expected is None:
        assert len(numbers) == 3
    else:
        assert numbers == expected


def test_raw_and_keys(duramen: Run, stream: str) -> None:
    assert duramen("consume", stream, "--partition", "0", "--format", "raw").out == "02468"
    run_there = duramen("produce", stream, "--partition", "0", "--key-separator", "::", stdin=b"a::b\nc\n")
    assert run_there.code == 0
    words = ("consume", stream, "--partition", "0", "--offset", "-3", "--key-separator", "::")
    assert duramen(*words).out == "8\na::b\nc\n"


@pytest.mark.variants(2)
@pytest.mark.parametrize("codec", range(len(CODECS)), ids=CODECS)
def test_a_pipe_copies_a_stream(node: NodeProcess, stream_name: str, codec: int) -> None:
    """Nulls, empty ones, bytes that are no text, repeated headers, tombstones, any order of times."""
    source, copy = f"{stream_name}-source", f"{stream_name}-copy"
    contents = [
        None,
        b"",
        b"text",
        "ümlaut\n\"'\\ \u2028\x00".encode(),
        b"\xff\xfe\x00",
        b'{"base64": "YQ=="}',
        b"x" * 900_000,
    ]
    headers: list[list[tuple[bytes, bytes | None]]] = [
        [], [(b"h", b"1"), (b"h", None), (b"h", b"1")], [(b"", b""), ("ü".encode(), b"\xff")],
    ]  # fmt: skip
    with BrokerCluster(node.kafka) as cluster:
        for name in (source, copy):
            StreamAdmin(cluster).create_stream(name, 3)
        with Producer(cluster, codec=codec, batch_bytes=100_000) as producer:
            for number in range(147):
                producer.produce(
                    source, contents[number % 7], key=contents[number // 7 % 6], headers=headers[number % 3],
                    partition=number % 3, timestamp_ms=T0 + (number * 7919) % 1000,
                )  # fmt: skip
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -m duramen consume "$1" --format json | "$0" -m duramen produce "$2" --format json',
         sys.executable, source, copy],
        capture_output=True, check=False, timeout=60, env=command_environment(node.http),
    )  # fmt: skip
    assert (done.returncode, done.stderr.decode()) == (0, f"147 records written to {copy}\n")
    assert records_of(node, copy) == records_of(node, source)


def records_of(node: NodeProcess, stream: str) -> list[list[tuple[Any, ...]]]:
    """Everything of 49 records in each of three partitions, as an unchanged client reads it."""
    consumer = Librdkafka({"bootstrap.servers": node.kafka, "group.id": "nobody"})
    found: list[list[tuple[Any, ...]]] = [[], [], []]
    # All at once: librdkafka 2.16 may deliver nothing of an assignment that takes the place of another.
    consumer.assign([LibrdkafkaPartition(stream, partition, 0) for partition in range(3)])
    while any(len(records) < 49 for records in found):
        messages = consumer.consume(147, timeout=60)
        assert messages, f"{[len(records) for records in found]} records have come, and no more"
        for one in messages:
            assert one.error() is None
            found[one.partition() or 0].append((one.offset(), one.key(), one.value(), one.headers(), one.timestamp()))
    consumer.close()
    return found


def following(node: NodeProcess, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "duramen", "consume", *words, "--follow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=command_environment(node.http),
    )  # fmt: skip


def test_a_stream_that_is_deleted_while_it_is_followed(duramen: Run, node: NodeProcess, stream: str) -> None:
    with following(node, stream, "--partition", "0", "--offset", "-1") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"8\n"
        assert duramen("stream", "delete", stream, "--yes").code == 0
        rest, said = process.communicate(timeout=60)
    assert (process.returncode, rest) == (1, b"")
    assert said.decode().startswith(f"duramen: stream {stream} was deleted while it was read")
    assert said.endswith(b"[stream-not-found]\n")


@pytest.mark.long
def test_another_stream_of_that_name_is_not_followed(new_node: Callable[..., NodeProcess]) -> None:
    with new_node() as node:
        run("stream", "create", "s", server=node.http)
        run("produce", "s", stdin=b"1\n", server=node.http)
        with following(node, "s") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"1\n"
            process.send_signal(signal.SIGSTOP)
            run("stream", "delete", "s", "--yes", server=node.http)
            run("stream", "create", "s", server=node.http)
            run("produce", "s", stdin=b"2\n3\n", server=node.http)
            process.send_signal(signal.SIGCONT)
            rest, said = process.communicate(timeout=60)
        assert (process.returncode, rest) == (1, b"")
        assert b"duramen: stream s was deleted" in said


@pytest.mark.long
def test_new_partitions_are_followed(node: NodeProcess, stream: str) -> None:
    with following(node, stream, "--offset", "-1") as process, BrokerCluster(node.kafka) as cluster:
        assert process.stdout is not None
        assert sorted(process.stdout.readline() for _ in range(2)) == [b"8\n", b"9\n"]
        wanted = [{"name": stream, "count": 3, "assignments": None}]
        asked = {"topics": wanted, "timeout_ms": 10_000, "validate_only": False}
        assert cluster.ask(ApiKey.CREATE_PARTITIONS, asked)["results"][0]["error_code"] == 0
        with Producer(cluster) as producer:
            producer.produce(stream, b"new", partition=2)
        assert process.stdout.readline() == b"new\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


@pytest.mark.long
def test_a_follower_whose_reader_goes_away_ends(node: NodeProcess, stream: str) -> None:
    """Although nothing more comes that it could not write."""
    with following(node, stream) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len([process.stdout.readline() for _ in range(10)]) == 10
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


def test_an_output_that_is_not_buffered_gets_everything(node: NodeProcess, stream_name: str) -> None:
    """Nor does one that takes a little at a time lose anything."""
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(stream_name, 1)
        with Producer(cluster) as producer:
            for number in range(2000):
                producer.produce(stream_name, b"%04d" % number + b"x" * 996)
    environment = command_environment(node.http, {"PYTHONUNBUFFERED": "1"})
    with subprocess.Popen(
        [sys.executable, "-m", "duramen", "consume", stream_name], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    assert [int(line[:4]) for line in lines] == list(range(2000))
    assert {len(line) for line in lines} == {1000}


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    "words",
    [("--follow", "--until", "end"), ("--group", "g", "--partition", "0"), ("--until", "3"), ("--offset", "@soon"),
     ("--format", "json", "--key-separator", ":"), ("--format", "raw", "--key-separator", ":")],
)  # fmt: skip
def test_wrong_usage(duramen: Run, stream: str, words: tuple[str, ...]) -> None:
    ended = duramen("consume", stream, *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("[usage]\n")
    assert ended.err.count("\n") == 1


@pytest.mark.long
def test_records_that_were_removed_before_they_were_read(new_node: Callable[..., NodeProcess]) -> None:
    with new_node({"log.retention.check.interval.ms": 50}) as node, BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream("s", 1, {"retention.records": "10", "segment.bytes": "1048576"})
        run("produce", "s", stdin=b"first\n", server=node.http)
        at = TopicPartition("s", 0)
        with following(node, "s") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"first\n"
            process.send_signal(signal.SIGSTOP)
            with Producer(cluster) as producer:
                for _ in range(40):
                    producer.produce("s", b"x" * 100_000)
            while Consumer(cluster).bounds([at])[at][0] < 10:
                pass
            process.send_signal(signal.SIGCONT)
            _, said = process.communicate(timeout=60)
        assert process.returncode == 1
        assert re.match(rb"duramen: the records \d+ to \d+ of s-0 were removed before they were read", said)
        assert said.endswith(b"[records-lost]\n")


@pytest.mark.variants(1)
@pytest.mark.parametrize("ends", [["commit"], ["abort"], ["commit", "abort", "commit"]], ids="-".join)
def test_markers_of_transactions_are_no_records(
    node: NodeProcess, duramen: Run, stream_name: str, ends: list[str]
) -> None:
    """Wherever the last N are asked for: on the command line, over HTTP, in Python, and where a group is to go on."""
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(stream_name, 1)
    producer = LibrdkafkaProducer({"bootstrap.servers": node.kafka, "transactional.id": stream_name})
    producer.init_transactions(60)
    for number, end in enumerate(ends):
        producer.begin_transaction()
        producer.produce(stream_name, b"%d" % number)
        producer.flush(60)
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(60)
    values = [str(number) for number in range(len(ends))]
    server = HttpNode(node.http)
    for count in range(1, len(ends) + 1):
        ended = duramen("consume", stream_name, "--offset", f"-{count}")
        assert (ended.code, ended.out.split()) == (0, values[-count:])
        assert duramen("consume", stream_name, "--until", f"-{count}").out.split() == values[:-count]
        page = server.get(f"/v1/streams/{stream_name}/records?offset=-{count}")
        assert [record["value"] for record in page["records"]] == values[-count:]
        with connect(node.http) as client:
            read = [record.text for batch in client.consume(stream_name, offset=-count) for record in batch]
            assert read == values[-count:]
            (moved,) = client.groups.reset(stream_name, -count, streams=[stream_name], dry_run=True)
            assert moved.after == 2 * (len(ends) - count)


@pytest.mark.parametrize("format_", ["command line", "HTTP"])
def test_any_time_that_kafka_clients_write_goes_round(
    node: NodeProcess, duramen: Run, stream_name: str, format_: str
) -> None:
    """Of times before 1970, too, some of which no other is in one batch with."""
    times = [0, -1, -2, -62_135_596_800_001, T0, -(1 << 63), -(1 << 63) + 1, 1]
    for name in (stream_name, f"{stream_name}-copy"):
        with BrokerCluster(node.kafka) as cluster:
            StreamAdmin(cluster).create_stream(name, 1)
    for time_ms in times:
        batch = encode([BatchInput(time_ms, None, b"v")])
        with BrokerCluster(node.kafka) as cluster, Producer(cluster) as producer:
            producer.put(TopicPartition(stream_name, 0), batch, 1)
    printed = duramen("consume", stream_name, "--format", "json").out
    lines = printed.splitlines()
    assert [json.loads(line)["timestamp"] for line in lines] == times
    if format_ == "HTTP":
        HttpNode(node.http).post(f"/v1/streams/{stream_name}-copy/records", {"records": [*map(json.loads, lines)]})
    else:
        ended = duramen("produce", f"{stream_name}-copy", "--format", "json", stdin=printed.encode())
        assert ended.code == 0
    copied = duramen("consume", f"{stream_name}-copy", "--format", "json").out
    assert copied.replace(f"{stream_name}-copy", stream_name) == printed
