"""Checks the inventory of a cluster: clients that create, move, alias, delete, look up and page.

A name has at most one id, and an id one name. No created topic is lost. A page skips no name. A moved topic is not
found at its old name, unless it left an alias there. Records and their bytes are those that clients were told.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from duramen.base.catalogue.inventory import NAMESPACE
from duramen.base.errors import DuramenError, NotCoordinator, TopicBusy
from duramen.base.ports import StateRows
from duramen.codec.partitioner import partition_of
from duramen.coordinators.inventory.quotas import CreatedNames
from duramen.coordinators.inventory.shard import INVENTORY_QUEUES, INVENTORY_STREAM, inventory_kind
from duramen.coordinators.inventory.topics import FoundTopic, TopicPage
from duramen.coordinators.queue.shard import hash_of, queue_kind
from duramen.coordinators.runtime.rows import RowStates
from duramen.inventory.directory import Directory
from duramen.inventory.ids import topic_id
from duramen.inventory.names import TopicPath
from duramen.inventory.policies import PolicyScope
from duramen.inventory.reading import InventoryRows
from duramen.inventory.search import PageToken, TopicQuery
from duramen.metadata.partitions import PartitionId
from duramen.queues.owners import NO_OWNER, owners
from duramen.queues.reading import retrieve
from duramen.queues.runs import QueueEntry
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import ClientCalls, Reply
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.cluster.inventory_policies import PolicyClient
from duramen.sim.cluster.inventory_quotas import BytesQuotaClient, TopicQuotaClient
from duramen.sim.cluster.inventory_retention import KeptTopic, RetentionClient
from duramen.sim.cluster.inventory_tenant import ACCOUNT, TenantClient
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.cluster.shards import ShardBook
from duramen.sim.machine.trace import BrokenPromise
from duramen.storage.log.log import Log, LogKey

__all__ = ["InventoryBook"]

_CHECKPOINT_RECORDS: Final = 12
_CLIENTS: Final = 3
_NAMESPACES: Final = ("a", "b")
_PAGE: Final = 3
_ALL: Final = TopicQuery()
_NOT_DONE: Final = (NotCoordinator, TopicBusy)
_MOST_TOPICS: Final = 40
_MOST: Final = 1 << 20


class _Name(NamedTuple):
    """What a name has to lead to, where that is known: a topic, as its alias or not; None: nothing."""

    topic: "_Topic | None"
    alias: bool = False


class _Topic:
    """A topic that one client has made. `sure`: what was done with it last was answered."""

    def __init__(self, path: TopicPath) -> None:
        self.path: TopicPath | None = path
        self.before: TopicPath | None = None  # where it was, unless the last move came to pass
        self.id: UUID | None = None
        self.aliases: set[TopicPath] = set()
        self.sure = True
        self.late = False  # whether its creation may come again: it is left where it is


class _InventoryClient(TenantClient):
    """Has a tenant of its own, and asks any node."""

    def __init__(self, book: "InventoryBook", calls: ClientCalls, seed: str, think_us: int, number: int) -> None:
        super().__init__(calls, seed, think_us, f"t{number}-", {namespace: {} for namespace in _NAMESPACES})
        self._book = book
        self._names = 0
        self._creating: tuple[str, list[str]] | None = None
        self.topics = list[_Topic]()
        self.known = dict[TopicPath, _Name]()

    def act(self) -> None:
        """Do one thing, of any node."""
        if self._creating is not None:
            self._create(*self._creating)
            return
        movable = [one for one in self.topics if one.sure and not one.late and one.path is not None]
        draw = self.chance.random()
        if draw < 0.05 and movable:
            self._create_again(movable)
        elif draw < 0.2 or not movable:
            self._create(self.chance.choice(_NAMESPACES), self._new_names(self.chance.choice((1, 2, 5))))
        elif draw < 0.4:
            self._move(self.chance.choice(movable))
        elif draw < 0.46:
            self._alias(self.chance.choice(movable))
        elif draw < 0.52:
            self._delete(self.chance.choice(movable))
        elif draw < 0.8:
            self._look_up()
        elif draw < 0.9:
            self._by_id()
        else:
            self._page(self.chance.choice(_NAMESPACES), PageToken(), [])

    def _ask(self, what: str, ask: Callable[[Broker, Reply], None], then: Callable[[Any], None]) -> None:
        """Ask a node; `then` gets no error but those that pass."""

        def answered(value: Any) -> None:
            if isinstance(value, DuramenError):
                self.check_passes(what, value)
            then(value)

        self.ask(what, ask, answered)

    # -- changes ------------------------------------------------------------------------------------

    def _new_names(self, count: int) -> list[str]:
        self._names += count
        return [str(number) for number in range(self._names - count, self._names)]

    def _creation(self, namespace: str, names: Sequence[str]) -> Callable[[Broker, Reply], None]:
        def ask(broker: Broker, reply: Reply) -> None:
            inventory = broker.inventory

            def found(answer: Any) -> None:
                if isinstance(answer, DuramenError):
                    reply(answer)
                else:
                    inventory.create_topics(answer, names, reply)

            inventory.read(lambda: inventory.namespace(ACCOUNT, self.tenant, namespace), found)

        return ask

    def _create_again(self, movable: Sequence[_Topic]) -> None:
        """Create topics that are there: they stay what they are."""
        namespace = self.chance.choice(_NAMESPACES)
        there = {one.path.topic: one for one in movable if one.path is not None and one.path.namespace == namespace}

        def answered(answer: CreatedNames | DuramenError) -> None:
            if isinstance(answer, DuramenError) or answer.problems:
                for topic in there.values():
                    topic.late = True
            elif answer.created:
                raise BrokenPromise(f"{answer.created} of {[*there]} of {self.tenant}/{namespace} were created again")
            self.next()

        self._ask(f"creation of {[*there]}, again", self._creation(namespace, [*there]), answered)

    def _create(self, namespace: str, names: list[str]) -> None:
        """Create topics, again until that is answered; who asked twice leaves them where they are."""
        late = self._creating is not None

        def answered(answer: CreatedNames | DuramenError) -> None:
            if isinstance(answer, DuramenError) or answer.problems:
                self._creating = namespace, names
            else:
                self._creating = None
                self._book.created += len(names)
                for name in names:
                    topic = _Topic(TopicPath(self.tenant, namespace, name))
                    topic.late = late
                    self.topics.append(topic)
                    self.known[TopicPath(self.tenant, namespace, name)] = _Name(topic)
            self.next()

        self._ask(f"creation of {names}", self._creation(namespace, names), answered)

    def _move(self, topic: _Topic) -> None:
        path, keeps = topic.path, self.chance.random() < 0.3
        assert path is not None
        to = TopicPath(self.tenant, self.chance.choice(_NAMESPACES), self._new_names(1)[0])

        def ask(broker: Broker, reply: Reply) -> None:
            broker.inventory.move_topic(ACCOUNT, path, to, reply, keep_alias=keeps)

        def answered(error: DuramenError | None) -> None:
            if error is None:
                self._book.moved += 1
                topic.path = to
                self.known[to] = _Name(topic)
                self.known[path] = _Name(topic, alias=True) if keeps else _Name(None)
                topic.aliases |= {path} if keeps else set()
            elif not isinstance(error, _NOT_DONE):
                self._unsure(topic, path, to)
                topic.before, topic.path = path, to
            self.next()

        self._ask(f"move of {path} to {to}", ask, answered)

    def _unsure(self, topic: _Topic, *paths: TopicPath) -> None:
        topic.sure = False
        for path in paths:
            self.known.pop(path, None)

    def _alias(self, topic: _Topic) -> None:
        path = topic.path
        assert path is not None
        alias = TopicPath(self.tenant, self.chance.choice(_NAMESPACES), self._new_names(1)[0])

        def ask(broker: Broker, reply: Reply) -> None:
            broker.inventory.alias(ACCOUNT, alias, path, reply)

        def answered(error: DuramenError | None) -> None:
            if error is None:
                topic.aliases.add(alias)
                self.known[alias] = _Name(topic, alias=True)
            elif not isinstance(error, _NOT_DONE):
                topic.aliases.add(alias)  # it may have one: it cannot be deleted
                topic.late = True
            self.next()

        self._ask(f"alias {alias} of {path}", ask, answered)

    def _delete(self, topic: _Topic) -> None:
        path = topic.path
        assert path is not None
        if topic.aliases:
            self.next()
            return

        def ask(broker: Broker, reply: Reply) -> None:
            broker.inventory.delete_topic(ACCOUNT, path, reply)

        def answered(error: DuramenError | None) -> None:
            if error is None:
                topic.path = None
                self.known[path] = _Name(None)
            elif not isinstance(error, _NOT_DONE):
                self._unsure(topic, path)
                topic.before, topic.path = path, None
            self.next()

        self._ask(f"deletion of {path}", ask, answered)

    # -- reads --------------------------------------------------------------------------------------

    def _look_up(self) -> None:
        namespace = self.chance.choice(_NAMESPACES)
        paths = [path for path in self.known if path.namespace == namespace]
        paths = self.chance.sample(paths, min(len(paths), 5))
        if not paths:
            self.next()
            return

        def ask(broker: Broker, reply: Reply) -> None:
            names = [path.topic for path in paths]
            broker.inventory.read(lambda: broker.inventory.lookup(ACCOUNT, self.tenant, namespace, names), reply)

        def answered(found: list[FoundTopic | None] | DuramenError) -> None:
            if not isinstance(found, DuramenError):
                for path, one in zip(paths, found, strict=True):
                    self._book.looked_up += 1
                    self.check(path, None if one is None else one.id, alias=one is not None and one.alias)
            self.next()

        self._ask(f"lookup of {paths}", ask, answered)

    def check(self, path: TopicPath, id_: UUID | None, *, alias: bool) -> None:
        """Raise BrokenPromise unless a name leads where it has to."""
        name = self.known[path]
        if name.topic is None:
            if id_ is not None:
                raise BrokenPromise(f"{path} leads to {id_}, and no topic has that name any more")
            return
        if id_ is None:
            raise BrokenPromise(f"{path} leads to nothing, and there is a topic")
        if alias != name.alias:
            raise BrokenPromise(f"{path} is {'an alias' if alias else 'no alias'}")
        if name.topic.id is None:
            self._book.use(id_, name.topic)
            name.topic.id = id_
        if name.topic.id != id_:
            raise BrokenPromise(f"{path} leads to {id_}, and its topic is {name.topic.id}")

    def _by_id(self) -> None:
        topics = [one for one in self.topics if one.id is not None and one.sure and one.path is not None]
        if not topics:
            self.next()
            return
        topic = self.chance.choice(topics)

        def ask(broker: Broker, reply: Reply) -> None:
            broker.inventory.read(lambda: broker.inventory.by_id(topic.id or UUID(int=0)), reply)

        def answered(found: FoundTopic | DuramenError) -> None:
            if not isinstance(found, DuramenError) and found.path != topic.path:
                raise BrokenPromise(f"{topic.id} is called {found.path}, and should be {topic.path}")
            self.next()

        self._ask(f"search of {topic.id}", ask, answered)

    def _page(self, namespace: str, token: PageToken, seen: list[TopicPath]) -> None:
        def ask(broker: Broker, reply: Reply) -> None:
            broker.inventory.read(
                lambda: broker.inventory.search(ACCOUNT, self.tenant, namespace, _ALL, token, _PAGE), reply
            )  # fmt: skip

        def answered(page: TopicPage | DuramenError) -> None:
            if isinstance(page, DuramenError):
                self.next()
                return
            seen.extend(topic.path for topic in page.topics)
            if page.token is not None:
                self._page(namespace, page.token, seen)
                return
            self._book.paged += 1
            self._check_pages(namespace, seen)
            self.next()

        self._ask(f"page of {namespace}", ask, answered)

    def _check_pages(self, namespace: str, seen: Sequence[TopicPath]) -> None:
        if list(seen) != sorted(set(seen)):
            raise BrokenPromise(f"pages of {self.tenant}/{namespace} are not in order: {seen}")
        for path, name in self.known.items():
            if path.namespace == namespace and (name.topic is not None) != (path in seen):
                what = "have a name that leads to nothing" if name.topic is None else "skip a name"
                raise BrokenPromise(f"pages of {self.tenant}/{namespace} {what}: {path}")


class InventoryBook(ShardBook):
    """What was created, and the nodes that have to have it."""

    stream = INVENTORY_STREAM

    def __init__(self, cluster: Any) -> None:
        super().__init__(cluster)
        self._all = list[_InventoryClient]()
        self._retention: RetentionClient | None = None
        self._ids: dict[UUID, _Topic] = {}
        self.created = self.moved = self.looked_up = self.paged = 0

    def equip(self, node: SimulatedNode) -> None:
        """The kinds of the inventory and of its records run on a node, with checkpoints often."""
        node.kinds = (inventory_kind(_CHECKPOINT_RECORDS), queue_kind(_CHECKPOINT_RECORDS))
        node.has_light_topics = True
        node.onlooker = self

    def clients(self, calls: ClientCalls, seed: Callable[[str], str], think_us: int) -> list[ClusterClient]:
        """Those who use the inventory."""
        self._all = [_InventoryClient(self, calls, seed("inventory"), think_us, number) for number in range(_CLIENTS)]
        self._retention = RetentionClient(calls, seed("inventory retention"), think_us)
        return [
            *self._all, PolicyClient(calls, seed("inventory policies"), think_us), self._retention,
            TopicQuotaClient(calls, seed("quotas of topics"), think_us),
            BytesQuotaClient(calls, seed("quotas of bytes"), think_us),
        ]  # fmt: skip

    def use(self, id_: UUID, topic: _Topic) -> None:
        """A topic has that id, which no other may have."""
        if self._ids.setdefault(id_, topic) is not topic:
            raise BrokenPromise(f"two topics have the id {id_}")

    # -- in the end ---------------------------------------------------------------------------------

    def _shards(self, name: str = INVENTORY_STREAM) -> Iterator[tuple[int, list[tuple[Log, RowStates]]]]:
        """The shards of the inventory, or with its records, with their replicas."""
        council = self._cluster.witness.council
        stream = council.state.streams.get(name)
        for shard in range(0 if stream is None else stream.partitions):
            place = PartitionId(stream.id, shard)  # type: ignore[union-attr]
            partition = None if place in council.lost else council.state.partitions.get(place)
            replicas = list[tuple[Log, RowStates]]()
            for node_id in () if partition is None else partition.replicas:
                node = self._cluster.nodes[node_id]
                log = None if node.store is None else node.store.log(LogKey(*place))
                if log is not None and node.states is not None:
                    replicas.append((log, node.states))
            yield shard, replicas

    def behind(self) -> list[str]:
        """Replicas whose rows are not what their log is, and changes that are under way."""
        found = list[str]()
        for shard, replicas in self._shards():
            for log, states in replicas:
                if not states.available or states.stored(log, leads=True).offset != log.end_offset:
                    found.append(f"a replica has not applied all of shard {shard}")
                elif next(_rows(log, states).scan(b"p", b"q"), None) is not None:
                    found.append(f"a change is under way in shard {shard}")
        return found or self._records_behind()

    def _records_behind(self) -> list[str]:
        """Replicas of records that are behind, nodes that count them wrongly, and old ones that have to go."""
        found, totals, shards = list[str](), Counter[int](), list(self._shards(INVENTORY_QUEUES))
        for shard, replicas in shards:
            for log, states in replicas:
                if not states.available or states.stored(log, leads=True).offset != log.end_offset:
                    found.append(f"a replica has not applied all of shard {shard} of records")
        if found or any(not replicas for _, replicas in shards):
            return found
        brokers = {node.node_id: node.broker for node in self._cluster.nodes.values() if node.broker is not None}
        for broker in brokers.values():
            totals.update(_led_bytes(broker))
        for node_id, broker in brokers.items():
            for owner, size in totals.items():
                known = broker.usage.bytes(PolicyScope(NAMESPACE, id=owner))
                if known != size:
                    found.append(f"node {node_id} counts {known} bytes of namespace {owner}, which has {size}")
        for topic, entries in self._records(shards):
            if self._retention is not None and self._retention.drops_surely(topic) and topic.begins_old(entries):
                found.append(f"{topic.path} has old entries")
        return found

    def _records(
        self, shards: Sequence[tuple[int, list[tuple[Log, RowStates]]]]
    ) -> Iterator[tuple[KeptTopic, Sequence[QueueEntry]]]:
        """What the topics have of which retention is checked, on each replica."""
        for topic in () if self._retention is None else self._retention.topics:
            name = topic.id.hex.encode()
            for log, states in shards[partition_of(name, len(shards))][1]:
                hashed = hash_of(self._cluster.witness.council.state.streams[INVENTORY_QUEUES])(name)
                yield topic, retrieve(_rows(log, states), hashed, "start", _MOST, _MOST, 0, delayed=True).entries

    def inspect(self) -> None:
        """All replicas have the same, and names and ids lead to each other, as clients were told."""
        shards = list(self._shards())
        if any(not replicas for _, replicas in shards):
            return  # it is lost with all disks that had it
        for shard, replicas in shards:
            every = [dict(states.rows(log, states.stored(log, leads=True)).all()) for log, states in replicas]
            if any(one != every[0] for one in every):
                raise BrokenPromise(f"the rows of replicas of shard {shard} are not the same")
        rows = [_rows(*replicas[0]) for _, replicas in shards]
        directory = Directory()
        directory.load(rows[0])
        inventory_id = self._cluster.witness.council.state.streams[self.stream].id
        for client in self._all:
            self._inspect(client, directory, rows, inventory_id)
        records = list(self._shards(INVENTORY_QUEUES))
        if all(replicas for _, replicas in records):
            for topic, entries in self._records(records):
                topic.check(entries)

    def _inspect(
        self, client: _InventoryClient, directory: Directory, shards: Sequence[StateRows], inventory: UUID
    ) -> None:
        rows = InventoryRows(shards, lambda namespace: directory.namespace_by_id(namespace) is not None)
        ids: dict[UUID, TopicPath] = {}
        names: dict[TopicPath, UUID] = {}
        for tenant in directory.every_tenant():
            for namespace in directory.namespaces(tenant.id):
                for name, *_ in rows.names(namespace.id, b""):
                    one = rows.find(namespace.id, name)
                    if one is None:
                        continue
                    path, id_ = TopicPath(tenant.name, namespace.name, name.decode()), topic_id(inventory, one.key)
                    names[path] = id_
                    if not one.alias and ids.setdefault(id_, path) != path:
                        raise BrokenPromise(f"{id_} is called {path} and {ids[id_]}")
        for path, known in client.known.items():
            client.check(path, names.get(path), alias=known.alias)
        for topic in client.topics:
            candidates = {topic.path} if topic.sure else {topic.path, topic.before}
            there = {path for path in candidates if path is not None and path in names}
            if None not in candidates and not there:
                raise BrokenPromise(f"a topic is lost that was called {candidates}")
            if topic.id is not None and topic.id in ids and ids[topic.id] not in candidates:
                raise BrokenPromise(f"{topic.id} is called {ids[topic.id]}, and should be one of {candidates}")

    @property
    def used(self) -> bool:
        return bool(self.created)


def _rows(log: Log, states: RowStates) -> StateRows:
    return states.rows(log, states.stored(log, leads=True))


def _led_bytes(broker: Broker) -> dict[int, int]:
    """The bytes of namespaces in the shards that a node leads: runs of other replicas may be divided otherwise."""
    found, space = Counter[int](), broker.streams.find(INVENTORY_QUEUES)
    for partition in () if space is None else space.partitions:
        if partition.leads:
            found.update(dict(owners(broker.coordinators.rows(INVENTORY_QUEUES, partition.index), NO_OWNER)))
    return found
