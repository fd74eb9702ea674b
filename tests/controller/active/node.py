"""A replica of the quorum's tests, and on it a node's part in the controller."""

from collections.abc import Callable

from tests.controller.quorum.node import Node
from tests.raft.witness import Witness

from duramen.base.errors import DuramenError
from duramen.base.ports import Buffer
from duramen.broker.control.methods import METHODS, method_of
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import When
from duramen.controller.active.controller import Controller
from duramen.controller.dependencies import ControllerDependencies, ControllerTiming
from duramen.controller.membership.client import Asker
from duramen.controller.membership.lifecycle import Lifecycle, LifecyclePhase
from duramen.controller.quorum.runner import Runner
from duramen.metadata.registration import Registration
from duramen.metadata.sessions import Sessions
from duramen.raft.effects import Commit, Effect
from duramen.rpc.caller import Caller
from duramen.rpc.server import RpcServer
from duramen.rpc.wire import TableWire, Wires
from duramen.service.methods import TABLE
from duramen.service.old_wire import OldWire
from duramen.sim.machine.scheduler import VirtualClock

WIRES = Wires(TableWire(TABLE), OldWire(), lambda: True)
SESSIONS = Sessions(timeout_ms=400, grace_ms=60, absent_ms=150)
TIMING = ControllerTiming(
    heartbeat_ms=80, applied_ms=10, answer_ms=120, retry_ms=10, retry_most_ms=60, duplicate_ms=3_000
)


class ControlNode(Node):
    """A node that takes part in the cluster `c`; `call_on` is the network."""

    controller: Controller | None = None
    asker: Asker
    caller: Caller
    lifecycle: Lifecycle
    paused_until_us = 0
    kept = False
    sessions = SESSIONS
    rebalance_ms: int | None = None

    def __init__(self, node_id: int, seed: str, clock: VirtualClock, witness: Witness) -> None:
        super().__init__(node_id, seed, clock, witness)
        self.call_on: Callable[[ControlNode, int, bytes, Callable[[Buffer | None], None]], None] = lambda *_: None
        self.connects: Callable[[ControlNode], None] = lambda _: None
        self.committed_some: Callable[[], None] = lambda: None
        self.became: Callable[[ControlNode, LifecyclePhase], None] = lambda *_: None
        self.heard: Callable[[bool], None] = lambda _: None
        self.refused_with: Callable[[ControlNode, DuramenError], None] = lambda *_: None

    def call(self, node_id: int, request: Request, done: When, within_ms: int) -> None:
        self.caller.call(node_id, method_of(request), request, done, within_ms)

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        """The network takes everything, and loses some of it."""
        self.call_on(self, node_id, body, done)
        return True

    def _began(self, runner: Runner) -> None:
        super()._began(runner)
        process = self.process
        assert process is not None
        dependencies = ControllerDependencies(
            self.node_id, "c", self.clock, process.deadlines, self.randomness, self.chance.randrange, self,
            sessions=self.sessions, timing=TIMING, rebalance_ms=self.rebalance_ms,
        )  # fmt: skip
        self.controller = Controller(runner, self.view, process, dependencies)
        self.caller = Caller(self.node_id, self, WIRES, RpcServer(WIRES), self.clock, process.deadlines)
        for method in METHODS:
            self.caller.server.handle(method, self.controller.ask)
        self.connects(self)
        self.asker = Asker(self.controller, dependencies)
        wish = Registration(
            self.node_id, self.me.directory_id, f"{self.me.directory_id}/{self.life}", "c", kept=self.kept
        )
        self.lifecycle = Lifecycle(
            wish, self.controller, self.asker, dependencies,
            changed=lambda phase: self.became(self, phase), heard=self._hear,
            failed=lambda error: self.refused_with(self, error),
        )  # fmt: skip
        self.lifecycle.begin()

    def _hear(self, heard: bool) -> None:
        self.heard(heard)

    def end(self) -> None:
        self.controller = None
        super().end()

    def failed(self, error: DuramenError) -> None:
        if self.controller is not None:
            self.controller.stop()
        super().failed(error)

    def carried_out(self, effect: Effect) -> None:
        super().carried_out(effect)
        if self.controller is not None:
            self.controller.on_effect(effect)
        if isinstance(effect, Commit):
            self.committed_some()
