"""Transactions of confluent-kafka on three real nodes that are killed: whole or not there, offsets exactly once."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import again, until
from tests.cluster.judged import running, world
from tests.consistency.clients import Transactions

from duramen.base.errors import DuramenError
from duramen.node.processes import NodeProcesses
from duramen.spark.options import Options
from duramen.spark.read.stream import StreamReader

PARTITIONS: Final = 4
_STREAM: Final = "written"
_STREAMS: Final = (_STREAM, "in", "out")
_OFFSETS_S: Final = 20.0
_WAIT_S: Final = 60.0
_QUICK_ROUNDS: Final = 3
_SETTLED: Final = 100  # so many more, and clients have heard of a node that is back
_QUIET: Final[Mapping[str, str | int | bool]] = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 500,
}


class Worker(threading.Thread):
    """A transactional producer at work until `stopping`; `problem` is what no client should meet."""

    def __init__(self, servers: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.servers = servers
        self.stopping = threading.Event()
        self.done = 0
        self.problem = ""

    def run(self) -> None:
        try:
            self.work()
        except (KafkaException, AssertionError) as error:
            self.problem = f"{self.name}: {error!r}"

    def work(self) -> None:
        raise NotImplementedError

    def producer(self) -> Producer:
        """Whoever had its place is fenced, what that left open is aborted."""
        config: dict[str, Any] = {
            **_QUIET, "bootstrap.servers": self.servers, "transactional.id": self.name, "linger.ms": 0,
            # Where all brokers were down once librdkafka forgets them, and with them what it has asked of a group's
            # coordinator: that call never ends.
            "metadata.recovery.strategy": "none",
        }  # fmt: skip
        producer = Producer(config)
        again(lambda: producer.init_transactions(_WAIT_S))
        return producer

    def transaction(self, producer: Producer, fill: Callable[[], None], *, commit: bool) -> bool:
        """Whether it was committed; where it could not be it is aborted."""
        producer.begin_transaction()
        try:
            fill()
            if commit:
                again(producer.commit_transaction)
                return True
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        again(producer.abort_transaction)
        return False


class Writer(Worker):
    """Writes transactions to all partitions, and aborts each third; `committed` are the numbers of the others."""

    def __init__(self, servers: str, name: str) -> None:
        super().__init__(servers, name)
        self.committed: list[int] = []

    def work(self) -> None:
        producer = self.producer()
        while not self.stopping.is_set():
            number = self.done

            def fill(number: int = number) -> None:
                for partition in range(PARTITIONS):
                    producer.produce(_STREAM, b"%s/%d" % (self.name.encode(), number), partition=partition)
                producer.flush(_WAIT_S)

            if self.transaction(producer, fill, commit=number % 3 < 2):
                self.committed.append(number)
            self.done += 1


class Source(Worker):
    """Writes numbers, each acknowledged by all."""

    def work(self) -> None:
        producer = Producer({**_QUIET, "bootstrap.servers": self.servers, "enable.idempotence": True, "linger.ms": 0})
        failed: list[KafkaError] = []

        def told(error: KafkaError | None, _: Message) -> None:
            failed.extend([] if error is None else [error])

        while not self.stopping.wait(0.01):
            producer.produce("in", b"%d" % self.done, partition=self.done % PARTITIONS, on_delivery=told)
            producer.poll(0)
            self.done += 1
        assert producer.flush(_WAIT_S) == 0
        assert not failed, failed


class Mover(Worker):
    """Reads one stream and writes to another, what it has read and how far in one transaction."""

    def work(self) -> None:
        config: dict[str, Any] = {
            **_QUIET, "bootstrap.servers": self.servers, "group.id": "movers", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "isolation.level": "read_committed",
        }  # fmt: skip
        consumer = Consumer(config)
        consumer.subscribe(["in"])
        producer = self.producer()
        while not self.stopping.is_set():
            found = [message for message in consumer.consume(20, timeout=0.2) if message.error() is None]
            if not found:
                continue

            def fill(found: list[Message] = found) -> None:
                ends = {}
                for message in found:
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None
                    assert offset is not None
                    ends[partition] = offset + 1
                    producer.produce("out", message.value(), partition=partition)
                offsets = [TopicPartition("in", partition, end) for partition, end in ends.items()]
                member = consumer.consumer_group_metadata()
                again(lambda: producer.send_offsets_to_transaction(offsets, member, _OFFSETS_S))

            if self.transaction(producer, fill, commit=True):
                self.done += len(found)
            else:
                self._go_back(consumer)
        consumer.close()

    def _go_back(self, consumer: Consumer) -> None:
        for place in consumer.committed(consumer.assignment(), timeout=_WAIT_S):
            consumer.seek(TopicPartition("in", place.partition, max(place.offset, 0)))


class MicroBatches(Worker):
    """Plans and reads micro-batches, as Spark's driver and its tasks do; `done` are the records."""

    def __init__(self, servers: str) -> None:
        super().__init__(servers, "micro-batches")
        self.batches: list[Counter[bytes]] = []
        self.offset: dict[str, Any] = {}

    def work(self) -> None:
        reader = self.reader()
        self.offset = reader.initialOffset()
        while not self.stopping.is_set():
            if not self.read_on(reader):
                self.stopping.wait(0.02)

    def reader(self) -> StreamReader:
        options = {
            "kafka.bootstrap.servers": self.servers, "subscribe": _STREAM, "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "60", "kafka.request.timeout.ms": "60000",
        }  # fmt: skip
        return StreamReader(Options(options, "stream"))

    def read_on(self, reader: StreamReader) -> bool:
        """Whether there was another one."""
        try:
            end = reader.latestOffset(self.offset, reader.getDefaultReadLimit())
            if end == self.offset:
                return False
            found = Counter[bytes]()
            for partition in reader.partitions(self.offset, end):
                for records in reader.read(partition):
                    found.update(records.column("value").to_pylist())
        except DuramenError as error:
            raise AssertionError(error) from None
        self.batches.append(found)
        self.done += found.total()
        self.offset = end
        return True


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeProcesses]:
    settings = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3}
    started = NodeProcesses(tmp_path, 3, settings)
    try:
        started.start()
        admin = AdminClient({**_QUIET, "bootstrap.servers": started.bootstrap_servers})
        wish = [NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in _STREAMS]
        for created in admin.create_topics(wish).values():
            created.result(_WAIT_S)
        yield started
        assert not [line for log in started.logs().values() for line in log.splitlines() if "Traceback" in line]
    finally:
        started.kill(*started.running)
        started.close()


def _committed(servers: str, stream: str) -> list[list[bytes]]:
    """Every value, by partition, that readers of what is committed see."""
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    consumer = Consumer(
        {
            **_QUIET, "bootstrap.servers": servers, "group.id": "all", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(stream, partition, 0) for partition in range(PARTITIONS)])

    def at_ends() -> bool:
        for message in consumer.consume(1000, timeout=0.2):
            error, value, partition = message.error(), message.value(), message.partition()
            assert partition is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(partition)
            elif value is not None:
                found[partition].append(value)
        return len(ended) == PARTITIONS

    until(at_ends, _WAIT_S)
    consumer.close()
    return found


def _kill_each(nodes: NodeProcesses, workers: list[Worker]) -> None:
    """Kill one node after the other, each while the workers are at it; each goes on without it and with it."""
    for node in nodes.nodes:
        _go_on(workers)
        nodes.kill(node)
        _go_on(workers)
        nodes.start([node])
        _wait_whole(nodes)
        _go_on(workers, _SETTLED)


def _wait_whole(nodes: NodeProcesses) -> None:
    """Wait until each partition has all of its replicas in sync."""
    admin = AdminClient({**_QUIET, "bootstrap.servers": nodes.bootstrap_servers})

    def whole() -> bool:
        try:
            topics = admin.list_topics(timeout=_WAIT_S).topics.values()
        except KafkaException:
            return False
        return all(len(one.isrs) == len(nodes.nodes) for topic in topics for one in topic.partitions.values())

    until(whole, _WAIT_S)


def _go_on(workers: list[Worker], count: int = 5) -> None:
    before = [worker.done for worker in workers]
    until(
        lambda: (
            any(worker.problem for worker in workers)
            or all(worker.done - done >= count for worker, done in zip(workers, before, strict=True))
        ),
        _WAIT_S,
    )
    assert [worker.problem for worker in workers if worker.problem] == []


def _work(nodes: NodeProcesses, workers: list[Worker]) -> None:
    for worker in workers:
        worker.start()
    try:
        _kill_each(nodes, workers)
    finally:
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.join(2 * _WAIT_S)
    assert [worker.problem for worker in workers if worker.problem] == []


@pytest.mark.long
def test_every_committed_transaction_is_whole_and_no_other_is_seen(nodes: NodeProcesses) -> None:
    writers = [Writer(nodes.bootstrap_servers, name) for name in ("a", "b", "c")]
    _work(nodes, [*writers])
    expected = sorted(b"%s/%d" % (one.name.encode(), number) for one in writers for number in one.committed)
    assert len(expected) > len(writers)
    assert [sorted(values) for values in _committed(nodes.bootstrap_servers, _STREAM)] == [expected] * PARTITIONS


@pytest.mark.long
def test_what_is_read_is_written_exactly_once_by_nodes_killed_in_quick_succession(nodes: NodeProcesses) -> None:
    source, mover = Source(nodes.bootstrap_servers, "source"), Mover(nodes.bootstrap_servers, "mover")
    source.start()
    mover.start()
    try:
        _go_on([source, mover])
        for _ in range(_QUICK_ROUNDS):
            for node in nodes.nodes:
                nodes.kill(node)
                nodes.start([node])
            _go_on([mover])
        source.stopping.set()
        source.join(_WAIT_S)
        until(lambda: mover.done >= source.done or mover.problem, _WAIT_S)
    finally:
        for worker in (source, mover):
            worker.stopping.set()
            worker.join(2 * _WAIT_S)
    assert (source.problem, mover.problem) == ("", "")
    moved = sorted(int(value) for values in _committed(nodes.bootstrap_servers, "out") for value in values)
    assert moved == list(range(source.done))


@pytest.mark.long
def test_a_micro_batch_has_each_transaction_wholly_or_not(nodes: NodeProcesses) -> None:
    writers = [Writer(nodes.bootstrap_servers, name) for name in ("a", "b", "c")]
    micro = MicroBatches(nodes.bootstrap_servers)
    _work(nodes, [*writers, micro])
    expected = Counter(b"%s/%d" % (one.name.encode(), number) for one in writers for number in one.committed)
    reader = micro.reader()  # as after a restart

    def everything() -> bool:
        while micro.read_on(reader):
            pass
        return sum(micro.batches, Counter()).keys() >= expected.keys()

    until(everything, _WAIT_S)
    assert {count for batch in micro.batches for count in batch.values()} == {PARTITIONS}
    assert sum(micro.batches, Counter()) == Counter(dict.fromkeys(expected, PARTITIONS))


@pytest.mark.parametrize(
    "partitions", [pytest.param((0,), id="one leader"), pytest.param((0, 1), id="two leaders", marks=pytest.mark.long)]
)
def test_transactions_are_judged_while_nodes_end(tmp_path: Path, partitions: Sequence[int]) -> None:
    with world(tmp_path) as cluster, running(cluster, (Transactions, Transactions)) as run:
        for partition in partitions:
            leader = cluster.leader(partition)
            cluster.nodes.kill(leader)
            cluster.wait_without(leader)
            run.go_on()
            cluster.nodes.start([leader])
            run.go_on()
