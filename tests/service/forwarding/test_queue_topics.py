"""Queues as topics of three brokers: the same id everywhere, found by whoever is asked for it."""

from typing import Any

from tests.service.forwarding.world import World

from duramen.broker.fetch import FetchResult, PartitionFetch
from duramen.codec.batch import BatchInput, encode
from duramen.codec.partitioner import partition_of
from duramen.metadata.decisions import Definition
from duramen.service.light_topics import LightTopic
from duramen.service.queue_topics import QueueTopics
from duramen.sim.broker import CallbackResult

NODES = (1, 2, 3)
SHARDS = 3
OF_SHARD = {partition_of(name, SHARDS): name.decode() for name in [b"user-%d" % number for number in range(12)]}
"""A queue of each shard."""


class Topics(World):
    """A space of three shards whose queues are topics; node N + 1 leads shard N."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = {node_id: QueueTopics(self.broker(node_id)) for node_id in NODES}
        created: CallbackResult[None] = CallbackResult()
        config = {"kind": "queues", "queue.topic.prefix": "mail."}
        self.broker(1).create_stream(Definition("mail", SHARDS, config), created)
        self.advance(1000)
        assert created.value is None

    def topic(self, node_id: int, queue: str) -> LightTopic:
        found = self.topics[node_id].find(f"mail.{queue}")
        assert found is not None
        return found

    def answer(self, answer: CallbackResult[Any]) -> Any:
        self.deliver_all(1000)
        return answer.value


def test_a_topic_has_one_id_and_the_leader_of_its_shard_finds_it_before_something_is_in_it() -> None:
    world = Topics()
    for shard, queue in OF_SHARD.items():
        asked = world.topic(1 + (shard + 1) % 3, queue)
        leader = 1 + shard
        assert world.topics[leader].find(asked.id) is None
        asked.shown()
        world.deliver_all(1000)
        found = world.topics[leader].find(asked.id)
        assert found is not None
        assert (found.name, found.partition.leads) == (asked.name, True)
        assert {world.topic(node_id, queue).id for node_id in NODES} == {asked.id}
    sent = len(world.sent)
    for shard, queue in OF_SHARD.items():
        world.topic(1 + (shard + 1) % 3, queue).shown()
    assert len(world.sent) == sent
    numbers = {stream.number for stream in world.state.streams.values() if stream.config.get("kind") == "queues"}
    assert numbers == {world.topic(1, "x").id.int >> 108}


def test_records_are_read_of_a_new_leader_too() -> None:
    world = Topics()
    queue = OF_SHARD[0]
    batch = encode([BatchInput(5, b"key", b"value")])
    stored: CallbackResult[Any] = CallbackResult()
    world.topic(1, queue).append(memoryview(batch), stored, all_replicas=True)
    world.advance(1000)
    offset, error = stored.calls[0]
    assert error is None
    world.elect(world.place("mail", 0), 3)
    world.advance(1000)
    answer: CallbackResult[list[FetchResult]] = CallbackResult()
    fetch = PartitionFetch(world.topic(3, queue).source(-1), offset, 1 << 20)
    world.broker(3).fetches.fetch([fetch], min_bytes=1, max_bytes=1 << 20, max_wait_ms=0, done=answer)
    world.advance(100)
    (found,) = answer.value
    assert (found.error, found.high_watermark) == (None, offset + 1)
    assert b"value" in (found.made or b"")


def test_groups_of_the_consumer_protocol_find_topics_of_queues() -> None:
    world = Topics()
    for node_id in NODES:
        catalogue = world.broker(node_id).groups.consumer.topics
        topic = catalogue.find("mail.ann")
        assert topic is not None
        assert (topic.id, topic.partitions) == (world.topic(1, "ann").id, 1)
        assert catalogue.name_of(topic.id) == "mail.ann"
        assert catalogue.find("other.ann") is None
