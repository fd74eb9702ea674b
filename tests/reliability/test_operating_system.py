"""What the operating system does to a running node.

A file system that goes read-only, files that cannot be opened, a directory that is moved away, a lock that is removed,
a process that is stopped for a while, a clock that jumps.
"""

import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, Message, Producer
from tests.clients import CONFLUENT, Record, metric, unhealthy, until
from tests.raw import batch_of, connect, produce_bytes, stream_id
from tests.reliability.ext4 import Ext4

from duramen.base.errors import ServerUnreachable
from duramen.codec.kafka.errors import ErrorCode
from duramen.node.process import NodeProcess
from duramen.sim.broker import ManualBroker

_SETTINGS: Final = {
    "wal.file.bytes": 1 << 20, "wal.max.bytes": 8 << 20, "wal.copy.bytes": 64 << 10, "wal.copy.interval.ms": 20,
}  # fmt: skip
_TEN_YEARS_MS: Final = 10 * 365 * 86_400_000


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Ext4]:
    """An ext4 of 96 MiB."""
    system = Ext4.make(tmp_path)
    if system is None:
        pytest.skip("an ext4 can be mounted by root only; the same faults are tested with a disk in memory")
    yield system
    system.unmount()


def test_the_file_system_becomes_read_only_under_a_running_node(ext4: Ext4) -> None:
    node = NodeProcess(ext4.place / "data", _SETTINGS)
    node.log_path = ext4.place.parent / "node.log"
    node.start()
    connection = connect(node)
    stream_id(connection, "kept")
    acknowledged = [produce_bytes(connection, "kept", batch_of(b"%d" % number)).base_offset for number in range(50)]
    assert acknowledged == list(range(50))
    assert unhealthy(node) == ""
    ext4.fail()
    refused = produce_bytes(connection, "kept", batch_of(b"refused"))
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "no writes until it is restarted" in (refused.message or "")
    for _ in range(3):
        assert produce_bytes(connection, "kept", batch_of(b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert metric(node, "duramen_storage_failed") == 1
    assert "no writes until it is restarted" in unhealthy(node)
    until(lambda: "no writes until it is restarted" in node.log_path.read_text())  # the node answers first
    found = CONFLUENT.consume(node.kafka, "kept", 1, 50)
    assert [read.place.offset for read in found] == acknowledged
    connection.close()
    node.kill()
    with pytest.raises(ServerUnreachable, match="read-only"):
        node.start()
    ext4.repair()
    with node:
        found = CONFLUENT.consume(node.kafka, "kept", 1, 50)
        assert [read.value for read in found] == [b"%d" % number for number in range(50)]
        place = CONFLUENT.produce(node.kafka, "kept", [Record(b"again")])
        assert place[0].offset >= 50
    assert "Traceback" not in node.log_path.read_text()


@pytest.mark.long
def test_power_is_lost_on_a_real_file_system(ext4: Ext4) -> None:
    """What ext4 had not written back is gone, and what was acknowledged is there, in the middle of writing."""
    node = NodeProcess(ext4.place / "data", _SETTINGS)
    node.log_path = ext4.place.parent / "node.log"
    node.start()
    connection = connect(node)
    stream_id(connection, "kept")
    told: dict[int, bytes] = {}

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None
        told[message.offset() or 0] = message.value() or b""

    producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 0, "enable.idempotence": True})
    for moment in range(3):
        wanted = len(told) + 150 * (moment + 1)
        while len(told) < wanted:
            producer.produce("kept", b"%d" % len(told) + b"." * 500, on_delivery=on_delivery)
            producer.poll(0.001)
        node.signal(signal.SIGSTOP)
        with ext4.after_power_loss(f"moment-{moment}") as left:
            acknowledged = dict(told)
            after = NodeProcess(left / "data", _SETTINGS)
            after.log_path = ext4.place.parent / f"moment-{moment}.log"
            with after:
                found = CONFLUENT.consume(after.kafka, "kept", 1, max(acknowledged) + 1)
            assert [read.place.offset for read in found] == list(range(len(found)))
            assert all(found[offset].value == value for offset, value in acknowledged.items())
            assert "damage" not in after.log_path.read_text()
        node.signal(signal.SIGCONT)
    assert producer.flush(60) == 0
    connection.close()
    assert node.stop() == 0


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.long
def test_no_more_files_can_be_opened(new_node: Callable[..., NodeProcess]) -> None:
    """Too many open files: what needs one is refused with that reason, nothing is lost, and it passes."""
    node = new_node(_SETTINGS).start()
    cold, warm = ("old", "busy")
    for name in (cold, warm):
        CONFLUENT.produce(node.kafka, name, [Record(b"%d" % number) for number in range(100)])
    assert node.stop() == 0
    node.restart()  # no segment is open now
    connection = connect(node)
    stream_id(connection, warm)
    limits = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (_open_files(node.pid), limits[1]))
    batch = batch_of(bytes(50_000))
    acknowledged = 0

    def write() -> bool:
        nonlocal acknowledged
        answer = produce_bytes(connection, warm, batch)
        acknowledged += answer.error_code == 0
        assert answer.error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
        return answer.error_code != 0

    until(write)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, limits)
    until(lambda: not write())
    assert len(CONFLUENT.consume(node.kafka, cold, 1, 100)) == 100
    connection.close()
    node.kill()
    node.restart()
    found = CONFLUENT.consume(node.kafka, warm, 1, 100 + acknowledged)
    assert [read.place.offset for read in found] == list(range(100 + acknowledged))
    assert metric(node, "duramen_storage_failed") == 0
    assert "Traceback" not in node.log_path.read_text()


@pytest.mark.long
def test_the_lock_is_removed_under_a_running_node(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    (node.data_dir / "lock").unlink()
    with pytest.raises(ServerUnreachable, match="in use by another node"):
        NodeProcess(node.data_dir).start()
    CONFLUENT.produce(node.kafka, "one", [Record(b"x")])
    assert node.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize("how", ["moved", "deleted"])
def test_the_data_directory_is_gone_under_a_running_node(new_node: Callable[..., NodeProcess], how: str) -> None:
    node = new_node(_SETTINGS).start()
    connection = connect(node)
    stream_id(connection, "kept")
    for number in range(20):
        assert produce_bytes(connection, "kept", batch_of(b"%d" % number)).error_code == 0
    elsewhere = node.data_dir.parent / "elsewhere"
    if how == "moved":
        node.data_dir.rename(elsewhere)
    else:
        while node.data_dir.exists():
            shutil.rmtree(node.data_dir, ignore_errors=True)  # the node may make a file meanwhile
    refused = produce_bytes(connection, "kept", batch_of(b"refused"))
    connection.close()
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR, "nothing is acknowledged that may be gone"
    assert "is gone" in (refused.message or "")
    until(lambda: "is gone" in node.log_path.read_text())  # the node answers first
    node.kill()
    assert not (node.data_dir / "wal").exists(), "it was made a second time"
    if how == "moved":
        elsewhere.rename(node.data_dir)
        node.restart()
        found = CONFLUENT.consume(node.kafka, "kept", 1, 20)
        assert [read.value for read in found[:20]] == [b"%d" % number for number in range(20)]
    assert "Traceback" not in node.log_path.read_text()


@pytest.mark.long
def test_a_node_is_stopped_for_a_while_and_goes_on(new_node: Callable[..., NodeProcess]) -> None:
    """SIGSTOP and SIGCONT: clients wait and repeat; nothing is lost and nothing is there twice."""
    node = new_node(_SETTINGS).start()
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": node.kafka, "enable.idempotence": True, "socket.timeout.ms": 1000, "linger.ms": 0,
    }  # fmt: skip
    producer = Producer(settings)
    told: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        told.append(error)

    for number in range(500):
        producer.produce("stopped", b"%d" % number, on_delivery=on_delivery)
        if number == 250:
            until(lambda: producer.poll(0.01) is not None and len(told) > 0)
            node.signal(signal.SIGSTOP)
    producer.poll(1.5)  # requests time out meanwhile, and are repeated
    assert len(told) < 500
    node.signal(signal.SIGCONT)
    assert producer.flush(60) == 0
    assert told == [None] * 500
    found = CONFLUENT.consume(node.kafka, "stopped", 1, 500)
    assert [read.value for read in found] == [b"%d" % number for number in range(500)]
    assert node.stop() == 0


def _clocked() -> ManualBroker:
    hand = ManualBroker()
    hand.create("timed", retention_ms=86_400_000, segment_bytes=1000)
    for number in range(30):
        hand.produce("timed", b"%d" % number * 50)
        hand.advance(1000)
    return hand


def test_the_clock_jumps_ten_years_ahead() -> None:
    """As in Kafka: by that clock every record is older than `retention.ms`. What is written then stays."""
    hand = _clocked()
    log = hand.broker.streams.get("timed").partition(0).log
    end_offset = log.end_offset
    hand.clock.jump(_TEN_YEARS_MS)
    hand.produce("timed", b"after the jump")
    hand.advance(600_000)
    assert hand.values("timed", offset=log.start_offset)[-1] == b"after the jump"
    assert log.end_offset == end_offset + 1
    hand.crash()
    assert hand.values("timed", offset=hand.broker.streams.get("timed").partition(0).log.start_offset)[-1] == (
        b"after the jump"
    )


def test_the_clock_goes_back() -> None:
    """Nothing is let go, deadlines do not move, and what is written then is found like everything else."""
    hand = _clocked()
    expected = hand.values("timed")
    hand.clock.jump(-_TEN_YEARS_MS)
    hand.produce("timed", b"before it was written")
    hand.advance(600_000)
    assert hand.values("timed") == [*expected, b"before it was written"]
    hand.crash()
    assert hand.values("timed") == [*expected, b"before it was written"]
