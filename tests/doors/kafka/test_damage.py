"""One flipped bit on disk, seen by unmodified clients: an error for its batch, every other record as it was."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.cli.command import run
from tests.untyped import untyped

import duramen
from duramen.codec.kafka.errors import ErrorCode
from duramen.node.process import NodeProcess

COUNT = 40
VICTIM = 17


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with a stream of 40 batches with a record each, of which one was damaged while it was stopped."""
    directory = tmp_path_factory.mktemp("damaged") / "data"
    node = NodeProcess(directory)
    with node, duramen.connect(node.http) as client:
        client.streams.create("s")
        for number in range(COUNT):
            client.produce("s", [b"%03d" % number * 100])
        node.stop()
        segment = next(path for path in directory.rglob("*.log") if b"000" * 100 in path.read_bytes())
        data = bytearray(segment.read_bytes())
        data[data.index(b"%03d" % VICTIM * 100) + 50] ^= 1
        segment.write_bytes(data)
        node.restart()
        yield node


def values(first: int, end: int) -> list[bytes]:
    return [b"%03d" % number * 100 for number in range(first, end)]


def test_confluent_reads_up_to_it_gets_the_error_and_reads_on_behind(damaged: NodeProcess) -> None:
    consumer = Consumer({"bootstrap.servers": damaged.kafka, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("s", 0, 0)])
    read: list[bytes] = []
    try:
        while (message := consumer.poll(60)) is not None and (error := message.error()) is None:
            read.append(message.value() or b"")
        assert message is not None
        assert error is not None
        assert error.code() == ErrorCode.CORRUPT_MESSAGE
        assert read == values(0, VICTIM)
        consumer.seek(TopicPartition("s", 0, VICTIM + 1))
        read.clear()
        while len(read) < COUNT - VICTIM - 1:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is None:
                read.append(message.value() or b"")
        assert read == values(VICTIM + 1, COUNT)
    finally:
        consumer.close()


def test_kafka_python_does_too(damaged: NodeProcess) -> None:
    kafka = untyped("kafka")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=damaged.kafka, enable_auto_commit=False, consumer_timeout_ms=60_000
    )
    partition = kafka.TopicPartition("s", 0)
    try:
        consumer.assign([partition])
        consumer.seek(partition, VICTIM + 1)
        read = [next(consumer).value for _ in range(COUNT - VICTIM - 1)]
        assert read == values(VICTIM + 1, COUNT)
        consumer.seek(partition, VICTIM)
        with pytest.raises(untyped("kafka.errors").CorruptRecordError):
            next(consumer)
    finally:
        consumer.close()


def test_it_is_said_wherever_one_looks(damaged: NodeProcess, tmp_path: Path) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{damaged.http}/v1/streams/s/records?offset={VICTIM}")
    problem = refused.value.read().decode()
    assert "log-damaged" in problem
    assert f"(offsets {VICTIM} to {VICTIM}) are damaged" in problem
    with urllib.request.urlopen(f"http://{damaged.http}/readyz") as answer:
        assert answer.read().startswith(b"ready; 1 damaged range of segments cannot be read")
    with urllib.request.urlopen(f"http://{damaged.http}/metrics") as answer:
        shown = answer.read().decode().splitlines()
    assert "duramen_quarantined_ranges 1" in shown
    assert "duramen_damaged_ranges_total 1" in shown
    described = run("stream", "describe", "s", server=damaged.http, cwd=tmp_path)
    assert f"partition 0 offsets {VICTIM} to {VICTIM}, logs/" in described.out
    doctor = run("doctor", "--data-dir", str(damaged.data_dir), cwd=tmp_path)
    assert "damage" in doctor.out
    assert "1 damaged range of segments cannot be read" in doctor.out
    lines = [line for line in damaged.log_path.read_text().splitlines() if " are damaged: " in line]
    assert len([line for line in lines if f"(offsets {VICTIM} to {VICTIM})" in line and ".log: bytes " in line]) == 1
