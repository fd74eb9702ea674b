"""Idempotent producers of queues' topics against a model: over crashes, cuts of the log, and changes of the leader."""

import random
from typing import NamedTuple

import pytest
from tests.service.forwarding.test_queue_topics import OF_SHARD, Topics
from tests.service.inventory import InventoryTopics

from duramen.base.catalogue.queues import KIND, LOG_RETENTION_MS, QUEUES, TOPIC_PREFIX
from duramen.base.errors import BytesQuotaExceeded, NotLeader, OutOfOrderSequence, ProducerFenced
from duramen.codec.batch import BatchInput, batches, encode, records
from duramen.coordinators.queue.shard import queue_kind
from duramen.metadata.decisions import Definition
from duramen.service.queue_topics import QueueTopics
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.storage.log.refused_batches import NEW_LEADER_MS

NAMES = ("mail.ann", "mail.bob", "mail.eve")
CONFIG = {KIND: QUEUES, TOPIC_PREFIX: "mail.", LOG_RETENTION_MS: "0", "segment.bytes": "1024"}


def batch_of(now_ms: int, values: list[bytes], producer_id: int, epoch: int, sequence: int) -> memoryview:
    new = [BatchInput(now_ms, b"key", value) for value in values]
    return memoryview(encode(new, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


class Stored(NamedTuple):
    """A batch, and the offset that was answered."""

    sequence: int
    values: list[bytes]
    offset: int


class Pair:
    """What a producer has written to a topic in its epoch."""

    def __init__(self) -> None:
        self.epoch = 0
        self.following = 0
        self.batches: list[Stored] = []


class Model:
    """A node with a space of one shard, and what its producers have written."""

    def __init__(self, seed: int) -> None:
        self.hand = ManualBroker(seed=seed, kinds=(queue_kind(12),))
        self.random = random.Random(seed)
        self.pairs = {(name, producer_id): Pair() for name in NAMES for producer_id in (7, 8)}
        self.entries: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self.values = 0
        answer: CallbackResult[object] = CallbackResult()
        self.hand.broker.create_stream(Definition("mail", 1, CONFIG), answer)
        self.hand.settle()
        assert answer.value is None
        self.started()

    def started(self) -> None:
        self.topics = QueueTopics(self.hand.broker)
        self.hand.settle()

    def send(self, name: str, batch: memoryview, *, settle: bool = True) -> CallbackResult[int]:
        topic = self.topics.find(name)
        assert topic is not None
        answer: CallbackResult[int] = CallbackResult()
        topic.append(batch, answer, all_replicas=True)
        if settle:
            self.hand.settle()
        return answer

    def error(self, name: str, producer_id: int, epoch: int, sequence: int) -> BaseException | None:
        return self.send(name, self.batch([b"refused"], producer_id, epoch, sequence)).error

    def batch(self, values: list[bytes], producer_id: int, epoch: int, sequence: int) -> memoryview:
        return batch_of(self.hand.clock.wall_ms(), values, producer_id, epoch, sequence)

    def new(self) -> list[bytes]:
        found = [b"%d" % (self.values + number) for number in range(self.random.randrange(1, 4))]
        self.values += len(found)
        return found

    def act(self) -> None:
        name, producer_id = self.random.choice([*self.pairs])
        pair = self.pairs[name, producer_id]
        match self.random.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                self.write(name, producer_id, pair, dies=False)
            case 5:
                self.write(name, producer_id, pair, dies=True)
            case 6 | 7 if pair.batches:
                sent = self.random.choice(pair.batches[-5:])
                batch = self.batch(sent.values, producer_id, pair.epoch, sent.sequence)
                assert self.send(name, batch).value == sent.offset
            case 8 if pair.batches:
                gap = pair.following + self.random.randrange(1, 9)
                assert isinstance(self.error(name, producer_id, pair.epoch, gap), OutOfOrderSequence)
                if len(pair.batches) > 5:
                    old = pair.batches[-6].sequence
                    assert isinstance(self.error(name, producer_id, pair.epoch, old), OutOfOrderSequence)
            case 9 if pair.batches:
                if pair.epoch:
                    assert isinstance(self.error(name, producer_id, pair.epoch - 1, pair.following), ProducerFenced)
                assert isinstance(self.error(name, producer_id, pair.epoch + 1, 5), OutOfOrderSequence)
                pair.epoch, pair.following, pair.batches = pair.epoch + 1, 0, []
                self.write(name, producer_id, pair, dies=False)
            case 10:
                self.hand.advance(self.random.choice((1_000, 700_000)))
            case _:
                self.hand.crash(self.random.randrange(100)) if self.random.random() < 0.5 else self.hand.restart()
                self.started()

    def write(self, name: str, producer_id: int, pair: Pair, *, dies: bool) -> None:
        values, sequence = self.new(), pair.following
        batch = self.batch(values, producer_id, pair.epoch, sequence)
        if dies:
            answer = self.send(name, memoryview(bytes(batch)), settle=False)
            assert not answer.there
            self.hand.crash(self.random.randrange(100))
            self.started()
        pair.batches.append(Stored(sequence, values, self.send(name, batch).value))
        pair.following += len(values)
        self.entries[name] += values

    def check(self) -> None:
        for name in NAMES:
            topic = self.topics.find(name)
            assert topic is not None
            found, offset = list[bytes | None](), 0
            while made := (read := topic.source(-1).read(offset, 1 << 20)).made:
                for at, head in batches(made):
                    found += [record.value for record in records(made[at : at + head.size])]
                offset = read.high_watermark
            assert found == self.entries[name]


@pytest.mark.variants(3)
@pytest.mark.parametrize("seed", range(1, 21))
def test_batches_are_stored_once_and_in_order_over_crashes_and_cuts_of_the_log(seed: int) -> None:
    model = Model(seed)
    log = model.hand.broker.streams.get("mail").partition(0).log
    acts = 0
    while acts < 60 or not log.start_offset:
        model.act()
        acts += 1
        log = model.hand.broker.streams.get("mail").partition(0).log
    model.check()


class Producing(Topics):
    """An idempotent producer of a queue of shard 0, with the time of the world."""

    queue = OF_SHARD[0]

    def send(self, node_id: int, sequence: int, *, replicated: bool = True) -> int:
        """The offset. Raises DuramenError."""
        answer: CallbackResult[int] = CallbackResult()
        batch = batch_of(self.broker(node_id).now_ms(), [b"%d" % sequence], 7, 0, sequence)
        self.topic(node_id, self.queue).append(batch, answer, all_replicas=replicated)
        self.advance(100)
        return answer.value

    def lead_by(self, node_id: int) -> None:
        self.elect(self.place("mail", 0), node_id)
        self.advance(1000)


def test_a_new_leader_knows_the_batches_of_the_one_before() -> None:
    world = Producing()
    offsets = [world.send(1, sequence) for sequence in range(3)]
    world.lead_by(3)
    with pytest.raises(NotLeader):
        world.send(1, 2)
    assert [world.send(3, sequence) for sequence in (2, 1, 0)] == offsets[::-1]
    with pytest.raises(NotLeader):  # the leader is new: the one before may have refused sequence 3
        world.send(3, 4)
    assert world.send(3, 3) > offsets[-1]
    world.send(3, 4)
    world.advance(NEW_LEADER_MS)
    with pytest.raises(OutOfOrderSequence):
        world.send(3, 9)
    world.lead_by(2)
    assert world.send(2, 2) == offsets[2]
    assert world.topic(2, world.queue).partition.log.end_offset == offsets[0] + 5


def test_a_batch_that_was_refused_is_sent_again_before_later_ones() -> None:
    """The topic of the producer is new to the log, which would take any first sequence."""
    world = Producing()
    with pytest.raises(NotLeader):
        world.send(2, 0)
    world.lead_by(2)
    with pytest.raises(NotLeader):
        world.send(2, 1)
    first = world.send(2, 0)
    assert world.send(2, 1) == first + 1


def test_a_duplicate_is_answered_although_a_quota_is_exceeded() -> None:
    place = InventoryTopics()
    place.create("acme/dev/a")
    place.set("acme/dev", quota_bytes=1_000)

    def send(sequence: int) -> CallbackResult[int]:
        answer: CallbackResult[int] = CallbackResult()
        batch = batch_of(place.hand.clock.wall_ms(), [bytes(600)], 7, 0, sequence)
        place.topic("acme/dev/a").append(batch, answer, all_replicas=True)
        place.hand.settle()
        return answer

    first = send(0).value
    assert isinstance(send(1).error, BytesQuotaExceeded)
    place.hand.crash()
    assert send(0).value == first
    assert place.values("acme/dev/a") == [bytes(600)]
