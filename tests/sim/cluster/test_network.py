"""The network of simulated clusters does what TCP does, and no more."""

import heapq
import random
from collections.abc import Callable
from functools import partial
from itertools import count

from duramen.codec.cluster.channels import PeerChannel
from duramen.sim.cluster.clocks import NodeClock
from duramen.sim.cluster.network import CHANNELS, SimulatedLink, SimulatedNetwork
from duramen.sim.cluster.process import Process
from duramen.sim.machine.scheduler import VirtualClock


class Station:
    """A node that keeps what it hears."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.process: Process | None = None
        self.heard: list[int] = []
        self.links: list[SimulatedLink] = []

    def opened(self, link: SimulatedLink) -> None:
        self.links.append(link)

    def closed(self, link: SimulatedLink) -> None:
        self.links.remove(link)


class Two:
    """Nodes 1 and 2, and the time that goes by for them."""

    def __init__(self, seed: int = 0) -> None:
        self.true = VirtualClock()
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.numbers = count()
        self.stations = {node_id: Station(node_id) for node_id in (1, 2)}
        self.network = SimulatedNetwork(self.stations, random.Random(seed), self.at, self.true)
        for station in self.stations.values():
            self.start(station)
        self.go_on(100_000)

    def at(self, delay_us: int, act: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.true.now_us + delay_us, next(self.numbers), act))

    def start(self, station: Station) -> None:
        station.links.clear()
        station.process = Process(self.true, NodeClock(self.true, 100), random.Random(1), 1_000)
        self.network.up(station)

    def go_on(self, for_us: int) -> None:
        end_us = self.true.now_us + for_us
        while True:
            times = [(self.events[0][0], 0)] if self.events else []
            for station in self.stations.values():
                next_us = None if station.process is None else station.process.next_us
                times += [] if next_us is None else [(next_us, station.node_id)]
            at_us, node_id = min(times, default=(end_us + 1, 0))
            if at_us > end_us:
                self.true.now_us = end_us
                return
            self.true.now_us = max(at_us, self.true.now_us)
            process = self.stations[node_id].process if node_id else None
            if process is None:
                heapq.heappop(self.events)[2]()
            else:
                process.turn()

    def say(self, *numbers: int) -> None:
        link = self.network.link(1, 2, PeerChannel.DATA)
        assert link is not None
        for number in numbers:
            self.network.say(link, 1, partial(self.stations[2].heard.append, number))


def test_what_is_said_arrives_in_its_order() -> None:
    two = Two()
    two.network.slow_us = 50_000
    two.say(*range(20))
    two.go_on(1_000)
    assert len(two.stations[2].heard) < 20
    two.go_on(1_000_000)
    assert two.stations[2].heard == list(range(20))
    assert len(two.stations[2].links) == len(CHANNELS)


def test_a_way_that_is_cut_for_a_moment_loses_nothing() -> None:
    two = Two()
    two.network.change_cut(frozenset({(1, 2)}))
    two.say(1, 2)
    two.go_on(1_000_000)
    assert two.stations[2].heard == []
    two.network.change_cut(frozenset())
    two.say(3)
    two.go_on(1_000_000)
    assert two.stations[2].heard == [1, 2, 3]


def test_who_hears_nothing_takes_the_other_for_gone_and_they_meet_again() -> None:
    two = Two()
    two.network.change_cut(frozenset({(1, 2), (2, 1)}))
    two.say(1)
    two.go_on(5_000_000)
    assert two.stations[1].links == two.stations[2].links == []
    two.network.change_cut(frozenset())
    two.go_on(3_000_000)
    assert len(two.stations[1].links) == len(two.stations[2].links) == len(CHANNELS)
    assert two.stations[2].heard == []


def test_the_end_of_a_process_is_heard_of_at_once_and_a_loss_of_power_is_not() -> None:
    for silently in (False, True):
        two = Two()
        two.network.down(two.stations[1], silently=silently)
        two.stations[1].process = None
        two.go_on(1_000_000)
        assert bool(two.stations[2].links) is silently
        two.go_on(4_000_000)
        assert two.stations[2].links == []


def test_a_machine_that_is_back_resets_what_was_open() -> None:
    two = Two()
    two.network.down(two.stations[1], silently=True)
    two.start(two.stations[1])
    two.go_on(2_000_000)
    assert len(two.stations[1].links) == len(two.stations[2].links) == len(CHANNELS)
    two.say(7)
    two.go_on(100_000)
    assert two.stations[2].heard == [7]


def test_who_stands_still_hears_all_of_it_later() -> None:
    two = Two()
    process = two.stations[2].process
    assert process is not None
    process.paused_until_us = two.true.now_us + 1_000_000
    two.network.paused(2)
    two.say(1, 2)
    two.go_on(900_000)
    assert two.stations[2].heard == []
    two.go_on(200_000)
    assert two.stations[2].heard == [1, 2]


def test_a_node_clock_drifts_and_jumps() -> None:
    true = VirtualClock()
    fast, slow = NodeClock(true, 300), NodeClock(true, -300)
    true.now_us = 100_000_000
    assert fast.monotonic_ms() == 100_030
    assert slow.monotonic_ms() == 99_970
    for clock in (fast, slow):
        at_us = clock.true_us(200_000)
        true.now_us = at_us - 1
        assert clock.monotonic_ms() < 200_000
        true.now_us = at_us
        assert clock.monotonic_ms() == 200_000
    before_ms = fast.wall_ms()
    fast.jump(-5_000)
    assert fast.wall_ms() == before_ms - 5_000
