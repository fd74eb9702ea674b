"""Names and ids of requests become topics here, now or later: what knows them may have to be asked first. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

from duramen.base.errors import DuramenError, StreamNotFound
from duramen.broker.streams import BrokerStreams, Stream

__all__ = ["Found", "ResolvedTopics", "Resolver", "StreamResolver", "Topic", "TopicKey"]

Topic = Stream
"""What a name may stand for."""

TopicKey = str | UUID
"""How a request names a topic."""

Found = Mapping[TopicKey, Topic]


class Resolver(Protocol):
    """Finds topics."""

    @property
    def all_known(self) -> Found | None:
        """All topics as they are at any time, by name and by id; None where some have to be asked for first."""

    def known(self, keys: Collection[TopicKey]) -> Found | None:
        """Those of the topics that exist; None where that has to be found out first: see `resolve`."""

    def resolve(self, keys: Collection[TopicKey], done: Callable[[Found], None]) -> None:
        """Call `done` once, now or later, with those topics that exist."""

    def every(self) -> Iterable[Topic]:
        """All topics that may be listed."""

    def from_name(self, first: str) -> Iterator[Topic]:
        """Those in the order of their names, from that name on: a page of them costs no look at the others."""


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


class ResolvedTopics:
    """The topics that a request names, each found or refused."""

    __slots__ = ("_errors", "_found")

    def __init__(self, found: Found, errors: Mapping[TopicKey, DuramenError]) -> None:
        """`errors` say why the request gets some of the topics that it names not; they count where both have one."""
        self._found = found
        self._errors = errors

    def find(self, key: TopicKey) -> Topic | None:
        """The topic; None where `error` says why not."""
        if self._errors and key in self._errors:
            return None
        return self._found.get(key)

    def error(self, key: TopicKey) -> DuramenError:
        """Why `find` does not find it."""
        return self._errors.get(key) or StreamNotFound(f"there is no stream {key}")

    def get(self, key: TopicKey) -> Topic:
        """The topic. Raises StreamNotFound, TopicNotAuthorized, NameNotResolved."""
        topic = self.find(key)
        if topic is None:
            raise self.error(key)
        return topic
