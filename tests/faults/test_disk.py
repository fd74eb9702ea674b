"""A full disk under a running node: writes are refused, reads go on, and writes again when there is space."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered
from tests.cli.command import command_environment
from tests.clients import CONFLUENT, Record, metric, metrics, until
from tests.raw import batch_of, connect, produce_bytes, stream_id

from duramen.base.errors import ServerUnreachable
from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.produce import PartitionResponse
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_DISK_BYTES = 32 << 20
_MOUNT = shutil.which("mount") or "/bin/mount"
_UNMOUNT = shutil.which("umount") or "/bin/umount"
_SETTINGS = {
    "wal.file.bytes": 1 << 20, "wal.max.bytes": 8 << 20, "wal.copy.bytes": 64 << 10, "wal.copy.interval.ms": 20,
}  # fmt: skip


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 32 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        [_MOUNT, "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "duramen-test", str(place)],
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    if mounted.returncode != 0:
        pytest.skip("a file system can be mounted by root only; tests/storage has the same with a disk in memory")
    yield place
    subprocess.run([_UNMOUNT, "-l", str(place)], check=True)


def _fill(place: Path) -> Path:
    """Take all the space there is."""
    filler = place / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return filler


def _said(node: NodeProcess) -> list[str]:
    """What the node's log says of writes, by line."""
    return [line for line in node.log_path.read_text().splitlines() if f"writes to {node.data_dir}" in line]


def _create(connection: BrokerConnection, number: int) -> Message:
    topic = {"name": f"n{number}", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    wish = {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}
    (answer,) = connection.request(ApiKey.CREATE_TOPICS, wish)["topics"]
    return cast("Message", answer)


def test_a_full_disk(small_disk: Path) -> None:
    with NodeProcess(small_disk / "data", {**_SETTINGS, "group.initial.rebalance.delay.ms": 0}) as node:
        connection = connect(node)
        stream_id(connection, "full")
        batch = batch_of(bytes(20_000))
        acknowledged: list[int] = []

        def write() -> PartitionResponse:
            answer = produce_bytes(connection, "full", batch)
            if answer.error_code == 0:
                acknowledged.append(answer.base_offset)
            return answer

        for _ in range(50):
            assert write().error_code == 0
        filler = _fill(small_disk)
        # What is preallocated is still written; then nothing is, and the client is told why.
        refused = until(lambda: (answer := write()).error_code and answer)
        assert isinstance(refused, PartitionResponse)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "disk is full" in (refused.message or "")
        assert metric(node, "duramen_storage_full") == 1
        (warning,) = _said(node)
        refused_words = rf"WARNING duramen.node: writes to {node.data_dir} are refused: the disk is full: .*"
        assert re.search(rf"{refused_words}; \d+ bytes of its disk are free, and \d+ bytes of records wait in", warning)
        # What is small finds room a little longer.
        answer = next(answer for number in range(1000) if (answer := _create(connection, number))["error_code"])
        assert answer["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
        assert "disk is full" in answer["error_message"]
        # Reads go on.
        found = CONFLUENT.consume(node.kafka, "full", 1, len(acknowledged))
        assert [read.place.offset for read in found] == acknowledged
        # A client that repeats what may be repeated gets through when there is space again.
        told: list[KafkaError | None] = []

        def on_delivery(error: KafkaError | None, _: Delivered) -> None:
            told.append(error)

        patient = Producer({"bootstrap.servers": node.kafka, "enable.idempotence": True})
        patient.produce("full", bytes(20_000), on_delivery=on_delivery)
        patient.poll(0)
        assert write().error_code == ErrorCode.KAFKA_STORAGE_ERROR
        filler.unlink()
        assert patient.flush(60) == 0
        assert told == [None]
        until(lambda: write().error_code == 0)
        assert metric(node, "duramen_storage_full") == 0
        until(lambda: len(_said(node)) > 1)
        assert _said(node)[0] == warning
        (goes_on,) = _said(node)[1:]
        assert re.search(
            rf"INFO duramen.node: writes to {node.data_dir} continue: \d+ bytes of its disk are free", goes_on
        )
        # Nothing acknowledged is lost by a crash now.
        connection.close()
        node.kill()
        node.restart()
        found = CONFLUENT.consume(node.kafka, "full", 1, len(acknowledged) + 1)
        assert set(acknowledged) < {read.place.offset for read in found}
        assert [read.place.offset for read in found] == list(range(len(acknowledged) + 1))
        assert node.stop() == 0
        assert "Traceback" not in node.log_path.read_text()


def test_a_node_does_not_start_on_a_full_disk_and_has_everything_when_there_is_space(small_disk: Path) -> None:
    """Recovery needs space for records that are not in segments yet: nothing is copied there before the kill."""
    node = NodeProcess(small_disk / "data", _SETTINGS | {"wal.copy.interval.ms": 600_000}).start()
    records = [Record(b"%d" % number) for number in range(100)]
    CONFLUENT.produce(node.kafka, "full", records)
    node.kill()
    filler = _fill(small_disk)
    with pytest.raises(ServerUnreachable, match="cannot be used: No space left on device"):
        node.start()
    assert "Traceback" not in node.log_path.read_text()
    filler.unlink()
    with node:
        found = CONFLUENT.consume(node.kafka, "full", 1, 100)
        assert [read.value for read in found] == [record.value for record in records]


@pytest.mark.variants(1)
@pytest.mark.parametrize("client", ["librdkafka", "duramen produce"])
def test_small_records_do_not_overtake_a_large_one(small_disk: Path, client: str) -> None:
    """The large one does not fit any more where small ones still would: all are stored in order once there is space."""
    values = [b"x" * 700_000, *[b"%d" % number for number in range(1, 6)]]
    with NodeProcess(small_disk / "data", _SETTINGS) as node:
        connection = connect(node)
        stream_id(connection, "other")
        stream_id(connection, "a")

        def fill() -> Path:
            filler = _fill(small_disk)
            half = batch_of(bytes(400_000))
            until(lambda: produce_bytes(connection, "other", half).error_code == ErrorCode.KAFKA_STORAGE_ERROR)
            return filler

        if client == "librdkafka":
            told = _send_at_once(node, values, fill)
            assert told == [(None, offset) for offset in range(6)]
        else:
            values.insert(0, b"before")
            _produce_lines(node, values, fill)
        found = CONFLUENT.consume(node.kafka, "a", 1, len(values))
        assert [(read.place.offset, read.value) for read in found] == list(enumerate(values))
        connection.close()


def _refused(node: NodeProcess) -> float:
    return sum(
        value
        for _, value in metrics(node, "duramen_kafka_request_errors_total", api="produce", error="kafka_storage_error")
    )


def _send_at_once(
    node: NodeProcess, values: list[bytes], fill: Callable[[], Path]
) -> list[tuple[KafkaError | None, int | None]]:
    """What librdkafka says of each; it has its id before the disk is full, and space comes after some refusals."""
    told: list[tuple[KafkaError | None, int | None]] = []
    producer = Producer(
        {
            "bootstrap.servers": node.kafka, "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1,
            "retry.backoff.ms": 20,
        }
    )  # fmt: skip
    producer.produce("other", b"before")
    assert producer.flush(60) == 0
    filler = fill()
    before = _refused(node)
    for value in values:
        producer.produce("a", value, on_delivery=lambda error, message: told.append((error, message.offset())))
    until(lambda: producer.poll(0) < 0 or _refused(node) >= before + 3)
    filler.unlink()
    assert producer.flush(60) == 0
    return told


def _produce_lines(node: NodeProcess, values: list[bytes], fill: Callable[[], Path]) -> None:
    """The first line comes before the disk is full, so that the command has its producer id."""
    with subprocess.Popen(
        [sys.executable, "-m", "duramen", "produce", "a", "--server", node.http],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=command_environment(),
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(values[0] + b"\n")
        process.stdin.flush()
        until(lambda: metric(node, "duramen_records_in_total", stream="a") == 1)
        filler = fill()
        before = _refused(node)
        process.stdin.write(b"\n".join(values[1:]) + b"\n")
        process.stdin.close()
        until(lambda: _refused(node) >= before + 2)
        filler.unlink()
        said = process.stderr.read()
        assert process.wait(60) == 0, said
    assert said == b"7 records written to a\n"
