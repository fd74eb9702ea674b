"""What a replica's log has for other replicas: batches from a place on, read before they are sent."""

from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError
from duramen.base.ports import Buffer
from duramen.broker.replicas.kit import Kit
from duramen.broker.replicas.log import ReplicaLog
from duramen.controller.partitions import PartitionId
from duramen.replication.effects import Serve
from duramen.replication.machine import Machine
from duramen.storage.log import Log

__all__ = ["Serving"]


class Serving:
    """Answers fetches. What is being read must not be cut: `when_idle` says when nothing is."""

    def __init__(self, kit: Kit, place: PartitionId, machine: Machine, log: Log, replica_log: ReplicaLog) -> None:
        self._kit = kit
        self._place = place
        self._machine = machine
        self._log = log
        self._replica_log = replica_log
        self._reading = 0
        self._idle: list[Callable[[], None]] = []
        self._unwritten: list[Serve] = []
        self._over = False

    def end(self) -> None:
        """The replica ends: nobody is answered any more."""
        self._over = True
        self._unwritten.clear()

    def when_idle(self, action: Callable[[], None]) -> None:
        """Do it once nothing is being read any more: now, or later."""
        if self._reading:
            self._idle.append(action)
        else:
            action()

    def serve(self, serve: Serve) -> None:
        """Send an answer with what there is from the asked end on."""
        asked = serve.answer.asked
        if self._log.end_offset <= asked.end.offset < self._machine.history.end_offset:
            self._unwritten.append(serve)  # the batches wait for room in the storage
            return
        self._reading += 1
        self._replica_log.read(asked.end.offset, self._kit.fetch_bytes, partial(self._read, serve))

    def written(self) -> None:
        """More is written: whoever waits for that is answered."""
        waiting, self._unwritten = self._unwritten, []
        for serve in waiting:
            self.serve(serve)

    def _read(self, serve: Serve, found: list[Buffer] | DuramenError) -> None:
        self._reading -= 1
        node_id, answer = serve
        if isinstance(found, DuramenError):
            self._kit.outside.report(f"node {node_id} cannot be served from {self._log.directory}: {found}")
        elif not self._over and self._machine.state.leader_epoch == answer.leader_epoch:
            # In another epoch what was read may be cut.
            self._kit.outside.send(self._place, node_id, answer, found)
        if not self._reading:
            idle, self._idle = self._idle, []
            for action in idle:
                action()
