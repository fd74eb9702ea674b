"""Checks retention by policy: old entries go only where a policy that may apply says so, and others never.

Clocks of nodes jump by hours, so entries are old by weeks, or new.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from duramen.base.errors import DuramenError, StreamNotFound
from duramen.codec.batch import BatchInput, encode
from duramen.coordinators.inventory.shard import INVENTORY_QUEUES
from duramen.coordinators.inventory.topics import FoundTopic
from duramen.inventory.names import TopicPath
from duramen.queues.reading import Retrieved
from duramen.queues.runs import QueueEntry
from duramen.service.broker import Broker
from duramen.service.queues import LocalShards, Read, ReadLimits
from duramen.sim.cluster.clients.calls import ClientCalls, Reply
from duramen.sim.cluster.clients.coordinators import AGAIN
from duramen.sim.cluster.inventory_tenant import TenantClient
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["KeptTopic", "RetentionClient"]

_POLICY: Final = "retention.ms"
_KEPT_MS: Final = 10 * 24 * 3_600_000
_OLD_MS: Final = 3 * _KEPT_MS
_FOR_EVER: Final = -1
_LIMITS: Final = ReadLimits(1 << 20, 1 << 20, 0, delayed=True)
_SHORT, _LONG, _CHANGING = "short", "long", "changing"
_MOST_TOPICS: Final = 6


class _Kept:
    """An acknowledged entry."""

    __slots__ = ("may_go", "offset", "old", "value")

    def __init__(self, offset: int, value: bytes, *, old: bool) -> None:
        self.offset = offset
        self.value = value
        self.old = old
        self.may_go = False


class KeptTopic:
    """A topic, and what was written to it."""

    def __init__(self, path: TopicPath, id_: UUID) -> None:
        self.path = path
        self.id = id_
        self.entries = list[_Kept]()
        self.unsure = set[bytes]()  # values that may be in it
        self.is_sure = True  # whether it is where `path` says

    def drop_old(self) -> None:
        """From here on until further notice old entries may go."""
        for entry in self.entries:
            entry.may_go = entry.old

    def check(self, found: Sequence[QueueEntry]) -> None:
        """Raise BrokenPromise unless these entries may be what is in it."""
        there = {entry.position.offset: entry.value or b"" for entry in found}
        for entry in self.entries:
            value = there.pop(entry.offset, None)
            if value is None and not entry.may_go:
                age = "old" if entry.old else "new"
                raise BrokenPromise(f"the {age} entry {entry.value!r} of {self.path} is gone, and was to be kept")
            if value not in (None, entry.value):
                raise BrokenPromise(
                    f"offset {entry.offset} of {self.path} has {value!r}, and {entry.value!r} was written"
                )
        if not self.unsure.issuperset(there.values()):
            raise BrokenPromise(f"{self.path} has {there}, which nobody wrote")

    def begins_old(self, found: Sequence[QueueEntry]) -> bool:
        """Whether the first of its entries is an old one that may go: entries behind a new one stay."""
        first = found[0].position.offset if found else -1
        return any(entry.may_go and entry.offset == first for entry in self.entries)


class RetentionClient(TenantClient):
    """Writes old and new entries to topics that move between namespaces, one of which changes its policy."""

    def __init__(self, calls: ClientCalls, seed: str, think_us: int) -> None:
        super().__init__(
            calls, seed, think_us, "retention", {_SHORT: {_POLICY: _KEPT_MS}, _LONG: {}, _CHANGING: {}}
        )  # fmt: skip
        self.topics = list[KeptTopic]()
        self._drops = {_SHORT}  # the namespaces whose policy may drop old entries
        self._here = 0  # topics of earlier tenants are before
        self._values = 0
        self.written = self.reads = 0

    def drops_surely(self, topic: KeptTopic) -> bool:
        """Whether old entries of a topic have to go."""
        return topic.is_sure and topic.path.namespace == _SHORT

    def act(self) -> None:
        """Do one thing with the topics of the present tenant."""
        draw, sure = self.chance.random(), [one for one in self.topics[self._here :] if one.is_sure]
        if not sure or (draw < 0.1 and len(sure) < _MOST_TOPICS):
            self._create()
        elif draw < 0.45:
            self._write(self.chance.choice(sure))
        elif draw < 0.6:
            self._move(self.chance.choice(sure))
        elif draw < 0.7:
            self._change()
        else:
            self._read(self.chance.choice(self.topics))

    def _create(self) -> None:
        def created(answer: FoundTopic | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                self.check_passes("a creation", answer)
            else:
                self.topics.append(KeptTopic(answer.path, answer.id))
            self.next()

        self.create(self.new_path(), created)

    def _write(self, topic: KeptTopic) -> None:
        self._values += 1
        value, old = b"%d" % self._values, self.chance.random() < 0.6

        def batch(broker: Broker) -> bytearray:
            return encode([BatchInput(broker.now_ms() - (_OLD_MS if old else 0), None, value)])

        def written(answer: Any) -> None:
            if isinstance(answer, int):
                self.written += 1
                topic.unsure.discard(value)
                entry = _Kept(answer, value, old=old)
                entry.may_go = old and topic.path.namespace in self._drops
                topic.entries.append(entry)
            else:
                self.check_passes("a record", answer)
            self.next()

        topic.unsure.add(value)
        self.produce(topic.path, topic.id, batch, written)

    def _move(self, topic: KeptTopic) -> None:
        to = self.new_path()
        if to.namespace in self._drops:
            topic.drop_old()

        def moved(error: DuramenError | None) -> None:
            topic.path = to
            if error is not None:
                topic.is_sure = False
                topic.drop_old()
            self.next()

        self.move(topic.path, to, moved)

    def _change(self) -> None:
        """Change the policy of a namespace; who was not answered uses another tenant from here on."""
        drops = _CHANGING not in self._drops
        if drops:
            self._drops.add(_CHANGING)
            for topic in self.topics[self._here :]:
                if topic.path.namespace == _CHANGING:
                    topic.drop_old()

        def changed(error: DuramenError | None) -> None:
            if error is not None:
                self._here, self._drops = len(self.topics), {_SHORT}
                self.leave()
            elif not drops:
                self._drops.discard(_CHANGING)
            self.next()

        self.set_policies(_CHANGING, {_POLICY: _KEPT_MS if drops else _FOR_EVER}, changed)

    def _read(self, topic: KeptTopic) -> None:
        place, name = self.place_of(topic.id), topic.id.hex.encode()

        def at_leader(node_id: int, _: int) -> None:
            def ask(broker: Broker, reply: Reply) -> None:
                space = broker.streams.find(INVENTORY_QUEUES)
                if space is None:
                    reply(StreamNotFound("not known here yet"))
                else:
                    reads = [Read(name, "start")]
                    LocalShards(broker).retrieve(space, reads, _LIMITS, lambda found: reply(found[name]), batches=False)

            def answered(value: Any) -> None:
                self.calls.trace("records of %s: %s", topic.path, value)
                if isinstance(value, Retrieved):
                    self.reads += 1
                    topic.check(value.entries)
                else:
                    self.forget(place, value)
                    if not isinstance(value, AGAIN) and value.id != "storage-failed":
                        raise BrokenPromise(f"{topic.path} cannot be read: {type(value).__name__}: {value}")
                self.next()

            self.calls.ask(node_id, ask, answered)

        self.leader(place, at_leader)
