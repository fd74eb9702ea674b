"""Light topics as groups see them: by name, by pattern, and by the name under which offsets are stored. Pure."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from duramen.base.errors import DuramenError, NameInvalid, TopicNotFound
from duramen.base.patterns import literal_prefix
from duramen.broker.streams import Stream
from duramen.coordinators.group.topics import LASTING, LightFound, LightLag, LightQueue
from duramen.coordinators.inventory.topics import FoundTopic
from duramen.groups.topics import GroupTopic
from duramen.inventory.names import TopicPath, kafka_path
from duramen.inventory.search import PageToken, TopicQuery
from duramen.metadata.decisions import check_name
from duramen.service.broker import Broker
from duramen.service.light_topics import LastingId

__all__ = [
    "KNOWN_NAMES", "MOST_LISTED", "FoundLightTopic", "InventoryTopicNames", "LightTopicFinder",
    "kafka_names", "namespace_of",
]  # fmt: skip

MOST_LISTED: Final = 10_000
"""Names of a namespace that are listed for a pattern or for Metadata."""
KNOWN_NAMES: Final = 100_000
_PAGE: Final = 1000


class FoundLightTopic(Protocol):
    """What groups need to know of a light topic."""

    @property
    def name(self) -> str: ...

    @property
    def place(self) -> tuple[Stream, bytes]: ...

    @property
    def id(self) -> UUID: ...

    @property
    def stored_as(self) -> str: ...

    def behind(self, offset: int, most: int) -> tuple[int, int, int, int]: ...


class LightTopicFinder(Protocol):
    """Finds topics that are no streams."""

    def find(self, key: str | UUID) -> FoundLightTopic | None:
        """The topic of that name or id."""

    def shared(self, key: str | UUID) -> FoundLightTopic | None:
        """The same, with topics of the inventory that groups of this node know from other nodes."""


class InventoryTopicNames:
    """Topics of queues and of the inventory's account."""

    def __init__(self, broker: Broker, topics: LightTopicFinder) -> None:
        self._inventory = broker.inventory
        self._account = broker.settings.text("inventory.account")
        self._shown = broker.settings.text("inventory.metadata.namespace")
        self._topics = topics
        self._used: OrderedDict[str, str] = OrderedDict()

    def find(self, key: str | UUID) -> GroupTopic | None:
        """As of `LightTopicNames`."""
        topic = self._topics.find(key)
        return None if topic is None else GroupTopic(topic.name, topic.id, 1)

    def find_stored(self, names: Sequence[str], done: Callable[[Mapping[str, str] | DuramenError], None]) -> None:
        """As of `LightTopicNames`: at once."""
        found = ((name, self._topics.find(name)) for name in names)
        done({name: topic.stored_as for name, topic in found if topic is not None})

    def place_of(self, stored: str) -> LightQueue | None:
        """As of `LightTopicNames`."""
        topic = self._of_stored(stored)
        return None if topic is None else LightQueue(topic.name, *topic.place)

    def _of_stored(self, stored: str) -> FoundLightTopic | None:
        name = next(iter(self.names_of(stored)), "") if stored.startswith(LASTING) else stored
        return self._topics.find(name) if name else None

    # -- names of topics of the inventory -----------------------------------------------------------

    def entry(self, name: str) -> FoundTopic | None:
        """What a topic with that name is in the inventory, as groups of this node know it from other nodes."""
        del name
        return None

    def use(self, name: str, stored: str) -> None:
        """As of `LightTopicNames`."""
        self._used[name] = stored
        self._used.move_to_end(name)
        if len(self._used) > KNOWN_NAMES:
            self._used.popitem(last=False)

    def used(self, name: str) -> str | None:
        """As of `LightTopicNames`."""
        return self._used.get(name)

    def when_known(self, stored: Iterable[str], done: Callable[[DuramenError | None], None]) -> None:
        """As of `LightTopicNames`: at once."""
        del stored
        done(None)

    def when_named(
        self, names: Iterable[str], patterns: Iterable[str], done: Callable[[DuramenError | None], None]
    ) -> None:  # fmt: skip
        """As of `LightTopicNames`: at once."""
        del names, patterns
        done(None)

    def names_of(self, stored: str) -> Sequence[str]:
        """As of `LightTopicNames`."""
        try:
            return self.read_names(stored) or ()
        except DuramenError:
            return ()

    def is_gone(self, stored: str) -> bool:
        """As of `LightTopicNames`."""
        try:
            return self.read_names(stored) is None
        except DuramenError:
            return False

    def read_names(self, stored: str) -> Sequence[str] | None:
        """What `names_of` is, by the rows; None: the topic is gone. Raises CoordinatorLoading."""
        id_ = LastingId.of_stored(stored)
        if id_ is None:
            return None
        try:
            found = self._inventory.by_id(id_)
        except TopicNotFound:
            return None
        return [*kafka_names([found.path, *self._inventory.aliases(found)])]

    def behind(self, stored: str, offset: int, most: int) -> LightLag | None:
        """As of `LightTopicNames`."""
        topic = self._of_stored(stored)
        if topic is None:
            return None
        try:
            return LightLag(*topic.behind(offset, most))
        except DuramenError:
            return None

    def find_behind(
        self, wanted: Sequence[tuple[str, int]], most: int, done: Callable[[Sequence[LightFound | None]], None]
    ) -> None:
        """As of `LightTopicNames`: there is no other node."""
        del most
        done([None] * len(wanted))

    # -- names of many ------------------------------------------------------------------------------

    def listed(self) -> list[str]:
        """The topics that Metadata lists: of the namespace that `inventory.metadata.namespace` names."""
        tenant, slash, namespace = self._shown.partition("/")
        return self._names(tenant, namespace) if slash else []

    def matching(self, pattern: str) -> Iterable[str]:
        """As of `LightTopicNames`: those of the namespace that a pattern begins with, and those that are listed."""
        where = namespace_of(pattern)
        if where is None:
            return self.listed()
        return [*dict.fromkeys((*self._names(*where), *self.listed()))]

    def _names(self, tenant: str, namespace: str) -> list[str]:
        return self._inventory.at_once(partial(self._read_all, tenant, namespace))

    def _read_all(self, tenant: str, namespace: str) -> list[str]:
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
        return any(self._shown or namespace_of(pattern) for pattern in patterns)


def kafka_names(paths: Iterable[TopicPath]) -> Iterator[str]:
    """Names of topics as Kafka has them, without those that it cannot carry."""
    for path in paths:
        name = path.kafka_name
        try:
            check_name(name)
        except NameInvalid:
            continue
        yield name


def namespace_of(pattern: str) -> tuple[str, str] | None:
    """The tenant and the namespace that every name begins with which a pattern matches."""
    path = kafka_path(literal_prefix(pattern))
    return None if path is None else (path.tenant, path.namespace)
