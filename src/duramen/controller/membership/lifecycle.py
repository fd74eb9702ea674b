"""The lifecycle of a node in a cluster: registration, heartbeats, fencing, draining, controlled stop (KIP-631)."""

from collections.abc import Callable
from enum import Enum

from duramen.base.deadlines import Alarm
from duramen.base.errors import DuramenError, NodeDuplicate, NodeEpochStale, NodeNotFound, NotController, OutcomeUnknown
from duramen.broker.control.requests import Beat, Register
from duramen.broker.control.responses import Answer, Beaten, Outcome, Registered
from duramen.controller.active.controller import Controller
from duramen.controller.dependencies import ControllerDependencies
from duramen.controller.membership.client import Asker
from duramen.metadata.heartbeats import Heartbeat
from duramen.metadata.registration import Registration

__all__ = ["Lifecycle", "LifecyclePhase"]


class LifecyclePhase(Enum):
    """The state of a node according to the last response."""

    JOINING = "not registered, or no longer registered"
    FENCED = "fenced: it leads no partition and is in no in-sync set"
    LIVE = "live"
    UNWRITABLE = "its storage accepts no writes: its leaderships move to other nodes"
    DRAINING = "about to stop: its leaderships move to other nodes"
    DRAINED = "ready to stop: no leaderships are left"


class Lifecycle:
    """A node's process and its registration. `changed` gets each phase, `failed` a permanent failure.

    `heard` gets False when the controller has not responded for a whole session, and True when it responds again: in
    between others may lead this node's partitions without its knowledge.
    """

    def __init__(
        self,
        registration: Registration,
        controller: Controller,
        asker: Asker,
        dependencies: ControllerDependencies,
        *,
        changed: Callable[[LifecyclePhase], None] = lambda _: None,
        heard: Callable[[bool], None] = lambda _: None,
        failed: Callable[[DuramenError], None],
    ) -> None:
        self._registration = registration
        self._controller = controller
        self._asker = asker
        self._dependencies = dependencies
        self._changed = changed
        self._failed = failed
        self._heard = heard
        self._answered_ms = self._now_ms  # when the newest answered heartbeat was sent
        self._is_heard = True
        self.phase = LifecyclePhase.JOINING
        self.epoch = -1
        self._taken_ms: int | None = None  # since when the controller reports the node's id as taken
        self._reported_offset = -1  # the applied offset in the last heartbeat
        self._told_ms = 0
        self._asking = False
        self._urgent = False  # whether to send again right after the response
        self._drains = False
        self._unwritable = False  # whether the storage refuses writes
        self._told_unwritable = False  # whether the controller may know that about this registration
        self._over = False
        self._alarm = Alarm(dependencies.deadlines, self._fire)
        self._due_ms = self._now_ms
        controller.watch(self)

    @property
    def _now_ms(self) -> int:
        return self._dependencies.clock.monotonic_ms()

    @property
    def unanswered_ms(self) -> int:
        """The time since the newest answered request was sent."""
        return self._now_ms - self._answered_ms

    # -- requests -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Register, and send heartbeats from then on."""
        self._ask()

    def drain(self) -> None:
        """Request a controlled stop; the phase is DRAINED once others lead and all live nodes know."""
        self._drains = True
        self._hurry()

    def storage_changed(self, *, unwritable: bool) -> None:
        """The storage refuses writes, or accepts them again: tell the controller at once."""
        if unwritable is not self._unwritable:
            self._unwritable = unwritable
            self._hurry()

    def stop(self) -> None:
        """Stop all requests."""
        self._over = True
        self._alarm.move(None)

    # -- events -------------------------------------------------------------------------------------

    def leader_changed(self) -> None:
        """Nothing: requests find the leader."""

    def applied(self) -> None:
        """More of the metadata log is applied: other nodes may wait for that."""
        if self.phase is not LifecyclePhase.JOINING and self._controller.applied_offset > self._reported_offset:
            self._sooner(max(self._now_ms, self._told_ms + self._dependencies.timing.applied_ms))

    def closed(self, node_id: int) -> None:
        """The last connection to a node is closed: if it leads, it must soon learn that this node is alive."""
        if node_id == self._controller.leader_id:
            self._hurry()

    def _hurry(self) -> None:
        if self._asking:
            self._urgent = True
        elif not self._over:
            self._ask()

    # -- asking -------------------------------------------------------------------------------------

    def _fire(self) -> None:
        if self._asking or self._over:
            return
        if self._now_ms < self._due_ms:
            self._alarm.move(self._due_ms)
        else:
            self._ask()

    def _sooner(self, at_ms: int) -> None:
        if not self._over and not self._asking and at_ms < self._due_ms:
            self._due_ms = at_ms
            self._alarm.move(at_ms)

    def _ask(self) -> None:
        self._asking, self._urgent = True, False
        if self._told_unwritable and not self._unwritable and not self._drains:
            self._become(LifecyclePhase.JOINING)  # pending writes of its replicas are lost: they start again
        if self.phase is LifecyclePhase.JOINING:
            register = Register(self._registration, self.epoch if self._told_unwritable else 0)
            self._asker.ask(register, self._registered, within_ms=self._dependencies.timing.answer_ms)
            return
        self._told_ms = self._now_ms
        self._told_unwritable = self._told_unwritable or self._unwritable
        self._look_at_session()
        beat = Heartbeat(
            self._registration.node_id, self.epoch, self._controller.applied_offset, wants_shutdown=self._drains
        )
        self._asker.ask(
            Beat(beat, self._unwritable),
            lambda outcome: self._beaten(beat, outcome),
            within_ms=self._dependencies.timing.heartbeat_ms,
        )

    def _next(self, wait_ms: int) -> None:
        self._asking = False
        if self._over:
            return
        self._due_ms = self._now_ms + (0 if self._urgent else wait_ms)
        self._alarm.move(self._due_ms)
        self.applied()

    def _registered(self, outcome: Outcome) -> None:
        if isinstance(outcome, Answer) and isinstance(outcome.value, Registered):
            self.epoch, self._reported_offset, self._told_unwritable = outcome.value.epoch, -1, False
            self._answered_ms = self._now_ms
            self._registration = self._registration._replace(damaged=False)  # the controller knows
            self._become(LifecyclePhase.FENCED)
            self._next(self._dependencies.timing.heartbeat_ms)
            return
        if self._may_pass(outcome):
            self._next(self._dependencies.timing.retry_most_ms)
        elif isinstance(outcome, DuramenError):
            self.stop()
            self._failed(outcome)

    def _may_pass(self, outcome: Outcome) -> bool:
        """Whether a registration is worth another try.

        A taken id may be this node's own earlier registration, also with another directory, until its session is over.
        A new controller gives every node a whole session, so the time counts from the first such response.
        """
        if not isinstance(outcome, NodeDuplicate):
            self._taken_ms = None
            return isinstance(outcome, NotController | OutcomeUnknown)
        if self._taken_ms is None:
            self._taken_ms = self._now_ms
        return self._now_ms < self._taken_ms + self._dependencies.timing.duplicate_ms

    def _beaten(self, beat: Heartbeat, outcome: Outcome) -> None:
        if isinstance(outcome, Answer) and isinstance(outcome.value, Beaten):
            self._reported_offset = beat.applied_offset
            self._answered_ms = self._told_ms
            self._look_at_session()
            self._become(self._phase_of(outcome.value, beat))
            self._next(
                self._dependencies.timing.applied_ms
                if self.phase is LifecyclePhase.DRAINING
                else self._dependencies.timing.heartbeat_ms
            )
        elif isinstance(outcome, NodeEpochStale | NodeNotFound):
            # Another node took the id during silence, or the node was removed: it registers again.
            self._become(LifecyclePhase.JOINING)
            self._next(0)
        else:
            self._next(self._dependencies.timing.retry_ms)

    def _look_at_session(self) -> None:
        is_heard = self.unanswered_ms < self._dependencies.sessions.timeout_ms
        if is_heard is not self._is_heard:
            self._is_heard = is_heard
            self._heard(is_heard)

    def _phase_of(self, value: Beaten, beat: Heartbeat) -> LifecyclePhase:
        if value.may_stop and beat.wants_shutdown:
            return LifecyclePhase.DRAINED
        if beat.wants_shutdown:
            return LifecyclePhase.DRAINING
        if value.fenced:
            return LifecyclePhase.FENCED
        return LifecyclePhase.UNWRITABLE if self._unwritable else LifecyclePhase.LIVE

    def _become(self, phase: LifecyclePhase) -> None:
        if phase is not self.phase:
            self.phase = phase
            self._changed(phase)
