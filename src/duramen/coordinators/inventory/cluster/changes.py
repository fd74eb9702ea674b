"""Changes over several shards on a cluster: the leader of the directory runs all of them, fenced by a token.

The token consists of the leader epoch and a number. If a step gets no response, or this node has just become leader, it
takes a higher token, makes all shards refuse lower ones, reads the pending changes, and continues from there: so no
late step takes effect between others.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from duramen.base.countdown import ErrorCountdown
from duramen.base.errors import DuramenError, NotLeader, OutcomeUnknown, TopicBusy
from duramen.base.ports import Clock
from duramen.coordinators.inventory.changing import Change, Changes, Ended, LeftChange, changes_left, is_open
from duramen.coordinators.inventory.cluster.shards import RoutedShards
from duramen.inventory.events import PendingChange
from duramen.inventory.ids import TopicKey
from duramen.inventory.machine import BeginChange, BindName, ChangeStep, EndChange, Fence, Fenced
from duramen.inventory.rows import NameRow, Place
from duramen.queues.owners import OwnRetention

__all__ = ["FencedChanges"]

_WITHIN_MS: Final = 20_000
_AGAIN_MS: Final = 100
_MOST_LEFT: Final = 10_000
_ROUND_BITS: Final = 24

_Found = Callable[[Any], tuple[NameRow, PendingChange]]


class _Run:
    """One change, across restarts of its steps. `life` increases when steps in progress become obsolete."""

    def __init__(self, place: Place, command: BeginChange | BindName | None, found: _Found, done: Ended) -> None:
        self.place = place
        self.command = command
        self.found = found
        self.done: Ended | None = done
        self.until_ms = 0
        self.life = 0
        self.asked = False  # whether its first step may have taken effect
        self.steps: Change | None = None  # the steps after the first one

    def matches(self, pending: PendingChange) -> bool:
        """Whether a pending change at the name is this one."""
        if isinstance(self.command, BindName):
            return pending == self.command.pending
        if self.command is None:
            return True
        kinds = (self.command.kind, "unalias") if self.command.kind == "delete" else (self.command.kind,)
        to = self.command.to_namespace, self.command.to_name, self.command.keep_alias
        return pending.kind in kinds and (pending.namespace, pending.name, pending.keep_alias) == to


class _TokenSteps:
    """Submits the steps of a change with the current token."""

    def __init__(self, changes: "FencedChanges", run: _Run) -> None:
        self._changes = changes
        self._run = run

    def shard_of(self, namespace: int, name: bytes) -> int:
        """See `Steps`."""
        return self._changes.shards.shard_of(namespace, name)

    def submit(self, shard: int, command: ChangeStep, done: Callable[[Any], None]) -> None:
        """See `Steps`."""
        self._changes.step(self._run, shard, command, done)

    def own(self, key: TopicKey, namespace: int, own: OwnRetention | None, done: Callable[[Any], None]) -> None:
        """See `Steps`."""
        self._changes.shards.own(key, namespace, own, self._changes.when_stored(self._run, done))

    def drop(self, key: TopicKey, done: Callable[[Any], None]) -> None:
        """See `Steps`."""
        self._changes.shards.drop(key, self._changes.when_stored(self._run, done))


class FencedChanges(Changes):
    """The changes in progress on the leader of the directory."""

    def __init__(self, shards: RoutedShards, clock: Clock) -> None:
        super().__init__(shards)
        self.shards = shards
        self._clock = clock
        self._runs: dict[Place, _Run] = {}
        self._token = -1
        self._number = 0
        self._fencing = False

    def _begin(self, place: Place, command: BeginChange | BindName, found: _Found, done: Ended) -> None:
        if place in self._runs:
            done(TopicBusy(f"a change of {place.name.decode()} is in progress"))
            return
        run = self._runs[place] = _Run(place, command, found, done)
        run.until_ms = self._clock.monotonic_ms() + _WITHIN_MS
        if self._is_current():
            self._start(run)
        else:
            self._fence()

    def resume(self) -> None:
        """Resume pending changes, once per epoch in which this node leads the directory."""
        if not self._is_current():
            self._fence()

    def _is_current(self) -> bool:
        epoch = self.shards.directory_epoch
        return not self._fencing and epoch is not None and self._token >> _ROUND_BITS == epoch

    # -- one change ---------------------------------------------------------------------------------

    def _start(self, run: _Run) -> None:
        def marked(answer: Any) -> None:
            if isinstance(answer, DuramenError):
                self._ended_run(run, answer)
            else:
                run.steps = Change(_TokenSteps(self, run), run.place, *run.found(answer), partial(self._ended_run, run))
                run.steps.run()

        run.asked, run.steps = True, None
        if run.command is not None:
            self.step(run, self.shards.shard_of(*run.place), run.command, marked)

    def step(self, run: _Run, shard: int, command: ChangeStep, done: Callable[[Any], None]) -> None:
        """Submit a step; `done` gets the response, or the refusal."""
        life = run.life

        def answered(answer: Any) -> None:
            if life != run.life:
                return
            # Whatever prevents the end of a change: it is still in progress, and is resumed.
            if isinstance(answer, DuramenError) and (is_open(answer) or isinstance(command, EndChange)):
                self._fence()
            else:
                done(answer)

        self.shards.submit(shard, Fenced(self._token, command), answered)

    def when_stored(self, run: _Run, done: Callable[[Any], None]) -> Callable[[Any], None]:
        """Takes the response of a shard of records for `done`; after a failure the change is resumed."""
        life = run.life

        def answered(answer: Any) -> None:
            if life != run.life:
                return
            if isinstance(answer, DuramenError):
                self._fence()
            else:
                done(answer)

        return answered

    def _ended_run(self, run: _Run, error: DuramenError | None) -> None:
        run.life += 1
        if self._runs.get(run.place) is run:
            del self._runs[run.place]
        done, run.done = run.done, None
        if done is not None:
            done(error)

    # -- a new token --------------------------------------------------------------------------------

    def _fence(self) -> None:
        if self._fencing:
            return
        for run in self._runs.values():
            run.life += 1
        epoch = self.shards.directory_epoch
        if epoch is None:
            self._resign()
            return
        self._fencing = True
        self._number += 1
        token = (epoch << _ROUND_BITS) | self._number

        def fenced(error: DuramenError | None) -> None:
            if error is not None:
                self._again()
                return
            self._token = token
            self.shards.read(partial(changes_left, self.shards, _MOST_LEFT), partial(self._take_up, epoch))

        parts = ErrorCountdown(fenced, self.shards.count)
        for shard in range(self.shards.count):
            self.shards.submit(shard, Fence(token), parts.answer)

    def _again(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for run in [run for run in self._runs.values() if run.until_ms <= now_ms]:
            # Changes that may be in progress are resumed without a waiting caller.
            self._ended_run(run, _unknown(run))
        self.shards.later(_AGAIN_MS, self._fence_again)

    def _fence_again(self) -> None:
        self._fencing = False
        self._fence()

    def _resign(self) -> None:
        self._token = -1  # the node may keep leading in the same epoch, and then resumes the pending changes
        for run in list(self._runs.values()):
            self._ended_run(run, _unknown(run))

    def _take_up(self, epoch: int, found: list[LeftChange] | DuramenError) -> None:
        if isinstance(found, DuramenError) or self.shards.directory_epoch != epoch:
            self._again()
            return
        self._fencing = False
        left = {one.place: one for one in found}
        for run in list(self._runs.values()):
            one = left.get(run.place)
            if one is None:
                self._go_on(run)
            elif run.matches(one.pending):
                del left[run.place]
                self._resume(run, one)
            else:
                self._ended_run(run, TopicBusy(f"a change of {run.place.name.decode()} is in progress"))
        for one in left.values():
            run = self._runs[one.place] = _Run(one.place, None, _nothing_found, _nobody)
            run.until_ms = self._clock.monotonic_ms() + _WITHIN_MS
            self._resume(run, one)

    def _go_on(self, run: _Run) -> None:
        """The change is not in progress: it ended, or it did not start."""
        ends = None if run.steps is None else run.steps.ends
        if ends is not None:
            self._ended_run(run, ends[0])
        elif run.steps is not None or run.command is None:
            self._ended_run(run, None if run.command is None else _unknown(run))
        else:
            self._start(run)

    def _resume(self, run: _Run, left: LeftChange) -> None:
        run.asked = True
        steps = Change(_TokenSteps(self, run), run.place, left.row, left.pending, partial(self._ended_run, run))
        run.steps = steps
        steps.resume(passed=left.passed)


def _unknown(run: _Run) -> DuramenError:
    if run.asked:
        return OutcomeUnknown("the change is in progress, and goes on when that is possible")
    return NotLeader("this node is no longer the leader of the inventory's directory: retry")


def _nothing_found(_: Any) -> tuple[NameRow, PendingChange]:
    raise AssertionError("a change that was left has begun")


def _nobody(_: DuramenError | None) -> None:
    """A callback without a waiting caller."""
