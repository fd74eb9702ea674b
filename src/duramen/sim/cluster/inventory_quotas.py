"""Checks quotas of the inventory: none is exceeded by one client, and what is released can be used again."""

from typing import Any, Final

from duramen.base.catalogue.inventory import BYTES_QUOTA, TOPIC_QUOTA
from duramen.base.errors import BytesQuotaExceeded, DuramenError, TopicQuotaExceeded
from duramen.codec.batch import BatchInput, encode
from duramen.coordinators.inventory.topics import FoundTopic
from duramen.inventory.names import TopicPath
from duramen.queues.owners import stored_bytes
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import ClientCalls
from duramen.sim.cluster.inventory_tenant import TenantClient
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["BytesQuotaClient", "TopicQuotaClient"]

_TOPICS: Final = 6
_MOST_UNSURE: Final = 4
_BYTES: Final = 4_000
_RECORD_BYTES: Final = 600
_BESIDE: Final = 32
"""What a record takes at most, besides what is counted."""


class TopicQuotaClient(TenantClient):
    """Creates and deletes topics of a tenant with a quota, one request at a time, through any node."""

    def __init__(self, calls: ClientCalls, seed: str, think_us: int) -> None:
        super().__init__(calls, seed, think_us, "topics", {"": {TOPIC_QUOTA: _TOPICS}, "a": {}, "b": {}})
        self._there = list[TopicPath]()
        self._unsure = 0  # topics that may exist, now or later
        self.refused = 0

    def act(self) -> None:
        """Create or delete a topic."""
        if self._unsure > _MOST_UNSURE:
            self._there, self._unsure = [], 0
            self.leave()
            self.next()
        elif not self._there or self.chance.random() < 0.7:
            self._create()
        else:
            self._delete(self._there.pop(self.chance.randrange(len(self._there))))

    def _create(self) -> None:
        path = self.new_path()

        def created(answer: FoundTopic | DuramenError) -> None:
            at_least, at_most = len(self._there), len(self._there) + self._unsure
            if isinstance(answer, TopicQuotaExceeded):
                self.refused += 1
                if at_most < _TOPICS:
                    raise BrokenPromise(f"{path} is refused: there are {at_most} topics at most, {_TOPICS} are allowed")
            elif isinstance(answer, DuramenError):
                self.check_passes("a creation", answer)
                self._unsure += 1
            elif at_least >= _TOPICS:
                raise BrokenPromise(f"{path} is created: there were {at_least} topics, {_TOPICS} are allowed")
            else:
                self._there.append(path)
            self.next()

        self.create(path, created)

    def _delete(self, path: TopicPath) -> None:
        def deleted(error: DuramenError | None) -> None:
            self._unsure += error is not None
            self.next()

        self.delete(path, deleted)


class BytesQuotaClient(TenantClient):
    """Writes records to topics of a tenant until its quota refuses them, then deletes topics and writes again."""

    def __init__(self, calls: ClientCalls, seed: str, think_us: int) -> None:
        super().__init__(calls, seed, think_us, "bytes", {"": {BYTES_QUOTA: _BYTES}, "a": {}, "b": {}})
        self._topics = list[FoundTopic]()
        self._stored = 0  # at most
        self._released = False
        self.refused = self.written = 0

    def act(self) -> None:
        """Write, move, or delete."""
        draw = self.chance.random()
        if not self._topics or (draw < 0.1 and not self._released):
            self._create()
        elif self._released and draw < 0.5 and len(self._topics) > 1:
            self._delete(self._topics.pop())
        elif draw < 0.25:
            self._move(self._topics.pop(0))
        else:
            self._write(self.chance.choice(self._topics))

    def _create(self) -> None:
        def created(answer: FoundTopic | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                self.check_passes("a creation", answer)
            else:
                self._topics.append(answer)
            self.next()

        self.create(self.new_path(), created)

    def _move(self, topic: FoundTopic) -> None:
        to = self.new_path()

        def moved(error: DuramenError | None) -> None:
            if error is None:
                self._topics.append(topic._replace(path=to))
            self.next()

        self.move(topic.path, to, moved)

    def _delete(self, topic: FoundTopic) -> None:
        self.delete(topic.path, lambda _: self.next())

    def _write(self, topic: FoundTopic) -> None:
        value = bytes(self.chance.randrange(1, _RECORD_BYTES))
        size = stored_bytes([(None, value, ())]) + _BESIDE

        def batch(broker: Broker) -> bytearray:
            return encode([BatchInput(broker.now_ms(), None, value)])

        def written(answer: Any) -> None:
            if isinstance(answer, BytesQuotaExceeded):
                self._refused(size)
            elif isinstance(answer, int):
                self.written += 1
                self._stored += size
                if self._released:
                    self._leave()
            else:
                self.check_passes("a record", answer)
                self._stored += size  # it may be stored
            self.next()

        self.produce(topic.path, topic.id, batch, written)

    def _refused(self, size: int) -> None:
        self.refused += 1
        if self._stored + size <= _BYTES:
            raise BrokenPromise(f"{size} bytes of {self.tenant} are refused: {self._stored} are stored at most")
        self._released = True

    def _leave(self) -> None:
        self._topics, self._stored, self._released = [], 0, False
        self.leave()
