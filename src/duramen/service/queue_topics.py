"""Queues as Kafka topics: `queue.topic.prefix` of a space and the name of the queue, and topics of the inventory.

A topic of the inventory is named `tenant.namespace.topic`; its records are a queue named by its lasting id. Each of its
names has its own topic id, because clients treat two names with one id as corruption.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from duramen.base.catalogue.queues import TOPIC_PREFIX
from duramen.base.errors import (
    BatchInvalid,
    CoordinatorLoading,
    DuramenError,
    NameNotResolved,
    NotCoordinator,
    NotLeader,
    OffsetNotAvailable,
    QueueTransactionRefused,
    TopicNotFound,
)
from duramen.base.ids import shard_of
from duramen.base.ports import StateRows
from duramen.broker.fetch import FetchResult, FetchSource
from duramen.broker.partition import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from duramen.broker.streams import Stream
from duramen.codec.batch import TRANSACTIONAL, DecodedRecord, Header, check, encode_record, header, near, records, seal
from duramen.codec.partitioner import partition_of
from duramen.codec.queue_entries import KEY_HEADER, LONGEST_NAME_BYTES, OWNER_HEADER, RESERVED_PREFIX
from duramen.codec.sequences import derived_id
from duramen.coordinators.group.topics import LASTING, MOST_COUNTED
from duramen.coordinators.inventory.shard import queue_space_of
from duramen.coordinators.inventory.topics import FoundTopic
from duramen.coordinators.queue.shard import QueueShard, hash_of
from duramen.inventory.names import TopicPath, kafka_path
from duramen.metadata.partitions import PartitionId
from duramen.queues.names import Queue
from duramen.queues.owners import has_owner, stored_bytes
from duramen.queues.topics import (
    SharedRead,
    end_of,
    head_of,
    lag,
    left_of,
    name_of,
    newest,
    read_shared,
    read_topic,
    search,
    space_number,
    topic_id,
)
from duramen.rpc.server import Done as Answered
from duramen.service.broker import Broker
from duramen.service.cluster_names import ClusterTopicNames
from duramen.service.forwarded_requests import KNOW_TOPIC, KnowTopic, TopicKnown
from duramen.service.light_names import InventoryTopicNames, kafka_names
from duramen.service.light_places import LightPlace, inventory_topic_id, is_kafka_name, places_of
from duramen.service.light_topics import Appended, LastingId, LightTopic, OffsetDone

__all__ = ["QueueTopic", "QueueTopics"]

_K = TypeVar("_K")
_T = TypeVar("_T")

_KNOWN_IDS: Final = 100_000
_KNOWN_TOPICS: Final = 20_000
_SEARCHED_AT_ONCE: Final = 1000
_SHOWN_RECORDS: Final = 1000


def _number(space: Stream) -> int:
    """The first 20 bits of the topic ids of a space's queues."""
    return space_number(space.state.number, space.id)


class QueueTopics:
    """Queues that are topics. An id is found in memory, or in the rows of the space's shards.

    The id of a queue without entries is known only from the name sent to a client: the node that sent it tells the
    leader of the shard.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._spaces: dict[str, Stream] = {}
        self._lengths: tuple[int, ...] = ()
        self._ids: OrderedDict[bytes, str] = OrderedDict()
        self._told: OrderedDict[UUID, int] = OrderedDict()  # leader epochs in which the leaders were told of topics
        self._position = ""
        self._known: dict[str, QueueTopic] = {}
        """Topics of the inventory as it is at `_position`."""
        self.account = broker.settings.text("inventory.account")
        broker.streams.listeners.append(self._changed)
        for stream in broker.streams:
            self._changed(stream)
        broker.share_nodes.topics.queues = self
        self.names = (InventoryTopicNames if broker.alone else ClusterTopicNames)(broker, self)
        broker.groups.topics.light = self.names
        broker.caller.server.handle(KNOW_TOPIC, self._know)

    def _know(self, request: KnowTopic, done: Answered[TopicKnown]) -> None:
        self._by_name(request.name)
        done(TopicKnown())

    def tell(self, topic: "QueueTopic") -> None:
        """A client will ask the leader of a shard for a topic by its id."""
        partition = topic.partition
        if self.broker.alone or partition.leads:
            return
        state = self.broker.membership.partition(PartitionId(partition.log.key.stream_id, partition.index))
        if state.leader is None or self._told.get(topic.id) == state.leader_epoch:
            return

        def answered(answer: TopicKnown | DuramenError) -> None:
            if isinstance(answer, TopicKnown):
                _remember(self._told, topic.id, state.leader_epoch)

        self.broker.caller.call(state.leader, KNOW_TOPIC, KnowTopic(topic.name), answered)

    def _changed(self, stream: Stream) -> None:
        prefix = "" if stream.deleted else stream.state.config.get(TOPIC_PREFIX, "")
        if not prefix and stream not in self._spaces.values():
            return
        self._spaces = {known: space for known, space in self._spaces.items() if space is not stream}
        if prefix:
            self._spaces[prefix] = stream
        self._lengths = tuple(sorted({len(prefix) for prefix in self._spaces}))
        self.broker.share_groups.topics_changed()

    def find(self, key: str | UUID) -> "QueueTopic | None":
        """The queue's topic of that name or id."""
        if not self._spaces and not self.broker.inventory.is_made:
            return None
        if isinstance(key, LastingId):
            return self._by_lasting_id(key)
        return self._by_id(key) if isinstance(key, UUID) else self._by_name(key)

    def find_many(self, keys: Collection[str | UUID]) -> dict[str | UUID, "QueueTopic"]:
        """As of `LightTopics`."""
        if not self._spaces and not self.broker.inventory.is_made:
            return {}
        found, paths = dict[str | UUID, QueueTopic](), dict[str, TopicPath]()
        for key in keys:
            path = kafka_path(key) if isinstance(key, str) and self._space_of(key) is None else None
            if isinstance(key, str) and path is not None:
                paths[key] = path
            elif (topic := self.find(key)) is not None:
                found[key] = topic
        return found | self._of_inventory(paths)

    def problem(self, key: str | UUID) -> DuramenError | None:
        """As of `LightTopics`: rows of the inventory are loading, or damaged."""
        if not self.broker.alone or not self.broker.inventory.is_made:
            return None  # on a cluster a request waits for the shards
        path = kafka_path(key) if isinstance(key, str) and self._space_of(key) is None else None
        try:
            if isinstance(key, LastingId):
                self.broker.inventory.by_id(key)
            elif path is not None:
                self.broker.inventory.lookup_paths(self.account, [path])
        except TopicNotFound:
            return None
        except DuramenError as error:
            return NameNotResolved(f"it is unknown whether there is a topic {key}: {error}")
        return None

    def places(self, names: Collection[str]) -> dict[str, LightPlace]:
        """As of `LightTopics`: those of the inventory."""
        if not self.broker.alone or not self.broker.inventory.is_made:
            return {}  # on a cluster the shards are asked first
        asked = [name for name in names if self._space_of(name) is None] if self._spaces else names
        found = {one.name: one for one in places_of(self.broker.inventory, self.account, self.broker.streams, asked)}
        for one in found.values():
            _remember(self._ids, one.id, one.name)
        return found

    def _space_of(self, name: str) -> tuple[Stream, int] | None:
        """The space whose prefix a name begins with, and how long that is."""
        for length in self._lengths:
            space = self._spaces.get(name[:length])
            if space is not None and 1 <= len(name[length:].encode()) <= LONGEST_NAME_BYTES:
                return space, length
        return None

    def shared(self, key: str | UUID) -> "QueueTopic | None":
        """As of `SharedQueues`. On a cluster topics of the inventory are those that groups of this node follow."""
        found = self.find(key)
        if found is not None or self.broker.alone:
            return found
        name = self.name_of(key) if isinstance(key, UUID) else key
        entry = None if name is None else self.names.entry(name)
        topic = None if entry is None or name is None else self.topic_of(name, entry)
        return topic if topic is not None and key in (name, topic.id) else None

    def lasting(self, id_: UUID) -> "QueueTopic | None":
        """As of `SharedQueues`: without a request to the inventory, which other nodes may have."""
        space, queue = self.broker.streams.find(queue_space_of(id_)), id_.hex.encode()
        return None if space is None else QueueTopic(self, str(id_), space, Queue(queue, hash_of(space)(queue)), id_)

    def name_of_lasting(self, id_: UUID) -> str | None:
        """As of `SharedQueues`."""
        return next(iter(self.names.names_of(LASTING + id_.hex)), None)

    def _by_name(self, name: str) -> "QueueTopic | None":
        found = self._space_of(name)
        if found is not None:
            space, length = found
            return self._topic(name, space, name[length:].encode()) if is_kafka_name(name) else None
        path = kafka_path(name)
        return None if path is None else self._of_inventory({name: path}).get(name)

    def _of_inventory(self, paths: Mapping[str, TopicPath]) -> "dict[str, QueueTopic]":
        """The topics of the inventory that have names now."""
        inventory = self.broker.inventory
        if not inventory.is_made or not self.broker.alone:
            return {}  # on a cluster the shards are asked first
        position = inventory.position
        if position != self._position:
            self._position = position
            self._known.clear()
        known = {name: self._known[name] for name in paths if name in self._known}
        names = [name for name in paths if name not in known]
        try:
            found = inventory.lookup_paths(self.account, [paths[name] for name in names])
        except DuramenError:
            return known
        made = {
            name: topic for name, one in zip(names, found, strict=True)
            if one is not None and (topic := self.topic_of(name, one)) is not None
        }  # fmt: skip
        if len(self._known) + len(made) > _KNOWN_TOPICS:
            self._known.clear()
        self._known.update(made)
        return known | made

    def _by_lasting_id(self, id_: LastingId) -> "QueueTopic | None":
        if not self.broker.alone:
            return None  # on a cluster the shards are asked first
        try:
            found = self.broker.inventory.by_id(id_)
        except DuramenError:
            return None
        name = next(kafka_names([found.path]), None)
        return None if name is None else self.topic_of(name, found)

    def topic_of(self, name: str, found: FoundTopic) -> "QueueTopic | None":
        """The topic of the inventory that has a name now; None where its records have no place yet."""
        inventory, space = self.broker.inventory, self.broker.streams.find(queue_space_of(found.id))
        if space is None:
            return None
        id_ = UUID(bytes=inventory_topic_id(inventory.id, found.id.bytes, name))
        of_inventory = self._topic(name, space, found.id.hex.encode(), id_)
        of_inventory.entry = found
        return of_inventory

    def name_of(self, id_: UUID) -> str | None:
        """The name of a topic with that id that was found here before, which may have another id now."""
        return self._ids.get(id_.bytes)

    def _topic(self, name: str, space: Stream, queue: bytes, id_: UUID | None = None) -> "QueueTopic":
        found = QueueTopic(self, name, space, Queue(queue, hash_of(space)(queue)), id_)
        _remember(self._ids, found.id.bytes, name)
        return found

    def _by_id(self, id_: UUID) -> "QueueTopic | None":
        name = self._ids.get(id_.bytes)
        if name is None:
            name = next((one for one in map(partial(self._named, id_), self._spaces.items()) if one), "")
        topic = self._by_name(name)
        return topic if topic is not None and topic.id == id_ else None

    def _named(self, id_: UUID, prefixed: tuple[str, Stream]) -> str:
        """The name of a topic that is not in memory; empty where the space has no queue of that id."""
        prefix, space = prefixed
        queue = self._in_rows(space, id_) if _number(space) == shard_of(id_) else None
        return "" if queue is None else prefix + queue.decode()

    def _in_rows(self, space: Stream, id_: UUID) -> bytes | None:
        for shard in range(space.shards):
            try:
                found = name_of(self.broker.coordinators.rows(space.name, shard), id_)
            except DuramenError:
                continue
            if found is not None:
                return found
        return None


class QueueTopic(LightTopic):
    """One queue as a topic."""

    def __init__(self, topics: QueueTopics, name: str, space: Stream, queue: Queue, id_: UUID | None) -> None:
        """Without an id of its own it has that of the queue."""
        partition = space.partition(partition_of(queue.name, space.shards))
        super().__init__(name, id_ or topic_id(_number(space), queue.hash), partition)
        self._topics = topics
        self._broker = topics.broker
        self._space = space
        self._queue = queue
        self.entry: FoundTopic | None = None
        """What it is in the inventory."""

    @property
    def place(self) -> tuple[Stream, bytes]:
        """The space, and the name of the queue."""
        return self._space, self._queue.name

    @property
    def stored_as(self) -> str:
        """As of `LightTopic`."""
        return self.name if self.entry is None else LASTING + self.entry.id.hex

    @property
    def shared_as(self) -> UUID:
        """As of `LightTopic`."""
        return self.id if self.entry is None else self.entry.id

    def shown(self) -> None:
        """As of `LightTopic`."""
        self._topics.tell(self)

    @property
    def append_time(self) -> bool:
        """As of the space."""
        return self._space.append_time

    def produced(self, size: int) -> int:
        """As of `LightTopic`, by the quotas of the namespace."""
        quotas, account = self._broker.inventory.quotas, self._topics.account
        return 0 if self.entry is None else quotas.produced(account, self.entry, size)

    def produce_wait_ms(self) -> int:
        """As of `LightTopic`, by the quotas of the namespace."""
        quotas, account = self._broker.inventory.quotas, self._topics.account
        return 0 if self.entry is None else quotas.produce_wait_ms(account, self.entry)

    def given(self, size: int) -> int:
        """As of `LightTopic`, by the quotas of the namespace."""
        quotas, account = self._broker.inventory.quotas, self._topics.account
        return 0 if self.entry is None else quotas.consumed(account, self.entry, size)

    def append(self, batch: memoryview, done: Appended, *, all_replicas: bool) -> None:
        """As of `LightTopic`: the records become entries, acknowledged once every read shows them.

        The log recognises repeated batches by a derived id, as the producer counts sequences by the topic's name.
        """
        head = header(batch)
        if head.producer_id >= 0:
            pair = self.id.bytes + head.producer_id.to_bytes(8, "big")
            head = head._replace(producer_id=derived_id(hash_of(self._space)(pair)))
        try:
            self.partition.check_leads()
            check(batch)
            if head.attributes & TRANSACTIONAL:
                what = "a queue's topic" if self.entry is None else "a topic of the inventory"
                raise QueueTransactionRefused(f"{self.name} is {what} and takes no transactions")
            found = list(records(batch, verify=False, limit_bytes=self._space.decoded_limit_bytes))
            sealed = _entries(self.name, self._queue.name, found, self._new_owner(), head)
            counted = self._count(head, found)
        except DuramenError as error:
            self.partition.refused(head, error)
            done(-1, error)
            return

        def appended(offset: int, error: DuramenError | None) -> None:
            counted()
            done(offset, error)

        self.partition.append(sealed, appended, all_replicas=all_replicas)

    def _count(self, head: Header, found: list[DecodedRecord]) -> Callable[[], None]:
        """Count records by the quota of bytes, until what is returned is called. Raises BytesQuotaExceeded."""
        if self.entry is None or self.partition.is_repeated(head):
            return _nothing
        size = stored_bytes((record.key, record.value, record.headers) for record in found)
        return self._broker.inventory.quotas.store(self._topics.account, self.entry, size)

    def _new_owner(self) -> int | None:
        """The namespace of a topic of the inventory whose records do not know it yet. Raises NotLeader."""
        if self.entry is None:
            return None
        _, rows = self.view()
        return None if has_owner(rows, self._queue.hash) else self.entry.namespace

    def source(self, leader_epoch: int) -> "QueueSource":
        """As of `LightTopic`."""
        return QueueSource(self, leader_epoch)

    def find_offset(self, timestamp: int, done: OffsetDone) -> None:
        """As of `LightTopic`."""
        self.settle(partial(self._find, timestamp, done))

    def settle(self, then: Callable[[], None]) -> None:
        """Trim the queue to its retention limits, then continue."""
        self._broker.retention.settle(self._space, self.partition.index, [self._queue], then)

    def is_settled(self) -> bool:
        """Whether no more is in it than is kept. Raises NotLeader."""
        shard, rows = self.view()
        return not self._broker.retention.look(self._space, shard, rows, self._queue)

    def _find(self, timestamp: int, done: OffsetDone) -> None:
        hashed = self._queue.hash
        try:
            _, rows = self.view()
            if timestamp == LATEST:
                done(end_of(rows, hashed), -1, None)
            elif timestamp in (EARLIEST, EARLIEST_LOCAL):
                done(head_of(rows, hashed, self._broker.now_ms()), -1, None)
            elif timestamp == LATEST_TIERED:
                done(-1, -1, None)
            else:
                self._search(timestamp, 0, (-1, -1), done)
        except DuramenError as error:
            done(-1, -1, OffsetNotAvailable(str(error)) if isinstance(error, NotLeader) else error)

    def _search(self, timestamp: int, start: int, best: tuple[int, int], done: OffsetDone) -> None:
        """Search a bounded number of entries at once for a time, or for the youngest one."""
        now_ms = self._broker.now_ms()
        try:
            _, rows = self.view()
            if timestamp == MAX_TIMESTAMP:
                found = newest(rows, self._queue.hash, start, best, _SEARCHED_AT_ONCE, now_ms)
            else:
                found = search(rows, self._queue.hash, start, timestamp, _SEARCHED_AT_ONCE, now_ms)
        except DuramenError as error:
            done(-1, -1, error)
            return
        if found.next < 0:
            done(found.offset, found.timestamp, None)
        else:
            best = (found.offset, found.timestamp)
            self._broker.store.soon(lambda: self._search(timestamp, found.next, best, done))

    def behind(self, offset: int, most: int) -> tuple[int, int, int, int]:
        """The start, the end, the number of records from an offset on (bounded), and the timestamp of the first.

        Raises NotLeader.
        """
        _, rows = self.view()
        return lag(rows, self._queue.hash, offset, most, self._broker.now_ms())

    def read(self, offset: int, max_bytes: int) -> FetchResult:
        """Entries of the queue from an offset on. Raises OffsetOutOfRange, NotLeader."""
        _, rows = self.view()
        data, end, head = read_topic(rows, self._queue.hash, offset, max_bytes, self._broker.now_ms())
        return FetchResult(None, None, end, head, end, made=data or None)

    def read_shared(self, offset: int, wanted: Callable[[int], int | None], most: int, max_bytes: int) -> SharedRead:
        """As of `SharedQueue`."""
        _, rows = self.view()
        return read_shared(rows, self._queue.hash, offset, wanted, most, max_bytes, self._broker.now_ms())

    def left_of(self, start: int, is_over: Callable[[int], bool]) -> tuple[int, int]:
        """As of `SharedQueue`."""
        _, rows = self.view()
        return left_of(rows, self._queue.hash, start, is_over, MOST_COUNTED, self._broker.now_ms())

    def wait(self, action: Callable[[], None]) -> Callable[[], None]:
        """Do `action` once something happens to the queue; returns what ends that. Raises NotLeader."""
        shard, _ = self.view()
        return shard.wait(self._queue.hash, action)

    def view(self) -> tuple[QueueShard, StateRows]:
        """The shard and its rows. Raises NotLeader where others have them, or they are being loaded."""
        self.partition.check_leads()
        coordinators, place = self._broker.coordinators, (self._space.name, self.partition.index)
        try:
            coordinators.check(*place)
            shard: QueueShard = coordinators.loaded(*place)
            return shard, coordinators.rows(*place)
        except (CoordinatorLoading, NotCoordinator) as error:
            raise NotLeader(f"{self.name} cannot be read here now: {error}") from None


class QueueSource(FetchSource):
    """A queue's topic as one fetch reads it."""

    def __init__(self, topic: QueueTopic, leader_epoch: int) -> None:
        self._topic = topic
        self._leader_epoch = leader_epoch
        self._leave: Callable[[], None] = _nothing
        self._poke: Callable[[FetchSource], None] | None = None
        self._woken = False
        self._settled = False

    def read(self, offset: int, max_bytes: int) -> FetchResult:
        """As of `FetchSource`."""
        self.leave()
        self._topic.partition.check_epoch(self._leader_epoch)
        if not self._settled and not self._topic.is_settled():
            self._settled, self._woken = True, False
            self._topic.settle(self._wake)
            return FetchResult(None, None, offset, 0, offset)  # there will be something to read
        found = self._topic.read(offset, max_bytes)
        if not found.made:
            self._woken = False
            self._leave = self._topic.wait(self._wake)  # in the turn of the read: nothing comes between
        return found

    def enter(self, poke: Callable[[FetchSource], None]) -> None:
        """As of `FetchSource`."""
        self._poke = poke
        if self._woken:
            poke(self)

    def given(self, size: int) -> int:
        """As of `FetchSource`."""
        return self._topic.given(size)

    def leave(self) -> None:
        """As of `FetchSource`."""
        leave, self._leave = self._leave, _nothing
        leave()

    def _wake(self) -> None:
        self._woken = True
        self.leave()
        if self._poke is not None:
            self._poke(self)


def _nothing() -> None:
    """Nothing to cancel."""


def _remember(known: OrderedDict[_K, _T], id_: _K, what: _T) -> None:
    """Cache the newest ids."""
    known[id_] = what
    known.move_to_end(id_)
    if len(known) > _KNOWN_IDS:
        known.popitem(last=False)


def _entries(topic: str, queue: bytes, found: list[DecodedRecord], owner: int | None, head: Header) -> bytearray:
    """The entries that a producer's records are, as a batch; the first says the owner. Raises BatchInvalid.

    `head` has the producer.
    """
    if not found:
        raise BatchInvalid("there are no records in the batch")
    wrong = [
        (place, f"headers that begin with {RESERVED_PREFIX.decode()} are for operations on queues")
        for place, record in enumerate(found)
        if any(name.startswith(RESERVED_PREFIX) for name, _ in record.headers)
    ]
    base_ms = found[0].timestamp
    wrong += [
        (place, "its timestamp is too far from that of the first record")
        for place, record in enumerate(found)
        if not near(record.timestamp, base_ms)
    ]
    if wrong:
        error = BatchInvalid(f"{topic} is a queue's topic: {wrong[0][1]}")
        error.records = wrong[:_SHOWN_RECORDS]
        raise error
    encoded = [
        encode_record(
            record.timestamp - base_ms, place, queue, record.value,
            (
                *(((OWNER_HEADER, b"%d" % owner),) if owner is not None and not place else ()),
                *(() if record.key is None else ((KEY_HEADER, record.key),)),
                *record.headers,
            ),
        )
        for place, record in enumerate(found)
    ]  # fmt: skip
    return seal(
        b"".join(encoded), len(found), base_ms, max(record.timestamp for record in found),
        producer_id=head.producer_id, producer_epoch=head.producer_epoch, base_sequence=head.base_sequence,
    )  # fmt: skip
