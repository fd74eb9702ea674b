"""The controller of the cluster while this node leads the quorum: decides, proposes, and responds once committed.

It decides on its own copy of the state, which includes proposals that are not committed yet. Its proposals are
committed in order or not at all: during its term that copy equals the state at the end of its log, and it is discarded
with the term. Everything that a response rests on is committed before it is sent, also for refusals.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from duramen.base.deadlines import Alarm
from duramen.base.errors import DuramenError, NotController, OutcomeUnknown, RequestTimedOut
from duramen.base.ids import Position, new_stream_id
from duramen.broker.control.requests import (
    AddVoter,
    AllocateProducerIds,
    AlterPartitions,
    AwaitApplied,
    Beat,
    CreateStream,
    DeleteStream,
    DrainNode,
    Observe,
    RebalanceLeaders,
    Register,
    RemoveVoter,
    ReportDamage,
    ReportLeaders,
    Request,
)
from duramen.broker.control.responses import Answer, Created, Done, Observed, Outcome, Value, When
from duramen.controller.active.admin_requests import create_stream, delete_stream, grant
from duramen.controller.active.evacuation import Evacuation
from duramen.controller.active.leader_balancer import AT_ONCE, Balancing
from duramen.controller.active.node_requests import (
    allocate_ids,
    alter_partitions,
    beat,
    fence_silent,
    leave_silent,
    let_go_draining,
    register_node,
    report_damage,
    report_leaders,
)
from duramen.controller.active.pending_changes import PendingChanges
from duramen.controller.active.sessions import NodeSessions
from duramen.controller.active.voter_requests import VoterChanges
from duramen.controller.dependencies import ControllerDependencies
from duramen.controller.quorum.applier import ControllerView
from duramen.controller.quorum.runner import Runner
from duramen.metadata.bootstrap import form
from duramen.metadata.decisions import SECRET_BYTES
from duramen.metadata.events import Event
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId

__all__ = ["ActiveController"]

_Decision = Callable[[PendingChanges], Value]
_ID_BYTES = 16


class _Proposal(NamedTuple):
    """Events that are not committed yet; `behind` are responses that rest on them."""

    events: Sequence[Event]
    end_offset: int
    value: Value
    done: When
    behind: list[tuple[When, Value | DuramenError]]


class _Waiter(NamedTuple):
    """A request that waits until all live nodes have applied the log below an offset."""

    offset: int
    until_ms: int
    done: When


class ActiveController:
    """Active in one epoch of the quorum, once all earlier epochs are applied, until `end`."""

    def __init__(self, runner: Runner, view: ControllerView, dependencies: ControllerDependencies) -> None:
        self._runner = runner
        self._view = view
        self._dependencies = dependencies
        self.epoch = runner.machine.epoch
        self.ahead = view.state.copy()
        """The state including proposals that have not taken effect yet: decisions use it."""
        self._proposed: deque[_Proposal] = deque()
        self._waiters: list[_Waiter] = []
        self._voters = VoterChanges(runner)
        self._sessions = NodeSessions(
            self.ahead.registrations,
            self._now_ms,
            runner.machine.end.offset,
            dependencies.sessions,
            report_window_ms=dependencies.report_window_ms,
        )
        self._settling = Evacuation(dependencies.deadlines, dependencies.clock)
        self._balancing = Balancing(
            dependencies.clock, dependencies.deadlines, dependencies.rebalance_ms, self._rebalance
        )
        self._over = False
        self._alarm = Alarm(dependencies.deadlines, self.tick)
        if not self.ahead.cluster_id:
            self._decide(self._form, self._refused)
        self._arm()

    @property
    def _now_ms(self) -> int:
        return self._dependencies.clock.monotonic_ms()

    def _leads(self) -> bool:
        """Whether present proposals are ordered in this controller's epoch."""
        return not self._over and self._runner.leads(self.epoch)

    # -- events -------------------------------------------------------------------------------------

    def ask(self, request: Request, done: When) -> None:
        """Handle a request. `done` gets the response once it and all that it rests on is committed, or the error.

        NotController if nothing was done, OutcomeUnknown if this controller ended before it knew.
        """
        match request:
            case AwaitApplied():
                self._wait(request, done)
            case AddVoter() | RemoveVoter():
                self._voters.ask(request, done)
            case Observe():
                done(Answer(self._observed(), self._runner.applied.offset))
            case _:
                self._decide(partial(self._grant, request), done)
                if isinstance(request, DrainNode):
                    self._go_on_draining(request.node_id)
                elif isinstance(request, Beat):
                    self._go_on_draining(request.beat.node_id)
                    self._look()
        self._arm()

    def closed(self, node_id: int) -> None:
        """The connection to a node is closed: its session is shortened."""
        self._sessions.members.closed(node_id, self._now_ms)
        self._arm()

    def absent(self, node_id: int) -> None:
        """There has been no connection to a node yet: its session is shortened too."""
        self._sessions.members.absent(node_id, self._now_ms)
        self._arm()

    def applied(self) -> None:
        """More of the log is committed and applied."""
        self._voters.look()
        self._look()

    def end(self) -> None:
        """The controller is no longer active; the quorum completes its proposals."""
        self._over = True
        self._alarm.move(None)
        self._voters.end()
        self._settling.end()
        self._balancing.end()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.done(_not_active())

    def tick(self) -> None:
        """A deadline has passed: sessions and waits may be over."""
        now_ms = self._now_ms
        for node_id in self._sessions.silent(self.ahead.registrations, now_ms):
            self._settling.leave(self.ahead, node_id, self._leave_silent, self._fence_silent)
        late = [waiter for waiter in self._waiters if waiter.until_ms <= now_ms]
        self._waiters = [waiter for waiter in self._waiters if waiter.until_ms > now_ms]
        for waiter in late:
            waiter.done(RequestTimedOut(f"not every live node has applied the metadata log up to {waiter.offset} yet"))
        self._look()
        self._arm()

    def _arm(self) -> None:
        if not self._over:
            times = [waiter.until_ms for waiter in self._waiters]
            due_ms = self._sessions.members.deadline_ms
            self._alarm.move(min([*times, *([] if due_ms is None else [due_ms])], default=None))

    def _leave_silent(self, node: Node, places: Sequence[PartitionId]) -> None:
        self._decide(partial(leave_silent, node, places), self._refused)

    def _go_on_draining(self, node_id: int) -> None:
        """Continue a drain that any controller has started, when this one first hears of the node."""
        if self._leads():
            self._settling.drain(self.ahead, node_id, self._let_go_draining)

    def _let_go_draining(self, node: Node, places: Sequence[PartitionId]) -> None:
        self._decide(partial(let_go_draining, node, places), self._refused)

    def _rebalance(self, done: When) -> None:
        self._decide(partial(grant, RebalanceLeaders(AT_ONCE)), done)

    def _fence_silent(self, node_id: int) -> None:
        self._decide(partial(fence_silent, node_id), partial(self._not_fenced, node_id))

    def _not_fenced(self, node_id: int, outcome: Outcome) -> None:
        """A silent node that could not be fenced gets another session: the fence is retried, and reported."""
        self._refused(outcome)
        if self._leads() and isinstance(outcome, DuramenError):
            self._sessions.members.registered(node_id, self._now_ms)
            self._arm()

    def _refused(self, outcome: Outcome) -> None:
        if isinstance(outcome, DuramenError) and not isinstance(outcome, NotController | OutcomeUnknown):
            self._dependencies.outside.report(f"the controller could not make a required change: {outcome}")

    def _observed(self) -> Observed:
        seen = self._runner.describe()
        offsets = {node.id: self._sessions.members.applied_offset(node.id) for node in self.ahead.registrations}
        applied = {node_id: offset for node_id, offset in offsets.items() if offset is not None}
        return Observed(*seen[:5], tuple(seen.endpoints), applied)

    # -- deciding -----------------------------------------------------------------------------------

    def _grant(self, request: Request, draft: PendingChanges) -> Value:
        match request:
            case Register():
                return register_node(request, draft, self._sessions, self._now_ms)
            case Beat():
                return beat(request, draft, self._sessions, self._now_ms)
            case AlterPartitions():
                return alter_partitions(request, draft)
            case ReportLeaders():
                return report_leaders(request, draft, self._sessions, self._now_ms)
            case ReportDamage():
                return report_damage(request, draft)
            case AllocateProducerIds():
                return allocate_ids(draft)
            case CreateStream():
                return self._create(request, draft)
            case DeleteStream():
                return delete_stream(
                    request, draft, self._dependencies.clock.wall_ms(), self._dependencies.producers_ms
                )
            case _:
                return grant(request, draft)

    def _create(self, request: CreateStream, draft: PendingChanges) -> Created:
        token = self._dependencies.randomness.token
        stream_id = new_stream_id(token(_ID_BYTES))
        secret = token(SECRET_BYTES) if request.definition.is_queue_space else b""
        return create_stream(request, draft, stream_id, self._dependencies.clock.wall_ms(), secret)

    def _form(self, draft: PendingChanges) -> Value:
        draft.add(form(draft.state, self._dependencies.cluster_id, self._dependencies.feature_level))
        return Done()

    def _decide(self, decision: _Decision, done: When) -> None:
        if not self._leads():
            done(_not_active())
            return
        draft = PendingChanges(self.ahead, self._runner.machine.end.offset)
        outcome: Value | DuramenError
        try:
            outcome = decision(draft)
        except DuramenError as error:
            outcome = error
            if draft.events:
                self._recall()
        if isinstance(outcome, DuramenError) or not draft.events:
            self._answer(outcome, done)
        else:
            self._propose(draft, outcome, done)

    def _answer(self, outcome: Value | DuramenError, done: When) -> None:
        """Respond without events, after the proposals that the response may rest on."""
        if self._proposed:
            self._proposed[-1].behind.append((done, outcome))
        else:
            done(_outcome(outcome, self._runner.applied.offset))

    # -- proposing ----------------------------------------------------------------------------------

    def _propose(self, draft: PendingChanges, value: Value, done: When) -> None:
        proposal = _Proposal(draft.events, draft.end_offset, value, done, [])
        self._proposed.append(proposal)
        self._runner.propose(draft.events, partial(self._proposal_done, proposal))

    def _proposal_done(self, proposal: _Proposal, result: Position | DuramenError) -> None:
        self._remove(proposal)
        if isinstance(result, Position):
            proposal.done(Answer(proposal.value, proposal.end_offset))
            for done, outcome in proposal.behind:
                done(_outcome(outcome, proposal.end_offset))
            return
        if not isinstance(result, OutcomeUnknown):
            # Refused immediately, so nothing rests on it; the quorum has not ordered it, so nothing in between is lost.
            self._recall()
        proposal.done(result)
        for done, _ in proposal.behind:
            done(_not_active())

    def _remove(self, proposal: _Proposal) -> None:
        """Remove a completed proposal: the oldest, or one that was refused immediately."""
        if self._proposed[0] is proposal:
            self._proposed.popleft()
        else:
            self._proposed.remove(proposal)

    def _recall(self) -> None:
        """Discard decisions that were not proposed."""
        self.ahead = self._view.state.copy()
        for proposal in self._proposed:
            if proposal.end_offset > self._runner.applied.offset:
                for event in proposal.events:
                    self.ahead.apply(event)

    # -- state of all nodes -------------------------------------------------------------------------

    def _wait(self, request: AwaitApplied, done: When) -> None:
        if self._leads():
            self._waiters.append(_Waiter(request.offset, self._now_ms + request.within_ms, done))
            self._look()
        else:
            done(_not_active())

    def _look(self) -> None:
        """Respond to the waits whose offset every live node has applied."""
        waiting: list[_Waiter] = []
        waiters, self._waiters = self._waiters, waiting
        for waiter in waiters:
            if self._is_known(waiter.offset):
                waiter.done(Answer(Done(), waiter.offset))
            else:
                waiting.append(waiter)

    def _is_known(self, offset: int) -> bool:
        """Whether every live node has applied the log below the offset, including nodes whose liveness is changing."""
        live = self._view.state.registrations.live | self.ahead.registrations.live
        return self._runner.applied.offset >= offset and self._sessions.know(sorted(live), offset)


def _outcome(outcome: Value | DuramenError, end_offset: int) -> Outcome:
    return outcome if isinstance(outcome, DuramenError) else Answer(outcome, end_offset)


def _not_active() -> NotController:
    return NotController("this node is not the active controller: it is not the leader of the quorum, or not yet ready")
