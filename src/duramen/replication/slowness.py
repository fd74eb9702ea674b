"""Detects slow replicas: latencies over windows, each replica compared with its peers. Pure.

A latency is the time from when the leader's log reached an offset until a replica had it on disk. A replica whose p99
exceeds that of the others by more than `replica.eject.latency.ms` in several consecutive windows leaves the in-sync
set, one replica at a time. It may rejoin after a window in which it was not slow. Each further ejection requires more
such windows.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

__all__ = ["WINDOWS", "Slowness", "p99_ms"]

WINDOWS: Final = 3
"""The number of consecutive slow windows that make a slow replica."""

_LONGER: Final = 4
"""The factor for the number of required good windows at each further ejection."""
_LONGEST: Final = 64


def p99_ms(latencies: Mapping[int, int]) -> int:
    """The 99th percentile of latencies, from the count of each latency; there is at least one."""
    left = -(-99 * sum(latencies.values()) // 100)
    for latency_ms in sorted(latencies):
        left -= latencies[latency_ms]
        if left <= 0:
            return latency_ms
    raise ValueError("no latency was seen")


def _median(values: list[int]) -> float:
    """The median of at least one value; importing the module statistics would take 1 % of a node's start."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[~middle]) / 2


class Slowness:
    """A leader's latencies of all replicas, including itself; with `eject_latency_ms` None it measures nothing."""

    __slots__ = (
        "_eject_latency_ms",
        "_ejected",
        "_latencies",
        "_slow_windows",
        "_until_ms",
        "_wanted",
        "_well",
        "_window_ms",
    )

    def __init__(self, eject_latency_ms: int | None, window_ms: int, now_ms: int) -> None:
        self._window_ms = window_ms
        self._eject_latency_ms = eject_latency_ms
        self._latencies: dict[int, Counter[int]] = {}
        self._slow_windows: dict[int, int] = {}
        self._ejected: int | None = None
        self._wanted: dict[int, int] = {}  # per ejected replica: the required number of good windows
        self._well = 0  # the number of good windows of the ejected replica
        self._until_ms = now_ms + window_ms

    @property
    def deadline_ms(self) -> int | None:
        """The end of the window; None if it cannot change anything."""
        return self._until_ms if self._latencies or self._ejected is not None else None

    def is_due(self, now_ms: int) -> bool:
        """Whether a measured window has ended."""
        return self._eject_latency_ms is not None and now_ms >= self._until_ms

    def observe(self, node_id: int, latency_ms: int) -> None:
        """Record a latency of a replica."""
        if self._eject_latency_ms is not None:
            self._latencies.setdefault(node_id, Counter())[latency_ms] += 1

    def close(self, waiting: Mapping[int, int], live: Collection[int], now_ms: int) -> bool:
        """End the window if it is due; returns whether it was.

        `waiting`: the latency so far of replicas that are behind.

        A replica without latencies, or without peers, keeps its state. But an ejected replica without latencies may
        return: without writes no request waits for it.
        """
        if self._eject_latency_ms is None or now_ms < self._until_ms:
            return False
        self._until_ms = now_ms + self._window_ms
        reached = frozenset(self._latencies)
        for node_id, latency_ms in waiting.items():
            self.observe(node_id, latency_ms)
        if not self._latencies and self._ejected is None:
            return True
        seen = {node_id: p99_ms(latencies) for node_id, latencies in self._latencies.items()}
        self._latencies.clear()
        for node_id, own_ms in seen.items():
            peers = [latency_ms for other, latency_ms in seen.items() if other != node_id]
            if peers:
                if own_ms - _median(peers) > self._eject_latency_ms:
                    self._slow_windows[node_id] = self._slow_windows.get(node_id, 0) + 1
                elif node_id in reached:  # otherwise possibly still slow: its latency is unknown
                    self._slow_windows[node_id] = 0
        if self._ejected is not None:
            if self._ejected not in seen or self._ejected not in live:
                self._slow_windows[self._ejected] = 0
            self._well = 0 if self._slow_windows[self._ejected] else self._well + 1
            if self._well >= self._wanted[self._ejected]:
                self._ejected = None
        return True

    def is_slow(self, node_id: int) -> bool:
        """Whether the replica was slow in the last `WINDOWS` windows."""
        return self._slow_windows.get(node_id, 0) >= WINDOWS

    def joined(self, node_id: int) -> None:
        """Note that a replica joined the in-sync set: its absence and its catching up do not count as slow."""
        self._slow_windows[node_id] = 0

    def suspect(self, node_id: int) -> None:
        """Treat a replica that left the in-sync set before this leadership as slow: it joins after a window."""
        self._slow_windows[node_id] = 1
        self._leave(node_id)

    def _leave(self, node_id: int) -> None:
        self._ejected, self._well = node_id, 0
        self._wanted[node_id] = min(_LONGER * self._wanted[node_id], _LONGEST) if node_id in self._wanted else 1

    @property
    def finds_any(self) -> bool:
        """Whether a replica was slow lately or is ejected."""
        return self._ejected is not None or any(self._slow_windows.values())

    def eject(self, members: Collection[int]) -> int | None:
        """The replica to eject: the one slow for longest; none while another ejected replica is still slow."""
        if self._ejected is None and not self._slow_windows:
            return None
        slow = [node_id for node_id in members if self.is_slow(node_id)]
        if self._ejected is None and slow:
            self._leave(max(slow, key=lambda node_id: (self._slow_windows[node_id], -node_id)))
        return self._ejected if self._ejected in members else None

    def may_join(self, node_id: int) -> bool:
        """Whether the replica is not ejected."""
        return node_id != self._ejected
