"""Idempotent producers of queues' topics and of the inventory's while leaders of their shards are killed or cut off.

CLUSTER_ROUNDS=N cuts so many times, CLUSTER_SEED=N with another seed.
"""

import os
import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.clients import CONFLUENT, until
from tests.cluster.judged import cut_and_kill, running, world
from tests.consistency.clients import Client, Pipelined
from tests.consistency.history import Poll
from tests.interrupted import produce_interrupted
from tests.raw import connect, produce_bytes

import duramen
from duramen.base.errors import DuramenError
from duramen.codec.batch import BatchInput, encode
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.produce import PartitionResponse
from duramen.codec.kafka.versions import ApiKey
from duramen.node.processes import NodeProcesses

WAIT_S = 60.0
SETTINGS = {"inventory.shards": 3, "inventory.queue.shards": 3}
TOPICS = [*(f"mail.user-{number}" for number in range(4)), *(f"apex.dev.orders-{number}" for number in range(3))]


def make_topics(nodes: NodeProcesses) -> None:
    with duramen.connect(nodes.nodes[1].http) as client:
        client.spaces.create("mail", shards=3, config={"queue.topic.prefix": "mail."})
        client.inventory.create_tenants(["apex"])

        def made() -> bool:
            try:
                client.inventory.create_namespaces("apex", ["dev"])
                client.inventory.create_topics("apex/dev", [f"orders-{number}" for number in range(3)])
            except DuramenError:
                return False
            return True

        until(made, WAIT_S)


def leader_of(nodes: NodeProcesses, topic: str) -> int:
    """The leader of a topic, once a node that runs knows a live one."""
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers, "log_level": 0})

    def found() -> int:
        try:
            partitions = admin.list_topics(topic, timeout=5).topics[topic].partitions
        except KafkaException:
            return 0
        return partitions[0].leader if partitions and partitions[0].leader in nodes.running else 0

    return until(found, WAIT_S)


class RawProducer:
    """An idempotent producer that sends batches of two records to the leader of their topic."""

    def __init__(self, nodes: NodeProcesses) -> None:
        self._nodes = nodes
        connection = connect(nodes.nodes[1])
        made = {"transactional_id": None, "transaction_timeout_ms": 1000}
        self._id = until(lambda: connection.request(ApiKey.INIT_PRODUCER_ID, made)["producer_id"] + 1, WAIT_S) - 1
        connection.close()

    def send(self, topic: str, sequence: int) -> int:
        """The offset, once a leader takes the batch."""
        new = [BatchInput(1, None, b"%d" % number) for number in (sequence, sequence + 1)]
        batch = encode(new, producer_id=self._id, producer_epoch=0, base_sequence=sequence)

        def sent() -> PartitionResponse | None:
            connection = connect(self._nodes.nodes[leader_of(self._nodes, topic)])
            answer = produce_bytes(connection, topic, batch)
            connection.close()
            return (
                None
                if answer.error_code
                in (
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                )
                else answer
            )

        answer = until(sent, WAIT_S)
        assert answer is not None
        assert answer.error_code == 0, answer
        return answer.base_offset


@pytest.mark.long
def test_a_batch_that_is_sent_again_to_the_next_leader_is_stored_once(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        make_topics(nodes)
        producer = RawProducer(nodes)
        for topic in (TOPICS[0], TOPICS[-1]):
            first = [producer.send(topic, sequence) for sequence in (0, 2, 4)]
            leader = leader_of(nodes, topic)
            nodes.kill(leader)
            assert [producer.send(topic, sequence) for sequence in (4, 0, 2)] == [first[2], *first[:2]]
            assert producer.send(topic, 6) == producer.send(topic, 6) > first[2]
            nodes.start([leader])
            reads = CONFLUENT.consume(nodes.bootstrap_servers, topic, 1, 8)
            assert [read.value for read in reads] == [b"%d" % number for number in range(8)]


@pytest.mark.long
def test_a_producer_with_batches_in_flight_goes_on_while_each_node_is_killed(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        make_topics(nodes)

        def kill(number: int, caught_up: Callable[[], bool]) -> None:
            nodes.kill(number)
            until(caught_up, WAIT_S)
            nodes.start([number])

        produce_interrupted(nodes.bootstrap_servers, TOPICS, kill)


class LightProducer(Pipelined):
    """An idempotent producer with several batches in flight to topics without a partition of their own."""

    records = False

    def work(self) -> None:
        self.delivered: dict[int, tuple[str, int]] = {}
        self.failed = 0
        producer, number = self.producer(), self.process
        while not self.stopping.wait(0.02):
            for _ in range(self.chance.randrange(1, self.most)):
                number += 10  # the last digit is that of the producer
                told = partial(self.told, number)
                producer.produce(self.chance.choice(TOPICS), b"%d" % number, on_delivery=told)
            producer.flush(WAIT_S)

    def told(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered[number] = message.topic() or "", message.offset() or 0
        else:
            self.failed += 1

    def check(self, found: Sequence[Poll]) -> None:
        del found
        stored = [one for one in read_all(str(self.settings["bootstrap.servers"])) if one[2] % 10 == self.process]
        places = {value: (topic, offset) for topic, offset, value in stored}
        assert len(places) == len(stored)
        assert {value: place for value, place in places.items() if value in self.delivered} == self.delivered
        assert not self.failed
        for topic in TOPICS:
            values = [value for one, _, value in stored if one == topic]
            assert values == sorted(values)


def read_all(address: str) -> list[tuple[str, int, int]]:
    """The topic, offset and value of each record of all topics."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "all", "enable.partition.eof": True, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in TOPICS])
    found, ended = list[tuple[str, int, int]](), set[str]()

    def read() -> Collection[str]:
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                found.append((message.topic() or "", message.offset() or 0, int(message.value() or b"")))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.topic() or "")
        return ended if len(ended) == len(TOPICS) else ()

    until(read, 2 * WAIT_S)
    consumer.close()
    return found


@pytest.mark.long
def test_nothing_is_stored_twice_while_leaders_are_cut_off(tmp_path: Path) -> None:
    chance = random.Random(os.environ.get("CLUSTER_SEED", "1"))
    with world(tmp_path) as cluster:
        make_topics(cluster.nodes)
        clients: tuple[type[Client], ...] = (Pipelined, LightProducer, LightProducer)
        with running(cluster, clients) as run:
            for _ in range(int(os.environ.get("CLUSTER_ROUNDS", "3"))):
                cut_and_kill(cluster, run, chance)
