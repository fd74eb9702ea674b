"""Names of inventory topics on a cluster: the leaders of their shards resolve them before a request continues."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from duramen.base.errors import DuramenError, NamespaceNotFound, TenantNotFound, TopicNotFound
from duramen.coordinators.inventory.topics import FoundTopic
from duramen.inventory.names import kafka_path
from duramen.rpc.caller import Gathered
from duramen.rpc.server import Done
from duramen.service.broker import Broker
from duramen.service.forwarded_requests import FIND_TOPIC_NAMES, FindTopicNames, TopicNamesFound
from duramen.service.light_topics import LastingId, LightTopic
from duramen.service.queue_topics import QueueTopic, QueueTopics
from duramen.service.resolve import Found, Resolver, Topic, TopicKey, TopicResolver

__all__ = ["ClusterTopicResolver"]


class ClusterTopicResolver(Resolver):
    """The Resolver of a cluster node: streams and queues are known, topics of the inventory are requested."""

    def __init__(self, broker: Broker, topics: QueueTopics) -> None:
        self._all = TopicResolver(broker.streams, topics)
        self._broker = broker
        self._topics = topics
        self._account = broker.settings.text("inventory.account")
        broker.caller.server.handle(FIND_TOPIC_NAMES, self._find_names)

    @property
    def all_known(self) -> Found | None:
        """All there are, until there is an inventory."""
        return None if self._broker.inventory.is_made else self._all.all_known

    def known(self, keys: Collection[TopicKey]) -> Found | None:
        """The existing topics; None if one may be a topic of the inventory."""
        found: dict[TopicKey, Topic | LightTopic] = {}
        for key in keys:
            topic = self._here(key)
            if topic is not None:
                found[key] = topic
            elif self._may_be_asked(key):
                return None
        return found

    def _here(self, key: TopicKey) -> Topic | LightTopic | None:
        return self._all.all_known.get(key)

    def _may_be_asked(self, key: TopicKey) -> bool:
        if isinstance(key, UUID):
            return self._broker.inventory.is_made and key.int != 0
        return self._broker.names_inventory(key)

    def resolve(self, keys: Collection[TopicKey], done: Callable[[Found], None]) -> None:
        """Request topics of the inventory together; a failure is not reported, and the request times out."""
        found: dict[TopicKey, Topic | LightTopic] = {}
        names, ids, lasting = dict[str, TopicKey](), list[UUID](), list[LastingId]()
        for key in keys:
            topic = self._here(key)
            if topic is not None:
                found[key] = topic
            elif not self._may_be_asked(key):
                continue
            elif isinstance(key, LastingId):
                lasting.append(key)
            elif isinstance(key, str):
                names[key] = key
            elif (name := self._topics.name_of(key)) is not None:
                names[name] = key
            else:
                ids.append(key)
        look_up = partial(self._look_up, found, names, lasting, done)
        if ids:
            self._ask_for_names(ids, names, look_up)
        else:
            look_up()

    def every(self) -> Iterable[Topic]:
        """Every stream."""
        return self._all.every()

    def from_name(self, first: str) -> Iterator[Topic]:
        """The streams from a name on."""
        return self._all.from_name(first)

    # -- ids ----------------------------------------------------------------------------------------

    def _ask_for_names(self, ids: Sequence[UUID], names: dict[str, TopicKey], then: Callable[[], None]) -> None:
        """Ask the other nodes, one of which has sent these ids to the client."""

        def gathered(answer: Gathered[TopicNamesFound]) -> None:
            for one in answer.answers.values():
                names.update({name: id_ for id_, name in zip(ids, one.names, strict=False) if name})
            then()

        request = FindTopicNames([id_.bytes for id_ in ids])
        nodes = {node.id for node in self._broker.membership.nodes if node.holds_partitions} - {self._broker.node_id}
        self._broker.caller.gather(FIND_TOPIC_NAMES, dict.fromkeys(sorted(nodes), request), gathered)

    def _find_names(self, request: FindTopicNames, done: Done[TopicNamesFound]) -> None:
        done(TopicNamesFound([self._topics.name_of(UUID(bytes=id_)) or "" for id_ in request.ids]))

    # -- names --------------------------------------------------------------------------------------

    def _look_up(
        self, found: dict[TopicKey, Topic | LightTopic], names: dict[str, TopicKey], lasting: Sequence[LastingId],
        done: Callable[[Found], None],
    ) -> None:  # fmt: skip
        by_namespace: dict[tuple[str, str], list[str]] = {}
        for path in filter(None, map(kafka_path, names)):
            by_namespace.setdefault((path.tenant, path.namespace), []).append(path.topic)

        def looked_up(answer: tuple[list[FoundTopic], list[FoundTopic]] | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                return  # it is unknown whether there is such a topic: the request gets that response at its deadline
            there, by_id = answer
            for _, name, topic in self._topics_of(there):
                if names[name] in (name, topic.id):
                    found[names[name]] = topic
            for one, _, topic in self._topics_of(by_id):
                found[one.id] = topic
            done(found)

        if by_namespace or lasting:
            self._broker.inventory.read(partial(self._query, by_namespace, lasting), looked_up)
        else:
            done(found)

    def _query(
        self, by_namespace: Mapping[tuple[str, str], Sequence[str]], lasting: Sequence[LastingId]
    ) -> tuple[list[FoundTopic], list[FoundTopic]]:
        inventory, there, by_id = self._broker.inventory, list[FoundTopic](), list[FoundTopic]()
        for (tenant, namespace), topics in by_namespace.items():
            with suppress(TenantNotFound, NamespaceNotFound):
                there += filter(None, inventory.lookup(self._account, tenant, namespace, topics))
        for id_ in lasting:
            with suppress(TopicNotFound):
                by_id.append(inventory.by_id(id_))
        return there, by_id

    def _topics_of(self, found: Iterable[FoundTopic]) -> Iterator[tuple[FoundTopic, str, QueueTopic]]:
        """Topics with their names; those that Kafka does not allow are no hindrance to who asks for one."""
        for one in found:
            name = one.path.kafka_name
            topic = self._topics.topic_of(name, one)
            if topic is not None:
                yield one, name, topic
