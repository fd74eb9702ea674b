"""Connections between the nodes, like TCP: messages on one arrive in order until it ends.

Nothing is lost in the middle and nothing is duplicated. A connection may end at one side before the other notices, or
without it ever noticing. A direction may carry nothing for a while: messages then wait, and a node that receives
nothing for some seconds considers the other failed.
"""

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from duramen.codec.cluster.channels import PeerChannel
from duramen.sim.cluster.process import Process
from duramen.sim.draws import below
from duramen.sim.machine.scheduler import VirtualClock

__all__ = ["CHANNELS", "SimulatedLink", "SimulatedNetwork", "Station"]

CHANNELS: Final = (PeerChannel.CONTROL, PeerChannel.METADATA, PeerChannel.DATA)

_SILENT_US: Final = 3_000_000
_LOOK_US: Final = 500_000
_FIRST_DIAL_US: Final = 25_000
_LONGEST_DIAL_US: Final = 1_000_000

Act = Callable[[], None]


class Station(Protocol):
    """A node, as the network sees it."""

    node_id: int
    process: Process | None

    def opened(self, link: "SimulatedLink") -> None:
        """There is a connection."""

    def closed(self, link: "SimulatedLink") -> None:
        """It is gone."""


class SimulatedLink:
    """A connection between the processes of two nodes. `there` says for which of them it is still open."""

    def __init__(self, stations: tuple[Station, Station], channel: PeerChannel) -> None:
        self.channel = channel
        self.ids = (stations[0].node_id, stations[1].node_id)
        self.there = {station.node_id: True for station in stations}
        self.processes = {station.node_id: station.process for station in stations}
        self.arrived_us = dict.fromkeys(self.ids, 0)  # when the last sent message arrives there
        self.held: dict[int, list[Act]] = {node_id: [] for node_id in self.ids}
        self.torn = False  # messages under way never arrive

    def peer_of(self, node_id: int) -> int:
        """The node at the other end."""
        return self.ids[0] if node_id == self.ids[1] else self.ids[1]


class SimulatedNetwork:
    """All connections. `at` has something done later by the world, `cut` are the ways that carry nothing."""

    def __init__(
        self, stations: Mapping[int, Station], chance: random.Random, at: Callable[[int, Act], None],
        true: VirtualClock,
    ) -> None:  # fmt: skip
        self.cut: frozenset[tuple[int, int]] = frozenset()
        self.slow_us = 800
        self.late: dict[tuple[int, PeerChannel], int] = {}  # delays of messages to nodes on a channel, in us
        self.delivered = 0
        self._stations = stations
        self._chance = chance
        self._at = at
        self._true = true
        self._links: dict[tuple[int, int, PeerChannel], SimulatedLink] = {}

    # -- connections --------------------------------------------------------------------------------

    def link(self, node_id: int, other_id: int, channel: PeerChannel) -> SimulatedLink | None:
        """The connection of a node to another one, as far as that node knows."""
        found = self._links.get(_key(node_id, other_id, channel))
        return found if found is not None and found.there[node_id] else None

    def up(self, station: Station) -> None:
        """A process has begun: it dials all others, and connections of the one before it are reset."""
        for link in [link for link in self._links.values() if station.node_id in link.ids]:
            if link.processes[station.node_id] is not station.process:
                self._reset(link)
        for other_id in self._stations:
            if other_id != station.node_id:
                for channel in CHANNELS:
                    self._dial_later(_key(station.node_id, other_id, channel), station.process, 100)

    def down(self, station: Station, *, silently: bool) -> None:
        """A process has ended: the others learn it, unless its machine has lost its power."""
        for link in [link for link in self._links.values() if link.there.get(station.node_id)]:
            link.there[station.node_id] = False
            if silently:
                self._look_later(link, link.peer_of(station.node_id))
            else:
                link.torn = self._chance.random() < 0.5
                self._close_later(link, link.peer_of(station.node_id))

    def _dial_later(self, key: tuple[int, int, PeerChannel], process: Process | None, wait_us: int) -> None:
        self._at(wait_us // 2 + self._chance.randrange(wait_us), partial(self._dial, key, process, wait_us))

    def _dial(self, key: tuple[int, int, PeerChannel], process: Process | None, wait_us: int) -> None:
        first, second = self._stations[key[0]], self._stations[key[1]]
        running = (first.process, second.process)
        if process not in running or process is None or None in running:
            return  # the later process dials
        known = self._links.get(key)
        if known is not None and any(known.there.values()):
            stale = tuple(known.processes.values()) != running
            if not stale:
                return
        paused = any(one is not None and one.paused_until_us > self._true.now_us for one in running)
        cut = key[:2] in self.cut or (key[1], key[0]) in self.cut
        if paused or cut or (known is not None and any(known.there.values())):
            self._dial_later(key, process, min(max(2 * wait_us, _FIRST_DIAL_US), _LONGEST_DIAL_US))
            return
        link = self._links[key] = SimulatedLink((first, second), key[2])
        for station in (first, second):
            self._hand(link, station.node_id, partial(station.opened, link))

    def _reset(self, link: SimulatedLink) -> None:
        for node_id in link.ids:
            if link.there[node_id]:
                self._close_later(link, node_id)

    def sever(self, node_id: int, other_id: int) -> None:
        """All connections between two nodes end."""
        for channel in CHANNELS:
            link = self._links.get(_key(node_id, other_id, channel))
            if link is not None:
                self._reset(link)

    # -- messages -----------------------------------------------------------------------------------

    def say(self, link: SimulatedLink, node_id: int, act: Act) -> None:
        """A node sends a message: `act` is its effect on the other one."""
        to = link.peer_of(node_id)
        if link.held[to] or (node_id, to) in self.cut:
            link.held[to].append(act)
            if len(link.held[to]) == 1:
                self._look_later(link, to)
        else:
            self._carry(link, to, act)

    def _carry(self, link: SimulatedLink, to: int, act: Act) -> None:
        self._hand(link, to, partial(self._arrive, link, to, act))

    def _hand(self, link: SimulatedLink, to: int, act: Act) -> None:
        """In the process at that end, after all earlier messages."""
        process = link.processes[to]
        at_us = self._true.now_us + 50 + below(self._chance, self.slow_us)
        if self.late:
            at_us += self.late.get((to, link.channel), 0)
        at_us = link.arrived_us[to] = max(link.arrived_us[to] + 1, at_us)
        if process is not None:
            process.at(at_us, act)

    def _arrive(self, link: SimulatedLink, to: int, act: Act) -> None:
        if link.there[to] and not link.torn:
            self.delivered += 1
            act()

    def change_cut(self, cut: frozenset[tuple[int, int]]) -> None:
        """The directions that carry nothing from here on; messages on others continue."""
        self.cut = cut
        for link in self._links.values():
            for to in link.ids:
                way = (link.peer_of(to), to)
                if way in cut:
                    self._look_later(link, to)
                elif link.held[to]:
                    held, link.held[to] = link.held[to], []
                    for act in held:
                        self._carry(link, to, act)

    def paused(self, node_id: int) -> None:
        """A process stands still: it says nothing, and the others begin to wonder."""
        for link in self._links.values():
            if link.there.get(node_id):
                self._look_later(link, link.peer_of(node_id))

    # -- the end of a connection --------------------------------------------------------------------

    def _look_later(self, link: SimulatedLink, node_id: int) -> None:
        self._at(_SILENT_US + self._chance.randrange(_LOOK_US), partial(self._look, link, node_id))

    def _look(self, link: SimulatedLink, node_id: int) -> None:
        """Whether a node receives nothing on a connection any more, not even heartbeats of the other end."""
        peer_id = link.peer_of(node_id)
        peer = link.processes[peer_id]
        gone = not link.there[peer_id] or self._stations[peer_id].process is not peer or peer is None
        paused = peer is not None and peer.paused_until_us > self._true.now_us
        still = gone or paused or (peer_id, node_id) in self.cut
        if link.there[node_id] and still:
            self._close_later(link, node_id)

    def _close_later(self, link: SimulatedLink, node_id: int) -> None:
        self._hand(link, node_id, partial(self._close, link, node_id))

    def _close(self, link: SimulatedLink, node_id: int) -> None:
        """One end closes; the other learns it, if that direction carries anything."""
        if not link.there[node_id]:
            return
        link.there[node_id] = False
        peer_id = link.peer_of(node_id)
        self._stations[node_id].closed(link)
        if link.there[peer_id]:
            if (node_id, peer_id) in self.cut:
                self._look_later(link, peer_id)
            else:
                self._close_later(link, peer_id)
        process = link.processes[node_id]
        self._dial_later(_key(node_id, peer_id, link.channel), process, _FIRST_DIAL_US)


def _key(one: int, other: int, channel: PeerChannel) -> tuple[int, int, PeerChannel]:
    return (one, other, channel) if one < other else (other, one, channel)
