"""The faults of the cluster demo: one node is killed and restarted, then another is paused."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from duramen.base.errors import DemoFailed, ServerUnreachable
from duramen.demo.cluster.producer import FlightProducer
from duramen.demo.cluster.report import Outage
from duramen.demo.cluster.timeline import NOBODY, Sight
from duramen.demo.cluster.watcher import ClusterDemoWatcher
from duramen.demo.report import seconds_text
from duramen.node.processes import NodeProcesses

__all__ = ["Trouble"]

_KILL_AT: Final = 0.2
_PAUSE_AT: Final = 0.5
_END_AT: Final = 0.9
"""Shares of the flights at which the node is killed, at which the other is paused, and before which it goes on."""

_AWAY_S: Final = 2.0
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.02


class _Ended(Exception):
    """Nobody wants to know any more."""


class Trouble(threading.Thread):
    """Makes it; `outages` says what came of it, `failure` why it could not go on."""

    def __init__(
        self, nodes: NodeProcesses, watcher: ClusterDemoWatcher, producer: FlightProducer, say: Callable[[str], None]
    ) -> None:
        super().__init__(name="trouble", daemon=True)
        self._nodes = nodes
        self._watcher = watcher
        self._producer = producer
        self._say = say
        self._ending = threading.Event()
        self.outages: list[Outage] = []
        self.failure: DemoFailed | None = None

    def cancel(self) -> None:
        """Make no more, and wait until it has stopped."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        """All of it."""
        try:
            self._kill()
            self._pause()
        except DemoFailed as failure:
            self.failure = failure
        except _Ended:
            pass

    def _kill(self) -> None:
        node, gone_s = self._strike(
            _KILL_AT,
            _PAUSE_AT,
            self._nodes.kill,
            "is killed (-9)",
            "node {node}, which leads the most, is killed with -9",
        )  # fmt: skip
        back_s = self._comes(node, "is started again")
        try:
            self._nodes.start([node])
        except ServerUnreachable:
            raise DemoFailed(f"node {node} does not start again; what it said is beside its directory") from None
        self._back(node, gone_s, back_s)

    def _pause(self) -> None:
        node, gone_s = self._strike(
            _PAUSE_AT,
            _END_AT,
            self._nodes.pause,
            "stands still",
            "node {node} stands still, with its connections open,",
        )  # fmt: skip
        back_s = self._comes(node, "goes on")
        self._nodes.resume(node)
        self._back(node, gone_s, back_s)
        self._producer.allow(1.0)

    def _strike(
        self, at: float, until: float, strike: Callable[[int], None], event: str, message: str
    ) -> tuple[int, float]:
        """Strike the node that leads the most, of those that have had no outage; returns it and the time.

        The producer has acknowledged the share `at` of the flights by then, and may go on to `until`. Returns when the
        other nodes lead everything.
        """
        self._reach(at)
        self._producer.allow(until)
        node = self._leading([one.node for one in self.outages])
        self._watcher.away.add(node)
        gone_s = self._watcher.at_s
        strike(node)
        self._watcher.timeline.happen(gone_s, node, event, gone=True)
        self._say(f"{message.format(node=node)} after {self._producer.acknowledged:,} flights")
        self._without(node)
        return node, gone_s

    def _reach(self, share: float) -> None:
        """Wait until so many flights are acknowledged."""
        wanted = share * self._producer.count
        while self._producer.acknowledged < wanted:
            self._wait(_LOOK_S)

    def _wait(self, seconds: float) -> None:
        if self._ending.wait(seconds):
            raise _Ended

    def _leading(self, spared: list[int]) -> int:
        """The node that leads the most partitions, of those that are not spared."""
        sight = self._watcher.now
        leaders = Counter(one.leader for one in sight.layouts) if sight is not None else Counter[int]()
        found = [node for node, _ in leaders.most_common() if node not in (*spared, NOBODY)]
        if not found:
            raise DemoFailed("no node leads anything")
        return found[0]

    def _without(self, node: int) -> None:
        """Wait until the others go on without it, and a little longer. Raises DemoFailed where they do not."""

        def without(sight: Sight) -> bool:
            return all(one.leader not in (node, NOBODY) and node not in one.in_sync for one in sight.layouts)

        if not self._watcher.wait(without, _PATIENCE_S):
            raise DemoFailed(f"the others have not gone on without node {node} within {_PATIENCE_S:.0f} s")
        self._wait(_AWAY_S)

    def _comes(self, node: int, text: str) -> float:
        """It is about to be there again."""
        back_s = self._watcher.at_s
        self._watcher.timeline.happen(back_s, node, text, gone=False)
        return back_s

    def _back(self, node: int, gone_s: float, back_s: float) -> None:
        """It is there again: wait until it has everything, and note what the time without it was like."""
        watcher, count = self._watcher, len(self._nodes.nodes)
        watcher.away.discard(node)
        if not watcher.wait(lambda sight: all(len(one.in_sync) == count for one in sight.layouts), _PATIENCE_S):
            raise DemoFailed(f"node {node} is not in sync with everything {_PATIENCE_S:.0f} s after it went on")
        timeline = watcher.timeline
        led_s, whole_s = timeline.lead_elsewhere_s(node, gone_s), timeline.whole_s(back_s)
        silent_s = timeline.pause_s(gone_s, watcher.at_s)
        what = "killed" if not self.outages else "paused"
        self.outages.append(Outage(node, what, led_s, silent_s, whole_s))
        if led_s is not None and whole_s is not None:
            self._say(
                f"others led after {seconds_text(led_s)}; {seconds_text(whole_s)} after its return it had everything"
            )
