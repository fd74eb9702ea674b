"""The watcher: polls the nodes for leaders and in-sync sets, and records them."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Self

from duramen.base.errors import DuramenError
from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.demo.cluster.timeline import NOBODY, Sight, Timeline, TimelineLayout

__all__ = ["ClusterDemoWatcher"]

_LOOK_S: Final = 0.05
_ANSWER_S: Final = 1.0


class ClusterDemoWatcher(threading.Thread):
    """Watches a stream from the first look on, for as long as its block; `away` are nodes that are not asked."""

    def __init__(
        self, kafka: Mapping[int, str], stream: str, timeline: Timeline, acknowledged: Callable[[], int]
    ) -> None:
        """`kafka` are the addresses of the nodes; `acknowledged` says how many flights are."""
        super().__init__(name="watcher", daemon=True)
        self._kafka = kafka
        self._stream = stream
        self._acknowledged = acknowledged
        self._connections: dict[int, BrokerConnection] = {}
        self._ending = threading.Event()
        self._looked = threading.Condition()
        self._began_s = time.perf_counter()
        self.timeline = timeline
        self.away: set[int] = set()
        self.now: Sight | None = None

    @property
    def at_s(self) -> float:
        """The time of the timeline."""
        return time.perf_counter() - self._began_s

    def wait(self, condition: Callable[[Sight], bool], timeout_s: float) -> bool:
        """Wait until what is seen is so; whether it was."""
        with self._looked:
            return self._looked.wait_for(lambda: self.now is not None and condition(self.now), timeout_s)

    def run(self) -> None:
        """Look, until the block ends."""
        while not self._ending.wait(_LOOK_S):
            sight = self._look()
            self.timeline.count(self.at_s, self._acknowledged())
            if sight is not None:
                self.timeline.see(sight)
                with self._looked:
                    self.now = sight
                    self._looked.notify_all()
        for connection in self._connections.values():
            connection.close()

    def _look(self) -> Sight | None:
        """What the nodes say: of each partition whoever knows the latest epoch."""
        answers = [answer for node in self._kafka if (answer := self._ask(node)) is not None]
        if not answers:
            return None
        layouts = zip(*(_layouts(answer) for answer in answers), strict=True)
        controllers = [answer["controller_id"] for answer in answers]
        latest = tuple(max(told, key=lambda one: (one.epoch, -len(one.in_sync))) for told in layouts)
        return Sight(self.at_s, max(controllers, key=controllers.count, default=NOBODY), latest)

    def _ask(self, node: int) -> Message | None:
        if node in self.away:
            self._leave(node)
            return None
        try:
            if node not in self._connections:
                host, _, port = self._kafka[node].rpartition(":")
                self._connections[node] = BrokerConnection(host, int(port), client_id="watcher", timeout_s=_ANSWER_S)
            asked = {"topics": [{"name": self._stream}], "allow_auto_topic_creation": False}
            answer = self._connections[node].request(ApiKey.METADATA, asked)
        except DuramenError:
            self._leave(node)
            return None
        return answer if answer["topics"] and not answer["topics"][0]["error_code"] else None

    def _leave(self, node: int) -> None:
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        with contextlib.suppress(RuntimeError):
            self.join()


def _layouts(answer: Message) -> list[TimelineLayout]:
    partitions = sorted(answer["topics"][0]["partitions"], key=lambda one: int(one["partition_index"]))
    return [TimelineLayout(one["leader_id"], one["leader_epoch"], frozenset(one["isr_nodes"])) for one in partitions]
