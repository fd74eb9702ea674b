"""Streams and light topics as groups see them: their names, and the key names of their offsets.

Offsets of a topic of the inventory are stored under `~` and its lasting id in hex, which no topic name can equal: so
they stay with the topic after a rename. Offsets of every other topic are stored under its name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from duramen.base.errors import DuramenError, NotLeader, RequestInvalid, StreamNotFound
from duramen.base.ids import StreamId
from duramen.broker.list_offsets import PartitionBounds
from duramen.broker.streams import BrokerStreams, Stream
from duramen.groups.topics import GroupTopic

__all__ = [
    "LASTING",
    "MOST_COUNTED",
    "FindBounds",
    "GroupTopics",
    "LightFound",
    "LightLag",
    "LightQueue",
    "LightTopicNames",
]

LASTING: Final = "~"
"""The prefix of the key names of offsets of inventory topics."""


MOST_COUNTED: Final = 1000
"""The most records of a light topic that a lag counts: its offsets have gaps."""


class LightLag(NamedTuple):
    """The lag of an offset in a light topic, whose offsets have gaps.

    `records` counts the records from the offset on, up to a maximum; `first_ms` is the timestamp of the first.
    """

    start: int
    end: int
    records: int
    first_ms: int


class LightFound(NamedTuple):
    """The present name of a light topic, and an offset's lag in it; None: unknown at present."""

    name: str
    lag: LightLag | None


class LightQueue(NamedTuple):
    """The present name of a light topic, and the queue with its records."""

    name: str
    space: Stream
    queue: bytes


BoundsDone = Callable[[PartitionBounds | DuramenError], None]
FindBounds = Callable[[Stream, bytes, int, int, BoundsDone], None]
"""Asks the leader of a queue's shard for its bounds, and the first offset since a time, or of the last records.

-1: not requested.
"""

_MOST_LAST: Final = 10_000  # records that are counted, some times over


class LightTopicNames(Protocol):
    """The view that groups have of light topics."""

    def find(self, key: str | UUID) -> GroupTopic | None:
        """The topic with that name or id."""

    def use(self, name: str, stored: str) -> None:
        """Note that a group uses a topic by this name, and stores its offsets under that key name."""

    def used(self, name: str) -> str | None:
        """The key name of the offsets of the topic that had this name when a group last used it."""

    def when_known(self, stored: Iterable[str], done: Callable[[DuramenError | None], None]) -> None:
        """Call `done` once this node knows the present names of topics, by the key names of their offsets."""

    def when_named(
        self, names: Iterable[str], patterns: Iterable[str], done: Callable[[DuramenError | None], None]
    ) -> None:  # fmt: skip
        """Call `done` once `find` and `matching` can resolve these names and patterns."""

    def names_of(self, stored: str) -> Sequence[str]:
        """The names of a topic by the key name of its offsets: the present name, and aliases.

        The names are those at the last `when_known`; none if unknown.
        """

    def is_gone(self, stored: str) -> bool:
        """Whether the topic no longer exists; False if unknown at present."""

    def matching(self, pattern: str) -> Iterable[str]:
        """Names that a subscription by this pattern may match."""

    def version(self) -> object:
        """A version that changes when a name may resolve to another topic."""

    def may_mean(self, names: Iterable[str], patterns: Iterable[str]) -> bool:
        """Whether some of the names and patterns may match topics of the inventory."""

    def behind(self, stored: str, offset: int, most: int) -> LightLag | None:
        """The lag of an offset by its key name, counted up to `most`; None: unknown on this node at present."""

    def find_behind(
        self, wanted: Sequence[tuple[str, int]], most: int, done: "Callable[[Sequence[LightFound | None]], None]"
    ) -> None:
        """Ask other nodes for lags that are unknown here, by the key names of the offsets.

        `done` gets None for key names without a topic.
        """

    def find_stored(self, names: Sequence[str], done: Callable[[Mapping[str, str] | DuramenError], None]) -> None:
        """Ask now for the key names of the offsets of those topics that exist, by these names.

        After `done`, this node knows the present names of these topics.
        """

    def place_of(self, stored: str) -> LightQueue | None:
        """The place of a topic by the key name of its offsets; None if this node knows of no such topic."""


class GroupTopics:
    """The topics as groups of every kind see them."""

    def __init__(self, streams: BrokerStreams) -> None:
        self._streams = streams
        self.light: LightTopicNames | None = None
        self._find_bounds: FindBounds | None = None

    def find(self, name: str) -> GroupTopic | None:
        """The topic with that name."""
        return self._find(name)

    def _find(self, key: str | StreamId) -> GroupTopic | None:
        stream = self._streams.readable(key)
        if stream is not None:
            return GroupTopic(stream.name, stream.id, len(stream.partitions))
        return None if self.light is None else self.light.find(key)

    def name_of(self, topic_id: StreamId) -> str | None:
        """The name of the topic with that id."""
        found = self._find(topic_id)
        return None if found is None else found.name

    def names(self, pattern: str) -> Iterable[str]:
        """Every name that may match the pattern."""
        light = () if self.light is None else self.light.matching(pattern)
        return [*self._streams.by_name, *(topic.name for topic in self._streams.live_topics), *light]

    def version(self) -> object:
        """A version that changes when a name may resolve to another light topic. Streams announce their changes."""
        return None if self.light is None else self.light.version()

    def may_be_light(self, names: Iterable[str], patterns: Iterable[str]) -> bool:
        """Whether some of the names and patterns may match topics of the inventory."""
        return self.light is not None and self.light.may_mean(names, patterns)

    # -- key names of offsets -----------------------------------------------------------------------

    def use(self, name: str, stored: str) -> None:
        """Note that a group uses a topic by this name, and stores its offsets under that key name."""
        if self.light is not None and stored.startswith(LASTING):
            self.light.use(name, stored)

    def used(self, name: str) -> str | None:
        """The key name of the offsets of the topic that had this name when a group last used it."""
        return None if self.light is None else self.light.used(name)

    def when_known(self, stored: Iterable[str], done: Callable[[DuramenError | None], None]) -> None:
        """Call `done` once this node knows the present names of topics, by the key names of their offsets."""
        if self.light is None:
            done(None)
        else:
            self.light.when_known(stored, done)

    def when_named(
        self, names: Iterable[str], patterns: Iterable[str], done: Callable[[DuramenError | None], None]
    ) -> None:  # fmt: skip
        """Call `done` once `find` and `names` can resolve these names and patterns."""
        if self.light is None:
            done(None)
        else:
            self.light.when_named(names, patterns, done)

    def names_of(self, stored: str) -> Sequence[str]:
        """The names of the topic with this key name, the present one first; none if it does not exist."""
        if not stored.startswith(LASTING):
            return (stored,)
        return () if self.light is None else self.light.names_of(stored)

    def shown(self, stored: str) -> str | None:
        """The name shown for the topic with this key name."""
        return next(iter(self.names_of(stored)), None)

    def behind(self, stored: str, offset: int, most: int) -> LightLag | None:
        """The lag of an offset in a light topic; None if there is no such topic, or its lag is unknown here."""
        return None if self.light is None else self.light.behind(stored, offset, most)

    def find_behind(
        self, wanted: Sequence[tuple[str, int]], done: Callable[[Sequence[LightFound | None]], None]
    ) -> None:  # fmt: skip
        """Ask other nodes for lags, as in `behind`; `done` gets None for key names without a light topic."""
        if self.light is None or not wanted:
            done([None] * len(wanted))
        else:
            self.light.find_behind(wanted, MOST_COUNTED, done)

    def find_stored(self, names: Sequence[str], done: Callable[[Mapping[str, str] | DuramenError], None]) -> None:
        """Ask for the key names of the offsets of light topics, as in `LightTopicNames.find_stored`."""
        if self.light is None:
            done({})
        else:
            self.light.find_stored([name for name in names if self._streams.readable(name) is None], done)

    def is_light(self, stored: str) -> bool:
        """Whether a light topic that this node knows stores its offsets under this key name."""
        light = self.light is not None and self._streams.readable(stored) is None
        return light and self._place(stored) is not None

    def _place(self, stored: str) -> LightQueue | None:
        return None if self.light is None else self.light.place_of(stored)

    def find_bounds_by(self, find: FindBounds) -> None:
        """Bounds of light topics are found so."""
        self._find_bounds = find

    def bounds(self, stored: str, since_ms: int, last: int, done: BoundsDone) -> None:
        """The bounds of a light topic, and the first offset since a time or of the last records; -1: not requested."""
        place = self._place(stored)
        if place is None or self._find_bounds is None:
            done(StreamNotFound(f"there is no topic with offsets under {stored}"))
            return

        name, space, queue = place

        def found(answer: PartitionBounds | DuramenError) -> None:
            if isinstance(answer, NotLeader):
                answer = NotLeader(f"the bounds of topic {name} are unknown: {answer}")
            done(answer)

        if last > _MOST_LAST:
            done(RequestInvalid(f"the last {last} records of {name} are more than {_MOST_LAST:,}: give a time"))
        else:
            self._find_bounds(space, queue, since_ms, last, found)

    def is_gone(self, stored: str) -> bool:
        """Whether the topic no longer exists."""
        if stored.startswith(LASTING):
            return self.light is not None and self.light.is_gone(stored)
        return self._find(stored) is None
