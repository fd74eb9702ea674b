"""A node's part in the controller: active while it leads the quorum, and notified of every committed change."""

from collections.abc import Callable
from typing import Protocol

from duramen.base.errors import NotController
from duramen.base.ports import Worker
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import When
from duramen.controller.active.active import ActiveController
from duramen.controller.dependencies import ControlKit
from duramen.controller.quorum.applier import ControllerView
from duramen.controller.quorum.runner import Runner
from duramen.metadata.state import ControllerState
from duramen.raft.effects import Became, Commit, Effect, Install
from duramen.raft.roles import RaftRole

__all__ = ["Controller", "ControllerListener"]


class ControllerListener(Protocol):
    """Who has to hear of what changes."""

    def leader_changed(self) -> None:
        """Another node may lead the quorum."""

    def applied(self) -> None:
        """More has taken effect."""

    def closed(self, node_id: int) -> None:
        """There is no connection to a node any more: what it was asked it will not answer."""


class Controller:
    """On this node's replica, which votes or only follows; who is told of its effects hands them to `happened`."""

    def __init__(self, runner: Runner, view: ControllerView, worker: Worker, kit: ControlKit) -> None:
        self._runner = runner
        self._view = view
        self._worker = worker
        self._kit = kit
        self._active: ActiveController | None = None
        self._watchers: list[ControllerListener] = []
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._connected: set[int] = {kit.node_id}
        self._closed: dict[int, None] = {}  # nodes to which there was a connection, and is none; in order
        self._looks = False
        self._over = False
        self._look_soon()

    # -- what is known ------------------------------------------------------------------------------

    @property
    def state(self) -> ControllerState:
        """What is committed, as far as this node has applied it: not to be kept, not to be changed."""
        return self._view.state

    @property
    def applied_offset(self) -> int:
        """What is below this offset of the metadata log has taken effect here."""
        return self._runner.applied.offset

    @property
    def leader_id(self) -> int | None:
        """The node that leads the quorum, as far as this one knows."""
        leader = self._runner.machine.leader
        return None if leader is None or self._over else leader.node_id

    @property
    def epoch(self) -> int:
        """The epoch of the quorum, as far as this node knows."""
        return self._runner.machine.epoch

    @property
    def active(self) -> ActiveController | None:
        """What decides, where this node is the active controller."""
        return self._active

    @property
    def active_epoch(self) -> int | None:
        """The epoch of the quorum in which this node decides, if it does."""
        return None if self._active is None else self._active.epoch

    @property
    def closed_to(self) -> tuple[int, ...]:
        """Nodes to which there was a connection, and is none."""
        return tuple(self._closed)

    @property
    def absent(self) -> tuple[int, ...]:
        """Live nodes to which there has been no connection since this node's start."""
        live = self._view.state.registrations.live
        return tuple(sorted(live - self._connected - self._closed.keys()))

    # -- what is asked ------------------------------------------------------------------------------

    def ask(self, request: Request, done: When) -> None:
        """A request of this node or of another one: answered by the active controller, which this has to be."""
        if self._active is None:
            done(self._not_controller())
        else:
            self._active.ask(request, done)

    def when_applied(self, offset: int, done: Callable[[], None]) -> None:
        """Call `done` once what is below the offset has taken effect here; never, where the node stops before."""
        if offset <= self.applied_offset:
            done()
        else:
            self._waiting.append((offset, done))

    def watch(self, watcher: ControllerListener) -> None:
        """Tell it of what changes from here on."""
        self._watchers.append(watcher)

    # -- what happens -------------------------------------------------------------------------------

    def happened(self, effect: Effect) -> None:
        """The replica has carried an effect out."""
        if isinstance(effect, Became):
            self._depose()
        if isinstance(effect, Became | Commit | Install):
            self._look_soon()

    def closed(self, node_id: int) -> None:
        """There is no connection to a node any more."""
        self._connected.discard(node_id)
        self._closed[node_id] = None
        if self._active is not None:
            self._active.closed(node_id)
        for watcher in self._watchers:
            watcher.closed(node_id)

    def opened(self, node_id: int) -> None:
        """There is a connection to a node."""
        self._connected.add(node_id)
        self._closed.pop(node_id, None)

    def stop(self) -> None:
        """The replica is stopping, or has failed: nothing is decided here any more."""
        self._over = True
        self._depose()

    def _depose(self) -> None:
        active = self._active
        machine = self._runner.machine
        if active is not None and (self._over or machine.role is not RaftRole.LEADER or machine.epoch != active.epoch):
            self._active = None
            active.end()

    def _look_soon(self) -> None:
        """A commit is told of before it takes effect, in the middle of the replica's work: look once that is done."""
        if not self._looks:
            self._looks = True
            self._worker.soon(self._look)

    def _look(self) -> None:
        self._looks = False
        if self._over or self._runner.error is not None:
            return
        self._depose()
        if self._active is None and self._is_ready():
            self._active = ActiveController(self._runner, self._view, self._kit)
            for node_id in self._closed:
                self._active.closed(node_id)
            for node_id in self.absent:
                self._active.absent(node_id)
        elif self._active is not None:
            self._active.applied()
        reached = [done for offset, done in self._waiting if offset <= self.applied_offset]
        self._waiting = [entry for entry in self._waiting if entry[0] > self.applied_offset]
        for done in reached:
            done()
        for watcher in self._watchers:
            watcher.leader_changed()
            watcher.applied()

    def _is_ready(self) -> bool:
        """Whether this node leads and has applied all that was committed before: the first entry of its epoch is."""
        machine = self._runner.machine
        return machine.role is RaftRole.LEADER and self._runner.applied.epoch == machine.epoch

    def _not_controller(self) -> NotController:
        leader_id = self.leader_id
        if leader_id in (None, self._kit.node_id):
            return NotController("this node is not the active controller and knows of none")
        return NotController(f"this node is not the active controller: node {leader_id} leads the quorum")
