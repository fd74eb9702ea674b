"""Kill -9 in the middle of transactions of unmodified clients: each is there as a whole or not at all."""

import random
import threading
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from duramen.node.process import NodeProcess

_S = 60.0
_PARTITIONS = 3
_STREAM = "transfers"
_SETTINGS = {
    "wal.file.bytes": 1 << 20, "wal.max.bytes": 8 << 20, "wal.copy.bytes": 64 << 10, "wal.copy.interval.ms": 20,
    "transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3,
}  # fmt: skip


class Transferring:
    """A producer whose transactions each write the same number to every partition and commit it as an offset."""

    def __init__(self, node: NodeProcess, name: str, chance: random.Random) -> None:
        self.name = name
        self.acknowledged: set[int] = set()
        self.aborted: set[int] = set()
        self._chance = chance
        self._stopping = threading.Event()
        # librdkafka 2.16 waits for ever for a group's coordinator among brokers that a bootstrap anew has taken out.
        self._producer = Producer(
            {
                "bootstrap.servers": node.kafka, "transactional.id": name, "linger.ms": 0, "log_level": 0,
                "metadata.recovery.strategy": "none", "retry.backoff.ms": 10, "retry.backoff.max.ms": 50,
                "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "message.timeout.ms": 60_000,
            }
        )  # fmt: skip
        self._group = Consumer({"bootstrap.servers": node.kafka, "group.id": name, "log_level": 0})
        self._number = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End after the transaction under way."""
        self._stopping.set()
        self._thread.join(_S)
        assert not self._thread.is_alive()
        self._group.close()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._producer.init_transactions(_S)
            while not self._stopping.is_set():
                self._transfer()
        except KafkaException as error:
            self.failure = error  # raised in the test's own thread

    def _transfer(self) -> None:
        self._number += 1
        number = self._number
        try:
            self._producer.begin_transaction()
            for partition in range(_PARTITIONS):
                self._producer.produce(_STREAM, f"{self.name}:{number}", partition=partition)
            self._producer.send_offsets_to_transaction(
                [TopicPartition(_STREAM, 0, number)], self._group.consumer_group_metadata(), _S
            )
            if self._chance.random() < 0.2:
                self.aborted.add(number)
                self._producer.flush(_S)  # what a kill takes back on the way is not sent again once an abort has begun
                self._producer.abort_transaction(_S)
            else:
                self._producer.commit_transaction(_S)
                self.acknowledged.add(number)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.aborted.add(number)
            self._producer.abort_transaction(_S)


def _committed(node: NodeProcess) -> list[list[str]]:
    """What a reader of committed records sees of each partition."""
    consumer = Consumer(
        {"bootstrap.servers": node.kafka, "group.id": "checker", "enable.auto.commit": False,
         "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )  # fmt: skip
    consumer.assign([TopicPartition(_STREAM, index, 0) for index in range(_PARTITIONS)])
    found: list[list[str]] = [[] for _ in range(_PARTITIONS)]
    ended = 0
    while ended < _PARTITIONS:
        message = consumer.poll(_S)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found[message.partition() or 0].append((message.value() or b"").decode())
    consumer.close()
    return found


def _offset(node: NodeProcess, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": group})
    (found,) = consumer.committed([TopicPartition(_STREAM, 0)], timeout=_S)
    consumer.close()
    return int(found.offset)


def _run(new_node: Callable[..., NodeProcess], kills: int, seed: int) -> None:
    chance = random.Random(seed)
    node = new_node(_SETTINGS)
    node.start()
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic(_STREAM, _PARTITIONS)])[_STREAM].result(_S)
    writers = [Transferring(node, f"writer-{number}", random.Random(seed + number)) for number in range(3)]
    pause = threading.Event()
    for _ in range(kills):
        pause.wait(chance.uniform(0.05, 0.5))
        node.kill()
        node.start()
    pause.wait(0.2)
    for writer in writers:
        writer.stop()
    found = _committed(node)
    for writer in writers:
        seen = [
            [int(value.split(":")[1]) for value in values if value.startswith(f"{writer.name}:")] for values in found
        ]
        assert seen[0] == seen[1] == seen[2], "a transaction is in some partitions only"
        assert seen[0] == sorted(set(seen[0])), "a record is there twice or out of order"
        assert set(seen[0]) == writer.acknowledged
        assert not writer.aborted & set(seen[0])
        assert _offset(node, writer.name) == max(writer.acknowledged)
    assert all(writer.acknowledged for writer in writers)


def test_kills_in_the_middle_of_transactions(new_node: Callable[..., NodeProcess]) -> None:
    _run(new_node, kills=5, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_many_kills_in_the_middle_of_transactions(new_node: Callable[..., NodeProcess], seed: int) -> None:
    _run(new_node, kills=30, seed=seed)
