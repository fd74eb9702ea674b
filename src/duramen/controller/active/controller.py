"""A node's part in the controller: active while it leads the quorum, and notified of every committed change."""

from collections.abc import Callable
from typing import Protocol

from duramen.base.errors import NotController
from duramen.base.ports import Worker
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import When
from duramen.controller.active.active import ActiveController
from duramen.controller.dependencies import ControllerDependencies
from duramen.controller.quorum.applier import ControllerView
from duramen.controller.quorum.runner import Runner
from duramen.metadata.state import ControllerState
from duramen.raft.effects import Became, Commit, Effect, Install
from duramen.raft.roles import RaftRole

__all__ = ["Controller", "ControllerListener"]


class ControllerListener(Protocol):
    """Listens to changes of the controller."""

    def leader_changed(self) -> None:
        """The leader of the quorum may have changed."""

    def applied(self) -> None:
        """More of the log is applied."""

    def closed(self, node_id: int) -> None:
        """The last connection to a node is closed: it will not respond to earlier requests."""


class Controller:
    """The controller on this node's replica, voter or observer.

    The receiver of the replica's effects passes them to `happened`.
    """

    def __init__(
        self, runner: Runner, view: ControllerView, worker: Worker, dependencies: ControllerDependencies
    ) -> None:
        self._runner = runner
        self._view = view
        self._worker = worker
        self._dependencies = dependencies
        self._active: ActiveController | None = None
        self._watchers: list[ControllerListener] = []
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._connected: set[int] = {dependencies.node_id}
        self._closed: dict[int, None] = {}  # nodes whose last connection is closed; in order
        self._looks = False
        self._over = False
        self._look_soon()

    # -- state --------------------------------------------------------------------------------------

    @property
    def state(self) -> ControllerState:
        """The committed state that this node has applied: read-only, and not to be kept."""
        return self._view.state

    @property
    def applied_offset(self) -> int:
        """The offset below which this node has applied the metadata log."""
        return self._runner.applied.offset

    @property
    def leader_id(self) -> int | None:
        """The leader of the quorum, as far as this node knows."""
        leader = self._runner.machine.leader
        return None if leader is None or self._over else leader.node_id

    @property
    def epoch(self) -> int:
        """The epoch of the quorum, as far as this node knows."""
        return self._runner.machine.epoch

    @property
    def active(self) -> ActiveController | None:
        """The active controller, if it is on this node."""
        return self._active

    @property
    def active_epoch(self) -> int | None:
        """The epoch of the quorum in which this node is the active controller, if it is."""
        return None if self._active is None else self._active.epoch

    @property
    def closed_to(self) -> tuple[int, ...]:
        """Nodes whose last connection is closed."""
        return tuple(self._closed)

    @property
    def absent(self) -> tuple[int, ...]:
        """Live nodes without a connection since this node's start."""
        live = self._view.state.registrations.live
        return tuple(sorted(live - self._connected - self._closed.keys()))

    # -- requests -----------------------------------------------------------------------------------

    def ask(self, request: Request, done: When) -> None:
        """Handle a request of this node or of another one; this node must be the active controller."""
        if self._active is None:
            done(self._not_controller())
        else:
            self._active.ask(request, done)

    def when_applied(self, offset: int, done: Callable[[], None]) -> None:
        """Call `done` once the log below the offset is applied here; never, if the node stops before."""
        if offset <= self.applied_offset:
            done()
        else:
            self._waiting.append((offset, done))

    def watch(self, watcher: ControllerListener) -> None:
        """Notify it of changes from now on."""
        self._watchers.append(watcher)

    # -- events -------------------------------------------------------------------------------------

    def on_effect(self, effect: Effect) -> None:
        """The replica has executed an effect."""
        if isinstance(effect, Became):
            self._depose()
        if isinstance(effect, Became | Commit | Install):
            self._look_soon()

    def closed(self, node_id: int) -> None:
        """The last connection to a node is closed."""
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
        """The replica is stopping, or has failed: decide nothing more."""
        self._over = True
        self._depose()

    def _depose(self) -> None:
        active = self._active
        machine = self._runner.machine
        if active is not None and (self._over or machine.role is not RaftRole.LEADER or machine.epoch != active.epoch):
            self._active = None
            active.end()

    def _look_soon(self) -> None:
        """A commit is announced before it takes effect, during the replica's work: look after that."""
        if not self._looks:
            self._looks = True
            self._worker.soon(self._look)

    def _look(self) -> None:
        self._looks = False
        if self._over or self._runner.error is not None:
            return
        self._depose()
        if self._active is None and self._is_ready():
            self._active = ActiveController(self._runner, self._view, self._dependencies)
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
        """Whether this node leads and has applied all earlier commits: the first entry of its epoch is applied."""
        machine = self._runner.machine
        return machine.role is RaftRole.LEADER and self._runner.applied.epoch == machine.epoch

    def _not_controller(self) -> NotController:
        leader_id = self.leader_id
        if leader_id in (None, self._dependencies.node_id):
            return NotController("this node is not the active controller and knows of none")
        return NotController(f"this node is not the active controller: node {leader_id} leads the quorum")
