"""Light topics as groups know them: by name, by pattern, and by what their offsets are stored under. Pure."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol
from uuid import UUID

from duramen.base.errors import DuramenError, NameInvalid, TopicNotFound
from duramen.base.patterns import literal_prefix
from duramen.coordinators.group.topics import LASTING, LightLag
from duramen.coordinators.inventory.inventory import FoundTopic
from duramen.groups.topics import GroupTopic
from duramen.inventory.names import TopicPath, kafka_path
from duramen.inventory.search import PageToken, TopicQuery
from duramen.metadata.decisions import check_name
from duramen.service.broker import Broker

__all__ = ["MOST_LISTED", "InventoryTopicNames", "kafka_names"]

MOST_LISTED: Final = 10_000
"""Names of a namespace that are listed for a pattern or for Metadata."""
_KNOWN: Final = 100_000
_PAGE: Final = 1000


class _FoundTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def id(self) -> UUID: ...

    def behind(self, offset: int, most: int) -> tuple[int, int, int, int]: ...


class _Topics(Protocol):
    def find(self, key: str | UUID) -> _FoundTopic | None: ...


class InventoryTopicNames:
    """Topics of queues and of the inventory's account."""

    def __init__(self, broker: Broker, topics: _Topics) -> None:
        self._inventory = broker.inventory
        self._account = broker.settings.text("inventory.account")
        self._shown = broker.settings.text("inventory.metadata.namespace")
        self._topics = topics
        self._used: OrderedDict[str, UUID] = OrderedDict()

    def find(self, key: str | UUID) -> GroupTopic | None:
        """As of `LightTopicNames`."""
        topic = self._topics.find(key)
        return None if topic is None else GroupTopic(topic.name, topic.id, 1)

    # -- names of topics of the inventory -----------------------------------------------------------

    def stored_as(self, name: str) -> str | None:
        """As of `LightTopicNames`."""
        path = kafka_path(name)
        if path is None or not self._inventory.is_made:
            return None
        try:
            (found,) = self._inventory.lookup(self._account, path.tenant, path.namespace, [path.topic])
        except DuramenError:
            return None
        if found is None:
            return None
        self._used[name] = found.id
        self._used.move_to_end(name)
        if len(self._used) > _KNOWN:
            self._used.popitem(last=False)
        return LASTING + found.id.hex

    def stored_before(self, name: str) -> str | None:
        """As of `LightTopicNames`."""
        used = self._used.get(name)
        if used is None or self._of(LASTING + used.hex) is None:
            return None
        return LASTING + used.hex

    def _of(self, stored: str) -> FoundTopic | None:
        try:
            return self._inventory.by_id(UUID(stored[1:]))
        except (DuramenError, ValueError):
            return None

    def names_of(self, stored: str) -> Sequence[str]:
        """As of `LightTopicNames`."""
        found = self._of(stored)
        if found is None:
            return ()
        try:
            aliases = self._inventory.aliases(found)
        except DuramenError:
            aliases = []
        return [*kafka_names([found.path, *aliases])]

    def is_gone(self, stored: str) -> bool:
        """As of `LightTopicNames`."""
        try:
            self._inventory.by_id(UUID(stored[1:]))
        except (TopicNotFound, ValueError):
            return True
        except DuramenError:
            return False
        return False

    def behind(self, stored: str, offset: int, most: int) -> LightLag | None:
        """As of `LightTopicNames`."""
        name = stored
        if stored.startswith(LASTING):
            name = next(iter(self.names_of(stored)), "")
        topic = self._topics.find(name) if name else None
        if topic is None:
            return None
        try:
            return LightLag(*topic.behind(offset, most))
        except DuramenError:
            return None

    # -- names of many ------------------------------------------------------------------------------

    def listed(self) -> list[str]:
        """The topics that Metadata lists: of the namespace that `inventory.metadata.namespace` names."""
        tenant, slash, namespace = self._shown.partition("/")
        return self._names(tenant, namespace) if slash else []

    def matching(self, pattern: str) -> Iterable[str]:
        """As of `LightTopicNames`: those of the namespace that a pattern begins with, and those that are listed."""
        where = _namespace_of(pattern)
        if where is None:
            return self.listed()
        return [*dict.fromkeys((*self._names(*where), *self.listed()))]

    def _names(self, tenant: str, namespace: str) -> list[str]:
        found, token = list[str](), PageToken()
        while len(found) < MOST_LISTED:
            try:
                page = self._inventory.search(self._account, tenant, namespace, TopicQuery(), token, _PAGE)
            except DuramenError:
                return found  # there is none, or it is still being read
            found += kafka_names(one.path for one in page.topics)
            if page.token is None:
                break
            token = page.token
        return found[:MOST_LISTED]

    def version(self) -> object:
        """As of `LightTopicNames`."""
        return self._inventory.position if self._inventory.is_made else None

    def may_mean(self, names: Iterable[str], patterns: Iterable[str]) -> bool:
        """As of `LightTopicNames`."""
        if any(map(kafka_path, names)):
            return True
        return any(self._shown or _namespace_of(pattern) for pattern in patterns)


def kafka_names(paths: Iterable[TopicPath]) -> Iterator[str]:
    """Names of topics as Kafka has them, without those that it cannot carry."""
    for path in paths:
        name = path.kafka_name
        try:
            check_name(name)
        except NameInvalid:
            continue
        yield name


def _namespace_of(pattern: str) -> tuple[str, str] | None:
    """The tenant and the namespace that every name begins with which a pattern matches."""
    path = kafka_path(literal_prefix(pattern))
    return None if path is None else (path.tenant, path.namespace)
