"""The partitions of a read, its start and its end: the options, resolved against a cluster."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, NamedTuple
from uuid import UUID

from duramen.base.errors import CheckpointInvalid, OptionInvalid, PatternInvalid, StreamNotFound
from duramen.client import BrokerCluster, TopicLeaders, TopicPartition
from duramen.client.consumer import EARLIEST, LATEST
from duramen.spark.options import Options
from duramen.spark.read.offset_ranges import OffsetSource
from duramen.spark.read.offsets import SourceOffsets, listed, parse_assignment, parse_offsets

__all__ = ["Edge", "Selection", "ending", "require_order", "starting"]

_CHOICES: Final = ("subscribe", "subscribePattern", "assign")
_NO_ID: Final = UUID(int=0)
_TIMES: Final = '{"flights": {"0": 1700000000000}}'


class Selection:
    """The partitions of `subscribe`, `subscribePattern` or `assign`."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid."""
        given = [name for name in _CHOICES if options.given(name)]
        if options.given("path"):
            if given:
                raise OptionInvalid(f"load({options.text('path')!r}) is short for subscribe: leave out {given[0]}")
            given = ["path"]
        if len(given) != 1:
            said = f"{' and '.join(given)} were given" if given else "none was given"
            raise OptionInvalid(f"exactly one of {', '.join(_CHOICES)} is needed; {said}")
        text = self._text = options.text(given[0])
        self._pattern = ""
        self._assigned: list[TopicPartition] | None = None
        self._names: list[str] = []
        if given[0] == "subscribePattern":
            self._pattern = text
            if text:
                _matcher(text)
        elif given[0] == "assign":
            self._assigned = parse_assignment("assign", text)
            self._names = sorted({at.topic for at in self._assigned})
        else:
            self._names = list(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
        if not self._pattern and not self._names:
            raise OptionInvalid(f"{given[0]} names no stream")

    def __str__(self) -> str:
        return self._text

    @property
    def description(self) -> str:
        """In the form of Spark's Kafka source: `Subscribe[flights, delays]`."""
        if self._pattern:
            return f"SubscribePattern[{self._pattern}]"
        if self._assigned is not None:
            return f"Assign[{', '.join(map(str, self._assigned))}]"
        return f"Subscribe[{', '.join(self._names)}]"

    def find(self, cluster: BrokerCluster, *, all_of_them: bool) -> tuple[list[TopicPartition], dict[str, str]]:
        """The present partitions, and their streams' ids.

        Raises StreamNotFound for a missing named stream, if `all_of_them` are required.
        """
        topics = cluster.topics(None if self._pattern else self._names)
        if self._pattern:
            matches = _matcher(self._pattern)
            topics = {name: topic for name, topic in topics.items() if not topic.internal and matches(name)}
        ats = self._partitions(topics)
        if all_of_them:
            missing = [name for name in self._names if name not in topics]
            if missing:
                raise StreamNotFound(f"there is no stream {missing[0]}")
            absent = sorted(set(self._assigned or ()) - set(ats))
            if absent:
                raise StreamNotFound(f"there is no partition {listed(absent)}")
        return ats, {topic.name: "" if topic.id == _NO_ID else str(topic.id) for topic in topics.values()}

    def names(self, stream: str) -> bool:
        """Whether the options name that stream, existing or not."""
        return _matcher(self._pattern)(stream) if self._pattern else stream in self._names

    def own(self, document: object) -> SourceOffsets:
        """The offsets in a checkpoint. Raises CheckpointInvalid if they do not belong to this query."""
        offsets = SourceOffsets.from_json(document)
        if offsets.ids and not any(self.names(name) for name in offsets.ids):
            raise CheckpointInvalid(
                f"the checkpoint is of {', '.join(sorted(offsets.ids))}, but the query reads"
                f" {self}; every query needs its own checkpoint"
            )
        return offsets

    def _partitions(self, topics: Mapping[str, TopicLeaders]) -> list[TopicPartition]:
        there = [TopicPartition(topic.name, index) for topic in topics.values() for index in topic.leaders]
        if self._assigned is not None:
            wanted = set(self._assigned)
            there = [at for at in there if at in wanted]
        return sorted(there)


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Compiled at each use: it cannot be pickled, and executors do not need it. Raises OptionInvalid."""
    from duramen.base.patterns import pattern_of

    try:
        return pattern_of(pattern, whole=False)
    except PatternInvalid as error:
        raise OptionInvalid(f"subscribePattern: {error}") from None


class Edge(NamedTuple):
    """The start or end of a read: one special offset for all partitions, a time, or an offset per partition."""

    option: str
    everywhere: int | None = None
    time_ms: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    times: Mapping[TopicPartition, int] | None = None
    late: Literal["error", "latest"] = "latest"

    def resolve(self, consumer: OffsetSource, ats: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset for each partition. Raises OptionInvalid if the option does not name exactly these."""
        ats = list(ats)
        if self.everywhere is not None:
            return consumer.offsets(dict.fromkeys(ats, self.everywhere))
        if self.offsets is not None:
            self._require_same(self.offsets, ats)
            special = consumer.offsets({at: self.offsets[at] for at in ats if self.offsets[at] < 0})
            return {at: special.get(at, self.offsets[at]) for at in ats}
        times = dict.fromkeys(ats, self.time_ms or 0) if self.times is None else self.times
        self._require_same(times, ats)
        found = consumer.offsets({at: times[at] for at in ats})
        late = [at for at, offset in found.items() if offset < 0]
        if late and self.late == "error":
            raise OptionInvalid(
                f"{self.option}: {listed(late)} has no record at or after that time; say"
                " startingOffsetsByTimestampStrategy=latest to begin at the end then"
            )
        return found | consumer.offsets(dict.fromkeys(late, LATEST))

    def _require_same(self, named: Mapping[TopicPartition, int], ats: Iterable[TopicPartition]) -> None:
        missing, unknown = set(ats) - set(named), set(named) - set(ats)
        if missing:
            raise OptionInvalid(f"{self.option} must name every partition; {listed(missing)} is missing")
        if unknown:
            raise OptionInvalid(f"{self.option} names {listed(unknown)}, which is not read")


def starting(options: Options, *, streaming: bool) -> Edge:
    """The start of a read. Raises OptionInvalid."""
    late = options.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"))
    edge = _by_time(options, "startingTimestamp", "startingOffsetsByTimestamp")
    if edge is not None:
        return edge._replace(late="latest" if late == "latest" else "error")
    if not options.given("startingOffsets"):
        return Edge("startingOffsets", LATEST if streaming else EARLIEST)
    edge = _by_offset(options, "startingOffsets")
    if not streaming and (edge.everywhere == LATEST or LATEST in (edge.offsets or {}).values()):
        raise OptionInvalid("startingOffsets: a batch cannot begin at the latest offset")
    return edge


def ending(options: Options) -> Edge:
    """The end of a batch. Raises OptionInvalid."""
    edge = _by_time(options, "endingTimestamp", "endingOffsetsByTimestamp")
    if edge is not None:
        return edge
    edge = _by_offset(options, "endingOffsets")
    if edge.everywhere == EARLIEST or EARLIEST in (edge.offsets or {}).values():
        raise OptionInvalid("endingOffsets: a batch cannot end at the earliest offset")
    return edge


def require_order(start: Edge, end: Edge) -> None:
    """Raise OptionInvalid if the options alone show that a batch ends before its start."""
    for first, last in ((start.offsets or {}, end.offsets or {}), (start.times or {}, end.times or {})):
        for at in sorted(first.keys() & last.keys()):
            if first[at] > last[at] >= 0:
                raise OptionInvalid(
                    f"{start.option} says {first[at]} for {at}, which is after {last[at]}, where {end.option} ends it"
                )


def _by_time(options: Options, everywhere: str, each: str) -> Edge | None:
    if options.given(everywhere):
        text = options.text(everywhere)
        if not (text.isascii() and text.isdigit() and int(text) < 1 << 63):
            raise OptionInvalid(f"{everywhere}: {text!r} does not fit; it must be a time in ms since 1970")
        return Edge(everywhere, time_ms=int(text))
    if options.given(each):
        times = parse_offsets(each, options.text(each), _TIMES)
        if min(times.values(), default=0) < 0:
            raise OptionInvalid(f"{each}: a time is negative; it must be JSON such as {_TIMES}")
        return Edge(each, times=times)
    return None


def _by_offset(options: Options, name: str) -> Edge:
    text = options.text(name)
    special = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if special is not None:
        return Edge(name, special)
    if not text.startswith("{"):
        raise OptionInvalid(f"{name}: {text!r} does not fit; it must be earliest, latest or JSON")
    offsets = parse_offsets(name, text)
    if min(offsets.values(), default=0) < EARLIEST:
        raise OptionInvalid(f"{name}: offsets are at least 0, or -1 for the latest, or -2 for the earliest")
    return Edge(name, offsets=offsets)
