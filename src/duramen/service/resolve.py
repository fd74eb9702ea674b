"""Resolves the names and ids of a request to topics, immediately or after asking their owners. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol
from uuid import UUID

from duramen.base.errors import DuramenError, InventoryTopicRefused, QueueTopicRefused, StreamNotFound
from duramen.broker.streams import BrokerStreams, Stream
from duramen.service.light_places import LightPlace
from duramen.service.light_topics import LightTopic, LightTopics

__all__ = ["Found", "ResolvedTopics", "Resolver", "StreamResolver", "Topic", "TopicKey", "TopicResolver", "stream_in"]

Topic = Stream
"""What may be listed."""

TopicKey = str | UUID
"""How a request names a topic: an id is that of its name, or `LastingId`."""

Found = Mapping[TopicKey, Topic | LightTopic]
"""What names stand for."""


def stream_in(found: Found, key: TopicKey) -> Stream | None:
    """The stream among the resolved topics."""
    topic = found.get(key)
    return topic if isinstance(topic, Stream) else None


class Resolver(Protocol):
    """Finds topics."""

    @property
    def all_known(self) -> Found | None:
        """All present topics, by name and by id; None if some have to be requested first."""

    def known(self, keys: Collection[TopicKey]) -> Found | None:
        """The existing topics; None if that has to be requested first: see `resolve`."""

    def resolve(self, keys: Collection[TopicKey], done: Callable[[Found], None]) -> None:
        """Call `done` once, now or later, with those topics that exist."""

    def every(self) -> Iterable[Topic]:
        """All topics that may be listed."""

    def from_name(self, first: str) -> Iterator[Topic]:
        """Topics in name order from that name on: a page costs only its own topics."""


class StreamResolver:
    """The Resolver of a node's streams: it answers at once."""

    def __init__(self, streams: BrokerStreams) -> None:
        self._streams = streams

    @property
    def all_known(self) -> Found:
        """The streams themselves."""
        return self._streams.by_key

    def known(self, keys: Collection[TopicKey]) -> Found:
        """Look each of them up."""
        streams = self._streams.by_key
        return {key: streams[key] for key in keys if key in streams}

    def resolve(self, keys: Collection[TopicKey], done: Callable[[Found], None]) -> None:
        """Answer at once."""
        done(self.known(keys))

    def every(self) -> Iterable[Topic]:
        """Every stream."""
        return self._streams

    def from_name(self, first: str) -> Iterator[Topic]:
        """The streams from a name on."""
        return self._streams.from_name(first)


class _AllTopics(Mapping[TopicKey, Topic | LightTopic]):
    """Streams, and light topics that are looked up on request."""

    def __init__(self, streams: Mapping[TopicKey, Stream], light: LightTopics) -> None:
        self._streams = streams
        self._light = light

    def get(self, key: TopicKey, default: Any = None) -> Any:
        """Short, since every request comes by here."""
        found = self._streams.get(key)
        return found if found is not None else self._light.find(key) or default

    def look_up(self, keys: Collection[TopicKey]) -> dict[TopicKey, Topic | LightTopic]:
        """Those of the topics that exist: one look-up for all light ones."""
        found: dict[TopicKey, Topic | LightTopic] = {key: self._streams[key] for key in keys if key in self._streams}
        found.update(self._light.find_many([key for key in keys if key not in found]))
        return found

    def problem(self, key: TopicKey) -> DuramenError | None:
        """Why it is unknown whether a light topic exists: see `LightTopics`."""
        return self._light.problem(key)

    def places(self, names: Collection[str]) -> Mapping[str, LightPlace]:
        """The places of some light topics: see `LightTopics`."""
        streams = self._streams
        return self._light.places([name for name in names if name not in streams])

    def __getitem__(self, key: TopicKey) -> Topic | LightTopic:
        found = self._streams.get(key) or self._light.find(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[TopicKey]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)


class TopicResolver(StreamResolver):
    """The Resolver of a node's streams and its light topics: it answers at once."""

    def __init__(self, streams: BrokerStreams, light: LightTopics) -> None:
        super().__init__(streams)
        self._all = _AllTopics(streams.by_key, light)

    @property
    def all_known(self) -> Found:
        """The streams themselves, and light topics."""
        return self._all

    def known(self, keys: Collection[TopicKey]) -> Found:
        """Look them up."""
        return self._all.look_up(keys)


class ResolvedTopics:
    """The topics that a request names, each found or refused."""

    __slots__ = ("_errors", "_found")

    def __init__(self, found: Found, errors: Mapping[TopicKey, DuramenError]) -> None:
        """`errors` say why the request gets some of the topics that it names not; they count where both have one."""
        self._found = found
        self._errors = errors

    def looked_up(self, keys: Collection[TopicKey]) -> "ResolvedTopics":
        """The same of these topics alone, which are looked up together."""
        if isinstance(self._found, _AllTopics):
            found = self._found.look_up(keys)
            lacking = ((key, self._found.problem(key)) for key in keys if key not in found)
            problems = {key: problem for key, problem in lacking if problem is not None}
            return ResolvedTopics(found, {**problems, **self._errors} if problems else self._errors)
        return self

    def places(self, names: Collection[str]) -> Mapping[str, LightPlace]:
        """The places of those light topics that are found without an object for each; the others: see `light`."""
        return self._found.places(names) if isinstance(self._found, _AllTopics) and not self._errors else {}

    def find(self, key: TopicKey) -> Topic | None:
        """The stream; None with the reason in `error`: a light topic is only returned with `light`."""
        if self._errors and key in self._errors:
            return None
        found = self._found.get(key)
        return found if isinstance(found, Stream) else None

    def light(self, key: TopicKey) -> LightTopic | None:
        """The light topic; None if there is none of that name."""
        if self._errors and key in self._errors:
            return None
        found = self._found.get(key)
        return found if isinstance(found, LightTopic) else None

    def partitions(self, key: TopicKey) -> int | None:
        """The number of partitions of the topic, also of a light one; None if there is none."""
        stream = self.find(key)
        return len(stream.partitions) if stream is not None else None if self.light(key) is None else 1

    def error(self, key: TopicKey) -> DuramenError:
        """Why `find` does not find it."""
        light = self.light(key)
        if light is not None and light.stored_as != light.name:
            return InventoryTopicRefused(f"{light.name} is a topic of the inventory, not a stream")
        if light is not None:
            return QueueTopicRefused(f"{light.name} is the topic of a queue, not a stream")
        problem = self._errors.get(key) or (self._found.problem(key) if isinstance(self._found, _AllTopics) else None)
        return problem or StreamNotFound(f"there is no stream {key}")

    def get(self, key: TopicKey) -> Topic:
        """The topic. Raises StreamNotFound, TopicNotAuthorized, NameNotResolved."""
        topic = self.find(key)
        if topic is None:
            raise self.error(key)
        return topic
