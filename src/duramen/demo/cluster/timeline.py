"""The timeline of a cluster: leaders, in-sync sets, faults, acknowledgements. Pure.

Times are seconds since the first flight.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

__all__ = ["NOBODY", "Band", "Happening", "Sight", "Timeline", "TimelineLayout"]

NOBODY: Final = -1


class TimelineLayout(NamedTuple):
    """One partition: who leads it in which epoch, and who is in sync."""

    leader: int
    epoch: int
    in_sync: frozenset[int]


class Sight(NamedTuple):
    """What the nodes told at one time: who leads the controller, and the partitions in their order."""

    at_s: float
    controller: int
    layouts: tuple[TimelineLayout, ...]


class Happening(NamedTuple):
    """Something that was done to a node; `gone` says whether it takes part from then on."""

    at_s: float
    node: int
    text: str
    gone: bool


class Band(NamedTuple):
    """From when to when somebody was something."""

    begin_s: float
    end_s: float
    node: int


class Timeline:
    """Collects what is seen, and tells it in bands and words."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self.nodes = tuple(nodes)
        self.sights: list[Sight] = []
        self.happenings: list[Happening] = []
        self.acknowledged: list[tuple[float, int]] = []
        self.end_s = 0.0

    def see(self, sight: Sight) -> None:
        """Take down what is seen, where it differs from what was."""
        self.end_s = max(self.end_s, sight.at_s)
        if not self.sights or self.sights[-1][1:] != sight[1:]:
            self.sights.append(sight)

    def count(self, at_s: float, acknowledged: int) -> None:
        """So many flights are acknowledged now."""
        self.end_s = max(self.end_s, at_s)
        self.acknowledged.append((at_s, acknowledged))

    def happen(self, at_s: float, node: int, text: str, *, gone: bool) -> None:
        """Something is done to a node."""
        self.happenings.append(Happening(at_s, node, text, gone))

    # -- in bands -----------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        """How many there are."""
        return len(self.sights[0].layouts) if self.sights else 0

    def leaders(self, partition: int) -> list[Band]:
        """Who led a partition."""
        return self._bands((sight.at_s, sight.layouts[partition].leader) for sight in self.sights)

    def controllers(self) -> list[Band]:
        """Who led the controller."""
        return self._bands((sight.at_s, sight.controller) for sight in self.sights)

    def out_of_sync(self, partition: int, node: int) -> list[Band]:
        """When a node was not in sync with a partition."""
        seen = ((sight.at_s, node in sight.layouts[partition].in_sync) for sight in self.sights)
        return self._bands((at_s, NOBODY if inside else node) for at_s, inside in seen)

    def gone(self, node: int) -> list[Band]:
        """When a node was killed or stood still."""
        return self._bands((one.at_s, node if one.gone else NOBODY) for one in self.happenings if one.node == node)

    def _bands(self, changes: Iterable[tuple[float, int]]) -> list[Band]:
        """From each change to the next that differs; nothing for nobody."""
        bands: list[Band] = []
        for at_s, node in changes:
            if bands and bands[-1].node == node:
                continue
            if bands:
                bands[-1] = bands[-1]._replace(end_s=at_s)
            bands.append(Band(at_s, self.end_s, node))
        return [band for band in bands if band.node != NOBODY and band.end_s > band.begin_s]

    def rates(self, width_s: float) -> list[tuple[float, float]]:
        """Flights acknowledged a second, for each so many seconds: the middle of the time, and the rate."""
        found: list[tuple[float, float]] = []
        begun_s, begun = self.acknowledged[0] if self.acknowledged else (0.0, 0)
        for at_s, count in self.acknowledged:
            if at_s - begun_s >= width_s:
                found.append(((begun_s + at_s) / 2, (count - begun) / (at_s - begun_s)))
                begun_s, begun = at_s, count
        return found

    # -- in words -----------------------------------------------------------------------------------

    def lead_elsewhere_s(self, node: int, since_s: float) -> float | None:
        """How long after that time others led every partition; None where they never did."""
        for sight in self.sights:
            if sight.at_s >= since_s and all(one.leader not in (node, NOBODY) for one in sight.layouts):
                return sight.at_s - since_s
        return None

    def whole_s(self, since_s: float) -> float | None:
        """How long after that time every node was in sync with every partition; None where they never were."""
        for sight in self.sights:
            if sight.at_s >= since_s and all(len(one.in_sync) == len(self.nodes) for one in sight.layouts):
                return sight.at_s - since_s
        return None

    def pause_s(self, since_s: float, until_s: float) -> float:
        """The longest time between those two in which nothing was acknowledged at all."""
        longest = 0.0
        last_s, last = since_s, -1
        for at_s, count in self.acknowledged:
            if since_s <= at_s <= until_s and count != last:
                longest = max(longest, at_s - last_s if last >= 0 else 0.0)
                last_s, last = at_s, count
        return max(longest, until_s - last_s if last >= 0 else 0.0)

    def story(self) -> list[tuple[float, str]]:
        """All of it in words, in its order."""
        lines = [(one.at_s, f"node {one.node} {one.text}") for one in self.happenings]
        for before, after in pairwise(self.sights):
            lines += [(after.at_s, line) for line in _changes(before, after, self.nodes)]
        return sorted(lines, key=lambda line: line[0])


def _changes(before: Sight, after: Sight, nodes: Sequence[int]) -> Iterator[str]:
    if after.controller not in (before.controller, NOBODY):
        yield f"node {after.controller} leads the controller"
    pairs = list(enumerate(zip(before.layouts, after.layouts, strict=True)))
    for node in nodes:
        led = [number for number, (old, new) in pairs if old.leader != new.leader == node]
        if led:
            yield f"node {node} leads {_partitions(led)}"
    for node in nodes:
        left = [number for number, (old, new) in pairs if node in old.in_sync - new.in_sync]
        came = [number for number, (old, new) in pairs if node in new.in_sync - old.in_sync]
        if left:
            yield f"node {node} is out of sync with {_partitions(left)}"
        if came:
            yield f"node {node} is in sync with {_partitions(came)}"


def _partitions(numbers: Sequence[int]) -> str:
    return f"partition{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
