"""Faults of a cluster, one after the other and often several at once. Every fault is counted."""

import random
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from itertools import pairwise
from typing import Final

from duramen.broker.control import requests
from duramen.codec.cluster.channels import PeerChannel
from duramen.sim.cluster.faults.disks import Disks
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.cluster.victim import Victim

__all__ = ["ClusterFaults"]

_HEALED_US: Final = (300_000, 1_500_000, 5_000_000)
_OFTEN: Final = (1, 1, 1, 5)
_MANY: Final = 150
_FULL_SHARE: Final = 0.2
_DAMAGED_SHARE: Final = 0.2


class ClusterFaults:
    """Draws the next fault, from `begin` until `mend`."""

    def __init__(self, cluster: Victim, chance: random.Random, think_us: int, only: Collection[str] = ()) -> None:
        """`think_us` is how long clients think, at most: the more they do, the more often something goes wrong.

        `only` names the kinds of faults that come; without it, the seed draws them. Raises ValueError for a kind that
        there is not.
        """
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._chance = chance
        self._troubled = False
        self._every_us = think_us * chance.choice((8, 15, 25))
        self._disks = disks = Disks(cluster, chance, self._heal_later)
        self._contested_until_us = 0
        self._deposed_until_us = 0
        kinds: tuple[tuple[str, Callable[[], bool], int], ...] = (
            ("kill", self._kill, 3), ("power loss", self._lose_power, 3), ("power loss of all", self._lose_all, 1),
            ("kill of the controller", self._kill_controller, 2), ("kill of a leader", self._kill_leader, 3),
            ("pause", self._pause, 3), ("partition", self._part, 4), ("one way cut", self._cut_one_way, 2),
            ("ring", self._ring, 1), ("leader alone", self._isolate, 2), ("connections end", self._sever, 3),
            ("slow disk", disks.slow, 2), ("slow network", self._slow_network, 2), ("clock jumps", self._jump, 1),
            ("calls to the disk fail", disks.fail_calls, 2), ("crash in a call", disks.crash_in_call, 3),
            ("restart", self._restart, 2), ("lost disk", disks.wipe, 2), ("contested election", self._contest, 2),
            ("majority that forgets", self._forget, 2), ("rolled-back disk", disks.roll_back, 2),
            ("controllers end at once", self._end_controllers, 2), ("news come late", self._delay_news, 2),
            ("who is behind leads", self._lead_behind, 2),
        )  # fmt: skip
        # Drawn separately, so that other runs stay as they are.
        if only or random.Random(f"{cluster.seed}/full disks").random() < _FULL_SHARE:
            kinds += (("full disk", disks.fill, 4),)
        drawn = not only and random.Random(f"{cluster.seed}/damaged disks").random() < _DAMAGED_SHARE
        if drawn or "damaged disk" in only:
            kinds += (("damaged disk", disks.damage, 6),)
        drawn = not only and random.Random(f"{cluster.seed}/decay").random() < _DAMAGED_SHARE
        if drawn or "damage while running" in only:
            kinds += (("damage while running", disks.damage_running, 6),)
        if unknown := set(only).difference(name for name, _, _ in kinds):
            names = ", ".join(sorted(name for name, _, _ in kinds))
            raise ValueError(f"unknown fault: {', '.join(sorted(unknown))}; the faults are {names}")
        # Each run has a few kinds only, and some of them often, so that one is not always in the way of another.
        self._kinds = [
            (name, act, weight * chance.choice(_OFTEN)) for name, act, weight in kinds if chance.random() < 0.6
        ] or list(kinds)
        if only:
            self._kinds = [kind for kind in kinds if kind[0] in only]

        disks.remembers = any(name == "rolled-back disk" for name, _, _ in self._kinds)

    @property
    def loses_disks(self) -> bool:
        """Whether a disk may be lost in this run."""
        return any(name in ("lost disk", "majority that forgets") for name, _, _ in self._kinds)

    def spoil(self) -> bool:
        """See `Victim.spoil`."""
        was, self._disks.spoilt = self._disks.spoilt, True
        return not was

    def begin(self) -> None:
        """Things go wrong from here on."""
        self._troubled = True
        self._later()

    def mend(self) -> None:
        """No more faults, and present ones are repaired."""
        cluster, self._troubled = self._cluster, False
        cluster.network.change_cut(frozenset())
        cluster.network.slow_us = 800
        cluster.network.late.clear()
        self._disks.mend()

    def _later(self) -> None:
        self._cluster.at(1 + self._chance.randrange(2 * self._every_us), self._next)

    def _next(self) -> None:
        if not self._troubled:
            return
        name, act, _ = self._chance.choices(self._kinds, [weight for _, _, weight in self._kinds])[0]
        if act():
            self.counts[name] += 1
            if self.counts.total() % _MANY == 0:
                self._every_us *= 2  # no request makes progress
        self._later()

    def _heal_later(self, heal: Callable[[], None]) -> None:
        self._cluster.at(self._chance.choice(_HEALED_US), heal)

    def _any(self) -> SimulatedNode:
        return self._chance.choice(list(self._cluster.nodes.values()))

    # -- processes and machines ---------------------------------------------------------------------

    def _end(self, node: SimulatedNode | None, *, power: bool) -> bool:
        if node is None or node.process is None:
            return False
        self._cluster.end(node, power=power)
        return True

    def _kill(self) -> bool:
        return self._end(self._any(), power=False)

    def _lose_power(self) -> bool:
        return self._end(self._any(), power=True)

    def _lose_all(self) -> bool:
        ended = [self._end(node, power=True) for node in self._cluster.nodes.values()]
        return any(ended)

    def _kill_controller(self) -> bool:
        return self._end(self._controller(), power=self._chance.random() < 0.5)

    def _controller(self) -> SimulatedNode | None:
        nodes = self._cluster.nodes.values()
        return next(
            (one for one in nodes if one.member is not None and one.member.controller.active_epoch is not None), None
        )

    def _leader(self) -> SimulatedNode | None:
        partitions = [one for _, one in self._cluster.witness.council.state.partitions if one.leader is not None]
        leader = self._chance.choice(partitions).leader if partitions else None
        return None if leader is None else self._cluster.nodes[leader]

    def _kill_leader(self) -> bool:
        return self._end(self._leader(), power=self._chance.random() < 0.5)

    def _pause(self) -> bool:
        """As SIGSTOP does it, and SIGCONT."""
        node = self._any() if self._chance.random() < 0.5 else self._leader()
        if node is None or node.process is None:
            return False
        self._pause_for(node, self._chance.choice((200_000, 2_000_000, 6_000_000, 12_000_000)))
        return True

    def _pause_for(self, node: SimulatedNode, for_us: int) -> None:
        self._cluster.trace("node %d stands still for %d ms", node.node_id, for_us // 1000)
        node.pause(for_us)
        self._cluster.network.paused(node.node_id)

    def _restart(self) -> bool:
        node = self._any()
        if not node.ready:
            return False
        self._cluster.stop(node)
        return True

    def _contest(self) -> bool:
        """The controller is gone, messages are slow, so several nodes are candidates, and a voter has restarted."""
        cluster = self._cluster
        cluster.network.slow_us = self._chance.choice((100_000, 400_000))
        self._contested_until_us = cluster.true.now_us + 6_000_000

        def heal() -> None:
            cluster.network.slow_us = 800

        cluster.at(6_000_000, heal)
        return self._kill_controller()

    def voted(self, node_id: int) -> None:
        """A replica of the quorum has given its vote."""
        if self._troubled and self._cluster.true.now_us < self._contested_until_us and self._chance.random() < 0.5:
            node, life = self._cluster.nodes[node_id], self._cluster.nodes[node_id].life

            def end() -> None:
                if node.life == life:
                    self._cluster.end(node, power=self._chance.random() < 0.5, soon=True)

            self._cluster.at(1, end)

    def _end_controllers(self) -> bool:
        """Each new leader of the quorum ends soon for a while, with entries that no other node has yet."""
        self._deposed_until_us = self._cluster.true.now_us + 10_000_000
        return self._kill_controller()

    def led(self, node_id: int) -> None:
        """A replica of the quorum has become its leader."""
        if not self._troubled or self._cluster.true.now_us >= self._deposed_until_us or self._chance.random() < 0.3:
            return
        node, life = self._cluster.nodes[node_id], self._cluster.nodes[node_id].life

        def end() -> None:
            if node.life == life:
                self._cluster.end(node, power=self._chance.random() < 0.3)

        self._cluster.at(self._chance.choice((1, 1_000, 3_000, 20_000)), end)

    def _forget(self) -> bool:
        """One of a majority loses its disk, and the rest of it its power, while the others were cut off."""
        controller = self._controller()
        if controller is None or self._disks.spoilt:
            return False
        quorum = () if controller.runner is None else controller.runner.machine.voters.ids
        voters = [node for node in self._cluster.nodes.values() if node.replica_id in quorum and node is not controller]
        if len(voters) < 2:
            return False
        behind, forgets = self._chance.sample(voters, 2)
        others = [node_id for node_id in self._cluster.nodes if node_id != behind.node_id]
        self._cut({way for other in others for way in ((behind.node_id, other), (other, behind.node_id))})

        def strike() -> None:
            if self._troubled and self._disks.lose(forgets):
                self._end(controller, power=True)
                self._cluster.network.change_cut(frozenset())

        self._cluster.at(self._chance.choice((500_000, 2_500_000)), strike)
        return True

    # -- the network --------------------------------------------------------------------------------

    def _cut(self, cut: set[tuple[int, int]]) -> bool:
        network, ways = self._cluster.network, frozenset(cut)
        self._cluster.trace("cut: %s", sorted(ways))
        network.change_cut(ways)

        def heal() -> None:
            if network.cut is ways:
                self._cluster.trace("the network is whole")
                network.change_cut(frozenset())

        self._heal_later(heal)
        return True

    def _part(self) -> bool:
        """Some do not reach the others."""
        ids = list(self._cluster.nodes)
        self._chance.shuffle(ids)
        half = ids[: self._chance.randrange(1, len(ids))]
        rest = [node_id for node_id in ids if node_id not in half]
        return self._cut({way for a in half for b in rest for way in ((a, b), (b, a))})

    def _cut_one_way(self) -> bool:
        node_id = self._any().node_id
        others = [other for other in self._cluster.nodes if other != node_id]
        some = self._chance.sample(others, self._chance.randrange(1, len(others) + 1))
        out = self._chance.random() < 0.5
        return self._cut({(node_id, other) if out else (other, node_id) for other in some})

    def _ring(self) -> bool:
        """Each reaches its neighbours only."""
        ids = list(self._cluster.nodes)
        self._chance.shuffle(ids)
        near = set(pairwise([*ids, ids[0]])) if len(ids) > 3 else set(pairwise(ids))
        return self._cut({(a, b) for a in ids for b in ids if a != b and (a, b) not in near and (b, a) not in near})

    def _isolate(self) -> bool:
        """A leader is alone, and does not know yet."""
        leader = self._leader()
        if leader is None:
            return False
        others = [node_id for node_id in self._cluster.nodes if node_id != leader.node_id]
        return self._cut({way for other in others for way in ((leader.node_id, other), (other, leader.node_id))})

    def _sever(self) -> bool:
        one, other = self._chance.sample(list(self._cluster.nodes), 2)
        self._cluster.trace("the connections of nodes %d and %d end", one, other)
        self._cluster.network.sever(one, other)
        return True

    def _delay_news(self) -> bool:
        """A node learns the controller's decisions later than others do."""
        late, way = self._cluster.network.late, (self._any().node_id, PeerChannel.METADATA)
        late[way] = self._chance.choice((20_000, 200_000, 1_000_000))
        self._heal_later(partial(late.update, {way: 0}))
        return True

    def _lead_behind(self) -> bool:
        """A lagging replica becomes leader without records that others have; a third learns it late."""
        cluster, controller = self._cluster, self._controller()
        if controller is None or controller.process is None:
            return False
        others = [
            (place, sorted({*one.isr} - {one.leader, controller.node_id}))
            for place, one in cluster.witness.council.state.partitions
            if one.leader is not None
        ]
        able = [(place, nodes) for place, nodes in others if len(nodes) > 1]
        if not able:
            return False
        place, nodes = self._chance.choice(able)
        behind, late = self._chance.sample(nodes, 2)
        self._pause_for(cluster.nodes[behind], self._chance.choice((300_000, 900_000)))
        way = late, PeerChannel.METADATA
        cluster.network.late[way] = 3_000_000
        cluster.at(3_000_000, partial(cluster.network.late.update, {way: 0}))

        def move() -> None:
            if controller.member is not None:
                controller.member.ask(requests.MoveLeader(place, behind), lambda _: None)

        controller.process.after(250_000, move)
        return True

    def _slow_network(self) -> bool:
        network = self._cluster.network
        network.slow_us = self._chance.choice((5_000, 40_000, 200_000))

        def heal() -> None:
            network.slow_us = 800

        self._heal_later(heal)
        return True

    def _jump(self) -> bool:
        self._any().clock.jump(self._chance.choice((-600_000, -2_000, 5_000, 600_000)))
        return True

    def ended(self, node: SimulatedNode) -> None:
        """The process of a node has ended."""
        self._disks.ended(node)
