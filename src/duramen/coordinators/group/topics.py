"""Streams and light topics as groups see them: their names, and the names under which offsets are stored.

Offsets of a topic of the inventory are stored under `~` and its lasting id in hex, which no topic name can equal: so
they stay with the topic after a rename. Offsets of every other topic are stored under its name.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from duramen.base.errors import DuramenError, StreamNotFound
from duramen.base.ids import StreamId
from duramen.broker.list_offsets import PartitionBounds
from duramen.broker.streams import BrokerStreams
from duramen.groups.topics import GroupTopic

__all__ = [
    "LASTING",
    "MOST_COUNTED",
    "BoundsDone",
    "GroupTopics",
    "LightFound",
    "LightLag",
    "LightTopicNames",
]

LASTING: Final = "~"
"""What the name begins with that offsets of a topic of the inventory are stored under."""


MOST_COUNTED: Final = 1000
"""The most records of a light topic that are counted for a lag: its offsets have gaps."""


class LightLag(NamedTuple):
    """How far an offset is behind in a light topic, whose offsets have gaps.

    `records` are counted from it on up to some number, the first of them is of `first_ms`.
    """

    start: int
    end: int
    records: int
    first_ms: int


class LightFound(NamedTuple):
    """The name that a light topic has now, and how far an offset is behind there; None: that is not known now."""

    name: str
    lag: LightLag | None


BoundsDone = Callable[[PartitionBounds | DuramenError], None]


class LightTopicNames(Protocol):
    """What groups know of light topics."""

    def find(self, key: str | UUID) -> GroupTopic | None:
        """The topic of that name or id."""

    def use(self, name: str, stored: str) -> None:
        """A group uses a topic by this name, and its offsets are stored under that."""

    def used(self, name: str) -> str | None:
        """What offsets are stored under of the topic that had this name when a group used it last."""

    def when_known(self, stored: Iterable[str], done: Callable[[DuramenError | None], None]) -> None:
        """`done` once it is known here what topics are called now, by what their offsets are stored under."""

    def when_named(
        self, names: Iterable[str], patterns: Iterable[str], done: Callable[[DuramenError | None], None]
    ) -> None:  # fmt: skip
        """`done` once `find` and `matching` know what these mean, which they do from then on."""

    def names_of(self, stored: str) -> Sequence[str]:
        """The names of a topic by what its offsets are stored under: the name it has now, and aliases.

        As they were `when_known`; none where that is not known.
        """

    def is_gone(self, stored: str) -> bool:
        """Whether there is no such topic any more; False where that is not known now."""

    def matching(self, pattern: str) -> Iterable[str]:
        """Names that a subscription by this pattern may mean."""

    def version(self) -> object:
        """Differs from that of before if a name may mean another topic."""

    def may_mean(self, names: Iterable[str], patterns: Iterable[str]) -> bool:
        """Whether some of the names and patterns may mean topics of the inventory."""

    def behind(self, stored: str, offset: int, most: int) -> LightLag | None:
        """How far an offset is behind, by what it is stored under, counted up to `most`; None: not known here now."""

    def find_behind(
        self, wanted: Sequence[tuple[str, int]], most: int, done: "Callable[[Sequence[LightFound | None]], None]"
    ) -> None:
        """Have other nodes tell what is not known here of offsets, by what they are stored under.

        `done` gets None of what no topic is stored under.
        """

    def stored_as(self, name: str) -> str | None:
        """The key of the offsets of the topic with this name; None if there is no such topic."""

    def bounds(self, name: str, since_ms: int, last: int, done: BoundsDone) -> None:
        """Where a topic begins and ends, and from where on records are as young, or the last so many; -1: not asked."""


class GroupTopics:
    """The topics as groups of every kind see them."""

    def __init__(self, streams: BrokerStreams) -> None:
        self._streams = streams
        self.light: LightTopicNames | None = None

    def find(self, name: str) -> GroupTopic | None:
        """The topic of that name."""
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
        """Every name that the pattern may match."""
        light = () if self.light is None else self.light.matching(pattern)
        return [*self._streams.by_name, *(topic.name for topic in self._streams.live_topics), *light]

    def version(self) -> object:
        """Differs from that of before if a name may mean another light topic. Streams announce their changes."""
        return None if self.light is None else self.light.version()

    def may_be_light(self, names: Iterable[str], patterns: Iterable[str]) -> bool:
        """Whether some of the names and patterns may mean topics of the inventory."""
        return self.light is not None and self.light.may_mean(names, patterns)

    # -- what offsets are stored under --------------------------------------------------------------

    def use(self, name: str, stored: str) -> None:
        """A group uses a topic by this name, and its offsets are stored under that."""
        if self.light is not None and stored.startswith(LASTING):
            self.light.use(name, stored)

    def used(self, name: str) -> str | None:
        """What offsets are stored under of the topic that had this name when a group used it last."""
        return None if self.light is None else self.light.used(name)

    def when_known(self, stored: Iterable[str], done: Callable[[DuramenError | None], None]) -> None:
        """`done` once it is known here what topics are called now, by what their offsets are stored under."""
        if self.light is None:
            done(None)
        else:
            self.light.when_known(stored, done)

    def when_named(
        self, names: Iterable[str], patterns: Iterable[str], done: Callable[[DuramenError | None], None]
    ) -> None:  # fmt: skip
        """`done` once it is known here what names and patterns mean; `find` and `names` know it from then on."""
        if self.light is None:
            done(None)
        else:
            self.light.when_named(names, patterns, done)

    def names_of(self, stored: str) -> Sequence[str]:
        """The names of the topic whose offsets are stored under this, that of now first; none where it has none."""
        if not stored.startswith(LASTING):
            return (stored,)
        return () if self.light is None else self.light.names_of(stored)

    def shown(self, stored: str) -> str | None:
        """The name that is shown of the topic whose offsets are stored under this."""
        return next(iter(self.names_of(stored)), None)

    def behind(self, stored: str, offset: int, most: int) -> LightLag | None:
        """How far an offset is behind in a light topic; None where there is none, or that is not known here now."""
        return None if self.light is None else self.light.behind(stored, offset, most)

    def find_behind(
        self, wanted: Sequence[tuple[str, int]], done: Callable[[Sequence[LightFound | None]], None]
    ) -> None:  # fmt: skip
        """Have other nodes tell how far offsets are `behind`; `done` gets None of what is no light topic."""
        if self.light is None or not wanted:
            done([None] * len(wanted))
        else:
            self.light.find_behind(wanted, MOST_COUNTED, done)

    def light_stored_as(self, name: str) -> str | None:
        """The key of the offsets of the light topic with this name; None if no light topic has it."""
        if self.light is None or self._streams.readable(name) is not None:
            return None
        return self.light.stored_as(name)

    def bounds(self, name: str, since_ms: int, last: int, done: BoundsDone) -> None:
        """Those of a light topic: see there."""
        if self.light is None:
            done(StreamNotFound(f"there is no topic {name}"))
        else:
            self.light.bounds(name, since_ms, last, done)

    def is_gone(self, stored: str) -> bool:
        """Whether there is no such topic any more."""
        if stored.startswith(LASTING):
            return self.light is not None and self.light.is_gone(stored)
        return self._find(stored) is None
