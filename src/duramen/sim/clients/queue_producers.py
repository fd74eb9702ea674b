"""Idempotent producers of queues' topics, which repeat batches whose outcome they do not know."""

import random
from collections.abc import Callable, Sequence
from typing import Final

from duramen.base.catalogue.queues import TOPIC_PREFIX
from duramen.base.errors import DuramenError
from duramen.base.ids import Position
from duramen.codec.batch import BatchInput, encode
from duramen.service.light_topics import LightTopic
from duramen.service.queue_topics import QueueTopics
from duramen.sim.clients.queue_space import Answer, SimulatedSpace
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["QueueProducers"]

_PREFIX: Final = "topic."
_PRODUCING: Final = 0.4  # of the runs with queues
_PRODUCED: Final = 0.3  # of the steps in such a run


class _Producer:
    """A producer of one topic: the next sequence, and that up to which batches are acknowledged."""

    def __init__(self, id_: int) -> None:
        self.id = id_
        self.following = 0
        self.acknowledged = 0


class QueueProducers:
    """A producer for each queue of a space, in some of the runs. `begin` for each process."""

    def __init__(self, space: SimulatedSpace, chance: random.Random) -> None:
        self._space = space
        self._chance = chance
        self._producers: dict[bytes, _Producer] = {}
        self._ids = 0
        self._produces = chance.random() < _PRODUCING
        if self._produces:
            space.config[TOPIC_PREFIX] = _PREFIX

    def begin(self) -> None:
        """A process has started."""
        if self._produces:
            self._topics = QueueTopics(self._space.clients.broker)

    @property
    def is_next(self) -> bool:
        """Whether the next step is one of a producer."""
        return self._produces and self._chance.random() < _PRODUCED

    @property
    def count(self) -> int:
        """The number of records in the next batch."""
        return self._chance.choice((1, 1, 3))

    def batch_of(self, queue: bytes, values: Sequence[bytes]) -> Callable[[Callable[[Answer], None]], None]:
        """Send the next batch to a queue's topic, as often as it is called.

        A producer with a batch that was never acknowledged is replaced by another one.
        """
        producer = self._producers.get(queue)
        if producer is None or producer.acknowledged != producer.following:
            self._ids += 1
            producer = self._producers[queue] = _Producer(self._ids)
        sender, now_ms = producer, self._space.now_ms
        new = [BatchInput(now_ms, None, value) for value in values]
        batch = bytes(encode(new, producer_id=sender.id, producer_epoch=0, base_sequence=sender.following))
        sender.following = end = sender.following + len(values)

        def say(done: Callable[[Answer], None]) -> None:
            topic = self._topic(queue)

            def stored(offset: int, error: DuramenError | None) -> None:
                if error is None:
                    sender.acknowledged = end
                    done(Position(topic.partition.log.takeovers.epoch_at(offset), offset))
                else:
                    done(error)

            topic.append(memoryview(batch), stored, all_replicas=True)

        return say

    def _topic(self, queue: bytes) -> LightTopic:
        topic = self._topics.find(_PREFIX + queue.decode())
        if topic is None:
            raise BrokenPromise(f"{queue!r} has no topic")
        return topic
