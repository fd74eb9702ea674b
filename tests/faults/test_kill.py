"""Kill -9 in the middle of concurrent writes by unmodified clients: nothing acknowledged is lost, moved or doubled."""

import random
import threading
from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import Place, until
from tests.doors.nats.conftest import Api, kafka_records
from tests.faults.writers import WRITERS, NatsWriter, Writer
from tests.leaks import close_leaked_sockets

from duramen.node.process import NodeProcess

_KILLS = 5
_LONG_KILLS = 200
_MOST_A_LIFE = 600  # of one writer: everything is read after every kill
_PARTITIONS = 3
_WAIT_S = 60.0
_STREAM = "killed"

# Small files, so that recycling, copying, rolling and checkpoints are under way when the kill comes.
_SETTINGS = {
    "wal.file.bytes": 1 << 20, "wal.max.bytes": 8 << 20, "wal.copy.bytes": 64 << 10, "wal.copy.interval.ms": 20,
}  # fmt: skip

Stored = Mapping[int, Sequence[bytes]]


def _read_all(node: NodeProcess) -> Stored:
    """Every record below the high watermarks of now: values by partition. Asserts that offsets are dense."""
    settings = {"bootstrap.servers": node.kafka, "group.id": "checker", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        stored: dict[int, list[bytes]] = {index: [] for index in range(_PARTITIONS)}
        places = {index: TopicPartition(_STREAM, index, OFFSET_BEGINNING) for index in stored}
        ends = {}
        for index, place in places.items():
            low, ends[index] = consumer.get_watermark_offsets(place, timeout=_WAIT_S)
            assert low == 0
        consumer.assign(list(places.values()))
        while any(len(stored[index]) < end for index, end in ends.items()):
            messages = consumer.consume(10_000, timeout=1)
            for message in messages:
                assert message.error() is None, message.error()
                values = stored[message.partition() or 0]
                assert message.offset() == len(values)
                values.append(message.value() or b"")
        return {index: values[: ends[index]] for index, values in stored.items()}
    finally:
        consumer.close()


def _check(stored: Stored, before: Stored, acknowledged: Mapping[bytes, Place], plain: bytes) -> None:
    for value, (partition, offset) in acknowledged.items():
        assert offset < len(stored[partition]), f"{value!r} was acknowledged at {partition}:{offset} and is lost"
        assert stored[partition][offset] == value
    for index, values in before.items():
        assert stored[index][: len(values)] == values, "what was read before the kill has changed"
    once = [value for values in stored.values() for value in values if not value.startswith(plain)]
    assert len(once) == len(set(once)), "an idempotent producer's record is there twice"
    for values in stored.values():
        newest: dict[bytes, int] = {}
        for value in values:
            writer, number, _ = value.split(b":")
            if writer + b":" != plain:
                assert newest.get(writer, -1) < int(number), "an idempotent producer's records are out of order"
                newest[writer] = int(number)


def _commit(node: NodeProcess, number: int) -> None:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "counting"})
    consumer.commit(offsets=[TopicPartition(_STREAM, 0, number)], asynchronous=False)
    consumer.close()


def _committed(node: NodeProcess) -> int:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "counting"})
    (found,) = consumer.committed([TopicPartition(_STREAM, 0)], timeout=_WAIT_S)
    consumer.close()
    return int(found.offset)


class _GroupReader(threading.Thread):
    """A member of a consumer group that reads and commits; `committed` is what it was told is stored, by partition."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.committed: dict[int, int] = {}
        self.commits = 0
        self.stopping = threading.Event()
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": address, "group.id": "reading", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "reconnect.backoff.max.ms": 200,
        }  # fmt: skip

    def run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([_STREAM])
        try:
            while not self.stopping.is_set():
                if any(message.error() is None for message in consumer.consume(1000, timeout=0.1)):
                    self._commit(consumer)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            stored = consumer.commit(asynchronous=False)
        except KafkaException:
            return  # not known: what is stored may be it or what was before
        for found in stored or []:
            if found.error is None:
                self.committed[found.partition] = max(self.committed.get(found.partition, 0), found.offset)
        self.commits += 1

    def check(self, node: NodeProcess, told: Mapping[int, int]) -> None:
        """What is stored now is not before what it was told."""
        consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "reading"})
        wanted = [TopicPartition(_STREAM, index) for index in told]
        found = consumer.committed(wanted, timeout=_WAIT_S) if wanted else []
        consumer.close()
        for place in found:
            assert place.offset >= told[place.partition], "a group's offset went back"


def _node(new_node: Callable[..., NodeProcess], settings: Mapping[str, object]) -> NodeProcess:
    node = new_node(settings).start()
    admin = AdminClient({"bootstrap.servers": node.kafka})
    wanted = NewTopic(_STREAM, _PARTITIONS, 1, config={"segment.bytes": "300000"})
    for future in admin.create_topics([wanted]).values():
        future.result(_WAIT_S)
    return node


def _kill_again_and_again(node: NodeProcess, kills: int, beside: Callable[[], object] = lambda: None) -> None:
    """Kill it under writers of every library and a group; `beside` is called after every restart."""
    writers: list[Writer] = [make(name, node.kafka, _STREAM, _PARTITIONS).start() for name, make in WRITERS]
    group = _GroupReader(node.kafka)
    group.start()
    chance = random.Random(20)
    stored: Stored = {}
    plain = b"confluent-kafka-plain:"

    def wrote_more(writer: Writer, count: int) -> Callable[[], bool]:
        goal = len(writer.acknowledged) + count
        return lambda: len(writer.acknowledged) >= goal or any(one.refused for one in writers)

    try:
        for kill in range(1, kills + 1):
            for writer in writers:
                writer.most = writer.sent + _MOST_A_LIFE
            for goal in [wrote_more(writer, chance.randrange(1, 300)) for writer in writers]:
                until(goal)
            _commit(node, kill)
            node.kill()
            told = group.committed.copy()
            acknowledged = {value: place for one in writers for value, place in one.acknowledged.copy().items()}
            for writer in writers:
                writer.paused = True  # what they have under way is sent again while everything is read
            node.restart()
            found = _read_all(node)
            _check(found, stored, acknowledged, plain)
            assert _committed(node) == kill
            group.check(node, told)
            beside()
            stored = found
            for writer in writers:
                writer.paused = False
    finally:
        for writer in writers:
            writer.stop()
        group.stopping.set()
        group.join()
        close_leaked_sockets()
    assert [writer.refused for writer in writers] == [[]] * len(writers)
    everything = {value: place for one in writers for value, place in one.acknowledged.items()}
    _check(_read_all(node), stored, everything, plain)
    for writer in writers:
        assert len(writer.acknowledged) == writer.sent
    assert group.commits > 0
    print(f"\n{len(everything)} records acknowledged under {kills} kills, {group.commits} commits of the group")


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_five_kills_lose_nothing_that_was_acknowledged(new_node: Callable[..., NodeProcess]) -> None:
    node = _node(new_node, _SETTINGS)
    _kill_again_and_again(node, _KILLS)
    assert node.stop() == 0
    assert "Traceback" not in node.log_path.read_text()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_two_hundred_kills_lose_nothing_that_was_acknowledged(new_node: Callable[..., NodeProcess]) -> None:
    """With NATS publishers beside the Kafka clients."""
    node = _node(new_node, {**_SETTINGS, "nats.server": "embedded"})
    Api(node).create("published", "published.>", partitions=_PARTITIONS)
    publisher = NatsWriter("nats-py", node.nats, "published", _PARTITIONS)
    publisher.start()
    reached = 0

    def more_was_published() -> bool:
        return len(publisher.acknowledged) > reached + 20

    def beside() -> None:
        nonlocal reached
        until(more_was_published)
        reached = len(publisher.acknowledged)

    try:
        _kill_again_and_again(node, _LONG_KILLS, beside)
    finally:
        publisher.stop()
    found = {}
    for message in kafka_records(node, "published", Api(node).ends("published")):
        found[Place(message.partition() or 0, message.offset() or 0)] = message.value()
    assert all(found[place] == value for value, place in publisher.acknowledged.items())
    assert len(set(found.values())) == len(found), "an id is stored once"
    print(f"{len(publisher.acknowledged)} messages acknowledged to nats-py")
    assert node.stop() == 0
    assert "Traceback" not in node.log_path.read_text()
