"""Disk faults of a cluster: slow, failing, damaged, lost, or restored to an older state."""

import errno
import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from duramen.metadata.partitions import PartitionId
from duramen.metadata.stream_rules import rules_of
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.cluster.victim import Victim
from duramen.sim.machine.wal_damage import flip_last
from duramen.storage.scan import scan_log

__all__ = ["Disks"]

_MOST_BATCHES: Final = 3
_ALL_DOWN: Final = 0.5
_LOOK_US: Final = 500_000
_FAILING: Final = (("sync",), ("sync_directory", "rename"), ("write", "create"), ("sync", "write"), ("read",))


def _ignore(*_: object) -> None:
    """Ignore the findings of a scan: only its reads matter."""


class _Flipped(NamedTuple):
    """A changed byte of a segment."""

    node: SimulatedNode
    path: str
    place: int
    byte: int

    @property
    def is_there(self) -> bool:
        """Whether it still is so."""
        disk = self.node.disk
        content = disk.content(self.path) if disk.exists(self.path) else b""
        return self.place < len(content) and content[self.place] == self.byte


class Disks:
    """Faults of disks. `remembers`: whether images are made of disks, to be put back."""

    def __init__(
        self, cluster: Victim, chance: random.Random, heal_later: Callable[[Callable[[], None]], None]
    ) -> None:
        self.remembers = False
        self.spoilt = False  # whether a disk was lost, damaged or put back, which happens once in a run
        self._taken_bytes: dict[SimulatedNode, int] = {}  # of disks that are full
        self._flipped: _Flipped | None = None
        self._cluster = cluster
        self._chance = chance
        self._heal_later = heal_later

    def _any(self) -> SimulatedNode:
        return self._chance.choice(list(self._cluster.nodes.values()))

    def mend(self) -> None:
        """All are well."""
        for node in self._cluster.nodes.values():
            node.disk.crash_at = node.disk.interfere = None
            self._clear(node)
            self._set(node, 1_000)

    @staticmethod
    def _set(node: SimulatedNode, disk_us: int) -> None:
        node.disk_us = disk_us
        if node.process is not None:
            node.process.disk_us = disk_us

    def slow(self) -> bool:
        """Calls take long for a while."""
        node = self._any()
        self._set(node, self._chance.choice((20_000, 100_000, 500_000)))
        self._heal_later(partial(self._set, node, 1_000))
        return True

    def fail_calls(self) -> bool:
        """For a while calls of one kind fail now and then."""
        node, failing, rate = self._any(), self._chance.choice(_FAILING), self._chance.choice((0.02, 0.3, 1.0))
        disk, chance = node.disk, self._chance
        disk.failed_sync = chance.choice(("keep", "drop", "forget"))

        def interfere(call: str, path: str, size: int) -> int:
            if call in failing and chance.random() < rate:
                self._cluster.trace("node %d: %s %s fails", node.node_id, call, path)
                raise OSError(errno.EIO, "the disk")
            return size

        def good_again() -> None:
            if disk.interfere is interfere:
                disk.interfere = None

        disk.interfere = interfere
        self._heal_later(good_again)
        return True

    def fill(self) -> bool:
        """Nothing is free for a while."""
        node = self._any()
        if node in self._taken_bytes:
            return False
        self._cluster.trace("the disk of node %d is full", node.node_id)
        self._taken_bytes[node] = node.disk.free_bytes
        node.disk.free_bytes = 0
        self._heal_later(partial(self._clear, node))
        return True

    def _clear(self, node: SimulatedNode) -> None:
        node.disk.free_bytes += self._taken_bytes.pop(node, 0)

    def crash_in_call(self) -> bool:
        """The machine loses its power in the middle of a call."""
        node = self._any()
        if node.process is None:
            return False
        node.disk.crash_at = node.disk.calls + self._chance.randrange(1, 60)
        return True

    def ended(self, node: SimulatedNode) -> None:
        """The process of a node has ended."""
        if self.remembers and self._chance.random() < 0.3:
            node.remember()

    def roll_back(self) -> bool:
        """A disk is restored from an earlier image, once in a run, on a node that never voted.

        The node detects it, and the disk then counts as lost; no check could detect that a voter has forgotten its
        promises.
        """
        able = [node for node in self._cluster.nodes.values() if not self._has_voted(node) and self._may_lose(node)]
        old = [node for node in able if node.has_image]
        if old:
            self.spoilt = True
            self._cluster.roll_back(self._chance.choice(old))
            return True
        running = [node for node in able if node.ready]
        if running:
            node = self._chance.choice(running)
            self._cluster.end(node, power=self._chance.random() < 0.5, soon=True)
            node.remember()
        return False

    def _has_voted(self, node: SimulatedNode) -> bool:
        return bool(node.founders) or node.replica_id in self._cluster.witness.voted

    def wipe(self) -> bool:
        """A disk is lost."""
        return self.lose(self._any())

    def lose(self, node: SimulatedNode) -> bool:
        """A disk is lost, once in a run, where another has all of every partition and a controller can be elected."""
        if not self._may_lose(node):
            return False
        self.spoilt = True
        self._cluster.wipe(node)
        return True

    def damage(self) -> bool:
        """Bits flip in the last batches of a log while its node is down, and perhaps all others are; once in a run.

        If all were down, the first eligible node that is back leads. The other voters can elect a controller: a damaged
        one does not vote.
        """
        node = self._any()
        log_ids = self._held_by_others(node)
        if not node.ready or self.spoilt or not log_ids or not self._cluster.witness.elects_without(node):
            return False
        for one in self._cluster.nodes.values() if self._chance.random() < _ALL_DOWN else [node]:
            if one.process is not None:
                self._cluster.end(one, power=self._chance.random() < 0.5, soon=one is node)
        node.disk.crash_at = None  # see `duramen.sim.machine.wal_damage`: nothing interrupts the start that finds it
        damaged = flip_last(node.disk, self._chance, log_ids, _MOST_BATCHES)
        for batch in damaged:
            self._cluster.trace("node %d: %s is damaged", node.node_id, batch)
        if damaged:
            self.spoilt = True
            self._cluster.witness.doubts(node)
        return bool(damaged)

    def damage_running(self) -> bool:
        """A bit flips in a segment of a running node, and is read before long; once in a run."""
        node = self._any()
        if not node.ready or self.spoilt or node.store is None:
            return False
        log_ids = self._held_by_others(node)
        found = [
            segment
            for log in node.store.each_log()
            for segment in log.segments
            if log.id in log_ids and segment.synced and not segment.suspect and node.disk.exists(f"{segment.path}.log")
        ]
        if not found:
            return False
        segment = self._chance.choice(found)
        path, place = f"{segment.path}.log", self._chance.randrange(segment.synced)
        node.disk.corrupt(path, place, 1 << self._chance.randrange(8))
        self._cluster.trace("node %d: byte %d of %s is damaged", node.node_id, place, path)
        self.spoilt = True
        self._flipped = _Flipped(node, path, place, node.disk.content(path)[place])
        self._read_flipped()
        return True

    def _read_flipped(self) -> None:
        """Read the logs of the node until the byte is right again, or gone."""
        flipped = self._flipped
        if flipped is None or not flipped.is_there:
            return
        store = flipped.node.store if flipped.node.ready else None
        if store is not None:
            for log in store.each_log():
                if flipped.path.startswith(f"{log.directory}/"):
                    scan_log(store, log, log.start_offset, _ignore, _ignore, _ignore)
        self._cluster.at(_LOOK_US, self._read_flipped)

    def _held_by_others(self, node: SimulatedNode) -> set[int]:
        """The ids of the node's logs that others have in whole, one of which may lead whichever other nodes fail.

        With `min.insync.replicas` 1 a stopped node can become the only one with a partition.
        """
        state = self._cluster.witness.council.state
        found: set[int] = set()
        for log in () if node.store is None else node.store.each_log():
            place = PartitionId(*log.key)
            partition = state.partitions.get(place)
            if partition is None or rules_of(state, place.stream_id).least_in_sync(partition) < 2:
                continue
            if {*partition.isr, *partition.elr} - {node.node_id}:
                found.add(log.id)
        return found

    def _may_lose(self, node: SimulatedNode) -> bool:
        """Whether another disk has all of every partition, a quorum is left, and none was lost in this run before."""
        witness = self._cluster.witness
        partitions = witness.council.state.partitions
        only = any(set(one.isr) | set(one.elr) == {node.node_id} for _, one in partitions)
        return not (self.spoilt or only) and len(partitions) > 0 and witness.elects_without(node)
