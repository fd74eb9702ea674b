"""Changes over several shards, step by step: moves, deletions and aliases of topics; resumes interrupted ones."""

from collections.abc import Callable, Container
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from duramen.base.countdown import Countdown
from duramen.base.errors import CoordinatorLoading, DuramenError, OutcomeUnknown, TopicBusy
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.inventory.events import PendingChange, decode_pending
from duramen.inventory.ids import TopicKey
from duramen.inventory.machine import (
    AddAlias,
    BeginChange,
    BindName,
    ChangeStep,
    EndChange,
    PlaceTopic,
    RemoveAlias,
    RemoveTopic,
)
from duramen.inventory.name_rows import value_of_name
from duramen.inventory.rows import ALIAS, ARRIVED, LEAVING, NameRow, Place, name_row, pending_key, split_name
from duramen.queues.owners import OwnRetention
from duramen.rpc.retry import may_be_done

__all__ = [
    "Change",
    "Changes",
    "Ended",
    "LeftChange",
    "Steps",
    "busy",
    "changes_left",
    "is_open",
    "records_behind",
    "unknown",
]

_AT_ONCE: Final = 100

Ended = Callable[[DuramenError | None], None]


def busy(place: Place) -> TopicBusy:
    """The error for a name that has a change in progress."""
    return TopicBusy(f"a change of {place.name.decode()} is in progress")


def is_open(error: DuramenError) -> bool:
    """Whether a step that ends with this error has to be repeated: it may have been taken, or its shard is loading."""
    return isinstance(error, CoordinatorLoading) or may_be_done(error)


def unknown(error: DuramenError) -> OutcomeUnknown:
    """The error for a change with a step that got no response."""
    return OutcomeUnknown(f"the change is in progress, and goes on when that is possible: {error}")


def records_behind(error: DuramenError) -> OutcomeUnknown:
    """The error for a moved topic whose records do not belong to the new namespace yet."""
    return OutcomeUnknown(f"the topic has moved, its records follow when that is possible: {error}")


def _records_left(error: DuramenError) -> OutcomeUnknown:
    return OutcomeUnknown(f"the topic is deleted, its records follow when that is possible: {error}")


class Changes:
    """Changes in progress on this node, by the names that they start at."""

    def __init__(self, shards: InventoryShards) -> None:
        self._shards = shards
        self._active: set[Place] = set()

    def enter(self, place: Place) -> bool:
        """Start a change of a name, which lasts until `leave`; False if one is in progress."""
        if place in self._active:
            return False
        self._active.add(place)
        return True

    def leave(self, place: Place) -> None:
        """End the change of a name."""
        self._active.discard(place)

    def begin(self, command: BeginChange, done: Ended) -> None:
        """Move or delete a topic; calls `done` once the change is complete on all shards, or refused."""
        place = Place(command.namespace, command.name)
        self._begin(place, command, lambda answer: answer, done)

    def alias(self, place: Place, key: TopicKey, done: Ended) -> None:
        """Bind a name to a topic as an alias."""
        row, pending = NameRow(ALIAS, key), PendingChange("alias", *key)
        self._begin(place, BindName(*place, row, pending), lambda _: (row, pending), done)

    def _begin(
        self,
        place: Place,
        command: BeginChange | BindName,
        found: Callable[[Any], tuple[NameRow, PendingChange]],
        done: Ended,
    ) -> None:
        if not self.enter(place):
            done(busy(place))
            return
        ended = partial(self._ended, place, done)

        def marked(answer: object) -> None:
            if isinstance(answer, DuramenError):
                ended(answer)
                return
            row, pending = found(answer)
            Change(self._shards, place, row, pending, ended).run()

        self._shards.submit(self._shards.shard_of(*place), command, marked)

    def _ended(self, place: Place, done: Ended, error: DuramenError | None) -> None:
        self.leave(place)
        done(error)

    def resume(self) -> None:
        """Resume interrupted changes: a limited number at a time, and the next ones as long as some of them end.

        Raises CoordinatorLoading, NotCoordinator.
        """
        found, some_ended = changes_left(self._shards, _AT_ONCE, self._active), False

        def all_answered() -> None:
            if some_ended and len(found) == _AT_ONCE:
                self._shards.later(0, self._resume_next)

        parts = Countdown(all_answered, len(found))

        def ended(place: Place, error: DuramenError | None) -> None:
            nonlocal some_ended
            some_ended = some_ended or error is None or not is_open(error)
            self.leave(place)
            parts.count_down()

        for place, row, pending, passed in found:
            self._active.add(place)
            Change(self._shards, place, row, pending, partial(ended, place)).resume(passed=passed)

    def _resume_next(self) -> None:
        try:
            self.resume()
        except DuramenError:
            return  # the shards are loading: the next regular call resumes


class LeftChange(NamedTuple):
    """A change in progress; `passed`: it took effect, and only has to be ended."""

    place: Place
    row: NameRow
    pending: PendingChange
    passed: bool


def changes_left(shards: InventoryShards, most: int, but: Container[Place] = ()) -> list[LeftChange]:
    """Changes in progress, read from their rows, except those at the names in `but`.

    Raises like `InventoryShards.rows`.
    """
    found, all_rows, each_rows = list[LeftChange](), shards.rows(), shards.each_rows()
    for shard, rows in enumerate(each_rows):
        for key, value in rows.scan(b"p", b"q"):
            place = Place(*split_name(key))
            if place in but:
                continue
            pending = decode_pending(value)
            if pending.kind == "arrive":
                origin = Place(pending.namespace, pending.name)
                if origin in but:
                    continue
                begun = each_rows[shards.shard_of(*origin)].get(pending_key(*origin))
                if not _leads_to(begun, place):
                    row = NameRow(ARRIVED, pending.key)
                    found.append(LeftChange(place, row, pending, all_rows.is_at(pending.key, place)))
                continue
            there = value_of_name(rows, *place)
            row = NameRow(0, pending.key) if there is None else name_row(there, shard)
            # A moved or deleted topic is no longer at its old name.
            passed = pending.kind in ("move", "delete") and not all_rows.is_at(pending.key, place)
            found.append(LeftChange(place, NameRow(row.flags & ~LEAVING, row.key), pending, passed))
            if len(found) == most:
                return found
    return found


def _leads_to(begun: bytes | None, place: Place) -> bool:
    """Whether a move to `place` is pending at a name: that move ends the pending change at `place`."""
    pending = None if begun is None else decode_pending(begun)
    return pending is not None and pending.kind == "move" and (pending.namespace, pending.name) == place


class Steps(Protocol):
    """Submits steps of changes, like `InventoryShards`."""

    def shard_of(self, namespace: int, name: bytes) -> int:
        """The shard of a name."""

    def submit(self, shard: int, command: ChangeStep, done: Callable[[Any], None]) -> None:
        """`done` gets the response, or an error."""

    def own(self, key: TopicKey, namespace: int, own: OwnRetention | None, done: Callable[[Any], None]) -> None:
        """Like `InventoryShards.own`."""

    def drop(self, key: TopicKey, done: Callable[[Any], None]) -> None:
        """Like `InventoryShards.drop`."""


class Change:
    """One change whose name is marked; `row` is the name's row before the change."""

    def __init__(self, shards: Steps, origin: Place, row: NameRow, pending: PendingChange, done: Ended) -> None:
        self._shards = shards
        self.ends: tuple[DuramenError | None] | None = None
        """The outcome, once it is decided."""
        self._origin = origin
        self._row = row
        self._pending = pending
        self._done = done
        self._target = Place(pending.namespace, pending.name)
        self._arriving = PendingChange("arrive", *pending.key, *origin)

    def run(self) -> None:
        """Run the steps after the first one."""
        home, sequence = self._pending.key
        match self._pending.kind:
            case "move":
                bind = BindName(*self._target, NameRow(ARRIVED, self._pending.key), self._arriving)
                self._submit(self._shards.shard_of(*self._target), bind, self._place, self.back)
            case "delete":
                remove = RemoveTopic(sequence, self._origin)
                self._submit(home, remove, self._drop, self.back)
            case "alias":
                self._submit(home, AddAlias(sequence, *self._origin), partial(self._end, self._row), self.back)
            case _:
                self._submit(home, RemoveAlias(sequence, *self._origin), partial(self._end, None), self.back)

    def resume(self, *, passed: bool) -> None:
        """Run the remaining steps."""
        if self._pending.kind == "arrive":
            self._end_at(self._origin, self._row if passed else None, self._pending, partial(self._done, None))
        elif not passed:
            self.run()
        elif self._pending.kind == "move":
            self._arrive()
        else:
            self._drop()

    def _drop(self) -> None:
        """The topic is deleted: delete its records."""

        def told(answer: object) -> None:
            if isinstance(answer, DuramenError):
                self._done(_records_left(answer))
            else:
                self._end(None)

        self._shards.drop(self._pending.key, told)

    def _place(self) -> None:
        home, sequence = self._pending.key
        command = PlaceTopic(sequence, self._origin, self._target, self._pending.keep_alias)
        self._submit(home, command, self._arrive, self.unbind)

    def _arrive(self) -> None:
        """The topic has moved: assign its records to the new namespace."""

        def told(answer: object) -> None:
            if isinstance(answer, DuramenError):
                self._done(records_behind(answer))
            else:
                self._end_arrival()

        if self._target.namespace == self._origin.namespace:
            self._end_arrival()
        else:
            self._shards.own(self._pending.key, self._target.namespace, None, told)

    def _end_arrival(self) -> None:
        row, kept = NameRow(ARRIVED, self._pending.key), None
        if self._pending.keep_alias:
            kept = NameRow(ALIAS, self._pending.key)
        self._end_at(self._target, row, self._arriving, partial(self._end, kept))

    def unbind(self, error: DuramenError) -> None:
        """Roll back a refused change whose target name is bound already: release that name, restore the origin."""
        self._end_at(self._target, None, self._arriving, partial(self.back, error))

    def _end(self, row: NameRow | None) -> None:
        self.ends = (None,)
        self._end_at(self._origin, row, self._pending, partial(self._done, None))

    def back(self, error: DuramenError) -> None:
        """Roll back a refused change: restore the name's row."""
        self.ends = (error,)
        row = None if self._pending.kind == "alias" else self._row
        self._end_at(self._origin, row, self._pending, partial(self._done, error))

    def _end_at(self, place: Place, row: NameRow | None, pending: PendingChange, then: Callable[[], None]) -> None:
        self._submit(self._shards.shard_of(*place), EndChange(*place, row, pending), then, self._left)

    def _left(self, error: DuramenError) -> None:
        """The name stays marked: the change is resumed later, and then it may take effect."""
        self._done(unknown(error))

    def _submit(
        self, shard: int, command: ChangeStep, then: Callable[[], None], refused: Callable[[DuramenError], None]
    ) -> None:
        def answered(answer: object) -> None:
            if not isinstance(answer, DuramenError):
                then()
            elif is_open(answer):
                self._done(unknown(answer))
            else:
                refused(answer)

        self._shards.submit(shard, command, answered)
