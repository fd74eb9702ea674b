"""Reads for other replicas: batches from a position on, read before they are sent."""

from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError
from duramen.base.ports import Buffer
from duramen.broker.replicas.dependencies import ReplicaDependencies
from duramen.broker.replicas.log import ReplicaLog
from duramen.broker.replicas.snapshots import ReplicaSnapshots
from duramen.broker.replicas.throttle.throttle import CatchUpThrottle
from duramen.metadata.partitions import PartitionId
from duramen.replication.effects import ServeReplicaFetch
from duramen.replication.machine import ReplicaMachine
from duramen.storage.log.log import Log

__all__ = ["ReplicaReads"]


class ReplicaReads:
    """Responds to fetches. The range of a read under way must not be truncated: `when_idle` waits for its end."""

    def __init__(
        self, dependencies: ReplicaDependencies, place: PartitionId, machine: ReplicaMachine, log: Log,
        replica_log: ReplicaLog, snapshots: ReplicaSnapshots,
    ) -> None:  # fmt: skip
        self._dependencies = dependencies
        self._place = place
        self._machine = machine
        self._log = log
        self._replica_log = replica_log
        self._snapshots = snapshots
        self._reading = 0
        self._idle: list[Callable[[], None]] = []
        self._unwritten: list[ServeReplicaFetch] = []
        self._postponed: dict[int, ServeReplicaFetch] = {}  # the newest of each node whose turn is to come
        self._over = False

    def end(self) -> None:
        """The replica ends: no more responses are sent."""
        self._over = True
        self._unwritten.clear()
        self._postponed.clear()

    def when_idle(self, action: Callable[[], None]) -> None:
        """Do it once nothing is being read any more: now, or later."""
        if self._reading:
            self._idle.append(action)
        else:
            action()

    def serve(self, serve: ServeReplicaFetch) -> None:
        """Send a response with the available records from the requested end on."""
        asked = serve.answer.asked
        if self._log.end_offset <= asked.end.offset < self._machine.history.end_offset:
            self._unwritten.append(serve)  # the batches wait for room in the storage
            return
        pace = self._dependencies.pace
        if pace is None or serve.node_id in self._machine.state.in_sync:
            self._begin(serve, None)
            return
        filed = self._is_filed(asked.end.offset)
        if not (pace.limited or filed):
            self._begin(serve, None)
        elif serve.node_id not in self._postponed:
            self._postponed[serve.node_id] = serve
            pace.ask(partial(self._turn, serve.node_id, pace), pauses=filed)
        else:
            self._postponed[serve.node_id] = serve  # it has asked again

    def _turn(self, node_id: int, pace: CatchUpThrottle) -> None:
        serve = self._postponed.pop(node_id, None)
        if serve is None or self._machine.state.leader_epoch != serve.answer.leader_epoch:
            pace.spent(0)
        else:
            self._begin(serve, pace)

    def _is_filed(self, offset: int) -> bool:
        """Whether the next records are in a file: a follower that requests them lacks more than the newest batches."""
        return offset < self._log.end_offset and self._log.active.pending_start(offset) is None

    def _begin(self, serve: ServeReplicaFetch, pace: CatchUpThrottle | None) -> None:
        self._reading += 1
        offset, most_bytes = serve.answer.asked.end.offset, self._dependencies.fetch_bytes
        if pace is not None:
            most_bytes = min(most_bytes, pace.piece_bytes)
        self._replica_log.read(offset, most_bytes, partial(self._read, serve, pace))

    def written(self) -> None:
        """More is written: respond to the followers that wait for it."""
        waiting, self._unwritten = self._unwritten, []
        for serve in waiting:
            self.serve(serve)

    def _read(self, serve: ServeReplicaFetch, pace: CatchUpThrottle | None, found: list[Buffer] | DuramenError) -> None:
        self._reading -= 1
        if pace is not None:
            pace.spent(0 if isinstance(found, DuramenError) else sum(map(len, found)))
        node_id, answer = serve
        if isinstance(found, DuramenError):
            self._dependencies.outside.report(f"node {node_id} cannot be served from {self._log.directory}: {found}")
        elif not self._over and self._machine.state.leader_epoch == answer.leader_epoch:
            # In another epoch the range of the read may be truncated.
            forgotten_id = self._log.producers.forgotten_id
            answer = answer._replace(forgotten_id=forgotten_id, snapshots=self._snapshots.bound)
            self._dependencies.outside.send(self._place, node_id, answer, found)
        if not self._reading:
            idle, self._idle = self._idle, []
            for action in idle:
                action()
